"""The commands that know models, as a user runs them: python3 test_models_cli.py path/to/tpgm"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

import test_cli
from test_cli import Command, floats, read_safetensors, tpgm

GOLDENS = Path(__file__).resolve().parent.parent / "weights" / "goldens"
CLIP = GOLDENS / "hf-clip"
KERNELS = Path(__file__).resolve().parents[2] / "benchmarks" / "kernels.py"


def tensor(path, name):
    """Shape and values."""
    found = read_safetensors(path)[0][name]
    return found[1], floats(found)


class ModelsCommand(Command):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tpgm-models-cli-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_ok(self, *arguments):
        result = tpgm(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def error(self, status, *arguments):
        """The last line of an error; notes may come before it."""
        result = tpgm(*arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, "")
        return result.stderr.splitlines()[-1]


class ListModels(ModelsCommand):
    def test_table(self):
        text = self.expect(0, "list", "models")
        for name in ("clip-rn50", "clip-vit-l-14-336", "resnet101", "vit-l-16", "script:FILE"):
            self.assertIn(name, text)
        row = next(line for line in text.splitlines() if line.startswith("resnet50 "))
        for part in ("23.5 M", "4.1", "224", "0.485 0.456 0.406", "0.229 0.224 0.225", "tpgm, torchvision, timm"):
            self.assertIn(part, row)

    def test_json(self):
        models = {each["name"]: each for each in json.loads(self.expect(0, "list", "models", "--json"))}
        clip = models["clip-vit-b-32"]
        self.assertEqual(clip["parameters"] + clip["text_parameters"], 151277313)
        self.assertIn("ViT-B/32", clip["aliases"])
        self.assertEqual(clip["layouts"], ["tpgm", "openai", "hf"])
        self.assertAlmostEqual(models["vit-b-16"]["gflops"], 17.56, places=2)


class ZeroShot(ModelsCommand):
    def setUp(self):
        super().setUp()
        self.output = self.folder / "head.safetensors"

    def arguments(self, **changes):
        options = {"checkpoint": CLIP, "classnames": CLIP / "names.txt", "templates": CLIP / "templates.txt",
                   "device": "cpu", "output": self.output} | changes
        flat = []
        for name, value in options.items():
            if value is not None:
                flat += ["--" + name.replace("_", "-"), value]
        return ["zeroshot", *flat]

    def refused(self, status=1, **changes):
        line = self.error(status, *self.arguments(**changes))
        self.assertFalse(self.output.exists())
        return line

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name

    def test_equals_hugging_face(self):
        result = self.run_ok(*self.arguments())
        self.assertIn("6 classes ('cat' to 'ZÜRICH  tram'), 3 templates, 24 features", result.stdout)
        shape, values = tensor(self.output, "head.weight")
        golden_shape, golden = tensor(CLIP / "zeroshot.safetensors", "head")
        self.assertEqual(shape, golden_shape)
        largest = max(abs(each) for each in golden)
        for ours, theirs in zip(values, golden):
            self.assertLess(abs(ours - theirs), 1e-5 * largest)
        metadata = read_safetensors(self.output)[1]
        names = (CLIP / "names.txt").read_text(encoding="utf-8").splitlines()
        self.assertEqual(json.loads(metadata["tpgm.classes"]), names)
        self.assertTrue(metadata["tpgm.model"].startswith("clip-vit:image_size=32"))

    def test_every_way_to_say_the_same(self):
        self.run_ok(*self.arguments())
        expected = tensor(self.output, "head.weight")
        names = (CLIP / "names.txt").read_text(encoding="utf-8").splitlines()
        as_json = self.write("names.json", json.dumps(names))
        for changes in ({"classnames": as_json}, {"batch_size": 1}, {"model": "clip-vit"}, {"vocab": CLIP / "vocab.json"},
                        {"vocab": CLIP / "tokenizer.json"}, {"vocab": CLIP}, {"checkpoint": CLIP / "model.safetensors"}):
            self.run_ok(*self.arguments(**changes))
            shape, values = tensor(self.output, "head.weight")
            self.assertEqual(shape, expected[0])
            self.assertLess(max(abs(a - b) for a, b in zip(values, expected[1])), 1e-4, changes)

    def test_folders_are_classes(self):
        for name in ("golden_retriever", "cat"):
            (self.folder / "data" / name).mkdir(parents=True)
        self.run_ok(*self.arguments(classnames=self.folder / "data", templates=None))
        metadata = read_safetensors(self.output)[1]
        self.assertEqual(json.loads(metadata["tpgm.classes"]), ["cat", "golden retriever"])
        self.assertEqual(json.loads(metadata["tpgm.templates"]), ["a photo of a {}."])

    def test_a_data_set_is_its_classes(self):
        image = next((GOLDENS.parent.parent / "data/goldens/images").glob("*.png"))
        tar, images = self.folder / "train.tar", self.folder / "images"
        with tarfile.open(tar, "w") as file:
            for name in ("golden_retriever", "cat"):
                (images / name).mkdir(parents=True)
                shutil.copy(image, images / name / "1.png")
                file.add(image, f"{name}/1.png")
        files = self.write("images.txt", "images/cat/1.png 0\nimages/golden_retriever/1.png 1\n")
        for classnames in (images, tar, files):
            self.run_ok(*self.arguments(classnames=classnames, templates=None))
            metadata = read_safetensors(self.output)[1]
            self.assertEqual(json.loads(metadata["tpgm.classes"]), ["cat", "golden retriever"], classnames)
        self.output.unlink()
        with tarfile.open(self.folder / "bare.tar", "w") as file:
            file.add(image, "1.png")
        self.assertIn("have no classes", self.refused(classnames=self.folder / "bare.tar"))

    def test_notes(self):
        twice = self.write("twice.txt", "cat\ncat\n" + "very " * 100 + "long\n")
        said = self.run_ok(*self.arguments(classnames=twice)).stderr
        self.assertIn("'cat' is the name of two classes", said)
        self.assertIn("3 of 9 sentences are longer than 77 tokens and were cut", said)

    def test_refused(self):
        self.assertIn("line 2 is empty", self.refused(classnames=self.write("gap.txt", "cat\n\ndog\n")))
        self.assertIn("has no {} for the name", self.refused(templates=self.write("t.txt", "a photo\n")))
        self.assertIn("is JSON; expected lines", self.refused(templates=self.write("t.json", '["a {}."]')))
        (self.folder / "data" / "train").mkdir(parents=True)
        self.assertIn("are its splits, train", self.refused(classnames=self.folder / "data"))
        self.assertIn("nodir", self.refused(output="nodir/head.safetensors"))
        self.assertIn("is a resnet (layout: torchvision), not a clip-vit",
                      self.refused(checkpoint=GOLDENS / "torchvision-resnet-basic/model.pth", model="ViT-B/32"))
        self.assertIn("has no text tower", self.refused(checkpoint=GOLDENS / "hf-clip-vision"))
        self.assertIn("has no text tower", self.refused(checkpoint=GOLDENS / "torchvision-resnet-basic/model.pth"))
        self.assertIn("there is no vocabulary beside", self.refused(checkpoint=GOLDENS / "openai-clip-vit/model.pt"))
        self.assertIn("the vocabulary has", self.refused(vocab=GOLDENS.parent.parent / "text/goldens/list"))
        self.assertIn("did you mean 'clip-vit-b-32'", self.refused(2, model="clip-vit-b-33"))
        self.assertIn("'nowhere'", self.refused(checkpoint="nowhere"))
        self.assertIn("--batch-size must be at least 1", self.refused(2, batch_size=0))
        for device in ("tpu", "cuda:x", "cuda:", "cpu:0", "cuda:256"):
            self.assertIn("must be auto, cpu, cuda or cuda:N", self.refused(2, device=device))


class ConvertTo(ModelsCommand):
    def test_round_trip(self):
        for case, layout in (("hf-clip", "hf"), ("torchvision-vit/model.pth", "torchvision")):
            ours, back = self.folder / "ours.safetensors", self.folder / "back.safetensors"
            model = [] if layout == "hf" else ["--model", "vit:heads=2"]
            self.run_ok("convert", GOLDENS / case, "--to", "tpgm", "-o", ours, *model)
            self.run_ok("convert", ours, "--to", layout, "-o", back)
            plain = self.folder / "plain.safetensors"
            self.run_ok("convert", GOLDENS / case, "-o", plain)
            self.assertEqual(read_safetensors(back)[0], read_safetensors(plain)[0])

    def test_huggingface_folder(self):
        folder = self.folder / "hf"
        result = self.run_ok("convert", CLIP, "--to", "hf", "-o", folder, "--dtype", "fp16")
        self.assertIn("clip-vit as hf", result.stdout)
        for name in ("model.safetensors", "config.json", "tokenizer.json", "vocab.json", "merges.txt"):
            self.assertTrue((folder / name).is_file(), name)
        config = json.loads((folder / "config.json").read_text())
        original = json.loads((CLIP / "config.json").read_text())
        for tower in ("vision_config", "text_config"):
            for key, value in config[tower].items():
                self.assertEqual(value, original[tower][key], key)
        self.assertEqual(read_safetensors(folder / "model.safetensors")[1]["format"], "pt")
        self.assertIn(f"{folder / 'preprocessor_config.json'}\n", result.stdout)
        processor = json.loads((folder / "preprocessor_config.json").read_text())
        # The arguments of CLIPImageProcessor, with its usual values for images of 32 pixels.
        self.assertEqual(processor, {
            "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": 32}, "resample": 3,
            "do_center_crop": True, "crop_size": {"height": 32, "width": 32}, "do_rescale": True, "rescale_factor": 1 / 255,
            "do_normalize": True, "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711], "do_convert_rgb": True})

    def test_huggingface_preprocessing(self):
        """It is what the model is used with: what lies beside the input, or what our metadata say."""
        theirs, ours = self.folder / "theirs", self.folder / "ours.safetensors"
        shutil.copytree(CLIP, theirs)
        processor = {"image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": 36},
                     "resample": 2, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}, "do_rescale": True,
                     "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5, 0.4, 0.3],
                     "image_std": [0.1, 0.2, 0.3], "do_convert_rgb": True}
        (theirs / "preprocessor_config.json").write_text(json.dumps(processor))
        self.run_ok("convert", theirs, "--to", "tpgm", "-o", ours)
        for source, back in ((theirs, self.folder / "copy"), (ours, self.folder / "back")):
            self.run_ok("convert", source, "--to", "hf", "-o", back)
            self.assertEqual(json.loads((back / "preprocessor_config.json").read_text()), processor)

    def test_shards(self):
        self.run_ok("convert", CLIP, "--to", "openai", "-o", str(self.folder) + "/", "--shard-size", "100kB")
        self.assertTrue((self.folder / "model.safetensors.index.json").is_file())
        self.run_ok("convert", self.folder, "--to", "hf", "-o", self.folder / "again.safetensors")

    def test_refused(self):
        output = self.folder / "x.safetensors"
        self.assertIn("a clip-vit has no layout timm; it has tpgm, openai, hf",
                      self.error(1, "convert", CLIP, "--to", "timm", "-o", output))
        self.assertIn("cannot be combined with it", self.error(2, "convert", CLIP, "--to", "hf", "-o", output, "--only", "*"))
        self.assertIn("--model needs --to", self.error(2, "convert", CLIP, "-o", output, "--model", "clip-vit"))
        for layout in ("openai", "hf"):
            self.assertIn(f"only safetensors are written: name the output '{output}', not '{output.with_suffix('.pth')}'",
                          self.error(2, "convert", CLIP, "--to", layout, "-o", output.with_suffix(".pth")))
            self.assertFalse(output.with_suffix(".pth").exists())
        self.assertIn("no layout 'keras'", self.error(2, "convert", CLIP, "--to", "keras", "-o", output))
        self.assertIn("are those of no model known here",
                      self.error(1, "convert", GOLDENS.parent.parent / "io/goldens/shapes.safetensors", "--to", "hf", "-o", output))
        self.assertFalse(output.exists())


class BenchStep(ModelsCommand):
    SMALL = ("bench", "step", "--device", "cpu", "--model", "vit:width=32,depth=1,heads=2,patch=8,image_size=16", "-b", "2", "--repeats", "1",
             "--warmup", "0", "--classes", "4")

    def test_ours_alone(self):
        text = self.expect(0, *self.SMALL)
        self.assertIn("training step, tpgm", text)
        report = json.loads(self.expect(0, *self.SMALL, "--json"))
        self.assertGreater(report["ours"]["training_ms"], 0)
        for switches, on in ((("--no-amp", "--amp"), True), (("--amp", "--no-amp"), False)):  # the last one wins
            self.assertEqual(json.loads(self.expect(0, *self.SMALL, *switches, "--json"))["amp"], on)

    def test_compare_measures_every_method(self):
        options = (*self.SMALL, "--compare")
        text = self.expect(0, *options)
        for name in ("tpgm: plain", "tpgm: spd", "tpgm: tpgm, radius batch 1", "tpgm: tpgm, radius batch 2", "--python"):
            self.assertIn(name, text)
        report = json.loads(self.expect(0, *options, "--methods", "l2-sp,ftp", "--json"))
        self.assertEqual([row["method"] for row in report["ours"]], ["ft", "l2-sp", "ftp"])
        self.assertEqual([], report["rivals"])
        plain, l2_sp, ftp = report["ours"]
        self.assertEqual(plain["of_plain"], 1)
        self.assertEqual(len({row["losses"][0] for row in report["ours"]}), 1)  # the same weights and images
        self.assertGreater(l2_sp["copies_beyond_plain"], 0.5)  # the anchor, of all but the head
        self.assertGreater(ftp["ms"], 0)

    def test_compare_says_why_a_row_cannot_run(self):
        rival = self.folder / "rival.py"
        rival.write_text("""print('{"error": "no torch here"}')""")
        result = tpgm(*self.SMALL, "--compare", "--no-compile", "--methods", "ft", "--python", sys.executable, "--rival", rival)
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stderr.startswith("tpgm bench step: Python loads its library"), result.stderr)
        rows = result.stdout
        self.assertRegex(rows, "(?m)^Python  .*no torch here$")
        self.assertRegex(rows, r"(?m)^tpgm: plain +\d")

    def test_kernels_of_a_step(self):
        kept = self.folder / "ncu.csv"
        add = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int, T2)"
        kept.write_text('==PROF== Connected\n"ID","Kernel Name","dram__bytes.sum","gpu__time_duration.sum"\n'
                        f'"","","byte","ns"\n"0","{add}","3,000","1"\n"1","{add}","1000","1"\n"2","gemm","n/a","6"\n')
        command = [sys.executable, KERNELS, "--read", kept, "--bandwidth", "4000", "--markdown"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.assertIn("| `gemm` | 1 | 0.00 | 75.0 % |  |  |  |", said)
        self.assertIn("| `vectorized_elementwise_kernel<4, CUDAFunctor_add>` | 2 | 0.00 | 25.0 % | 2000 | 50 % |", said)

    def test_profile_takes_a_step(self):
        self.assertIn("a step of tpgm after 0", self.expect(0, *self.SMALL, "--profile", "tpgm"))

    def test_refused(self):
        self.assertIn("--methods needs --compare", self.error(2, *self.SMALL, "--methods", "ftp"))
        self.assertIn("cannot be combined with --compare", self.error(2, *self.SMALL, "--profile", "ft", "--json"))
        self.assertIn("--methods", self.error(2, *self.SMALL, "--compare", "--methods", "ftpp"))
        self.assertIn("did you mean 'resnet50'", self.error(2, "bench", "step", "--model", "resnet500"))
        self.assertIn("--python '/nowhere/python' does not run as Python 3",
                      self.error(1, *self.SMALL, "--compare", "--python", "/nowhere/python"))
        self.assertIn("there is no '/nowhere.py'", self.error(1, *self.SMALL, "--python", sys.executable, "--rival", "/nowhere.py"))
        lacking = self.folder / "python"
        lacking.write_text(f"#!/bin/sh\nexec '{sys.executable}' -ES \"$@\"\n")  # without packages
        lacking.chmod(0o755)
        self.assertIn("has no torch, safetensors, timm; all baselines together need: pip install", self.error(1, *self.SMALL, "--python", lacking))
        self.assertIn("out of memory: cannot allocate", self.error(1, "bench", "step", "--device", "cpu", "--model", "resnet18:image_size=16384", "-b", "1048576"))

    def test_a_faster_side_may_have_made_more_steps(self):
        rival = self.folder / "rival.py"
        run = {"name": "slow", "torch": "2", "losses": [1.5], "inference_loss": 1.25,
               "training": {"ms": 1, "peak_mib": 0, "reserved_mib": 0},
               "inference": {"ms": 1, "peak_mib": 0, "reserved_mib": 0}}
        rival.write_text(f"""import json, os, sys
folder = os.path.dirname(sys.argv[1])
go, done = open(folder + "/go", "rb", buffering=0), open(folder + "/done", "wb", buffering=0)
for phase in range(2):
    done.write(b".")
    for step in range(2):
        go.read(1)
        done.write(b".")
print(json.dumps({{"runs": [{run}]}}))
""")
        options = (*self.SMALL, "--python", sys.executable, "--rival", rival)
        options = ["2" if before == "--repeats" else option for before, option in zip(("", *options), options)]
        text = self.run_ok(*options).stdout
        self.assertRegex(text, r"(?m)^loss +step 1 +evaluation$")
        self.assertRegex(text, r"(?m)^  tpgm differs by +[\d.e+-]+ *$")
        report = json.loads(self.run_ok(*options, "--json").stdout)
        self.assertEqual((len(report["ours"]["losses"]), len(report["rivals"][0]["loss_differences"])), (2, 1))
        self.assertNotIn("inference_loss_difference", report["rivals"][0])



if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
