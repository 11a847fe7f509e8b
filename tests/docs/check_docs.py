"""What can be said of the pages without running them: python3 check_docs.py path/to/tpgm

Every fenced block says what it is; C++ and CMake are what is compiled elsewhere; the tables of methods are those of
`tpgm list methods`; links lead somewhere; docs/README.md has every page. Prints the blocks that are not run, and why.
"""

import json
import re
import subprocess
import sys
import textwrap
import unittest

from pages import COMPARED, ROOT, RUN, blocks, pages


def plain(text):
    """Without the indentation, and without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in textwrap.dedent(text).strip("\n").splitlines())


def compiled(language):
    """The texts that blocks of a language may be."""
    for pattern in COMPARED[language]:
        for path in ROOT.glob(pattern):
            text = path.read_text(encoding="utf-8")
            if language == "cmake":
                yield plain(text)
            else:
                for found in re.finditer(r"^ *// block\n(.*?)^ *// end$", text, re.MULTILINE | re.DOTALL):
                    yield plain(found[1])


def anchors(page):
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def rows(table):
    """Cells of each line below the header, without backquotes."""
    for line in table.splitlines()[2:]:
        cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
        yield [cell.strip().strip("`").replace("\\|", "|") for cell in cells]


class Docs(unittest.TestCase):
    def test_every_block_says_what_it_is(self):
        for page in pages():
            for block in blocks(page):
                self.assertEqual(block.problem, "", block.where)
                if block.language in RUN and not block.reason:
                    self.assertNotRegex(block.text, r"(?m)^\s*(…|\.\.\.)|(?<![\w.…])(\.\.\.|…)(?!/)",
                                        f"{block.where} is run and leaves something out")

    def test_what_is_not_run(self):
        found = [block for page in pages() for block in blocks(page) if block.reason]
        print(f"\n{len(found)} blocks are not run:")
        for block in found:
            print(f"  {block.where}: {block.reason}")

    def test_code_is_what_is_compiled(self):
        used = set()
        for language in COMPARED:
            texts = set(compiled(language))
            for page in pages():
                for block in blocks(page):
                    if block.language == language and not block.reason:
                        self.assertIn(plain(block.text), texts,
                                      f"{block.where} is not between '// block' and '// end' of {COMPARED[language]}")
                        used.add(plain(block.text))
            self.assertEqual(texts - used, set(), "compiled, and on no page")

    def test_methods(self):
        listed = {each["name"]: each for each in json.loads(
            subprocess.run([COMMAND, "list", "methods", "--json"], check=True, capture_output=True, text=True).stdout)}
        text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
        described = {}
        for title, body in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
            names = title.replace("`", "").split(", ")
            if names[0] not in listed:
                continue
            table = re.search(r"^\| option \|.*(?:\n\|.*)+", body, re.MULTILINE)
            for name in names:
                described[name] = {row[0]: tuple(row[1:3]) for row in rows(table[0])} if table else {}
            for word in ("*Use*", "*Reference"):
                self.assertIn(word, body, title)
        self.assertEqual(set(described), set(listed))
        for name, method in listed.items():
            options = {option["name"]: (option["type"], option["default"] or "none") for option in method["options"]}
            self.assertEqual(described[name], options, f"docs/methods.md, {name}")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for name in listed:
            self.assertIn(f"`{name}`", readme)

    def test_links(self):
        for page in pages():
            text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
            for link in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"\w+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                where = f"{page.relative_to(ROOT)}: {link}"
                self.assertTrue(target.exists(), where)
                if anchor and target.suffix == ".md":
                    self.assertIn(anchor, set(anchors(target)), where)

    def test_cli_md_is_what_help_says(self):
        made = subprocess.run([sys.executable, ROOT / "scripts/generate_cli_docs", COMMAND], check=True,
                              capture_output=True, text=True).stdout
        self.assertEqual((ROOT / "docs/cli.md").read_text(encoding="utf-8"), made,
                         "make docs, or: scripts/generate_cli_docs build/bin/tpgm > docs/cli.md")

    def test_the_index_has_every_page(self):
        folder = ROOT / "docs"
        text = (folder / "README.md").read_text(encoding="utf-8")
        for page in [*folder.glob("*.md"), *folder.glob("howto/*.md"), folder / "results" / "README.md"]:
            if page != folder / "README.md":
                self.assertIn(f"({page.relative_to(folder)})", text)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    COMMAND = sys.argv.pop(1)
    unittest.main()
