"""Models that are TorchScript, and their runs, as a user runs them: python3 test_script_cli.py path/to/tpgm"""

import json
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
from pathlib import Path

import test_cli
from test_cli import read_safetensors, tpgm
from test_data_cli import RESNET, DataCommand
from test_eval_cli import SMALL
from test_models_cli import GOLDENS, tensor
from test_sweep_cli import ROOT

SCRIPT = GOLDENS / "torchvision-resnet-basic" / "script.pt"  # of the model RESNET: 7 outputs, its last layer is 'fc'


class ScriptCommand(DataCommand):
    def setUp(self):
        super().setUp()
        self.pacs = self.small / "pacs"
        self.script = Path(shutil.copy(SCRIPT, self.folder / "model.pt"))
        self.model = f"script:{self.script}:image_size=32"

    def train(self, name, *more, epochs=1):
        run = self.folder / "runs" / name
        result = self.run_ok("train", "--data-dir", self.pacs, "--train", "photo", "--test", "sketch", "--epochs", epochs,
                             "--batch-size", "7", "--lr", "1e-2", "--no-aug", "--workers", "1", "--device", "cpu",
                             "--selection-fraction", "0", "-o", run, *more)
        return run, result.stderr

    def logits(self, checkpoint, *more, cwd=None):
        """Of sketch, and the notes."""
        output = self.folder / "logits.safetensors"
        result = tpgm("predict", "--checkpoint", checkpoint, "--data-dir", self.pacs, "--domains", "sketch", "-o", output, *more,
                      cwd=cwd)
        self.assertEqual(result.returncode, 0, result.stderr)
        return tensor(output, "logits")[1], result.stderr

    def loss(self, *arguments):
        (row,) = json.loads(self.run_ok("eval", *arguments, "--json").stdout)["checkpoints"]
        return next(test["loss"] for test in row["tests"] if test["name"] == "sketch")

    def assert_near(self, one, other, delta=1e-4):
        self.assertEqual(len(one), len(other))
        self.assertLess(max(abs(a - b) for a, b in zip(one, other)), delta)

    def forget(self, source, name):
        """A copy without metadata, as other tools save it."""
        content = Path(source).read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + length])
        del header["__metadata__"]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        target = self.folder / name
        target.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length:])
        return target


class Runs(ScriptCommand):
    def test_of_a_script_are_read_back_by_everything(self):
        ft, _ = self.train("ft", "--model", self.model)
        best, name = ft / "best.safetensors", "backbone.conv1.weight"
        note = f"runs the TorchScript program '{self.script}', named by "
        expected, said = self.logits(best, "--model", self.model)
        self.assertIn(f"'{best}': runs the TorchScript program '{self.script}', given as --model\n", said)
        self.assertEqual(said.count("runs the TorchScript"), 1, said)
        for checkpoint in (ft, best):
            found, said = self.logits(checkpoint)
            self.assertEqual(found, expected)
            self.assertIn(f"'{checkpoint}': {note}the recipe of its run", said)

        # Files in other places: copies by the command lie beside the script.
        copy = self.folder / "copy.safetensors"
        self.run_ok("convert", ft, "-o", copy)
        bare = self.forget(best, "bare.safetensors")
        found, said = self.logits(copy)
        self.assertEqual(found, expected)
        self.assertIn(f"{note}its metadata", said)
        self.assertEqual(self.logits(bare, "--model", self.model)[0], expected)

        # --weights, with and without sizes, and --checkpoint.
        plain = f"script:{self.script}"
        for start, model in ((ft, self.model), (ft, plain), (copy, self.model), (copy, plain), (bare, self.model)):
            with self.subTest(start=start.name, model=model):
                run, _ = self.train(f"wise-{start.name}-{len(model)}", "--model", model, "--weights", start, "--method", "wise",
                                    "--ratio", "1", epochs=0)
                self.assertEqual(tensor(run / "best.safetensors", name), tensor(best, name))
        for start, more in ((ft, ()), (copy, ()), (bare, ("--model", self.model))):
            with self.subTest(checkpoint=start.name):
                run, said = self.train(f"again-{start.name}", "--checkpoint", start, "--head", "checkpoint", *more, epochs=0)
                self.assertEqual(said.count("runs the TorchScript"), 1, said)
                self.assertEqual("given as --model" in said, bool(more))
                self.assertEqual(self.logits(run)[0], expected)
        fresh, said = self.train("fresh", "--checkpoint", ft, epochs=0)
        self.assertIn("left out the head of 7 classes", said)
        self.assertEqual(tensor(fresh / "best.safetensors", name), tensor(best, name))

        # eval and project.
        data = ("--data-dir", self.pacs, "--test", "sketch")
        for checkpoint in (best, copy):
            self.assertAlmostEqual(self.loss(checkpoint, *data), self.loss(ft), places=5)
        self.assertIn(f"{note}the recipe of its run", tpgm("eval", ft, "--fresh").stderr)
        out = self.folder / "projected.safetensors"
        said = self.run_ok("project", "--anchor", self.script, "--checkpoint", best, "--radius-data", self.pacs, "--part",
                           "cartoon", "--radius-steps", "2", "--device", "cpu", "-o", out).stderr
        self.assertIn(f"{note}the recipe of its run", said)
        self.assertEqual(said.count("runs the TorchScript"), 1, said)
        self.assertEqual(read_safetensors(out)[1]["tpgm.model"], self.model)
        self.logits(out)

    def test_take(self):
        table = self.folder / "table"
        table.mkdir()
        common = f'model = "{self.model}"\ndata-dir = "{self.pacs}"\ntrain = "photo"\ntest = "sketch"\n' \
                 'batch-size = 7\nlr = 1e-2\nno-aug = true\nworkers = 1\ndevice = "cpu"\n'
        (table / "ft.toml").write_text(common + "epochs = 1\n")
        (table / "wise.toml").write_text(common + 'method = "wise"\nepochs = 0\nratio = 1\ntake = ["weights=ft"]\n')
        (table / "paper.csv").write_text("row,recipe,sketch=Sketch\nFT,ft,\nWISE,wise,\n")
        result = tpgm("reproduce", table, "-o", self.folder / "out", "--jobs", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        ft, wise = (next(self.folder.glob(f"out/**/{row}/**/best.safetensors")) for row in ("ft", "wise"))
        self.assertEqual(tensor(ft, "backbone.conv1.weight"), tensor(wise, "backbone.conv1.weight"))

    def test_compare(self):
        command = ("compare", "--model", self.model, "--data-dir", self.pacs, "--train", "photo", "--test", "sketch", "--epochs",
                   "1", "--batch-size", "7", "--lr", "1e-2", "--no-aug", "--workers", "1", "--device", "cpu",
                   "--selection-fraction", "0", "--methods", "ft", "-o", self.folder / "compare")
        said = self.run_ok(*command).stderr
        self.assertIn("the head is fresh, so there is no row of the model before fine-tuning", said)
        page = (self.folder / "compare" / "report.html").read_text(encoding="utf-8")
        self.assertIn("<h1>model.pt on pacs</h1>", page)

    def test_a_script_elsewhere(self):
        ft, _ = self.train("ft", "--model", self.model, epochs=0)
        expected, _ = self.logits(ft)
        alone = self.folder / "sent"
        alone.mkdir()
        sent = Path(shutil.copy(ft / "best.safetensors", alone))
        said = self.error(1, "predict", "--checkpoint", sent, "--data-dir", self.pacs, "-o", self.folder / "none.safetensors")
        self.assertIn(f"'{sent}' names the TorchScript program '{self.script}'", said)
        self.assertIn(f"give it as --model {self.model}", said)
        self.assertEqual(self.logits(sent, "--model", self.model)[0], expected)
        self.assertEqual(self.logits(sent, cwd=self.folder)[0], expected)

        # The run moves, and the script with it.
        moved = self.folder / "moved"
        ft.rename(moved)
        self.script.rename(moved / "model.pt")
        for checkpoint in (moved, moved / "best.safetensors"):
            found, said = self.logits(checkpoint)
            self.assertEqual(found, expected)
            self.assertIn(f"runs the TorchScript program '{moved / 'model.pt'}'", said)
        self.run_ok("eval", moved, "--fresh")
        # Weights that lost their metadata: the recipe knows the model.
        shutil.copy(self.forget(moved / "best.safetensors", "bare.safetensors"), moved / "best.safetensors")
        self.run_ok("eval", moved, "--fresh")
        shutil.copy(sent, moved / "best.safetensors")
        (moved / "model.pt").unlink()
        self.assertIn("is not there, nor beside the checkpoint", self.error(1, "eval", moved, "--fresh"))

    def test_resumed_elsewhere_to_the_byte(self):
        """The paths in the metadata are those of an uninterrupted run, from wherever it is resumed."""
        runs = [self.folder / name for name in ("whole", "stopped")]
        for run in runs:
            begin = ("train", "--model", "script:model.pt:image_size=32", "--data-dir", self.pacs, "--train", "photo",
                     "--test", "sketch", "--epochs", "20", "--batch-size", "7", "--workers", "1", "--device", "cpu", "-o",
                     run.name)
            if run.name == "whole":
                self.assertEqual(tpgm(*begin, cwd=self.folder).returncode, 0)
                continue
            process = subprocess.Popen([test_cli.COMMAND, *map(str, begin)], cwd=self.folder, stderr=subprocess.PIPE)
            self.addCleanup(process.kill)
            while not (run / "last.safetensors").exists() and process.poll() is None:
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            process.communicate()
            self.assertEqual(process.returncode, 128 + signal.SIGINT)
            resumed = tpgm("train", "--resume", "../stopped", cwd=runs[0])
            self.assertEqual(resumed.returncode, 0, resumed.stderr)
        for name in ("best.safetensors", "last.safetensors"):
            self.assertEqual(*((run / name).read_bytes() for run in runs))

    def test_resume_of_a_run_that_moved(self):
        """A run that was stopped goes on in another place, with its script beside it."""
        ft, _ = self.train("ft", "--model", self.model, "--checkpoint-every", "1", epochs=1)
        moved = self.folder / "moved"
        ft.rename(moved)
        self.script.rename(moved / "model.pt")
        recipe = moved / "recipe.toml"
        recipe.write_text(recipe.read_text().replace("epochs = 1\n", "epochs = 2\n"))
        (moved / "result.json").unlink()  # as if it had been stopped in its first epoch
        self.run_ok("train", "--resume", moved)
        self.assertIn(f"script:{moved / 'model.pt'}", read_safetensors(moved / "best.safetensors")[1]["tpgm.model"])

        page = self.folder / "page.html"
        self.run_ok("report", moved, "-o", page)
        self.assertNotIn("No distance of", page.read_text(encoding="utf-8"))
        self.assertTrue((self.folder / "page" / "distance.csv").is_file())

    def test_a_working_folder_that_is_gone(self):
        gone = self.folder / "gone"
        gone.mkdir()
        command = f'cd "{gone}" && rmdir "{gone}" && "{test_cli.COMMAND}" train --model script:x.pt --data-dir "{self.pacs}" ' \
                  '--train photo --device cpu -o out'
        result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("the working folder does not exist any more; change into one that does", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_paths_are_those_of_the_working_folder(self):
        run = self.folder / "run"
        result = tpgm("train", "--model", "script:model.pt:image_size=32", "--data-dir", self.pacs, "--train", "photo", "--test",
                      "sketch", "--epochs", "0", "--workers", "1", "--device", "cpu", "-o", "run", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(read_safetensors(run / "best.safetensors")[1]["tpgm.model"], self.model)
        self.assertIn(f'model = "{self.model}"', (run / "recipe.toml").read_text())
        self.logits(run)


class TableOfPacs(ScriptCommand):
    """recipes/tables/pacs, whose model is a script: one table for each training domain."""

    DOMAINS = ("art_painting", "cartoon", "photo", "sketch")

    def command(self, table, *more):
        return ("reproduce", ROOT / "recipes" / "tables" / table, "--data-dir", self.pacs, "--model", f"script:{self.script}",
                "--image-size", "32", "--workers", "1", "--device", "cpu", "-o", self.folder / "out", *more)

    def test_its_recipes_plan_every_method(self):
        lines = [line.split() for line in self.run_ok(*self.command("pacs", "--dry-run")).stdout.splitlines()]
        plans = {}
        for words in lines:
            if words and words[0].startswith("pacs/"):
                rows = plans.setdefault(words[0].removeprefix("pacs/"), {})
            elif len(words) == 6 and words[1].isdigit():
                rows[words[0]] = words[1:3]
        self.assertEqual(tuple(plans), self.DOMAINS)
        for rows in plans.values():
            self.assertEqual(list(rows), ["ft", "lp", "pf", "bitfit", "l2-sp", "mars-sp", "lp-ft", "wise", "tpgm", "tpgm-end",
                                          "tpgm-c", "ftp", "spd", "all"])
            self.assertEqual({row for row, (_, steps) in rows.items() if steps == "0"}, {"wise", "tpgm-end", "tpgm-c"})

    def test_rows_of_one_table(self):
        self.run_ok(*self.command("pacs/sketch", "--rows", "wise,tpgm", "--seeds", "0", "--epochs", "1", "--lr", "1e-2",
                                   "--selection-fraction", "0.4"))
        out = self.folder / "out" / "sketch"
        settings = (out / "tpgm" / "seed=0" / "recipe.toml").read_text()
        for line in ('train = ["sketch"]', 'test = ["photo", "art_painting", "cartoon"]', 'id = ["sketch"]', 'every = "1"',
                     'norm = "mars"'):
            self.assertIn(line + "\n", settings)
        table = (out / "table.md").read_text()
        self.assertIn("one standard error", table)
        self.assertRegex(table, r"WISE: ratio=0\.[13579]\b")


class Classifiers(ScriptCommand):
    """A script that returns logits. The same model as ours says what they are."""

    def setUp(self):
        super().setUp()
        self.data = ("--data-dir", self.pacs, "--test", "sketch")
        self.expected, _ = self.logits(RESNET, "--model", SMALL)

    def test_without_training(self):
        loss = self.loss(RESNET, "--model", SMALL, *self.data)
        for checkpoint in (self.script, RESNET):  # the state dict has the script's own names
            self.assert_near(self.logits(checkpoint, "--model", self.model)[0], self.expected)
            self.assertAlmostEqual(self.loss(checkpoint, "--model", self.model, *self.data), loss, places=4)
        self.assertAlmostEqual(self.loss(self.model, *self.data), loss, places=4)

    def test_trained_with_its_own_head(self):
        start, said = self.train("start", "--model", self.model, "--head", "checkpoint", epochs=0)
        self.assertNotIn("fresh head", said)
        self.assert_near(self.logits(start)[0], self.expected)
        ft, _ = self.train("ft", "--model", self.model, "--head", "checkpoint", "--method", "tpgm", "--every", "end",
                           "--radius-steps", "2")
        tensors = {run: read_safetensors(run / "best.safetensors")[0] for run in (start, ft)}
        for name in ("backbone.fc.weight", "backbone.conv1.weight"):
            self.assertNotEqual(tensors[ft][name], tensors[start][name])
        self.assertEqual(tensors[ft]["head.weight"], tensors[start]["head.weight"])
        again, _ = self.train("again", "--checkpoint", ft, "--head", "checkpoint")
        self.assertEqual(tensor(again / "best.safetensors", "head.weight")[1], [float(i == j) for i in range(7) for j in range(7)])

        out = self.folder / "projected.safetensors"
        result = self.run_ok("project", "--anchor", self.script, "--checkpoint", ft, "--radius-data", self.pacs, "--part",
                             "cartoon", "--radius-steps", "2", "--device", "cpu", "-o", out)
        self.assertNotIn("has no head", result.stderr)
        self.assertIn("backbone.fc", result.stdout)
        self.logits(out)

    def test_every_method_is_that_of_the_same_model_of_ours(self):
        models = {"script": ("--model", self.model), "ours": ("--model", SMALL, "--checkpoint", RESNET)}
        for method in ("ft", "lp", "pf", "bitfit", "l2-sp", "mars-sp", "lp-ft", "wise", "tpgm", "ftp", "spd"):
            more = {"mars-sp": ("--radius", "0.1"), "lp-ft": ("--lp-epochs", "1")}.get(method, ())
            losses = {}
            for name, model in models.items():
                run, said = self.train(f"{method}-{name}", *model, "--head", "checkpoint", "--method", method, "--interpolation",
                                       "bilinear", "--opt", "sgd", "--lr", "0.3", *more, epochs=2)
                losses[name] = [test["loss"] for test in json.loads((run / "result.json").read_text())["tests"]]
                if method == "tpgm":
                    self.assertIn("in every step (--every 1), because the network has BatchNorm", said)
            with self.subTest(method=method):
                self.assert_near(losses["script"], losses["ours"], delta=1e-3)

    def test_its_last_layer_is_the_head(self):
        classifier = ("--model", self.model, "--head", "checkpoint")
        start, _ = self.train("start", *classifier, epochs=0)
        self.assertIn('head-name = "fc"', (start / "recipe.toml").read_text())
        self.assertEqual(read_safetensors(start / "best.safetensors")[1]["tpgm.head_name"], "fc")
        before = read_safetensors(start / "best.safetensors")[0]
        for name, more in {"lp": ("--method", "lp"), "still": ("--head-lr", "0"), "named": ("--method", "lp", "--head-name", "fc")}.items():
            after = read_safetensors(self.train(name, *classifier, *more)[0] / "best.safetensors")[0]
            moved = {key for key in before if key.split(".")[-1] in ("weight", "bias") and before[key] != after[key]}
            fc = {"backbone.fc.weight", "backbone.fc.bias"}
            if name == "still":
                self.assertFalse(moved & fc)
                self.assertIn("backbone.conv1.weight", moved)
            else:
                self.assertEqual(moved, fc)
        said = self.error(1, "train", *classifier, "--head-name", "classifier", "--data-dir", self.pacs, "--train", "photo",
                          "--device", "cpu", "-o", self.folder / "none")
        self.assertIn("--head-name classifier: the script has no linear layer of this name with 7 outputs; those are fc", said)

    def test_a_fresh_head_on_logits(self):
        _, said = self.train("fresh", "--model", self.model, epochs=0)
        self.assertIn(f"'{self.model}': the script already returns 7 logits (of its last layer, 'fc'); a fresh head is put on "
                      "top of them, and --head checkpoint uses them", said)

    def test_an_archive_of_unknown_names(self):
        archive = Path(test_cli.GOLDENS) / "torch" / "script_linear.pt"
        said = self.error(1, "train", "--checkpoint", archive, "--data-dir", self.pacs, "--train", "photo", "-o", self.folder / "no")
        self.assertIn(f"It is TorchScript: give it as --model script:{archive}", said)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
