"""Mistakes of the first ten minutes: python3 test_errors_cli.py path/to/tpgm

Each is answered by one line that names the culprit and a way out, at once, and nothing is written.
"""

import os
import shutil
import sys
import unittest
from pathlib import Path

import test_cli
from test_cli import has_gpu, tpgm
from test_data_cli import RESNET, DataCommand
from test_models_cli import CLIP, GOLDENS

TINY = "resnet:layers=1-1-1-1,width=4,block=basic,image_size=32"


class Mistakes(DataCommand):
    def setUp(self):
        super().setUp()
        self.photos = self.small / "pacs" / "photo"  # 7 classes
        self.out = self.folder / "out"

    def answer(self, status, *arguments):
        """The last line of stderr; lines before it are notes."""
        before = sorted(self.folder.rglob("*"))
        result = test_cli.tpgm(*arguments, cwd=self.folder)
        self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
        self.assertEqual(sorted(self.folder.rglob("*")), before, "it wrote something")
        lines = result.stderr.splitlines()
        self.assertLessEqual(len(lines), 4, result.stderr)
        for word in ("Exception raised", "Traceback", "terminate called", "frame #"):
            self.assertNotIn(word, result.stderr)
        return lines[-1]

    def train(self, *more, **changes):
        options = {"model": TINY, "data-dir": self.photos, "device": "cpu", "output": self.out}
        options |= {name.replace("_", "-"): value for name, value in changes.items()}
        flat = [each for name, value in options.items() if value is not None for each in ("--" + name, value)]
        return ["train", *flat, *more]

    def write(self, name, content):
        (self.folder / name).write_bytes(content)
        return name

    # words

    def test_no_command(self):
        result = test_cli.tpgm(cwd=self.folder)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("compare all methods on the built-in data", result.stderr)  # the list of commands
        self.assertIn("Fine-tune", test_cli.tpgm("help").stdout)
        self.assertEqual(test_cli.tpgm("help", "wise").stdout, test_cli.tpgm("wise", "--help").stdout)
        self.assertIn("did you mean '--lr'? See tpgm train --help", self.answer(2, "train", "--learning_rate", "1"))

    def test_a_temporary_folder_that_is_missing(self):
        environment = os.environ | {"TMPDIR": str(self.folder / "missing")}
        self.assertEqual(tpgm("--version", env=environment).returncode, 0)
        self.assertEqual(tpgm("list", "methods", env=environment).returncode, 0)
        result = tpgm("data", "check", self.photos, env=environment)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_names_that_control_the_terminal(self):
        folder = self.folder / "\x1b[31mred\u202e"
        folder.mkdir()
        (folder / "a").mkdir()
        shutil.copy(next(self.photos.rglob("*.*")), folder / "a" / "1.txt")
        for command in (("data", "check", folder), self.train(data_dir=folder), ("predict", "--checkpoint", folder),
                        ("inspect", folder), ("eval", folder), ("report", folder), ("train", "--resume", folder)):
            result = tpgm(*command)
            self.assertNotEqual(result.returncode, 0, command)
            self.assertNotIn("\x1b", result.stderr + result.stdout, command)
            self.assertNotIn("\u202e", result.stderr, command)

    def test_names_that_are_not_utf8(self):
        shutil.copytree(self.photos, self.folder / "photos")
        name = next(path for path in sorted((self.folder / "photos").iterdir()) if path.is_dir())
        os.rename(os.fsencode(name), os.fsencode(name.parent) + b"/\xff\xfe")
        line = self.answer(1, *self.train("--dry-run", data_dir=self.folder / "photos"))
        self.assertIn("the class '??' is not UTF-8; rename its folder", line)

    def test_another_command(self):
        self.assertIn("did you mean 'train'?", self.answer(2, "trian"))
        self.assertIn("did you mean 'eval'?", self.answer(2, "evaluate", "runs/ft"))

    def test_another_method_or_model(self):
        self.assertIn("did you mean 'tpgm'?", self.answer(2, *self.train(method="tgpm")))
        self.assertIn("did you mean 'resnet50'?", self.answer(1, *self.train(model="resnet5o")))

        self.assertIn("did you mean 'tpgm'?", self.answer(2, *self.train(method="TPGM")))
        for arguments, status in ((self.train(method="sam"), 2), (self.train(model="some-net"), 1)):
            self.assertNotIn("did you mean", self.answer(status, *arguments))

    def test_words_of_other_trainers(self):
        for option, words in {
                "--img-size": "no option '--img-size'; did you mean '--image-size'?",
                "--input-size": "did you mean '--image-size'?",
                "--bs": "no option '--bs'; did you mean '--batch-size'?",
                "--num-classes": "'--num-classes': the classes are the folders of --data-dir",
                "--freeze": "--method chooses what trains: lp",
                "--drop-path": "stochastic depth",
                "--drop": "dropout",
                "--log-wandb": "TensorBoard events are written to the run folder",
                "--amp-dtype": "--amp computes in bf16",
                "--lr-base": "--lr is the learning rate itself",
                "--pretrained": "--checkpoint FILE",
                "--initial-checkpoint": "did you mean '--checkpoint'?",
                "--log-interval": "did you mean '--log-every'?",
                "--recovery-interval": "did you mean '--checkpoint-every'?",
                "--class-map": "did you mean '--class-list'?",
                "--aa": "--rand-augment OPERATIONS,MAGNITUDE",
                "--val-split": "--test takes DOMAIN/SPLIT",
                "--dataset": "did you mean '--data-dir'?",
                "-lr": "no option '-lr'; did you mean '--lr'?",
                "--\u0435pochs": "it has a character that is not ASCII; did you mean '--epochs'?"}.items():
            with self.subTest(option):
                self.assertIn(words, self.answer(2, "train", option, "3"))
        self.assertIn("; see tpgm train --help", self.answer(2, "train", "--num-classes", "7"))
        self.assertNotIn("did you mean", self.answer(2, "train", "--torchcompile"))
        self.write("timm.toml", b"num_classes = 10\n")
        self.assertIn("'num-classes': the classes are the folders of --data-dir", self.answer(1, "train", "-c", "timm.toml"))
        self.assertIn("did you mean '--ratio'?", self.answer(2, "wise", "--alpha", "0.3", "a", "b"))
        self.assertIn("did you mean '--version'?", self.answer(2, "version"))
        self.assertNotIn("did you mean", self.answer(2, "quantize"))

    def test_models_of_other_libraries(self):
        for model, words in {
                "convnext_atto": "script:FILE takes any TorchScript module",
                "vit_small_patch14_dinov2": "script:FILE takes any TorchScript module",
                "vit_base_patch16_clip_224.openai": "did you mean 'clip-vit-b-16'?",
                "vit_large_patch14_clip_336": "did you mean 'clip-vit-l-14-336'?",
                "ViT-B-16-quickgelu": "did you mean 'clip-vit-b-16'?",
                "vit_base_patch16_384": "did you mean 'vit-b-16:image_size=384'?",
                "deit_tiny_patch16_224": "did you mean 'vit:width=192,depth=12,heads=3,patch=16,image_size=224'?",
                "resnet50d": "script:FILE takes any TorchScript module",
                "vit_huge_patch14_224.mae": "did you mean 'vit:width=1280,depth=32,heads=16,patch=14,image_size=224'?",
                "resnet50.a1_in1k": "did you mean 'resnet50'?"}.items():
            with self.subTest(model):
                said = self.answer(1, *self.train(model=model))
                self.assertIn(words, said)
                self.assertEqual("did you mean" in said, "did you mean" in words, said)

    def test_arguments(self):
        for arguments, words in (
                (("train", self.photos), f"unexpected argument '{self.photos}'; a data set is given with --data-dir {self.photos};"),
                (("train", "surplus"), "unexpected argument 'surplus'; see tpgm train --help"),
                (("train", "--test", "a=x", "b=y"), "'b=y'; values of a list are separated by commas: --test a=x,b=y;"),
                (("train", "\u2013lr", "3"), "begins with a dash that is not ASCII; did you mean '--lr'?"),
                (("train", "--opt-betas", "0.9", "0.999"), "expected 2 numbers separated by commas, not 1; write --opt-betas 0.9,0.999;"),
                (("train", "--lr", "abc"), "--lr: must be a number, not 'abc'"),
                (("train", "--lr"), "--lr needs a value"),
                (("train", "--no-amp=maybe"), "--amp takes no value"),
                (("train", "--every", "0"), "--every: must be an integer from 1, or 'end', not '0'"),
                (("train", "--jobs", "5000"), "--jobs: must be an integer from 0 to 1024, not '5000'"),
                (("theory", "--draws", "many"), "--draws: must be an integer, not 'many'"),
                (("list",), "WHAT is required: models, methods or recipes; see tpgm list --help"),
                (("list", "modles"), "WHAT: must be models, methods or recipes, not 'modles'; did you mean 'models'?"),
                (("bench",), "a command is needed: io, loader, projection or step;"),
                (("data", "check"), "DATA is required")):
            with self.subTest(words):
                self.assertIn(words, self.answer(2, *arguments))

    # checkpoints

    def test_a_name_on_the_hub(self):
        said = self.answer(1, *self.train(model=None, checkpoint="openai/clip-vit-base-patch32"))
        self.assertIn("cannot open 'openai/clip-vit-base-patch32': No such file or directory", said)
        self.assertIn("hf download openai/clip-vit-base-patch32", said)
        self.assertNotIn("hf download", self.answer(1, "inspect", "no-folder/model.pt"))
        self.assertNotIn("hf download", self.answer(1, "inspect", "model.pt"))

    def test_a_file_that_is_no_checkpoint(self):
        for content, words in ((b"hello\nworld\n", "it is not a checkpoint"), (b"", "the file is empty"),
                               (b"<!DOCTYPE html><html>404</html>", "it is a web page"),
                               (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "git lfs pull"),
                               (RESNET.read_bytes()[:5000], "damaged or incomplete")):
            with self.subTest(words):
                name = self.write("file.pt", content)
                self.assertIn(words, self.answer(1, *self.train(model=None, checkpoint=name)))
                self.assertIn(words, self.answer(1, "inspect", name))

    def test_two_models(self):
        said = tpgm("wise", RESNET, GOLDENS / "timm-vit" / "model.pth", "-o", self.folder / "x.safetensors").stderr
        self.assertIn("is a resnet, and", said)
        self.assertIn("a vit: they must be of one architecture", said)

    # data

    def test_no_data(self):
        self.assertIn("there is no 'nowhere'", self.answer(1, *self.train(data_dir="nowhere")))
        (self.folder / "empty").mkdir()
        for command in (self.train(data_dir="empty"), ["data", "check", "empty"]):
            self.assertRegex(self.answer(1, *command), r"no image \(.*\) is below 'empty'")

    def test_no_class_folders(self):
        shutil.copytree(self.photos / "dog", self.folder / "flat")
        self.assertIn("'flat' has no labels", self.answer(1, *self.train(data_dir="flat")))

    def test_images_of_another_kind(self):
        (self.folder / "gif" / "a").mkdir(parents=True)
        self.write("gif/a/1.gif", b"GIF89a")
        self.assertIn("is not read: 1 .gif (", self.answer(1, "data", "check", "gif"))

    def test_classes_that_do_not_match(self):
        said = self.answer(1, *self.train("--test", "r=" + str(self.small / "imagenet-r")))
        self.assertRegex(said, "none of the [0-9]+ classes .* such as 'dog'; is it the right list")

    def test_a_head_of_other_classes(self):
        head = self.shared / "head.safetensors"
        self.run_ok("zeroshot", "--checkpoint", CLIP, "--classnames", CLIP / "names.txt", "-o", head)
        said = self.answer(1, *self.train(model=None, checkpoint=CLIP, head=head))
        self.assertIn("the head has 6 classes, the data 7", said)
        said = self.answer(1, "eval", RESNET, "--data-dir", self.small / "imagenet", "--test", "val")
        self.assertIn("the head has 7 classes", said)
        self.assertIn("--class-list", said)

    def test_no_head(self):
        said = self.answer(1, *self.train(model=None, checkpoint=CLIP, head="checkpoint"))
        self.assertIn("has no classification head of its own", said)

    def test_no_vocabulary(self):
        shutil.copy(CLIP / "model.safetensors", self.folder)
        shutil.copy(CLIP / "config.json", self.folder)
        said = self.answer(1, "zeroshot", "--checkpoint", "model.safetensors", "--classnames", self.photos, "-o", self.out)
        self.assertIn("there is no vocabulary beside 'model.safetensors'", said)
        self.assertIn("--vocab", said)

    # the rest

    def test_output_that_is_there(self):
        self.out.mkdir()
        (self.out / "thesis.tex").write_text("years of work")
        self.assertIn("is not empty", self.answer(1, *self.train()))

    def test_no_gpu(self):
        if has_gpu():
            self.skipTest("there is one")
        self.assertIn("--device cuda: no CUDA device is visible", self.answer(1, *self.train(device="cuda")))

    def test_recipes(self):
        self.assertIn("there is no recipe 'recipes/glyphs/tpmg.toml'", self.answer(1, "train", "-c", "recipes/glyphs/tpmg.toml"))
        self.write("typo.toml", b'methd = "tpgm"\n')
        self.assertIn("'typo.toml': no option 'methd'; did you mean 'method'?", self.answer(1, "train", "-c", "typo.toml"))

    def test_what_is_left_out(self):
        self.assertIn("--output is required", self.answer(2, "train"))
        self.assertIn("--data-dir is needed", self.answer(1, *self.train(data_dir=None)))
        self.assertIn("--model or --checkpoint is needed", self.answer(1, *self.train(model=None)))
        self.assertIn("--test is required", self.answer(2, "eval", RESNET))
        self.assertIn("--radius-data is required", self.answer(2, "project", "--anchor", RESNET, "--checkpoint", RESNET,
                                                               "-o", "x.safetensors"))
        self.assertIn("is not a run folder", self.answer(1, "train", "--resume", "runs/none"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    os.environ["OMP_NUM_THREADS"] = "1"
    unittest.main()
