"""Names that mean something to terminals, shells, pages, tables and recipes: python3 test_names_cli.py path/to/tpgm

Classes, domains, files and runs have such names. What is printed and written has them as text.
"""

import csv
import json
import os
import sys
import tarfile
import tempfile
import unittest
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import test_cli
from test_cli import tpgm
from test_train_cli import event_steps, png

try:
    import tomllib
except ImportError:  # before Python 3.11
    tomllib = None

os.environ["OMP_NUM_THREADS"] = "1"
MODEL = "resnet:layers=1-1,width=8,block=basic,stem=small,image_size=8"
CLASSES = ["a\nb", "\x1b[31mred\x1b[2J", "\"quoted\" 'name'", "<script>alert(1)<!--", "$(touch touched) `touch touched`",
           "100% & a_b #1 &lt;", "=1+1", "one,two", "back\\slash {x} [y](z)", "\u009b31m \u202ertl"]
HOME = "home\n\x1b[31m<script>\"&$(touch touched)'"
AWAY = "away [\"b\"](c)\u009b\\_% #&"
FILE = "=x,\"<b>\x1b[31m\n$(touch touched).png"
RUN = "run <script>\x1b[31m\n$(touch touched)\"'=x"


def image(i, k):
    return png([[(i * 25 + k * 7 + x * y) % 256 for x in range(8)] for y in range(8)])


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data):
        self.text.append(data)


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="tpgm-names-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        for domain in (HOME, AWAY):
            for i, name in enumerate(CLASSES):
                (cls.folder / "data" / domain / name).mkdir(parents=True)
                for k in range(3):
                    (cls.folder / "data" / domain / name / f"{k}{FILE}").write_bytes(image(i, k + (domain == AWAY) * 3))
        cls.said = cls.run_in(cls, "train", "--data-dir", "data", "--train", HOME, "--test", AWAY, "--model", MODEL,
                              "--epochs", 2, "--batch-size", 8, "--workers", 1, "--device", "cpu", "--method", "tpgm",
                              "--no-aug", "-o", RUN)

    def run_in(self, *arguments, status=0):
        result = tpgm(*arguments, cwd=self.folder)
        if result.returncode != status:
            raise AssertionError(f"{arguments}: {result.stderr}")
        return result

    def tearDown(self):
        self.assertFalse((self.folder / "touched").exists(), "a shell ran a name")

    def assert_plain(self, text, but=()):
        """Nothing that controls a terminal or the direction of text, except paths that the user gave."""
        for path in but:
            text = text.replace(str(path), "")
        for character in text.replace("\n", ""):
            self.assertFalse(ord(character) < 0x20 or 0x7f <= ord(character) < 0xa0 or character == "\u202e", repr(text))

    def assert_lines(self, text, begin):
        self.assert_plain(text)
        for line in text.splitlines():
            self.assertTrue(line.startswith(begin), repr(text))

    def rows(self, file):
        with open(self.folder / file, encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines, strict=True))
        self.assertEqual({len(row) for row in rows}, {len(rows[0])}, file)
        return rows

    def test_in_the_terminal(self):
        self.assert_lines(self.said.stderr, "tpgm train: ")
        self.assert_plain(self.said.stdout, [RUN])
        self.assert_plain(self.run_in("data", "check", "data", "--per-class", status=0).stdout)
        result = self.run_in("train", "--data-dir", "data", "--train", "nix", "--model", MODEL, "-o", "x", status=1)
        self.assert_lines(result.stderr, "tpgm train: ")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assert_lines(self.run_in("predict", "--checkpoint", "a\nb\x1b[31m", "--data-dir", "data", "-o", "y.safetensors",
                                      status=1).stderr, "tpgm predict: ")
        self.assert_lines(self.run_in("inspect", "no\n\x1b[31mfile", status=1).stderr, "tpgm inspect: ")
        self.assert_plain(self.run_in("inspect", RUN).stdout, [RUN])
        self.assert_lines(self.run_in("train", "--resume", RUN).stderr, "tpgm train: ")

    def test_in_tables_of_evaluation_and_predictions(self):
        result = self.run_in("eval", RUN, "--fresh", "--csv", "eval.csv", "--per-class", "classes.csv")
        self.assert_lines(result.stderr, "tpgm eval: ")
        self.assert_plain(result.stdout)
        self.assertTrue({HOME, AWAY} & {row[1] for row in self.rows("eval.csv")[1:]})
        self.assertEqual({row[2] for row in self.rows("classes.csv")[1:]}, set(CLASSES))
        result = self.run_in("predict", "--checkpoint", RUN, "--data-dir", "data", "-o", "logits.safetensors")
        self.assert_lines(result.stderr, "tpgm predict: ")
        self.assert_plain(result.stdout)
        rows = self.rows("logits.csv")[1:]
        self.assertEqual(len(rows), 60)
        self.assertEqual({row[0] for row in rows}, {HOME, AWAY})
        self.assertEqual({row[2] for row in rows}, set(CLASSES))
        self.assertTrue(all(FILE in row[1] for row in rows))
        for arguments in (("data", "check", "data", "--json"), ("eval", RUN, "--fresh", "--json")):
            json.loads(self.run_in(*arguments).stdout)

    def test_in_the_run(self):
        run = self.folder / RUN
        if tomllib:
            recipe = tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))
            self.assertEqual((recipe["train"], recipe["test"]), ([HOME], [AWAY]))
            self.assertEqual(Path(recipe["output"]).resolve(), run.resolve())
        json.loads((run / "result.json").read_text(encoding="utf-8"))
        for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
            json.loads(line)
        self.rows(f"{RUN}/summary.csv")
        tags = {tag for tag, _ in event_steps(run)}
        self.assertTrue(tags)
        for tag in tags:
            self.assert_plain(tag)
        # The recipe makes the run again.
        self.run_in("train", "-c", run / "recipe.toml", "-o", "again")
        self.assertEqual((self.folder / "again" / "best.safetensors").read_bytes(), (run / "best.safetensors").read_bytes())

    def test_in_the_report(self):
        page = "page <b>\x1b[31m.html"
        result = self.run_in("report", RUN, "-o", page)
        self.assertEqual(result.stderr, "")
        self.assert_plain(result.stdout, [page])
        text = (self.folder / page).read_text(encoding="utf-8")
        self.assertNotRegex(text, "[\\x00-\\x09\\x0b-\\x1f\\x7f]")
        tags = Tags()
        tags.feed(text)
        self.assertFalse(tags.tags & {"script", "iframe", "object", "form"})
        self.assertFalse([name for name in tags.attributes if name.startswith("on")])
        self.assertIn("<script>", "".join(tags.text))
        files = self.folder / page[:-len(".html")]
        for file in files.glob("*.csv"):
            self.rows(file)
        table = (files / "results.md").read_text(encoding="utf-8")
        self.assert_plain(table)
        self.assertIn('away \\["b"](c)', table)
        self.assertIn("\\<script>", table)
        table = (files / "results.tex").read_text(encoding="utf-8")
        self.assert_plain(table)
        self.assertIn("\\textbackslash{}\\_\\% \\#\\&", table)

    def test_in_tars(self):
        """Nothing is unpacked: names are labels, and what is written lies in the given folder."""
        with tarfile.open(self.folder / "names.tar", "w") as tar:
            for i, (name, label) in enumerate((("../../up/0.png", "x"), ("/abs/1.png", "../../label"), ("d/2.png", ".."),
                                               ("d/3.png", "c, \"d\""))):
                for member, data in ((name, image(i, 0)), (name.replace(".png", ".cls"), label.encode())):
                    info = tarfile.TarInfo(member)
                    info.size = len(data)
                    tar.addfile(info, BytesIO(data))
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                link = tarfile.TarInfo("d/4.png")
                link.type, link.linkname = kind, "/etc/passwd"
                tar.addfile(link)
        before = set(self.folder.rglob("*"))
        report = json.loads(self.run_in("data", "check", "names.tar", "--json").stdout)
        self.assertEqual(sum(sum(part["per_class"]) for part in report["parts"]), 3)
        self.run_in("data", "shards", "names.tar", "-o", "shards")
        new = set(self.folder.rglob("*")) - before
        self.assertTrue(all((self.folder / "shards") in (path, *path.parents) for path in new), new)
        for shard in (self.folder / "shards").glob("*.tar"):
            with tarfile.open(shard) as tar:
                for member in tar:
                    self.assertRegex(member.name, r"^[0-9]+_[0-9]+\.(png|cls)$")


if __name__ == "__main__":
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
