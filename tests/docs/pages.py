"""The pages of the documentation, and the fenced blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OUTPUT = {"", "text"}  # what a command prints, or a drawing: never run
COMPARED = {"cpp": ("tests/docs/blocks.cpp", "examples/*.cpp"), "cmake": ("examples/cmake_project/CMakeLists.txt",)}
RUN = {"sh", "python"}


def pages():
    """All but docs/cli.md, which is made from --help."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tpgm" / "README.md",
             ROOT / "tests" / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/README.md"),
             *ROOT.glob("examples/**/*.md")]
    return sorted(page for page in found if page != ROOT / "docs" / "cli.md")


@dataclass
class Block:
    page: str
    line: int
    info: str
    text: str

    @property
    def where(self):
        return f"{self.page}:{self.line}"

    @property
    def language(self):
        return self.info.split(" ", 1)[0]

    @property
    def reason(self):
        """Why it is not run; empty if it is."""
        found = re.fullmatch(r"\w+ no-test: (\S.*)", self.info)
        return found[1] if found else ""

    @property
    def problem(self):
        """What is wrong with its info string; empty if nothing is."""
        if self.info in OUTPUT:
            command = None if self.info else re.search(r"^(\$ |tpgm [a-z]+\b(?!:)|make [a-z]|git |cmake |apt-get )", self.text,
                                                       re.MULTILINE)
            return f"has the command '{command[0].strip()}' and does not say that it is sh" if command else ""
        if self.language not in RUN | set(COMPARED):
            return f"'{self.info}' is none of sh, python, cpp, cmake, text"
        if " " in self.info and not self.reason:
            return f"'{self.info}': expected '{self.language}' or '{self.language} no-test: REASON'"
        return ""


def blocks(page):
    fence, begin, info, lines = "", 0, "", []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        mark = re.match(r"\s*(```+)(.*)", line)
        if not fence and mark:
            fence, begin, info, lines = mark[1], number, mark[2].strip(), []
        elif fence and mark and mark[1] == fence and not mark[2].strip():
            yield Block(str(page.relative_to(ROOT)), begin, info, "\n".join(lines) + "\n")
            fence = ""
        elif fence:
            lines.append(line)
    if fence:
        yield Block(str(page.relative_to(ROOT)), begin, f"{info} (never closed)", "\n".join(lines))
