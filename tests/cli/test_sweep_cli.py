"""Sweeps and tables as a user runs them: python3 test_sweep_cli.py path/to/tpgm"""

import csv
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import test_cli
from test_models_cli import ModelsCommand
from test_train_cli import temporary

ROOT = Path(__file__).resolve().parents[2]
MODEL = "resnet:layers=1-1,width=8,block=basic,stem=small,image_size=32"
TESTS = ("real", "sketch", "clipart")


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class SweepCommand(ModelsCommand):
    @classmethod
    def setUpClass(cls):
        cls.shared = Path(tempfile.mkdtemp(prefix="tpgm-sweep-cli-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        subprocess.run([sys.executable, ROOT / "scripts" / "make_small_datasets", cls.shared / "small", "--classes", "4",
                        "--per-class", "12"], check=True, stdout=subprocess.DEVNULL)
        cls.data = cls.shared / "small" / "domainnet"

    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def arguments(self, *more, epochs=2):
        return ["train", "--model", MODEL, "--data-dir", self.data, "--train", "real", "--test", "sketch,clipart",
                "--epochs", epochs, "--batch-size", 8, "--device", "cpu", "-o", self.out, *more]

    def times(self):
        return {path.parent.name: path.stat().st_mtime_ns for path in self.out.rglob("result.json")}

    def edit(self, run, selection=None, tests=None):
        path = run / "result.json"
        result = json.loads(path.read_text())
        if selection is not None:
            result["selection"] = selection
        for test, value in zip(result["tests"], tests or ()):
            test["top1"] = value
        path.write_text(json.dumps(result))

    def settings(self, run):
        lines = (line.split(" = ", 1) for line in (run / "recipe.toml").read_text().splitlines() if " = " in line)
        return {key: value.strip('"') for key, value in lines}

    def start(self, *command):
        process = subprocess.Popen([test_cli.COMMAND, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def wait_for(self, condition):
        end = time.monotonic() + 120
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)


class Sweep(SweepCommand):
    def test_best_on_selection_data(self):
        command = self.arguments("--sweep", "lr=1e-3,1e-2", "--seeds", "0,1", "-j", "2")
        self.run_ok(*command)
        names = {f"lr={lr},seed={seed}" for lr in ("1e-3", "1e-2") for seed in (0, 1)}
        before = self.times()
        self.assertEqual(set(before), names)
        for name in names:
            self.assertTrue((self.out / f"{name}.toml").is_file())
            self.assertIn("epoch 2/2", (self.out / f"{name}.log").read_text())

        # Numbers of our own: 1e-3 is the best on selection data, 1e-2 on all tests.
        numbers = {"lr=1e-3,seed=0": (60, (10, 20, 31)), "lr=1e-3,seed=1": (70, (14, 21, 30)),
                   "lr=1e-2,seed=0": (90, (99, 98, 97)), "lr=1e-2,seed=1": (30, (99, 98, 97))}
        for name, (selection, tests) in numbers.items():
            self.edit(self.out / name, selection, tests)
        edited = self.times()
        again = self.run_ok(*command)
        self.assertEqual(self.times(), edited, "a finished run was repeated")
        self.assertIn("lr=1e-3; 2 seeds; selection 65.00 %", again.stdout)
        for i, test in enumerate(TESTS):
            values = [numbers[f"lr=1e-3,seed={seed}"][1][i] for seed in (0, 1)]
            cell = f"{statistics.mean(values):.2f} ({statistics.stdev(values):.2f})"
            self.assertIn(cell, again.stdout)
            self.assertEqual(read_csv(self.out / "table.csv")[0][test], cell)
            for file in ("table.md", "table.tex"):
                self.assertIn(cell, (self.out / file).read_text())
        self.assertEqual(read_csv(self.out / "table.csv")[0]["chosen"], "lr=1e-3")
        rows = read_csv(self.out / "sweep.csv")
        self.assertEqual(len(rows), 4)
        for row in rows:
            selection, tests = numbers[f"lr={row['lr']},seed={row['seed']}"]
            self.assertEqual((row["status"], float(row["selection"])), ("finished", selection))
            self.assertEqual(tuple(float(row[test]) for test in TESTS), tests)

        found = json.loads(self.run_ok(*command, "--json").stdout)
        self.assertEqual(len(found["runs"]), 4)
        best = found["rows"][0]
        self.assertEqual((best["method"], best["chosen"], best["selection"]), ("ft", {"lr": "1e-3"}, 65))
        self.assertEqual([test["mean"] for test in best["tests"]], [12, 20.5, 30.5])
        self.assertAlmostEqual(best["tests"][0]["std"], statistics.stdev((10, 14)))

        # Equals: the first. One more value: only that is run.
        self.edit(self.out / "lr=1e-2,seed=0", 65)
        self.edit(self.out / "lr=1e-2,seed=1", 65)
        self.assertIn("lr=1e-3; 2 seeds", self.run_ok(*command).stdout)
        kept = self.times()
        more = self.run_ok(*self.arguments("--sweep", "lr=1e-3,1e-2,3e-3", "--seeds", "0,1"))
        self.assertIn("4 of 6 runs are finished already", more.stderr)
        self.assertEqual({name: self.times()[name] for name in names}, kept)

        # How fast may change, what is computed may not.
        self.run_ok(*command, "--workers", "1", "--log-every", "7")
        error = self.error(1, *self.arguments("--sweep", "lr=1e-3,1e-2", "--seeds", "0,1", epochs=3))
        self.assertIn("holds a run of another recipe (it has: epochs = 2); take another --output", error)

    def test_methods_and_failures(self):
        command = self.arguments("--sweep", "method=ft,l2-sp", "--sweep", "lr=1e-3,1e17", "--opt", "sgd")
        result = test_cli.tpgm(*command)
        self.assertEqual(result.returncode, 1)
        self.assertIn("2 of 4 runs failed; the same command tries them again", result.stderr)
        self.assertRegex(result.stderr, r"method=ft,lr=1e17,seed=0 failed: step \d+: the loss is")
        self.assertIn(str(self.out / "method=ft,lr=1e17,seed=0.log"), result.stderr)
        rows = read_csv(self.out / "table.csv")
        self.assertEqual([(row[""], row["chosen"]) for row in rows], [("ft", "lr=1e-3"), ("l2-sp", "lr=1e-3")])
        self.assertEqual(sorted(row["status"] for row in read_csv(self.out / "sweep.csv")),
                         ["failed", "failed", "finished", "finished"])
        for row in rows:
            for test in TESTS:
                self.assertIn(row[test], result.stdout)
        before = self.times()
        self.assertEqual(test_cli.tpgm(*command).returncode, 1)
        self.assertEqual(self.times(), before)

    def test_what_runs_tell_of_strengths_and_differences(self):
        """mars-sp with a radius that is never reached: the sweep, the runs and the report say so."""
        command = self.arguments("--sweep", "method=ft,mars-sp", "--seeds", "0,1", "--choose", "one-se")
        said = self.run_ok(*command).stdout
        results = {path.parent.name: json.loads(path.read_text()) for path in self.out.glob("*/result.json")}
        self.assertEqual(len(results), 4)
        for name, result in results.items():
            self.assertGreater(result["selection_pictures"], 0)
            self.assertEqual(result["relative_distance"] is None, "method=ft" in name)
            self.assertEqual(result["diagnosis"] is None, "method=ft" in name)
            lines = [json.loads(line) for line in (self.out / name / "log.jsonl").read_text().splitlines()]
            events = [line["text"] for line in lines if line["event"] == "diagnosis"]
            self.assertEqual(events, [result["diagnosis"]] if result["diagnosis"] else [])
            file = (self.out / name / "predictions.safetensors").read_bytes()
            header = json.loads(file[8:8 + int.from_bytes(file[:8], "little")])
            tests = {key for key in header if key != "__metadata__"}
            self.assertEqual(tests, {test["name"] + end for test in result["tests"] for end in ("", "=labels")})
        self.assertIn("no tensor reaches the radius 64", results["method=mars-sp,seed=0"]["diagnosis"])
        self.assertEqual(json.loads(self.run_ok(*command, "--json").stdout)["rows"][1]["choose"], "one-se")
        # Both rows have the same weights, or almost: nothing differs, and nothing is said to differ.
        page = self.folder / "page.html"
        report = self.run_ok("report", self.out, "-o", page)
        self.assertIn("MARS-SP: the method has next to no effect", report.stderr)
        self.assertNotRegex(said + page.read_text(), "[0-9][↑↓]")
        self.assertIn("Bars are 95 % intervals", page.read_text())
        # Predictions that are all right in one row, and all wrong in the other.
        for name in results:
            path = self.out / name / "predictions.safetensors"
            data = bytearray(path.read_bytes())
            begin = 8 + int.from_bytes(data[:8], "little")
            header = json.loads(data[8:begin])
            for test in results[name]["tests"]:
                first, last = (begin + at for at in header[test["name"]]["data_offsets"])
                labels = data[slice(*(begin + at for at in header[test["name"] + "=labels"]["data_offsets"]))]
                data[first:last] = labels if "mars" in name else b"".join(
                    (int.from_bytes(labels[i:i + 4], "little") ^ 1).to_bytes(4, "little") for i in range(0, len(labels), 4))
            path.write_bytes(data)
        self.run_ok("report", self.out, "-o", page)
        self.assertRegex(page.read_text(), "[0-9]↑")
        self.assertIn("↑ ↓: differs from FT by more than the 95 % interval", page.read_text())

    def test_refused(self):
        self.assertIn("--choose chooses among the runs of a sweep",
                      self.error(2, *self.arguments("--choose", "one-se")))
        for more, words in (
                (("--sweep", "lrr=1,2"), "did you mean 'lr'?"),
                (("--sweep", "lr"), "KEY=VALUE,VALUE"),
                (("--sweep", "lr=1e-3,1e-3"), "there twice"),
                (("--sweep", "lr=1e-3", "--sweep", "lr=1e-2"), "'lr' is swept twice"),
                (("--sweep", "seed=1,2"), "--seeds 1,2"),
                (("--sweep", "opt=adamw,nonsense"), "nonsense"),
                (("--sweep", "method=ft,tpgm", "--mu", "1"), "--mu is an option of l2-sp and tpgm, not of ft"),
                (("--sweep", "lr=1e-3,1e-2", "--selection-fraction", "0"), "no selection data to choose between"),
                (("--seeds", "1,1"), "there twice")):
            with self.subTest(more):
                self.assertIn(words, self.error(1, *self.arguments(*more)))
        self.assertFalse(self.out.exists())

    def test_dry_run(self):
        text = self.run_ok(*self.arguments("--sweep", "lr=1e-3,1e-2", "--seeds", "0,1", "--dry-run")).stdout
        # 8 of the 12 images of a class are for training, and two of those are held out: 3 batches of 8 an epoch.
        self.assertRegex(text, r"lr=1e-3,seed=0 +6 steps")
        self.assertIn("4 runs, 24 steps", text)
        text = self.run_ok(*self.arguments("--sweep", "lr=1e-3,1e-2", "--dry-run", "--epochs", "1")).stdout  # the last one wins
        self.assertRegex(text, r"lr=1e-3,seed=0 +3 steps")
        self.assertFalse(self.out.exists())

    def test_flags_beat_a_recipe(self):
        recipe = self.folder / "recipe.toml"
        recipe.write_text('lr = 0.5\nsweep = ["lr=1e-3,1e-2", "momentum=0.8,0.9"]\nseeds = [3, 4]\nopt = "sgd"\n')
        text = self.run_ok(*self.arguments("-c", recipe, "--lr", "0.1", "--seed", "7", "--dry-run")).stdout
        self.assertEqual([line.split()[0] for line in text.splitlines()[:-1]],
                         ["momentum=0.8,seed=7", "momentum=0.9,seed=7"])


class Interrupted(SweepCommand):
    """A sweep that is stopped or killed resumes, and no run is done twice."""

    def stopped_and_gone_on_with(self, how):
        command = self.arguments("--sweep", "lr=1e-3,1e-2", "--seeds", "0,1", "--checkpoint-every", "1", epochs=60)
        process = self.start(*command)
        # The first is finished, the second has begun.
        self.wait_for(lambda: len(list(self.out.glob("*/recipe.toml"))) == 2
                      and (self.out / "lr=1e-3,seed=1" / "resume.safetensors").exists())
        process.send_signal(how)
        errors = process.communicate(timeout=120)[1]
        before = self.times()
        self.assertIn("lr=1e-3,seed=0", before)
        self.assertNotIn("lr=1e-2,seed=1", before)
        if how == signal.SIGTERM:
            self.assertEqual(process.returncode, 143)
            self.assertIn("1 of 4 runs are finished; the same command resumes", errors)
        self.run_ok(*command)
        after = self.times()
        self.assertEqual(len(after), 4)
        for name, when in before.items():
            self.assertEqual(after[name], when)
        self.assertIn("resuming at step", (self.out / "lr=1e-3,seed=1.log").read_text())
        steps = [json.loads(line)["step"] for line in (self.out / "lr=1e-3,seed=1" / "log.jsonl").read_text().splitlines()
                 if '"epoch"' in line and json.loads(line)["event"] == "epoch"]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(len(steps), 60)

    def test_stopped(self):
        self.stopped_and_gone_on_with(signal.SIGTERM)

    def test_killed(self):
        self.stopped_and_gone_on_with(signal.SIGKILL)

    def test_what_kills_left_behind_is_removed(self):
        command = self.arguments("--sweep", "lr=1e-3,1e-2", epochs=1)
        self.run_ok(*command)
        before = sorted(self.out.rglob("*"))
        with subprocess.Popen(["true"]) as process:
            process.wait()
        (self.out / temporary(process.pid, 0)).write_text("half a recipe")
        (self.out / "lr=1e-2,seed=0" / temporary(process.pid, 1)).write_text("half a result")
        (self.out / "lr=1e-2,seed=0" / "resume.safetensors").write_text("of a run that is finished")
        self.run_ok(*command)
        self.assertEqual(sorted(self.out.rglob("*")), before)

    def test_two_at_once_share_the_runs(self):
        command = self.arguments("--sweep", "lr=1e-3,1e-2", "--seeds", "0,1", epochs=10)
        both = [self.start(*command), self.start(*command)]
        for process in both:
            errors = process.communicate(timeout=240)[1]
            self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(len(self.times()), 4)
        for log in self.out.glob("*.log"):
            self.assertEqual(log.read_text().count("epoch 10/10"), 1, log.name)


class Reproduce(SweepCommand):
    PAPER = """row,recipe,real=Real,sketch=Sketch,clipart=Clip Art
Vanilla FT,ft,80.93 (0.08),31.81,
L2-SP,l2-sp,,,
WISE,wise:ratio=0.3,50,40 (1.5),30
TPGM,"tpgm:mu=0.1,tv=0.01",,,
"""

    def setUp(self):
        super().setUp()
        self.table = self.folder / "tables" / "mini"
        self.table.mkdir(parents=True)
        self.recipe("common", f"""train = "real"\ntest = ["sketch", "clipart"]\nmodel = "{MODEL}"\nepochs = 4
batch-size = 8\nseeds = [0, 1]\n""")
        self.recipe("ft", 'base = "common.toml"\nsweep = ["lr=1e-3,1e-2"]\n')
        self.recipe("l2-sp", 'base = "common.toml"\nmethod = "l2-sp"\ntake = ["lr=ft.lr"]\nsweep = ["mu=1e-3,1e-2"]\n')
        self.recipe("wise", 'base = "common.toml"\nmethod = "wise"\nepochs = 0\ntake = ["weights=ft"]\n')
        self.recipe("tpgm", 'base = "common.toml"\nmethod = "tpgm"\nevery = "end"\nepochs = 0\ntake = ["weights=ft"]\n')
        (self.table / "paper.csv").write_text(self.PAPER)

    def recipe(self, name, text):
        (self.table / f"{name}.toml").write_text(text)

    def command(self, *more, table=None):
        return ["reproduce", table or self.table, "--data-dir", self.data, "--device", "cpu", "-o", self.out, *more]

    def test_table(self):
        command = self.command("--scale", "0.5", "-j", "2")
        first = self.run_ok(*command)
        self.assertIn("12 runs to make: about", first.stderr)
        mini = self.out / "mini"
        # The best learning rate on selection data is taken, and its runs are projected.
        means = {}
        for lr in ("1e-3", "1e-2"):
            results = [json.loads((mini / "ft" / f"lr={lr},seed={seed}" / "result.json").read_text()) for seed in (0, 1)]
            means[lr] = statistics.mean(result["selection"] for result in results)
        best = max(means, key=means.get)
        self.assertEqual(len(list((mini / "l2-sp").glob(f"lr={best},mu=*/result.json"))), 4)
        for row in ("wise,ratio=0.3", "tpgm,mu=0.1,tv=0.01"):
            for seed in (0, 1):
                settings = self.settings(mini / row / f"ft,lr={best}" / f"seed={seed}")
                self.assertEqual(settings["weights"], str(mini / "ft" / f"lr={best},seed={seed}"))
                self.assertEqual(settings["epochs"], "0")
        self.assertEqual(settings["radius-steps"], "100")
        self.assertEqual((settings["fraction"], settings["test-fraction"]), ("0.5", "0.5"))
        self.assertEqual(self.settings(mini / "ft" / f"lr={best},seed=0")["epochs"], "2")

        # The table follows the results, and nothing is run again.
        other = next(lr for lr in means if lr != best)
        for seed, tests in ((0, (70, 30, 10)), (1, (72, 31, 20))):
            self.edit(mini / "ft" / f"lr={best},seed={seed}", 90, tests)
            self.edit(mini / "ft" / f"lr={other},seed={seed}", 10, (99, 99, 99))
            self.edit(mini / "wise,ratio=0.3" / f"ft,lr={best}" / f"seed={seed}", tests=(50.5, 38, 30))
        before = self.times()
        again = self.run_ok(*command)
        self.assertEqual(self.times(), before)
        self.assertIn("nothing is left to run", again.stderr)
        text = (mini / "table.md").read_text()
        deviation = statistics.stdev((70, 72))
        for part in (f"71.00 ({deviation:.2f})", "80.93 (0.08)", "−9.93", "50.50 (0.00)", "+0.50", "−2.00", "40.00 (1.50)",
                     "--scale 0.5", "Scale 0.5", "Scored over 4 classes", "the seeds 0, 1", f"Vanilla FT: lr={best}",
                     "Device cpu"):
            self.assertIn(part, text)
        rows = {(row["row"], row["test"]): row for row in read_csv(mini / "table.csv")}
        self.assertEqual(len(rows), 12)
        ours = rows["Vanilla FT", "real"]
        self.assertEqual((float(ours["mean"]), float(ours["paper"]), float(ours["paper_std"]), ours["seeds"], ours["id"]),
                         (71, 80.93, 0.08, "2", "true"))
        self.assertAlmostEqual(float(ours["std"]), deviation)
        self.assertAlmostEqual(float(ours["difference"]), 71 - 80.93)
        self.assertEqual(rows["Vanilla FT", "clipart"]["difference"], "")
        self.assertIn(r"\midrule", (mini / "table.tex").read_text())
        found = json.loads(self.run_ok(*command, "--json").stdout)["tables"][0]
        self.assertEqual([row["row"] for row in found["rows"]], ["Vanilla FT", "L2-SP", "WISE", "TPGM"])
        self.assertEqual(found["rows"][2]["tests"][1]["difference"], -2)

    def test_dry_run(self):
        text = self.run_ok(*self.command("--dry-run", "--rows", "wise")).stdout
        rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line and line[0] not in "-"}
        # wise takes from ft, so both are made.
        self.assertEqual(set(rows) & {"ft", "wise:ratio=0.3", "l2-sp", "all"}, {"ft", "wise:ratio=0.3", "all"})
        runs, steps, training, radius, evaluation = (int(n.replace(",", "")) for n in rows["ft"])
        data = json.loads(self.run_ok("data", "check", "--json", self.data, "--domains", "real/test,sketch/test,clipart/test")
                          .stdout)
        tests = sum(sum(part["per_class"]) for part in data["parts"])
        plan = self.run_ok("train", "--model", MODEL, "--data-dir", self.data, "--train", "real", "--test", "sketch,clipart",
                           "--epochs", "4", "--batch-size", "8", "--device", "cpu", "--dry-run").stdout
        each = next(int(line.split()[2]) for line in plan.splitlines() if line.startswith("# steps:"))
        self.assertEqual((runs, steps, training, radius), (4, 4 * each, 32 * each, 0))
        self.assertEqual((evaluation - 4 * tests) % (4 * 5), 0)  # selection data, after each epoch and at the end
        self.assertRegex(text, r"6 runs to make: about (\d+ min )?\d+ s at [\d.]+ training images/s")
        self.assertFalse(self.out.exists())

    def test_flags(self):
        self.run_ok(*self.command("--rows", "WISE", "--epochs", "1", "--lr", "5e-3", "--seeds", "5", "--scale", "0.5"))
        runs = [self.out / "mini" / row / "seed=5" for row in ("ft", "wise,ratio=0.3")]
        self.assertEqual(sorted(path.parent for path in self.out.rglob("result.json")), runs)
        settings = self.settings(runs[0])
        self.assertEqual((settings["epochs"], settings["lr"], settings["seed"]), ("1", "0.005", "5"))
        self.assertEqual(self.settings(runs[1])["epochs"], "0", "a row that does not train")
        self.assertIn("One seed: 5", (self.out / "mini" / "table.md").read_text())

    def test_a_failed_row(self):
        self.recipe("ft", 'base = "common.toml"\nopt = "sgd"\nlr = 1e17\n')
        self.recipe("l2-sp", 'base = "common.toml"\nmethod = "l2-sp"\nlr = 1e-3\n')
        result = test_cli.tpgm(*self.command("--epochs", "2", "--seeds", "0"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("takes from 'ft', which failed", result.stderr)
        rows = {(row["row"], row["test"]): row["mean"] for row in read_csv(self.out / "mini" / "table.csv")}
        self.assertEqual(rows["WISE", "real"], "")
        self.assertNotEqual(rows["L2-SP", "real"], "")
        self.assertIn("failed", (self.out / "mini" / "table.md").read_text())

    def test_a_folder_of_tables(self):
        shutil.copytree(self.table, self.table.parent / "other")
        command = self.command("--rows", "ft", "--epochs", "1", "--seeds", "0", "--lr", "1e-3", table=self.table.parent)
        self.run_ok(*command)
        for name in ("mini", "other"):
            self.assertTrue((self.out / "tables" / name / "table.md").is_file())
        # By name, below --recipes.
        command[1] = "mini"
        self.run_ok(*command, "--recipes", self.folder, "--dry-run")
        command[1] = "minni"
        self.assertIn("did you mean 'mini'?", self.error(1, *command, "--recipes", self.folder))

    def test_mistakes(self):
        for change, words in (
                (("l2-sp", 'base = "common.toml"\ntake = ["lr=ftt.lr"]\n'), "no such row; did you mean 'ft'?"),
                (("l2-sp", 'base = "common.toml"\ntake = ["lr=ft.momentum"]\n'), "neither sweeps, takes nor sets 'momentum'"),
                (("l2-sp", 'base = "common.toml"\ntake = ["lrr=ft.lr"]\n'), "did you mean 'lr'?"),
                (("l2-sp", 'base = "common.toml"\ntake = ["weights=wise:ratio=0.3", "lr"]\n'), "KEY=ROW.KEY"),
                (("ft", 'base = "common.toml"\nlr = 1\ntake = ["mean=l2-sp.lr"]\n'), "takes from a row that takes from it")):
            with self.subTest(words):
                self.setUp()
                self.recipe(*change)
                self.assertIn(words, self.error(1, *self.command("--dry-run")))
        for text, words in (("row,real\n", "expected row,recipe,TEST=TITLE"), ("row,recipe,real=Real\nA,ft,80 %\n", "not a number"),
                            ("row,recipe,real=Real\nA,fft,\n", "did you mean 'ft'?"),
                            ("row,recipe,real=Real\nA,ft,1,2\n", "4 fields under 3 columns"),
                            ("row,recipe,real=Real\n", "has no rows")):
            with self.subTest(words):
                (self.table / "paper.csv").write_text(text)
                self.assertIn(words, self.error(1, *self.command("--dry-run")))


class ListRecipes(SweepCommand):
    def test_list(self):
        root = self.folder / "recipes"
        (root / "tables" / "a" / "b").mkdir(parents=True)
        (root / "tables" / "a" / "b" / "ft.toml").write_text('method = "ft"\n')
        (root / "tables" / "a" / "b" / "paper.csv").write_text("row,recipe,real=Real\nFT,ft,80\n")
        (root / "own").mkdir()
        (root / "own" / "ft.toml").write_text("# What it is.\nlr = 1\n")
        result = test_cli.tpgm("list", "recipes", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"a/b +1 rows on Real\n")
        self.assertRegex(result.stdout, r"recipes/own/ft.toml +What it is.\n")
        (root / "own" / "ft.toml").write_text("# What it is, in\n# two lines. More about it.\nlr = 1\n")
        self.assertRegex(test_cli.tpgm("list", "recipes", cwd=self.folder).stdout, r"ft.toml +What it is, in two lines.\n")
        found = json.loads(test_cli.tpgm("list", "recipes", "--json", cwd=self.folder).stdout)
        self.assertEqual([(each["name"], each["kind"]) for each in found], [("a/b", "table"), ("own/ft", "recipe")])

    def test_recipes_that_come_with_the_program(self):
        result = test_cli.tpgm("train", "-c", "recipes/glyphs/ft.toml", "--dry-run", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('method = "ft"', result.stdout)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    os.environ["OMP_NUM_THREADS"] = "1"  # images of 32 x 32 are not worth more
    unittest.main()
