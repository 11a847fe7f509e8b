"""Run folders of version 0.1.0 can be evaluated, reported on and resumed: python3 test_older_runs_cli.py path/to/tpgm

They are in tests/study/run-0.1.0, which also has the script that made them and makes their data again.
"""

import csv
import importlib.util
import json
import os
import shutil
import sys
import unittest
from pathlib import Path

import test_cli
from test_cli import read_safetensors
from test_models_cli import ModelsCommand

RUNS = Path(__file__).resolve().parents[1] / "study" / "run-0.1.0"

os.environ["OMP_NUM_THREADS"] = "1"


def script():
    specification = importlib.util.spec_from_file_location("make", RUNS / "make.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_log(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


class OlderRuns(ModelsCommand):
    def setUp(self):
        super().setUp()
        make = script()
        make.make_data(self.folder / "data")
        for run in ("finished", "stopped"):
            shutil.copytree(RUNS / run, self.folder / run)
            recipe = self.folder / run / "recipe.toml"
            recipe.write_text(recipe.read_text().replace(make.FOLDER, str(self.folder)))

    def result(self, run):
        return json.loads((self.folder / run / "result.json").read_text())

    def test_evaluate(self):
        found = json.loads(self.run_ok("eval", self.folder / "finished", "--device", "cpu", "--json").stdout)["checkpoints"][0]
        wanted = self.result("finished")["tests"]
        self.assertEqual([test["name"] for test in found["tests"]], ["home", "away"])
        for ours, theirs in zip(found["tests"], wanted, strict=True):
            self.assertEqual((ours["id"], ours["classes_scored"]), (theirs["id"], theirs["scored_classes"]))
            # Another machine may round differently, which changes one image of the 18 at most.
            self.assertAlmostEqual(ours["top1"], theirs["top1"], delta=100 / 18 + 1e-6)
            self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=1e-3)
        unfinished = self.run_ok("eval", self.folder / "stopped", "--device", "cpu")
        self.assertIn("is not finished", unfinished.stderr)

    def test_report(self):
        page = self.folder / "page.html"
        result = self.run_ok("report", self.folder / "finished", self.folder / "stopped", "-o", page)
        self.assertIn("stopped' is left out: it is not finished", result.stderr)
        row = read_csv(page.with_suffix("") / "results.csv")[0]
        self.assertEqual(row[""], "TPGM")
        for test in self.result("finished")["tests"]:
            self.assertEqual(row[test["name"]], f"{test['top1']:.2f}")
        radii = json.loads((self.folder / "finished" / "radii.json").read_text())
        self.assertGreater(len(radii["steps"]), 1)
        # Every section that these files have data for has its figure.
        files = {path.name for path in page.with_suffix("").iterdir()}
        self.assertLessEqual({"plane.svg", "distance.csv", "ratios.csv", "radii-1.csv", "training-loss.csv"}, files)
        losses = [float(row["y"]) for row in read_csv(page.with_suffix("") / "training-loss.csv")]
        self.assertEqual(losses, [float(row["train_loss"]) for row in read_csv(self.folder / "finished" / "summary.csv")])
        self.assertIn("tpgm 0.1.0", page.read_text(encoding="utf-8"))

    def test_report_beside_a_run_of_today(self):
        """Runs that differ only in the seed are one row, whichever version made them."""
        today, page = self.folder / "today", self.folder / "page.html"
        self.run_ok("train", "-c", self.folder / "finished" / "recipe.toml", "--seed", "1", "-o", today)
        self.run_ok("report", self.folder / "finished", today, "-o", page)
        rows = read_csv(page.with_suffix("") / "results.csv")
        self.assertEqual([row[""] for row in rows], ["TPGM"])
        self.assertRegex(rows[0]["home"], r"\(")  # mean (standard deviation)

    def test_values_that_new_runs_refuse(self):
        """That version took one number for RandAugment, and any mean."""
        for run in ("finished", "stopped"):
            recipe = self.folder / run / "recipe.toml"
            text = recipe.read_text()
            lines = ["mean = [123.7, 123.7, 123.7]" if line.startswith("mean =") else
                     "rand-augment = [2]" if line.startswith("rand-augment =") else line for line in text.splitlines()]
            recipe.write_text("\n".join(lines) + "\n")
            self.assertNotEqual(recipe.read_text(), text)
        self.run_ok("eval", self.folder / "finished", "--device", "cpu")
        self.run_ok("report", self.folder / "finished", "-o", self.folder / "page.html")
        self.run_ok("train", "--resume", self.folder / "stopped")
        said = self.error(1, "train", "-c", self.folder / "finished" / "recipe.toml", "-o", self.folder / "new")
        self.assertIn("--mean 123.7,123.7,123.7: pixels are from 0 to 1 here; divide", said)

    def test_resume(self):
        stopped, finished = self.folder / "stopped", self.folder / "finished"
        before = read_log(stopped)
        self.run_ok("train", "--resume", stopped)
        after = read_log(stopped)
        self.assertEqual(after[:len(before)], before)
        self.assertFalse((stopped / "resume.safetensors").exists())
        # The same steps as of the run that nothing stopped, and as far as another machine may round the same numbers.
        numbers = lambda run, key: [row[key] for row in read_csv(run / "summary.csv")]
        for key in ("epoch", "step"):
            self.assertEqual(numbers(stopped, key), numbers(finished, key))
        for ours, theirs in zip(numbers(stopped, "train_loss"), numbers(finished, "train_loss"), strict=True):
            self.assertAlmostEqual(float(ours), float(theirs), delta=1e-2)
        steps = [line["step"] for line in after if line["event"] == "step"]
        self.assertEqual(steps, sorted(set(steps)))
        ours, theirs = self.result("stopped"), self.result("finished")
        for key in ("method", "seed", "steps", "skipped_steps"):
            self.assertEqual(ours[key], theirs[key])
        for one, other in zip(ours["tests"], theirs["tests"], strict=True):
            self.assertEqual((one["name"], one["id"], one["scored_classes"]),
                             (other["name"], other["id"], other["scored_classes"]))
            self.assertAlmostEqual(one["loss"], other["loss"], delta=1e-2)
        radii = [json.loads((run / "radii.json").read_text()) for run in (stopped, finished)]
        for key in ("names", "steps", "radius_steps"):
            self.assertEqual(radii[0][key], radii[1][key])
        tensors = [read_safetensors(run / "best.safetensors")[0] for run in (stopped, finished)]
        self.assertEqual({name: entry[:2] for name, entry in tensors[0].items()},
                         {name: entry[:2] for name, entry in tensors[1].items()})
        self.run_ok("report", stopped)

    def test_it_is_still_the_same_run(self):
        """A recipe of then is taken as it was meant, and other data are noticed."""
        finished = test_cli.tpgm("train", "--resume", self.folder / "finished")
        self.assertEqual((finished.returncode, "there is nothing to resume" in finished.stderr), (0, True))
        (self.folder / "data" / "train" / "home" / "bars" / "00.png").rename(self.folder / "data" / "moved.png")
        self.assertIn("are not those the run was begun with", self.error(1, "train", "--resume", self.folder / "stopped"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
