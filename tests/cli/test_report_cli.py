"""Reports as a user asks for them: python3 test_report_cli.py path/to/tpgm"""

import base64
import csv
import html.parser
import json
import os
import random
import re
import shutil
import struct
import sys
import tempfile
import unittest
import xml.etree.ElementTree
import zlib
from pathlib import Path

import test_cli
from test_cli import read_safetensors, tpgm
from test_models_cli import ModelsCommand, tensor
from test_train_cli import MODEL, draw, png

os.environ["OMP_NUM_THREADS"] = "1"

# In the order of their names, as they are on the disk. What a page must not take for its own.
CLASSES = {"\"quoted\" & 'so'": "bars", "<b>bold": "dots", "plain": "plain", "stripes": "stripes"}
PARTS = {"train/home": 20, "test/home": 6, "test/away": 6, "test/far": 5}
RADIUS_STEPS = 150
FIGURES = ("plane", "distance", "ratios", "radii-1", "training-loss", "selection-accuracy")


def integers(path, name):
    kind, shape, data = read_safetensors(path)[0][name][:3]
    return kind, shape, list(struct.unpack(f"<{len(data) // 4}i", data))


def enlarged(image):
    """Of 32 x 32 pixels, each 4 x 5."""
    length = struct.unpack(">I", image[33:37])[0]
    pixels = zlib.decompress(image[41:41 + length])
    rows = [pixels[33 * y + 1:33 * y + 33] for y in range(32) for _ in range(5)]
    return png([[value for value in row for _ in range(4)] for row in rows])


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class Page(html.parser.HTMLParser):
    """What is in a page: its text, the images' sources, everything that would be loaded."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.tags, self.words, self.headings = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "xlink:href")]

    def handle_data(self, data):
        self.words.append(data)

    def handle_endtag(self, tag):
        if tag == "h2":
            self.headings.append(self.words[-1])

    def text(self):
        return " ".join(" ".join(self.words).split())


class ReportCommand(ModelsCommand):
    shared = None

    @classmethod
    def setUpClass(cls):
        if ReportCommand.shared is None:
            ReportCommand.shared = Path(tempfile.mkdtemp(prefix="tpgm-report-cli-"))
            unittest.addModuleCleanup(shutil.rmtree, ReportCommand.shared)
            ReportCommand.make(ReportCommand.shared)
        cls.runs, cls.data, cls.anchor = cls.shared / "runs", cls.shared / "data", cls.shared / "anchor"

    @classmethod
    def make(cls, folder):
        noise = random.Random(0)
        for part, count in PARTS.items():
            for name, drawn in CLASSES.items():
                (folder / "data" / part / name).mkdir(parents=True)
                for i in range(count):
                    image = draw(drawn, part == "test/far", noise)
                    (folder / "data" / part / name / f"{i:02}.png").write_bytes(image if i % 2 else enlarged(image))
        cls.train(folder, "anchor", epochs=1, lr=0.003, seed=7)
        given = {"checkpoint": folder / "anchor", "head": "checkpoint"}
        cls.train(folder, "runs/before", epochs=0, **given)
        for seed in (0, 1):
            cls.train(folder, f"runs/ft/seed={seed}", seed=seed, **given)
        given |= {"weights": folder / "runs/ft/seed=0", "epochs": 0}
        for ratio in (0.3, 0.7):
            cls.train(folder, f"runs/wise-{ratio}", method="wise", ratio=ratio, **given)
        for mu in (0, 0.01, 0.1):
            cls.train(folder, f"runs/tpgm-{mu}", method="tpgm", mu=mu, every="end", radius_steps=RADIUS_STEPS, **given)
        (folder / "runs/unfinished").mkdir()
        shutil.copy(folder / "runs/before/recipe.toml", folder / "runs/unfinished")

    @staticmethod
    def train(folder, run, **changes):
        options = {"model": MODEL, "data-dir": folder / "data", "train": "home", "test": "away,far", "epochs": 3,
                   "batch-size": 8, "lr": 0.01, "workers": 1, "device": "cpu", "radius-fraction": 0.2,
                   "output": folder / run}
        options |= {name.replace("_", "-"): value for name, value in changes.items()}
        result = tpgm("train", *(str(text) for name, value in options.items() for text in ("--" + name, value)))
        if result.returncode != 0:
            raise RuntimeError(result.stderr)


class Report(ReportCommand):
    def test_page(self):
        page = self.folder / "page.html"
        result = self.run_ok("report", self.runs, "-o", page, "--title", "A <title> & more")
        self.assertEqual(result.stdout.splitlines()[0], str(page))
        self.assertIn("unfinished' is left out: it is not finished", result.stderr)
        text = page.read_text(encoding="utf-8")
        self.assertLess(len(text), 2_000_000)
        parsed = Page(text)
        for load in parsed.loads:
            self.assertRegex(load, r"^(#|data:)")
        self.assertNotIn("script", parsed.tags)
        self.assertIsNone(re.search(r"url\((?!['\"]?(data:|#))|@import", text))
        self.assertIn("A <title> & more", parsed.text())
        self.assertEqual(len(parsed.headings), 8)
        titles = re.findall('aria-label="([^"]*)"', text) + re.findall("<figcaption>([^<]*)", text)
        for title in titles:
            repeated = [heading for heading in parsed.headings if title == heading or " " in heading and heading in title]
            self.assertEqual(repeated, [])
        self.assertIn(f"tpgm train -c {self.runs / 'ft/seed=0/recipe.toml'} -o again", parsed.text())
        self.assertIn("unfinished", parsed.text())
        self.assertNotIn("<b>bold", text)  # only escaped
        self.assertRegex(text, "&lt;b&gt;bold|&quot;quoted&quot; &amp; &#39;so&#39;")  # whichever is shown
        self.check_results(parsed, page.with_suffix(""))
        self.check_figures(text, page.with_suffix(""))
        self.check_images(parsed)
        # Once more: the same bytes, over what is there; and into a run.
        self.run_ok("report", self.runs, "-o", page, "--title", "A <title> & more")
        self.assertEqual(page.read_text(encoding="utf-8"), text)

    def check_results(self, page, folder):
        rows = {row[""]: row for row in read_csv(folder / "results.csv")}
        self.assertEqual(list(rows), ["Pre-trained", "FT", "WISE 0.3", "WISE 0.7", "TPGM", "TPGM-C μ=0.01", "TPGM-C μ=0.1"])
        found = [json.loads((self.runs / f"ft/seed={seed}/result.json").read_text()) for seed in (0, 1)]
        for i, test in enumerate(("home", "away", "far")):
            values = [result["tests"][i]["top1"] for result in found]
            mean = sum(values) / 2
            spread = abs(values[0] - values[1]) / 2 ** 0.5
            self.assertEqual(rows["FT"][test], f"{mean:.2f} ({spread:.2f})")
            before = json.loads((self.runs / "before/result.json").read_text())["tests"][i]["top1"]
            self.assertEqual(rows["Pre-trained"][test], f"{before:.2f}")
        self.assertEqual(float(rows["FT"]["ID Δ (%)"]), 0)
        for name in rows:
            self.assertIn(name, page.text())
            self.assertIn(name, (folder / "results.md").read_text(encoding="utf-8"))
        self.assertIn("relative to FT", page.text())
        self.assertRegex(page.text(), r"Fine-tuning (gained|lost|changed)")
        self.assertIn("on the same images, over 2 seeds (some rows have one).", page.text())
        day = json.loads((self.runs / "before/environment.json").read_text())["started"][:10]
        self.assertIn(f"8 runs in 7 rows; anchor fine-tuned on home; CPU; {day}", page.text())
        latex = (folder / "results.tex").read_text(encoding="utf-8")
        for part in ("\\toprule", "\\bottomrule", "\\begin{tabular}", "\\textbf{"):
            self.assertIn(part, latex)

    def check_figures(self, text, folder):
        self.assertEqual({path.name for path in folder.iterdir()},
                         {f"results.{kind}" for kind in ("md", "tex", "csv")} |
                         {f"{name}.{kind}" for name in (*FIGURES, "radii-2") for kind in ("svg", "csv")})
        for path in folder.glob("*.svg"):
            self.assertTrue(xml.etree.ElementTree.fromstring(path.read_text(encoding="utf-8")).tag.endswith("svg"))
        points = read_csv(folder / "plane.csv")
        series = {name: [row for row in points if row["series"] == name] for name in {row["series"] for row in points}}
        self.assertEqual(set(series), {"Pre-trained", "FT", "WISE", "TPGM", "TPGM-C"})
        # From the model before through the ratios to the fine-tuned one.
        place = lambda row: (row["x"], row["y"])
        self.assertEqual([row["label"] for row in series["WISE"]], ["", "0.3", "0.7", ""])
        self.assertEqual(place(series["WISE"][0]), place(series["Pre-trained"][0]))
        self.assertEqual(place(series["WISE"][-1]), place(series["FT"][0]))
        self.assertEqual([row["label"] for row in series["TPGM-C"]], ["", "μ=0.01", "μ=0.1"])
        self.assertEqual(place(series["TPGM-C"][0]), place(series["TPGM"][0]))
        result = json.loads((self.runs / "tpgm-0.1/result.json").read_text())
        self.assertAlmostEqual(float(series["TPGM-C"][-1]["x"]), result["id_average"])
        self.assertAlmostEqual(float(series["TPGM-C"][-1]["y"]), result["ood_average"])

        self.check_distances(read_csv(folder / "distance.csv"))
        ratios = read_csv(folder / "ratios.csv")
        self.assertEqual([row["run"] for row in ratios], ["TPGM", "TPGM-C μ=0.01", "TPGM-C μ=0.1", "WISE 0.3"])
        radii = json.loads((self.runs / "tpgm-0/radii.json").read_text())
        self.assertEqual(len(ratios[0]) - 1, len(radii["names"]))
        self.assertAlmostEqual(float(ratios[0]["head.weight"]), radii["ratios"][-1][radii["names"].index("head.weight")])
        self.assertEqual({value for name, value in ratios[-1].items() if name != "run"}, {"0.3"})

        moved = [row for row in read_csv(folder / "radii-1.csv") if row["series"] == "head"]
        self.assertEqual([float(row["x"]) for row in moved], radii["radius_steps"])
        places = [radii["names"].index(name) for name in ("head.weight", "head.bias")]
        for row, values in zip(moved, radii["radii"], strict=True):
            self.assertAlmostEqual(float(row["y"]), sum(values[i] for i in places) / 2)
        with open(self.runs / "ft/seed=0/summary.csv", newline="") as file:
            epochs = list(csv.DictReader(file))
        losses = read_csv(folder / "training-loss.csv")
        self.assertEqual([(row["series"], float(row["y"])) for row in losses],
                         [("FT", float(row["train_loss"])) for row in epochs])

    def check_distances(self, rows):
        """Against the checkpoints themselves."""
        names = ("head.weight", "head.bias")
        norms = []
        for name in names:
            before, after = tensor(self.anchor / "best.safetensors", name)[1], tensor(
                self.runs / "ft/seed=0/best.safetensors", name)[1]
            norms.append(sum((a - b) ** 2 for a, b in zip(before, after)) ** 0.5)
        ft = [row for row in rows if row["series"] == "FT"]
        self.assertAlmostEqual(float(ft[-1]["y"]), sum(norms) / 2, places=5)
        self.assertEqual({row["series"] for row in rows}, {"FT", "WISE 0.3", "TPGM", f"TPGM-C μ={self.chosen()}"})
        self.assertEqual(ft[-1]["x"], "head")
        whole = {row["x"]: float(row["y"]) for row in ft}
        for row in rows:
            if row["series"] == "WISE 0.3":  # a part of the way
                self.assertAlmostEqual(float(row["y"]), 0.3 * whole[row["x"]], places=4)

    def chosen(self):
        """The μ that is best on selection data, of equals the first."""
        return max((0.01, 0.1), key=lambda mu: json.loads((self.runs / f"tpgm-{mu}/result.json").read_text())["selection"])

    def test_inspect_has_the_same_names(self):
        self.run_ok("report", self.runs, "-o", self.folder / "page.html")
        svg = self.folder / "inspect.svg"
        self.run_ok("inspect", self.anchor, self.runs / "ft/seed=0", "--plot", svg)
        description = re.search("<desc>.*tensors of a block: (.*)[.]</desc>", svg.read_text(encoding="utf-8"))[1]
        found = dict(reversed(point.split(" at ")) for point in description.split(", "))
        expected = {row["x"]: f'{float(row["y"]):.4g}' for row in read_csv(self.folder / "page/distance.csv")
                    if row["series"] == "FT"}
        self.assertEqual(found, expected)

    def check_images(self, page):
        shown = [load for load in page.loads if load.startswith("data:image/png")]
        # First come three classes of each test.
        examples, shown = shown[:9], shown[9:]
        self.assertEqual(len(set(examples)), 9)
        for test in ("home (ID)", "away (OOD)", "far (OOD)"):
            self.assertEqual(page.words.count(test), 1)
        self.assertLess(page.words.index("home (ID)"), page.words.index("Results", page.words.index("Summary") + 9))
        mu = self.chosen()
        self.assertIn(f"test images Pre-trained FT TPGM-C μ={mu} images ", page.text())
        kinds = dict(re.findall(r"([✓✗] [✓✗] [✓✗]) (\d+)", page.text()))
        self.assertEqual(len(kinds), 6)
        judges = [self.predictions(run) for run in ("before", "ft/seed=0", f"tpgm-{mu}")]
        truth = {test: [label for label in range(4) for _ in range(PARTS[f"test/{test}"])] for test in ("home", "away", "far")}
        counts = {}
        for test, labels in truth.items():
            for i, label in enumerate(labels):
                way = tuple(judge[test][i] == label for judge in judges)
                counts[way] = counts.get(way, 0) + 1
        for kind, count in kinds.items():
            way = tuple(mark == "✓" for mark in kind.split())
            self.assertEqual(int(count), counts.get(way, 0), kind)
        split = sum(count for way, count in counts.items() if len(set(way)) == 2)
        self.assertEqual(len(shown), min(16, split))
        # The prediction of each row is below each image.
        for name in ("Pre-trained", "FT", "WISE 0.3", "TPGM", f"TPGM-C μ={mu}"):
            self.assertEqual(page.words.count(f"{name}:"), len(shown), name)
        for load in shown:
            image = base64.b64decode(load.partition("base64,")[2])
            self.assertIn(struct.unpack(">2I", image[16:24]), ((32, 32), (77, 96)))

    def predictions(self, run):
        return {test: integers(self.runs / run / "predictions.safetensors", test)[2] for test in ("home", "away", "far")}

    def test_predictions(self):
        for run in ("before", "ft/seed=1", "wise-0.7", "tpgm-0.1"):
            result = json.loads((self.runs / run / "result.json").read_text())
            for test in result["tests"]:
                kind, shape, answers = integers(self.runs / run / "predictions.safetensors", test["name"])
                each = PARTS[f"test/{test['name']}"]
                self.assertEqual((kind, shape), ("I32", [4 * each]))
                right = sum(answer == i // each for i, answer in enumerate(answers))
                self.assertAlmostEqual(100 * right / len(answers), test["top1"])
        logits = self.folder / "logits.safetensors"
        self.run_ok("predict", "--checkpoint", self.runs / "ft/seed=1", "--data-dir", self.data, "--domains", "far", "-o", logits)
        shape, values = tensor(logits, "logits")
        rows = [values[i:i + shape[1]] for i in range(0, len(values), shape[1])]
        self.assertEqual([row.index(max(row)) for row in rows], self.predictions("ft/seed=1")["far"])

    def test_radii_of_the_last_act(self):
        radii = json.loads((self.runs / "tpgm-0/radii.json").read_text())
        steps = radii["radius_steps"]
        self.assertEqual((steps[0], steps[-1]), (0, RADIUS_STEPS))
        self.assertEqual(sorted(set(steps)), steps)
        self.assertTrue(50 <= len(steps) <= 101)
        self.assertEqual(set(radii["steps"]), {0})
        for key in ("radii", "ratios"):
            self.assertEqual(len(radii[key]), len(steps))
        self.assertEqual([len(row) for row in radii["ratios"]], [0] * (len(steps) - 1) + [len(radii["names"])])
        self.assertNotEqual(radii["radii"][0], radii["radii"][-1])

    def test_where_it_goes(self):
        run = self.folder / "run"
        shutil.copytree(self.runs / "tpgm-0.1", run)
        result = self.run_ok("report", run)
        self.assertEqual(result.stdout.strip(), str(run / "report.html"))
        text = Page((run / "report.html").read_text(encoding="utf-8")).text()
        self.assertIn("Fewer than two of the methods left predictions", text)
        self.assertIn("None of the runs trained", text)
        self.assertTrue((run / "report" / "ratios.svg").is_file())
        self.run_ok("report", run, self.runs / "before")  # over it

    def test_rows_that_would_be_called_alike(self):
        runs = self.folder / "runs"
        for name, lr in (("a", 0.01), ("b", 0.02)):
            shutil.copytree(self.runs / "ft/seed=0", runs / name)
            recipe = runs / name / "recipe.toml"
            recipe.write_text(re.sub("(?m)^lr = .*$", f"lr = {lr}", recipe.read_text()))
        shutil.copytree(runs / "a", runs / "c")
        result = self.run_ok("report", runs)
        self.assertIn("c' is left out: ", result.stderr)
        self.assertEqual([row[""] for row in read_csv(runs / "report/results.csv")], ["FT lr=0.01", "FT lr=0.02"])

    def test_what_is_gone(self):
        """Without data and anchor there is still a report, which says so."""
        runs = self.folder / "runs"
        for name in ("before", "ft/seed=0", "tpgm-0.1"):
            shutil.copytree(self.runs / name, runs / name)
            recipe = runs / name / "recipe.toml"
            recipe.write_text(recipe.read_text().replace(str(self.shared), str(self.folder / "gone")))
        (runs / "tpgm-0.1/radii.json").unlink()
        self.run_ok("report", runs)
        text = Page((runs / "report.html").read_text(encoding="utf-8")).text()
        for part in ("The test images cannot be opened any more", "No distance of FT", "No method here has a ratio"):
            self.assertIn(part, text)
        self.assertFalse((runs / "report" / "distance.svg").exists())

    def test_radii_of_an_older_run(self):
        run = self.folder / "run"
        shutil.copytree(self.runs / "tpgm-0", run)
        radii = json.loads((run / "radii.json").read_text())
        del radii["radius_steps"]
        (run / "radii.json").write_text(json.dumps({key: value if key == "names" else value[-1:] for key, value in radii.items()}))
        self.run_ok("report", run)
        self.assertFalse((run / "report" / "radii-1.svg").exists())
        self.assertTrue((run / "report" / "ratios.svg").exists())

    def test_refused(self):
        error = lambda status, *arguments: self.error(status, "report", *arguments)
        self.assertIn("RUN is required", error(2))
        self.assertIn("name it *.html", error(2, self.runs, "-o", self.folder / "report.pdf"))
        self.assertEqual(error(1, self.folder / "nowhere"), f"tpgm report: there is no '{self.folder / 'nowhere'}'")
        self.assertIn("has none below it", error(1, self.data))
        self.assertIn("is a file", error(1, self.runs / "before/recipe.toml"))
        self.assertIn("none of the runs is finished; resume '", error(1, self.runs / "unfinished"))
        other = self.folder / "other"
        shutil.copytree(self.runs / "before", other)
        result = json.loads((other / "result.json").read_text())
        result["tests"].pop()
        (other / "result.json").write_text(json.dumps(result))
        message = error(1, self.runs / "before", other)
        for part in (f"'{self.runs / 'before'}' and '{other}' were tested on different data", "far (OOD, 20 images)"):
            self.assertIn(part, message)
        (other / "result.json").write_text("{}")
        self.assertIn("is damaged", error(1, other))
        (other / "result.json").write_text("nonsense")
        self.assertIn("is damaged", error(1, other))
        self.assertFalse(list(self.folder.glob("*.html")))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
