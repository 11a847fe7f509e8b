"""Image–text pre-training as a user runs it: python3 test_pretrain_cli.py path/to/tpgm"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import test_cli
from test_cli import read_safetensors, tpgm
from test_train_cli import make_data

os.environ["OMP_NUM_THREADS"] = "1"
CLIP = ("clip-vit:image_size=32,channels=1,patch=8,width=64,depth=1,heads=2,embedding=32,text_width=32,text_depth=1,"
        "text_heads=2,vocab=514,context=16")
RESNET = ("clip-resnet:image_size=32,channels=1,layers=1-1,width=8,heads=2,embedding=32,text_width=32,text_depth=1,"
          "text_heads=2,vocab=514,context=16")


class PretrainCommand(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        make_data(cls.folder / "data")
        cls.done = cls.pretrain("clip", "--model", CLIP)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def pretrain(cls, output, *flags):
        return tpgm("pretrain", "--data-dir", str(cls.folder / "data"), "--train", "home", "--test", "away", "--templates", "{}",
                    "--no-aug", "--mean", "0.5", "--std", "0.5", "-b", "16", "--epochs", "12", "--lr", "3e-3", "-o",
                    str(cls.folder / output), *flags)

    def train(self, checkpoint, output, *flags):
        return tpgm("train", "--checkpoint", str(self.folder / checkpoint), "--data-dir", str(self.folder / "data"), "--train",
                    "home", "--test", "away", "--no-aug", "-b", "16", "-o", str(self.folder / output), *flags)

    def top1(self, output):
        return json.loads((self.folder / output / "result.json").read_text())["tests"][0]["top1"]

    def test_names_are_learned_and_a_head_is_made_from_them(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertIn("4 classes from text, 'bars' to 'stripes'", self.done.stderr)
        self.assertGreater(self.top1("clip"), 90)
        tensors, metadata = read_safetensors(self.folder / "clip/best.safetensors")
        self.assertIn("text.stem.token.weight", tensors)
        self.assertEqual(json.loads(metadata["tpgm.templates"]), ["{}"])
        self.assertNotIn("tpgm.classes", metadata)  # it has no head

        # The head from text, made once: what the model itself computed, and its templates are its own.
        result = self.train("clip", "zero", "--head", "zeroshot", "--epochs", "0")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.top1("zero"), self.top1("clip"))

        # The command's head file is the same.
        head = self.folder / "head.safetensors"
        made = tpgm("zeroshot", "--checkpoint", str(self.folder / "clip"), "--classnames", str(self.folder / "data"), "-o", str(head))
        self.assertEqual(made.returncode, 0, made.stderr)
        result = self.train("clip", "file", "--head", str(head), "--epochs", "0")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.top1("file"), self.top1("clip"))
        self.assertEqual(read_safetensors(self.folder / "file/best.safetensors")[0]["head.weight"],
                         read_safetensors(self.folder / "zero/best.safetensors")[0]["head.weight"])

    def test_fine_tunes_with_a_head_from_text_and_tpgm(self):
        result = self.train("clip", "tuned", "--head", "zeroshot", "--epochs", "2", "--method", "tpgm", "--every", "end",
                            "--radius-steps", "5")
        self.assertEqual(result.returncode, 0, result.stderr)
        recipe = (self.folder / "tuned/recipe.toml").read_text()
        self.assertIn('head = "zeroshot"', recipe)
        again = tpgm("train", "-c", str(self.folder / "tuned/recipe.toml"), "-o", str(self.folder / "again"))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual((self.folder / "again/best.safetensors").read_bytes(),
                         (self.folder / "tuned/best.safetensors").read_bytes())

    def test_both_towers_go_on_from_a_checkpoint(self):
        result = self.train("clip", "both", "--head", "text", "--epochs", "1", "--method", "l2-sp", "--mu", "0.1")
        self.assertEqual(result.returncode, 0, result.stderr)
        before = read_safetensors(self.folder / "clip/best.safetensors")[0]
        after = read_safetensors(self.folder / "both/best.safetensors")[0]
        self.assertEqual(before.keys(), after.keys())
        self.assertNotEqual(before["text.projection.weight"], after["text.projection.weight"])

    def test_goes_to_other_libraries_with_both_towers(self):
        result = tpgm("convert", str(self.folder / "clip"), "--to", "hf", "-o", str(self.folder / "hf"))
        self.assertEqual(result.returncode, 0, result.stderr)
        names = read_safetensors(self.folder / "hf/model.safetensors")[0]
        self.assertIn("text_model.embeddings.token_embedding.weight", names)
        self.assertIn("vision_model.embeddings.patch_embedding.weight", names)
        self.assertIn("logit_scale", names)

    def test_a_resnet_is_a_clip_too(self):
        result = self.pretrain("resnet", "--model", RESNET)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(self.top1("resnet"), 90)
        result = self.train("resnet", "resnet-zero", "--head", "zeroshot", "--epochs", "0")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.top1("resnet-zero"), self.top1("resnet"))

    def test_goes_on_bit_for_bit(self):
        flags = ("--model", CLIP, "--checkpoint-every", "1")
        arguments = [test_cli.COMMAND, "pretrain", "--data-dir", self.folder / "data", "--train", "home", "--test", "away", "--templates",
                     "{}", "--no-aug", "--mean", "0.5", "--std", "0.5", "-b", "16", "--epochs", "12", "--lr", "3e-3", "-o",
                     self.folder / "killed", *flags]
        process = subprocess.Popen([str(each) for each in arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (self.folder / "killed/last.safetensors").exists():
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        result = tpgm("pretrain", "--resume", str(self.folder / "killed"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((self.folder / "killed/best.safetensors").read_bytes(),
                         (self.folder / "clip/best.safetensors").read_bytes())

    def expect(self, result, code, *texts):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def test_says_what_is_wrong(self):
        self.expect(self.pretrain("bad"), 1, "--head text needs a --model of CLIP's")
        self.expect(self.pretrain("bad", "--model", "vit-b-16"), 1, "a vit has no text tower")
        self.expect(self.pretrain("bad", "--model", "clip-vit-b-32"), 1, "there is no vocabulary", "--vocab")
        self.expect(self.pretrain("bad", "--model", CLIP, "--mixup", "0.2"), 2, "--mixup")
        self.expect(self.train("clip", "bad", "--head", "text", "--mixup", "0.2"), 1, "--head text: an image has one text")
        self.expect(self.train("clip", "bad", "--head", "fresh", "--templates", "a {}"), 1, "--templates", "not fresh")
        names = self.folder / "names.txt"
        names.write_text("a\nb\n")
        self.expect(self.train("clip", "bad", "--head", "zeroshot", "--classnames", str(names)), 1, "has 2 names, the data 4 classes")
        recipe = self.folder / "ft.toml"
        recipe.write_text('method = "ft"\n')
        self.expect(self.pretrain("bad", "-c", str(recipe)), 2, "the recipe has 'method'", "tpgm train")
        self.expect(self.train("clip", "bad", "--head", "text", "--head-lr", "1"), 1, "--head-lr")
        self.expect(tpgm("eval", str(self.folder / "clip")), 1, "no classification head", "zero-shot head")
        self.assertFalse((self.folder / "bad").exists())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
