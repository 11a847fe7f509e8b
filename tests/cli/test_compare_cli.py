"""The methods side by side on data of one's own: python3 test_compare_cli.py path/to/tpgm"""

import os
import signal
import sys
import unittest
from pathlib import Path

import test_cli
from test_models_cli import CLIP
from test_sweep_cli import ROOT, SweepCommand, read_csv

LABELS = ["Zero-shot", "FT", "L2-SP", "LP-FT", *(f"WISE 0.{i}" for i in range(1, 10)), "TPGM", "TPGM-C μ=0.0001",
          "TPGM-C μ=0.001", "TPGM-C μ=0.01", "TPGM-C μ=0.1", "FTP", "SPD"]


class Compare(SweepCommand):
    def command(self, *more, head="zeroshot", epochs=2):
        return ["compare", "--checkpoint", CLIP, "--head", head, "--data-dir", self.data, "--train", "real", "--test",
                "sketch,clipart", "--epochs", epochs, "--batch-size", 8, "--lr", "1e-3", "--device", "cpu", "-o", self.out,
                *more]

    def rows(self, text):
        """The rows of a plan, with their numbers of runs and steps."""
        lines = [line.split() for line in text.splitlines()]
        return {line[0]: tuple(int(n.replace(",", "")) for n in line[1:3]) for line in lines if len(line) == 6}

    def labels(self):
        return [row[""] for row in read_csv(self.out / "report" / "results.csv")]

    def test_all_rows(self):
        command = self.command("-j", "2")
        first = self.run_ok(*command)
        self.assertIn("25 runs to make: about", first.stderr)
        for label in LABELS:
            self.assertIn(f"\n{label} ", first.stdout)
        self.assertEqual(self.labels(), LABELS)
        self.assertIn(f"The report: {self.out}/report.html\n", first.stdout)
        self.assertIn("<h1>hf-clip on domainnet</h1>", (self.out / "report.html").read_text())

        # One budget, and the same data, for all that train; the rest begins with the weights of ft.
        runs = {path.parent.relative_to(self.out / "runs"): self.settings(path.parent)
                for path in self.out.rglob("result.json")}
        self.assertEqual(len(runs), 25)
        own = {"method", "output", "epochs", "weights", "lp-epochs", "lp-lr", "mu", "lambda", "radius-smoothing",
               "radius-mix"}
        ft = runs[Path("ft/seed=0")]
        for path, settings in runs.items():
            trains = path.parts[0] in ("ft", "l2-sp", "lp-ft", "ftp", "spd")
            self.assertEqual(settings["epochs"], "2" if trains else "0", path)
            after = path.parts[0].startswith(("wise", "tpgm"))
            self.assertEqual(settings["weights"], str(self.out / "runs" / "ft" / "seed=0") if after else "", path)
            for key in ft.keys() - own:
                self.assertEqual(settings[key], ft[key], (path, key))

        # The strength with the best selection accuracy is in the table, and nothing is run again.
        for row in ("l2-sp", "spd"):
            for result in (self.out / "runs" / row).glob("*/result.json"):
                self.edit(result.parent, selection=50)
        self.edit(self.out / "runs" / "l2-sp" / "mu=1e-2,seed=0", selection=60, tests=(12.5, 13.5, 14.5))
        self.edit(self.out / "runs" / "spd" / "lambda=0.5,seed=0", selection=60)
        before = {path: path.stat().st_mtime_ns for path in self.out.rglob("result.json")}
        again = self.run_ok(*command, "--title", "Mine & yours")
        self.assertEqual({path: path.stat().st_mtime_ns for path in self.out.rglob("result.json")}, before)
        self.assertIn("nothing is left to run", again.stderr)
        self.assertIn("Chosen on selection data: L2-SP mu=1e-2;", again.stdout)
        self.assertIn("SPD lambda=0.5\n", again.stdout)
        self.assertRegex(again.stdout, r"\nL2-SP +12\.50 +13\.50 +14\.50 ")
        self.assertIn("<h1>Mine &amp; yours</h1>", (self.out / "report.html").read_text())

    def test_methods_and_seeds(self):
        command = self.command("--seeds", "2", "--methods", "wise")
        self.run_ok(*command)
        self.assertEqual(self.labels(), [label for label in LABELS if label[:4] in ("Zero", "FT", "WISE")])
        folders = sorted(str(path.parent.relative_to(self.out / "runs")) for path in self.out.rglob("result.json"))
        self.assertEqual(folders, sorted(["pretrained/seed=0", "ft/seed=0", "ft/seed=1",
                                          *(f"wise,ratio=0.{i}/seed={seed}" for i in range(1, 10) for seed in (0, 1))]))
        more = self.run_ok(*self.command("--seeds", "2", "--methods", "tpgm"))
        self.assertIn("3 runs are finished\n10 runs to make", more.stderr)
        self.assertEqual(self.labels(), [label for label in LABELS if label[:4] in ("Zero", "FT", "TPGM")])

    def test_heads(self):
        def plan(*more, **options):
            result = self.run_ok(*self.command("--dry-run", *more, **options))
            return self.rows(result.stdout), result.stderr

        rows, said = plan()
        self.assertNotIn("lp", rows)
        self.assertNotIn("no row", said)
        steps = rows["ft"][1]
        self.assertEqual({row: rows[row] for row in ("pretrained", "l2-sp", "lp-ft", "tpgm:mu=1e-4")},
                         {"pretrained": (1, 0), "l2-sp": (3, 3 * steps), "lp-ft": (2, 2 * steps), "tpgm:mu=1e-4": (1, 0)})
        self.assertEqual(list(plan("--methods", "lp")[0]), ["pretrained", "lp", "ft", "all"])
        self.assertNotIn("lp-ft", plan(epochs=1)[0])

        # A random head means nothing before it is trained.
        rows, said = plan(head="fresh")
        self.assertEqual(rows["lp"], (2, 2 * steps))
        self.assertNotIn("pretrained", rows)
        self.assertIn("tpgm compare: the head is fresh, so there is no row of the model before fine-tuning\n", said)
        self.assertEqual(plan("--head-lr", "1e-2", head="fresh")[0]["lp"], (1, steps))

        run = self.folder / "run"
        self.run_ok(*self.arguments("-o", run, epochs=0))
        rows, _ = plan("--checkpoint", run, head="checkpoint")
        self.assertEqual((rows["pretrained"], rows["lp"]), ((1, 0), (2, 2 * steps)))
        self.assertFalse(self.out.exists())

    def test_a_folder_of_the_same_name_is_no_table(self):
        (self.folder / "compare").mkdir()
        (self.folder / "compare" / "paper.csv").write_text("nonsense\n")
        result = test_cli.tpgm(*self.command("--dry-run"), cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_failed_row(self):
        (self.out / "runs" / "ftp" / "seed=0").mkdir(parents=True)
        (self.out / "runs" / "ftp" / "seed=0" / "mine.txt").write_text("not a run")
        result = test_cli.tpgm(*self.command("--methods", "ftp,tpgm"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("ftp/seed=0 failed: ", result.stderr)
        self.assertIn("tpgm compare: some runs failed, and are missing above; the same command tries them again\n",
                      result.stderr)
        self.assertEqual(self.labels(), [label for label in LABELS if label[:4] in ("Zero", "FT", "TPGM")])
        (self.out / "runs" / "ftp" / "seed=0" / "mine.txt").unlink()
        self.run_ok(*self.command("--methods", "ftp,tpgm"))
        self.assertIn("FTP", self.labels())

    def test_stopped(self):
        command = self.command("--methods", "wise", "--checkpoint-every", "1", epochs=60)
        ft = self.out / "runs" / "ft" / "seed=0"
        process = self.start(*command)
        self.wait_for(lambda: (ft / "resume.safetensors").exists())
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 143, errors)
        self.assertFalse((ft / "result.json").exists())
        self.assertFalse((self.out / "report.html").exists())
        self.run_ok(*command)
        self.assertIn("resuming at step", (self.out / "runs" / "ft" / "seed=0.log").read_text())
        self.assertEqual(self.labels()[:2], ["Zero-shot", "FT"])

    def test_mistakes(self):
        for arguments, words in (
                (["compare"], "--data-dir is needed: tpgm compare --data-dir photos --checkpoint my-clip"),
                (["compare", "--data-dir", self.data], "--checkpoint is needed"),
                (self.command("--methods", "ft,wsie"), "no 'wsie'; did you mean 'wise'?"),
                (self.command(epochs=0), "--epochs 0 leaves nothing to compare"),
                (self.command("--method", "tpgm"), "did you mean '--methods'?"),
                (self.command("--seed", "1"), "did you mean '--seeds'?"),
                (self.command("--mu", "1"), "no option '--mu'")):
            with self.subTest(words):
                self.assertIn(words, self.error(2, *arguments))
        self.assertIn("no selection data to choose between", self.error(1, *self.command("--selection-fraction", "0")))
        self.assertIn("its error is above", self.error(1, *self.command("--checkpoint", self.folder / "nowhere")))
        self.assertFalse(self.out.exists())

    def test_help_names_the_rows(self):
        table = (ROOT / "recipes" / "tables" / "compare" / "paper.csv").read_text().splitlines()[2:]
        text = " ".join(self.expect(0, "compare", "--help").split())
        text = text[text.index("--methods"):text.index("--seeds")]
        for row in table:
            self.assertRegex(text, rf"\b{row.split(',')[1].split(':')[0]}\b")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    os.environ["OMP_NUM_THREADS"] = "1"  # images of 32 x 32 are not worth more
    unittest.main()
