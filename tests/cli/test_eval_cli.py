"""Accuracy and projection, as a user runs them: python3 test_eval_cli.py path/to/tpgm"""

import csv
import json
import math
import os
import random
import shutil
import struct
import sys
import unittest
from pathlib import Path

import test_cli
from test_cli import floats, read_safetensors, tpgm
from test_data_cli import RESNET, DataCommand
from test_models_cli import CLIP, GOLDENS, tensor

SMALL = "resnet:image_size=32"
NAMES = ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]


def change_tensors(source, target, change):
    """Copies a safetensors file; each float32 tensor becomes change(name, values)."""
    data = Path(source).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    body = bytearray(data[8 + length:])
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        count = (end - begin) // 4
        body[begin:end] = struct.pack(f"<{count}f", *change(name, struct.unpack(f"<{count}f", body[begin:end])))
    Path(target).write_bytes(data[:8 + length] + body)
    return Path(target)


def parameters(path):
    return {name: floats(entry) for name, entry in read_safetensors(path)[0].items()
            if entry[0] == "F32" and "running_" not in name}


def metadata(path):
    return read_safetensors(path)[1]


class TwoCheckpoints(DataCommand):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pacs = cls.small / "pacs"
        cls.pre = cls.shared / "pre.safetensors"
        tpgm("convert", RESNET, "-o", cls.pre, "--to", "tpgm").check_returncode()
        noise = random.Random(0)
        cls.ft = change_tensors(cls.pre, cls.shared / "ft.safetensors", lambda name, values: [
            value if "running_" in name else value + noise.gauss(0, 0.05) for value in values])


class Eval(TwoCheckpoints):
    def setUp(self):
        super().setUp()
        self.common = ("--model", SMALL, "--data-dir", self.pacs)

    def eval_json(self, *arguments):
        return json.loads(self.run_ok("eval", *arguments, "--json").stdout)["checkpoints"]

    def logits(self, checkpoint, domain, data=None, *more):
        """Rows of logits and labels, by the command that has tests of its own."""
        output = self.folder / "logits.safetensors"
        self.run_ok("predict", "--checkpoint", checkpoint, "--model", SMALL, "--data-dir", data or self.pacs, "--domains",
                    domain, "-o", output, *more)
        (count, classes), values = tensor(output, "logits")
        entry = read_safetensors(output)[0]["labels"]
        labels = struct.unpack(f"<{count}q", entry[2])
        return [values[classes * i:classes * (i + 1)] for i in range(count)], labels

    def expected(self, rows, labels, over=None):
        """top-1, top-5 and loss, one image after another."""
        over = range(len(rows[0])) if over is None else over
        ranks = [sum(row[k] > row[label] for k in over) for row, label in zip(rows, labels, strict=True)]
        losses = [math.log(sum(math.exp(row[k] - row[label]) for k in over)) for row, label in zip(rows, labels, strict=True)]
        return (100 * sum(rank < 1 for rank in ranks) / len(ranks), 100 * sum(rank < 5 for rank in ranks) / len(ranks),
                sum(losses) / len(losses))

    def check_test(self, test, expected):
        self.assertAlmostEqual(test["top1"], expected[0], places=9)
        self.assertAlmostEqual(test["top5"], expected[1], places=9)
        self.assertAlmostEqual(test["loss"], expected[2], places=4)

    def test_numbers(self):
        table = self.folder / "table.csv"
        classes = self.folder / "classes.csv"
        rows = self.eval_json(f"before={self.pre}", self.ft, *self.common, "--test", "sketch,photo,cartoon", "--id", "photo",
                              "--csv", table, "--per-class", classes, "-b", "9")
        self.assertEqual([row["name"] for row in rows], ["before", "ft.safetensors"])
        means = []
        lines, per_class = (list(csv.DictReader(path.read_text().splitlines())) for path in (table, classes))
        for row, path in zip(rows, (self.pre, self.ft), strict=True):
            self.assertEqual([(test["name"], test["id"]) for test in row["tests"]],
                             [("photo", True), ("sketch", False), ("cartoon", False)])
            top1 = []
            for test in row["tests"]:
                logits, labels = self.logits(path, test["name"])
                self.check_test(test, self.expected(logits, labels))
                top1.append(test["top1"])
                line = next(each for each in lines if (each["checkpoint"], each["test"]) == (row["name"], test["name"]))
                self.assertEqual((float(line["top1"]), float(line["loss"]), line["pictures"], line["classes_scored"]),
                                 (test["top1"], test["loss"], "28", "7"))
                predicted = [max(range(7), key=lambda k: each[k]) for each in logits]
                for k, name in enumerate(NAMES):
                    line = next(each for each in per_class if (each["checkpoint"], each["test"], each["class"]) ==
                                (row["name"], test["name"], name))
                    self.assertEqual((int(line["pictures"]), int(line["right"])),
                                     (labels.count(k), sum(a == b == k for a, b in zip(labels, predicted))))
            means.append((top1[0], (top1[1] + top1[2]) / 2))
            self.assertAlmostEqual(row["id_average"], means[-1][0])
            self.assertAlmostEqual(row["ood_average"], means[-1][1])
            for key, mean, first in (("id_change", means[-1][0], means[0][0]), ("ood_change", means[-1][1], means[0][1])):
                self.assertAlmostEqual(row[key], 100 * (mean - first) / first)
        self.assertNotEqual(means[0], means[1])

    def test_table(self):
        text = self.run_ok("eval", f"a={self.pre}", f"b={self.ft}", *self.common, "--test", "photo,sketch,cartoon", "--id",
                           "photo", "--top5").stdout
        for part in ("Top-1 accuracy (%)", "Top-5 accuracy (%)", "OOD avg.", "ID Δ (%)", "OOD Δ (%)",
                     "Scored over all 7 classes.", "Images: photo 28, sketch 28, cartoon 28."):
            self.assertIn(part, text)
        self.assertNotIn("ID avg.", text)
        plain = self.run_ok("eval", self.pre, *self.common, "--test", "photo,sketch").stdout
        self.assertIn("avg.", plain)
        for part in ("ID", "Δ"):
            self.assertNotIn(part, plain)

    def run_folder(self, name, checkpoint, test, **more):
        """As `tpgm train` leaves it, as far as this command looks."""
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(checkpoint, folder / "best.safetensors")
        recipe = {"model": SMALL, "data-dir": str(self.pacs), "test": test, "method": "tpgm", "mu": "0.1",
                  "device": "cuda:9"} | more
        (folder / "recipe.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in recipe.items()))
        (folder / "result.json").write_text("{}")
        return folder

    def test_runs_say_what_to_test_on(self):
        before = self.run_folder("before", self.pre, ["sketch", "cartoon"], train="photo")
        after = self.run_folder("after", self.ft, ["cartoon", "sketch"], train="photo")
        rows = self.eval_json(before, after, f"file={self.ft}", "--device", "cpu")
        names = [[test["name"] for test in row["tests"]] for row in rows]
        self.assertEqual(names, [["photo", "sketch", "cartoon"]] * 3)
        self.assertEqual([test["id"] for test in rows[0]["tests"]], [True, False, False])
        self.assertLess(rows[0]["tests"][0]["pictures"], 28)  # held out
        (_, of_sketch), *_ = ((row["name"], row["tests"][1]) for row in rows[1:])
        self.check_test(of_sketch, self.expected(*self.logits(self.ft, "sketch")))
        # Flags beat recipes; another data set is none of the run's.
        rows = self.eval_json(before, after, "--test", "art_painting", "--device", "cpu")
        self.assertEqual([test["name"] for test in rows[1]["tests"]], ["photo", "art_painting"])
        (row,) = self.eval_json(before, "--data-dir", self.pacs, "--test", "sketch", "--device", "cpu")
        self.assertEqual([(test["name"], test["id"]) for test in row["tests"]], [("sketch", False)])
        self.assertIn("with --data-dir, recipes do not say", self.error(2, "eval", before, "--data-dir", self.pacs))

    def test_an_unfinished_run(self):
        run = self.run_folder("begun", self.pre, ["sketch"], train="photo")
        (run / "result.json").unlink()
        self.assertIn("is not finished", self.run_ok("eval", run, "--device", "cpu").stderr)
        (run / "best.safetensors").unlink()
        self.assertIn("has not finished an epoch yet; resume it first",
                      self.expect_one_line(1, "eval", run, "--device", "cpu"))

    def test_results_that_a_run_has(self):
        def train(name, *more):
            run = self.folder / name
            self.run_ok("train", "--checkpoint", self.pre, *self.common, "--train", "photo", "--test", "sketch", "--head",
                        "fresh", "--epochs", "0", "--device", "cpu", "--workers", "1", "-o", run, *more)
            return run

        def shown(*arguments):
            result = self.run_ok("eval", *arguments, "--device", "cpu")
            return result.stdout, "result.json" in result.stderr

        one, two = train("one"), train("two", "--seed", "1")
        table, stored = shown(one, two)
        self.assertTrue(stored)
        self.assertEqual(shown(one, two, "--fresh"), (table, False))
        self.assertIn("Scored over all 7 classes.", table)
        # It is the file that is shown, unless something is asked for that it lacks or that changes it.
        result = json.loads((one / "result.json").read_text())
        for test in result["tests"]:
            test["top1"] = 100.0
        (one / "result.json").write_text(json.dumps(result))
        self.assertIn("100.00", shown(one)[0])
        for more in (("--fresh",), ("--top5",), ("--test-fraction", "0.5"), ("--crop-pct", "1"), ("--classes", "subset"),
                     ("--csv", self.folder / "x.csv"), ("--json",)):
            with self.subTest(more):
                text, stored = shown(one, *more)
                self.assertNotIn("100.00", text)
                self.assertFalse(stored)
        self.assertEqual(shown(one, self.pre), shown(one, self.pre, "--fresh"))
        # Weights that are others, and runs of versions that did not write which they were.
        best = (one / "best.safetensors").read_bytes()
        shutil.copy(two / "best.safetensors", one)
        self.assertFalse(shown(one)[1])
        (one / "best.safetensors").write_bytes(best)
        self.assertTrue(shown(one)[1])
        del result["weights"]
        (one / "result.json").write_text(json.dumps(result))
        self.assertFalse(shown(one)[1])

    def test_runs_that_cannot_be_compared(self):
        one = self.run_folder("one", self.pre, ["sketch", "cartoon"], train="photo")
        two = self.run_folder("two", self.pre, ["sketch"], train="photo")
        three = self.run_folder("three", self.pre, ["photo", "cartoon"], train="sketch")
        self.assertIn("'one' is tested on photo, sketch, cartoon, 'two' photo, sketch; give all of them the same with --test",
                      self.expect_one_line(1, "eval", one, two, "--device", "cpu"))
        self.assertIn("'one' counts as in-distribution photo, 'three' sketch; give all of them the same with --id",
                      self.expect_one_line(1, "eval", one, three, "--device", "cpu"))
        four = self.run_folder("four", self.pre, ["sketch"], train="photo", **{"split-seed": 1})
        self.assertIn("'four' is tested on other images of photo than 'two' is",
                      self.run_ok("eval", two, four, "--device", "cpu").stderr)

    def test_mixed_precision(self):
        # On virtual machines that announce AMX and have no tiles, oneDNN would stop at the first bf16 product.
        environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
        losses = []
        for more in ((), ("--amp",)):
            result = tpgm("eval", self.pre, *self.common, "--test", "photo", "--device", "cpu", "--json", *more,
                          env=environment)
            self.assertEqual(result.returncode, 0, result.stderr)
            losses.append(json.loads(result.stdout)["checkpoints"][0]["tests"][0]["loss"])
        self.assertNotEqual(*losses)
        self.assertAlmostEqual(*losses, delta=0.02)

    def test_two_files_of_one_name(self):
        (self.folder / "other").mkdir()
        again = Path(shutil.copy(self.ft, self.folder / "other" / "pre.safetensors"))
        rows = self.eval_json(self.pre, again, *self.common, "--test", "photo")
        self.assertEqual([row["name"] for row in rows], [str(self.pre), str(again)])

    def test_over_the_classes_that_occur(self):
        few = self.folder / "few"
        for name in ("dog", "guitar", "horse"):
            shutil.copytree(self.pacs / "sketch" / name, few / name)
        names = self.folder / "names.txt"
        names.write_text("\n".join(NAMES))
        common = (self.pre, "--model", SMALL, "--class-list", names, "--test", f"few={few}")
        (row,) = self.eval_json(*common)
        (of_some,) = self.eval_json(*common, "--classes", "subset")
        logits, labels = self.logits(self.pre, "sketch")
        kept = [(row, label) for row, label in zip(logits, labels) if label in (0, 3, 4)]
        self.assertEqual(len(kept), 12)
        logits, labels = zip(*kept)
        self.check_test(row["tests"][0], self.expected(logits, labels))
        self.check_test(of_some["tests"][0], self.expected(logits, labels, over=(0, 3, 4)))
        text = self.run_ok("eval", *common, "--classes", "subset").stdout
        self.assertIn("Scored over the classes that occur, of 7: few 3.", text)
        # In another order of the head, labels are others.
        names.write_text("\n".join(reversed(NAMES)))
        (other,) = self.eval_json(*common)
        self.check_test(other["tests"][0], self.expected(logits, [6 - label for label in labels]))

    def test_a_head_from_text(self):
        names = self.folder / "names.txt"
        seen = []
        for order in (NAMES, NAMES[::-1]):
            names.write_text("\n".join(order))
            head = self.folder / "head.safetensors"
            self.run_ok("zeroshot", "--checkpoint", CLIP, "--classnames", names, "-o", head)
            (row,) = self.eval_json(f"zero-shot={CLIP}", "--head", head, "--data-dir", self.pacs, "--test", "photo,sketch")
            seen.append([(test["top1"], round(test["loss"], 4)) for test in row["tests"]])
        self.assertEqual(*seen)
        note = self.run_ok("eval", self.pre, "--head", head, *self.common, "--test", "photo").stderr
        self.assertIn("has a head of its own", note)
        self.assertIn("no classification head", self.error(1, "eval", CLIP, "--data-dir", self.pacs, "--test", "photo"))

    def test_a_script_is_a_classifier(self):
        script = f"script:{GOLDENS / 'torchvision-resnet-basic' / 'script.pt'}:image_size=32"
        (row,) = self.eval_json(script, "--data-dir", self.pacs, "--test", "photo")
        (same,) = self.eval_json(RESNET, *self.common, "--test", "photo")
        self.assertAlmostEqual(row["tests"][0]["loss"], same["tests"][0]["loss"], places=4)

    def test_held_out_test_and_fractions(self):
        (row,) = self.eval_json(self.pre, *self.common, "--train", "photo", "--test", "sketch")
        self.assertEqual([(test["name"], test["id"]) for test in row["tests"]], [("photo", True), ("sketch", False)])
        self.assertLess(row["tests"][0]["pictures"], 28)
        (row,) = self.eval_json(self.pre, *self.common, "--test", "sketch", "--test-fraction", "0.5")
        self.assertEqual(row["tests"][0]["pictures"], 14)
        half = self.run_ok("eval", self.pre, *self.common, "--test", "sketch", "--test-fraction", "0.5")
        self.assertIn("test set sketch has only 14 images (7.14 points each): too few to compare models", half.stderr)

    def test_bad_images(self):
        pacs = self.copy("pacs")
        (pacs / "photo" / "dog" / "pic_003.jpg").write_bytes(b"")
        common = ("eval", self.pre, f"again={self.pre}", "--model", SMALL, "--data-dir", pacs, "--test", "photo")
        self.assertIn("--on-bad-image skip", self.error(1, *common))
        result = self.run_ok(*common, "--on-bad-image", "skip")
        self.assertEqual(result.stderr.count("skipped"), 1)
        self.assertIn("Images: photo 27. 1 image skipped.", result.stdout)

    def test_refused(self):
        for arguments, part in (
                ((self.pre,), "--test is required"),
                ((self.pre, "--test", "photo"), "--data-dir is required"),
                ((self.pre, *self.common, "--test", "photo", "--decode", "slow"), "--decode"),
                ((self.pre, *self.common, "--test", "photo", "--batch-size", "0"), "--batch-size"),
                ((self.pre, *self.common, "--test", "photo", "--workers", "many"), "--workers: must be an integer, not 'many'"),
                ((self.pre, *self.common, "--test", "photo", "--csv", "x", "--per-class", "x"), "the same file")):
            with self.subTest(part):
                self.assertIn(part, self.expect_one_line(2, "eval", *arguments))
        names = self.folder / "names.txt"
        names.write_text("a\nb\n")
        for arguments, part in (
                ((self.folder / "nothing", *self.common, "--test", "photo"), "nothing"),
                ((self.pre, *self.common, "--test", "foto"), "Did you mean 'photo'?"),
                ((self.pre, *self.common, "--test", "photo", "--id", "sketch"), "--id sketch is not a test"),
                ((self.pre, *self.common, "--test", "photo", "--class-list", names), "the head has 7 classes, --class-list"),
                ((self.pre, "--data-dir", self.small / "imagenet-r", "--test", "x"), "say which is which with --class-list"),
                ((self.pre, *self.common, "--test", "photo", "--csv", self.folder / "no" / "x.csv"), "x.csv")):
            with self.subTest(part):
                self.assertIn(part, self.expect_one_line(1, "eval", *arguments))
        self.assertEqual(os.listdir(self.folder), ["names.txt"])


class ImageSizes(TwoCheckpoints):
    def test_rows_of_different_sizes_are_noted(self):
        run = self.folder / "run"
        self.run_ok("train", "--checkpoint", self.pre, "--head", "checkpoint", "--data-dir", self.pacs, "--train", "photo",
                    "--epochs", "0", "--image-size", "64", "--device", "cpu", "-o", run)
        said = self.run_ok("eval", run, self.pre).stderr
        self.assertIn("'pre.safetensors' is evaluated at 224 pixels and 'run' at 64: --model FAMILY:image_size=N sets", said)
        self.assertNotIn("is evaluated at", self.run_ok("eval", self.pre, self.ft, "--data-dir", self.pacs, "--test",
                                                        "photo").stderr)


class Preprocessing(TwoCheckpoints):
    """What another library wrote beside the weights."""

    NOTE = "preprocessing of 'config.json': mean 0.5 0.5 0.5, std 0.25 0.25 0.25, crop_pct 0.9, bilinear"

    def setUp(self):
        super().setUp()
        theirs = self.folder / "timm"
        theirs.mkdir()
        self.model = shutil.copy(RESNET, theirs / "model.pth")
        self.config = theirs / "config.json"
        self.config.write_text(json.dumps({"architecture": "resnet18", "pretrained_cfg": {
            "input_size": [3, 64, 64], "mean": [0.5] * 3, "std": [0.25] * 3, "crop_pct": 0.9, "interpolation": "bilinear"}}))
        self.data = ("--data-dir", self.pacs)

    def logits(self, checkpoint, *more):
        output = self.folder / "logits.safetensors"
        self.run_ok("predict", "--checkpoint", checkpoint, "--model", SMALL, *self.data, "--domains", "photo", "-o", output,
                    *more)
        return tensor(output, "logits")

    def test_every_command_takes_it_and_says_so(self):
        output = self.folder / "out.safetensors"
        train = self.run_ok("train", "--dry-run", "--checkpoint", self.model, "--model", SMALL, *self.data, "--train", "photo")
        for line in ("crop-pct = 0.9", "mean = [0.5, 0.5, 0.5]", "std = [0.25, 0.25, 0.25]", 'interpolation = "bilinear"'):
            self.assertIn(line, train.stdout.splitlines())
        project = ("--anchor", self.pre, "--checkpoint", self.model, "--radius-data", self.pacs, "--part", "photo",
                   "--radius-steps", "1", "--radius-batch-size", "7")
        for command in (train, self.run_ok("eval", self.model, "--model", SMALL, *self.data, "--test", "photo"),
                        self.run_ok("predict", "--checkpoint", self.model, "--model", SMALL, *self.data, "-o",
                                    self.folder / "logits.safetensors"),
                        self.run_ok("project", "--model", SMALL, *project, "-o", output)):
            self.assertIn(self.NOTE, command.stderr)
            self.assertNotIn("pixels on a side", command.stderr)  # the user gives the size
        view = {"mean": [0.5] * 3, "std": [0.25] * 3, "crop_pct": 0.9, "interpolation": "bilinear"}
        self.assertEqual(json.loads(metadata(output)["tpgm.view"]), view)
        # Fine-tuned weights without such a file: images are those of the anchor.
        project = ("--anchor", self.model, "--checkpoint", self.pre, *project[4:])
        self.run_ok("project", "--model", SMALL, *project, "-o", output)
        self.assertEqual(json.loads(metadata(output)["tpgm.view"]), view)
        self.run_ok("convert", self.model, "--to", "tpgm", "-o", self.folder / "ours.safetensors")
        self.assertEqual(json.loads(metadata(self.folder / "ours.safetensors")["tpgm.view"]), view)
        size = self.run_ok("convert", self.model, "--to", "tpgm", "-o", self.folder / "ours.safetensors").stderr
        self.assertIn("its images have 64 pixels on a side, here 224; --model resnet:image_size=64 takes them", size)

    def test_what_the_user_gives_comes_first(self):
        flags = ("--mean", "0.5", "--std", "0.25", "--crop-pct", "0.9", "--interpolation", "bilinear")
        theirs, plain = self.logits(self.model), self.logits(RESNET)
        self.assertEqual(theirs, self.logits(RESNET, *flags))
        self.assertNotEqual(theirs, plain)
        usual = ("--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225", "--crop-pct", "0.875", "--interpolation", "bicubic")
        self.assertEqual(self.logits(self.model, *usual), plain)

    def test_clip_with_a_head_from_text(self):
        clip = self.folder / "clip"
        shutil.copytree(CLIP, clip)
        (clip / "preprocessor_config.json").write_text(json.dumps({
            "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3, "size": {"shortest_edge": 40},
            "do_center_crop": True, "crop_size": {"height": 32, "width": 32}}))
        result = self.run_ok("train", "--dry-run", "--checkpoint", clip, "--head", "zeroshot", *self.data, "--train", "photo")
        self.assertIn("preprocessing of 'preprocessor_config.json': mean 0.5 0.5 0.5, std 0.5 0.5 0.5, crop_pct 0.8, bicubic",
                      result.stderr)
        self.assertIn("crop-pct = 0.8", result.stdout.splitlines())

    def test_a_damaged_file_of_another_layout_is_a_note(self):
        self.config.write_text('{"architecture": "resnet18", "crop_pct": "much"}')
        arguments = ("predict", "--checkpoint", self.model, *self.data, "-o", self.folder / "x.safetensors")
        self.assertIn("'config.json' beside it is not used: crop_pct is \"much\"", self.run_ok(*arguments).stderr)


class DownloadAndRun(TwoCheckpoints):
    """A checkpoint under another library's names, and a run that began from it."""

    def test_inspect_and_wise(self):
        theirs, run, merged = (self.folder / name for name in ("theirs.safetensors", "run", "merged.safetensors"))
        self.run_ok("convert", self.pre, "-o", theirs, "--to", "torchvision")
        self.run_ok("train", "--checkpoint", theirs, "--data-dir", self.pacs, "--train", "photo", "--epochs", "1",
                    "--batch-size", "4", "--lr", "1e-3", "-o", run)
        found = json.loads(self.run_ok("inspect", theirs, run, "--json").stdout)
        self.assertGreater(len(found["tensors"]), 20)
        self.assertTrue(any(each["l2"] > 0 for each in found["tensors"]))
        self.assertEqual([name for name in found["only_a"] + found["only_b"] if not name.startswith("head.")], [])
        self.assertIn("differ; both get ours", self.run_ok("wise", theirs, run, "-o", merged, "--ratio", "0").stderr)
        # With ratio 0 the backbone is the download's; the head is the run's, or the same.
        before, after = parameters(self.pre), parameters(merged)
        self.assertEqual(after["backbone.layer1.0.conv1.weight"],
                         before.get("layer1.0.conv1.weight", before.get("backbone.layer1.0.conv1.weight")))
        self.run_ok("eval", merged, "--data-dir", self.pacs, "--test", "photo")


class Project(TwoCheckpoints):
    def arguments(self, **changes):
        options = {"anchor": self.pre, "checkpoint": self.ft, "model": SMALL, "radius_data": self.pacs, "part": "photo",
                   "radius_steps": 30, "radius_batch_size": 14, "output": self.folder / "out.safetensors"} | changes
        flat = []
        for name, value in options.items():
            if value is not None:
                flat += ["--" + name.replace("_", "-"), value]
        return ["project", *flat]

    def project_json(self, **changes):
        return json.loads(self.run_ok(*self.arguments(**changes), "--json").stdout)["outputs"]

    def test_files_are_what_the_ratios_say(self):
        outputs = self.project_json(mu="0.1,0", output=self.folder / "out")
        self.assertEqual([Path(each["file"]).name for each in outputs], ["out-mu=0.1.safetensors", "out-mu=0.safetensors"])
        pre, ft = parameters(self.pre), parameters(self.ft)
        for each in outputs:
            ours = parameters(each["file"])
            self.assertEqual(set(each["ratios"]), set(ours))
            before = after = 0
            for name, values in ours.items():
                ratio = each["ratios"][name]
                self.assertTrue(0 <= ratio <= 1, ratio)
                key = name.removeprefix("backbone.")
                distance = math.dist(pre[key], ft[key])
                self.assertAlmostEqual(min(1, each["radii"][name] / distance), ratio, places=5)
                for a, b, c in zip(pre[key], ft[key], values, strict=True):
                    self.assertAlmostEqual(a + ratio * (b - a), c, places=5)
                before += distance**2
                after += math.dist(pre[key], values)**2
            self.assertAlmostEqual(each["distance_before"], math.sqrt(before), places=4)
            self.assertAlmostEqual(each["distance_after"], math.sqrt(after), places=4)
            self.assertEqual(sum(block["tensors"] for block in each["blocks"]), len(ours))
            head = next(block for block in each["blocks"] if block["name"] == "head")
            self.assertAlmostEqual(head["ratio"], (each["ratios"]["head.weight"] + each["ratios"]["head.bias"]) / 2)
            # The table has the ratio of the distances that it shows.
            for block in (each, *each["blocks"]):
                self.assertAlmostEqual(block["distance_ratio"], block["distance_after"] / block["distance_before"])
        self.assertLess(outputs[0]["distance_after"], outputs[1]["distance_after"])

    def test_a_huge_mu_gives_the_anchor_back(self):
        (each,) = self.project_json(mu="1000", scale="relative", radius_lr="0.1")
        self.assertLess(max(each["ratios"].values()), 1e-3)
        pre = parameters(self.pre)
        for name, values in parameters(each["file"]).items():
            self.assertLess(max(abs(a - b) for a, b in zip(pre[name.removeprefix("backbone.")], values)), 1e-3)

    def test_no_steps_are_half_way(self):
        (each,) = self.project_json(radius_steps=0)
        for ratio in each["ratios"].values():
            self.assertAlmostEqual(ratio, 0.5)

    def test_the_same_bits_again(self):
        files = []
        for name in ("a", "b"):
            self.run_ok(*self.arguments(output=self.folder / name, radius_steps=5, seed=3))
            files.append((self.folder / name).read_bytes())
        self.assertEqual(*files)

    def test_every_command_knows_the_result(self):
        text = self.run_ok(*self.arguments(output=self.folder / "of-{mu}.safetensors", mu="0.01", radius_steps=5)).stdout
        output = self.folder / "of-0.01.safetensors"
        for part in ("mu 0.01", "backbone.layer1.0", "head", "ratio", str(output), "tpgm convert --to"):
            self.assertIn(part, text)
        self.assertIn("tpgm project --anchor pre.safetensors", metadata(output)["tpgm.command"])
        self.assertEqual(json.loads(metadata(output)["tpgm.classes"]), NAMES)
        self.assertEqual(len(json.loads(metadata(output)["tpgm.inputs"])), 2)
        self.run_ok("eval", output, "--data-dir", self.pacs, "--test", "photo")
        self.run_ok("convert", output, "-o", self.folder / "theirs.safetensors", "--to", "torchvision")
        theirs, ours = parameters(self.folder / "theirs.safetensors"), parameters(output)
        self.assertEqual(theirs["fc.weight"], ours["head.weight"])

    def test_a_head_without_an_anchor_stays(self):
        eight = self.folder / "eight"
        for name in NAMES:
            shutil.copytree(self.pacs / "photo" / name, eight / name)
        names = self.folder / "names.txt"
        names.write_text("\n".join(NAMES))
        head = self.folder / "head.safetensors"
        self.run_ok("zeroshot", "--checkpoint", CLIP, "--classnames", names, "-o", head)
        clip = self.folder / "clip-ft.safetensors"
        source = CLIP / "model.safetensors"
        noise = random.Random(1)
        change_tensors(source, clip, lambda name, values: [value + noise.gauss(0, 0.01) for value in values])
        shutil.copy(CLIP / "config.json", self.folder / "config.json")
        common = {"anchor": CLIP, "checkpoint": clip, "model": None, "head": head, "radius_steps": 3, "radius_data": eight,
                  "part": None}
        (each,) = self.project_json(**common)
        self.assertEqual(each["ratios"]["head.weight"], 1)  # the same in both
        self.assertEqual(tensor(each["file"], "head.weight"), tensor(head, "head.weight"))
        # Of a fine-tuned one that has a head, and an anchor that has none.
        result = self.run_ok(*self.arguments(**common | {"checkpoint": each["file"], "head": None,
                                                         "output": self.folder / "again.safetensors"}), "--json")
        self.assertIn("has no head, so the fine-tuned one stays as it is", result.stderr)
        self.assertNotIn("head.weight", json.loads(result.stdout)["outputs"][0]["ratios"])
        self.assertEqual(tensor(self.folder / "again.safetensors", "head.weight"), tensor(head, "head.weight"))

    def test_which_part(self):
        glyphs = self.folder / "parts"
        for part in ("train", "radius", "test"):
            shutil.copytree(self.pacs / "photo", glyphs / "photo" / part)
        report = json.loads(self.run_ok(*self.arguments(radius_data=glyphs, part=None, radius_steps=1), "--json").stdout)
        self.assertEqual(report["radius_data"], "photo/radius")
        self.assertIn("say which has radius data with --part", self.error(1, *self.arguments(part=None)))

    def test_refused(self):
        for changes, status, part in (
                ({"mu": "some"}, 2, "expected different numbers"), ({"mu": "1,1"}, 2, "expected different numbers"),
                ({"norm": "l3"}, 2, "must be l2|mars|mars-max"), ({"anchor": None}, 2, "--anchor is required"),
                ({"anchor": self.folder / "nothing"}, 1, "nothing"), ({"part": "foto"}, 1, "Did you mean 'photo'?"),
                ({"exclude": "haed.*"}, 1, "haed"), ({"output": self.folder / "no" / "out.safetensors"}, 1, "no"),
                ({"max_pixels": "100", "mu": "1,0"}, 1, "100"),
                ({"radius_data": self.pacs / "photo" / "dog", "part": None}, 1, "images without labels"),
                ({"radius_data": self.small / "imagenet" / "val", "part": None}, 1, "--class-list")):
            with self.subTest(changes):
                self.assertIn(part, self.expect_one_line(status, *self.arguments(**{"radius_steps": 1} | changes)))
                self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
