"""The `tpgm` command as a user runs it: python3 test_cli.py path/to/tpgm"""

import json
import math
import os
import re
import resource
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COMMAND = ""
GOLDENS = Path(__file__).resolve().parent.parent / "io" / "goldens"


def tpgm(*arguments, **options):
    arguments = [str(each) for each in arguments]
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=300, check=False, **options)


def has_gpu():
    return "CUDA: yes" in tpgm("--version").stdout


SMALL_THEORY = ("theory", "--draws", "2", "--epsilon", "0.5,4", "--radius-steps", "60", "--test-points", "500")


class Command(unittest.TestCase):
    def expect(self, status, *arguments):
        """Runs the command; checks its exit status and that it spoke on one of the two streams alone."""
        result = tpgm(*arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        said, silent = (result.stdout, result.stderr) if status == 0 else (result.stderr, result.stdout)
        self.assertNotEqual(said, "")
        self.assertEqual(silent, "")
        return said

    def expect_one_line(self, status, *arguments):
        said = self.expect(status, *arguments)
        self.assertEqual(said.count("\n"), 1, said)
        return said


class CommandTest(Command):
    def test_version(self):
        lines = self.expect(0, "--version").splitlines()
        self.assertEqual(len(lines), 4)
        for line, pattern in zip(
            lines,
            [r"tpgm \d+\.\d+\.\d+", r"LibTorch: \d+\.\d+\.\d+", r"CUDA: (no \(.+\)|yes \(\d+ devices?\))", r"threads: \d+"],
        ):
            self.assertRegex(line, f"^{pattern}$")

    def test_wrong_usage(self):
        for arguments in [
            (),
            ("no-such-command",),
            ("theory", "--drws", "3"),
            ("theory", "--draws", "many"),
            ("theory", "surplus"),
            ("list",),
            ("list", "everything"),
            ("bench",),
            ("bench", "no-such-bench"),
            ("bench", "projection", "--device", "tpu"),
            ("bench", "projection", "--model-like", "resnet51"),
            ("bench", "projection", "--dtype", "int8"),
            ("bench", "projection", "--repeats", "0"),
        ]:
            with self.subTest(arguments=arguments):
                self.assertIn("--help", self.expect(2, *arguments))

    def test_help_shows_options_and_defaults(self):
        commands = self.expect(0, "--help")
        for command, defaults in {
            ("theory",): {"--dims": "64", "--samples": "32", "--draws": "10", "--seed": "0", "--drift": "1"},
            ("bench",): {},
            ("bench", "projection"): {"--device": "auto", "--model-like": "resnet50", "--dtype": "float32", "--repeats": "20"},
            ("list",): {"--json": ""},
        }.items():
            self.assertIn(command[0], commands)
            text = self.expect(0, *command, "--help")
            for option, default in defaults.items():
                with self.subTest(command=command, option=option):
                    line = next((line for line in text.splitlines() if option in line), "")
                    self.assertRegex(line, rf"[=\[]{re.escape(default)}\b" if default else option)
        self.assertIn("projection", self.expect(0, "bench", "--help"))

    def test_theory(self):
        result = json.loads(self.expect(0, *SMALL_THEORY, "--json"))
        self.assertEqual(result["violations"], 0)
        self.assertEqual([row["epsilon"] for row in result["rows"]], [0.5, 4])
        for row in result["rows"]:
            self.assertEqual(row["violations"], 0)
            self.assertEqual(row["checks"], 2 * 12)
            self.assertLess(row["loss_projected"], row["bound"])
        self.assertLess(result["rows"][0]["alpha"], result["rows"][1]["alpha"])
        table = self.expect(0, *SMALL_THEORY)
        self.assertIn("checked 48 times and always held", table)
        for row in result["rows"]:
            self.assertIn(f"{row['alpha']:.3f}", table)

    def test_theory_repeats_itself_by_seed(self):
        first = self.expect(0, *SMALL_THEORY, "--json")
        self.assertEqual(self.expect(0, *SMALL_THEORY, "--json", "--seed", "0"), first)
        self.assertNotEqual(self.expect(0, *SMALL_THEORY, "--json", "--seed", "1"), first)
        self.assertEqual(self.expect(0, "theory", "--draws", "9", *SMALL_THEORY[1:], "--json"), first, "the last one wins")

    def test_failures_are_one_line(self):
        said = self.expect_one_line(1, "theory", "--samples", "99", "--dims", "10")
        self.assertTrue(said.startswith("tpgm theory: samples"), said)
        self.assertIn("99", said)

    def test_list_methods(self):
        text = self.expect(0, "list", "methods")
        methods = {method["name"]: method for method in json.loads(self.expect(0, "list", "methods", "--json"))}
        for name in ["ft", "lp", "pf", "bitfit", "l2-sp", "mars-sp", "lp-ft", "wise", "tpgm", "ftp", "spd"]:
            self.assertIn(name, methods)
            self.assertRegex(text, rf"(?m)^{name} +\S")
            self.assertNotEqual(methods[name]["summary"], "")
        options = {option["name"]: option for option in methods["tpgm"]["options"]}
        for option in options.values():
            self.assertEqual(set(option), {"name", "type", "default", "help"})
            self.assertRegex(text, rf"(?m)^    {option['name']} ")
        # method.md's defaults
        self.assertEqual(float(options["radius_lr"]["default"]), 1e-2)
        self.assertEqual(float(options["mu"]["default"]), 0)
        self.assertEqual(options["init"]["default"], "half")

    def test_bench_needs_the_device_it_is_told_to_use(self):
        if has_gpu():
            self.skipTest("there is a GPU")
        said = self.expect_one_line(1, "bench", "projection", "--device", "cuda")
        self.assertTrue(said.startswith("tpgm bench projection: --device cuda"), said)

    def test_benches_look_before_they_measure(self):
        with tempfile.TemporaryDirectory() as folder:
            lacking = Path(folder) / "it's python"
            lacking.write_text(f"#!/bin/sh\nexec '{sys.executable}' -ES \"$@\"\n")  # without packages
            lacking.chmod(0o755)
            for bench in ("io", "loader"):
                self.assertIn("has no torch, ", self.expect_one_line(1, "bench", bench, "--python", lacking))
                self.assertIn("'/nowhere' is not a folder", self.expect_one_line(1, "bench", bench, "--folder", "/nowhere"))

    def test_bench_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            below = Path(folder) / "it's here"
            below.mkdir()
            command = ("bench", "io", "--repeats", "1", "--folder", str(below), "--gigabytes")
            self.expect(0, *command, "0.01")
            self.assertEqual(list(below.iterdir()), [])
            for number in (signal.SIGTERM, signal.SIGKILL):
                with subprocess.Popen([COMMAND, *command, "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                    self.wait_for(lambda: list(below.glob("*/*")))
                    process.send_signal(number)
                self.wait_for(lambda: not list(below.iterdir()))

    def wait_for(self, happened):
        end = time.monotonic() + 60
        while not happened():
            self.assertLess(time.monotonic(), end, "waited in vain")
            time.sleep(0.01)

    def test_bench_projection(self):
        # A slow machine shows progress on stderr.
        bench = tpgm("bench", "projection", "--device", "cpu", "--json", "--repeats", "1")
        self.assertEqual(bench.returncode, 0, bench.stderr)
        result = json.loads(bench.stdout)
        self.assertEqual((result["device"], result["model"], result["dtype"]), ("cpu", "resnet50", "float32"))
        self.assertEqual(result["tensors"], 161)  # of torchvision's ResNet-50
        self.assertAlmostEqual(result["megabytes"], 25557032 * 4 / 1e6, delta=0.01 * 102)
        self.assertGreater(result["copy_gb_s"], 0)
        self.assertEqual({each["norm"] for each in result["norms"]}, {"l2", "mars", "mars-max"})
        for each in result["norms"]:
            self.assertGreater(each["ours_ms"], 0)
            self.assertGreater(each["aten_ms"], 0)
            self.assertAlmostEqual(each["times_aten"], each["aten_ms"] / each["ours_ms"], places=6)
            self.assertAlmostEqual(each["share_of_copy"], each["ours_gb_s"] / result["copy_gb_s"], places=6)
            self.assertLessEqual(each["largest_difference"], 4)  # roundings between ours and ATen's


def write_safetensors(path, tensors, metadata=None):
    """Of float32: name -> values, or (shape, values)."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, values in tensors.items():
        shape, values = values if isinstance(values, tuple) else ([len(values)], values)
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """What write_safetensors() takes, for any type: name -> (type, shape, bytes); and the metadata."""
    whole = Path(path).read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    metadata = header.pop("__metadata__", {})
    return {
        name: (each["dtype"], each["shape"], data[slice(*each["data_offsets"])]) for name, each in header.items()
    }, metadata


def floats(tensor):
    dtype, _, data = tensor
    size, letter = {"F64": (8, "d"), "F32": (4, "f"), "F16": (2, "e")}[dtype]
    return list(struct.unpack(f"<{len(data) // size}{letter}", data))


class CheckpointCommandTest(Command):
    """`inspect`, `wise` and `convert`, in a folder of their own."""

    PRE = {
        "conv1.weight": ([2, 2], [1.0, 2.0, 3.0, 4.0]),
        "layer1.0.weight": [1.0] * 8,
        "layer1.10.weight": [2.0] * 4,
        "layer1.2.weight": [0.0, 1.0, 0.0, 1.0],
        "layer1.2.running_var": [1.0, 1.0],
        "fc.weight": ([3, 2], [0.5] * 6),
    }
    FT = PRE | {
        "conv1.weight": ([2, 2], [1.0, 2.0, 6.0, 8.0]),
        "layer1.10.weight": [0.0] * 4,
        "layer1.2.weight": [0.0, 3.0, 0.0, 3.0],
        "layer1.2.running_var": [9.0, 9.0],
        "fc.weight": ([3, 2], [1.5] * 6),
    }

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        write_safetensors("pre.safetensors", self.PRE)
        write_safetensors("ft.safetensors", self.FT, {"license": "MIT"})

    def files(self):
        return sorted(str(path) for path in Path(".").rglob("*") if path.is_file())

    def refuse(self, *cases, status=1, limit=None):
        """Each command fails, in a line that says what it should; all leave every file and folder as it was."""

        def snapshot():
            return {str(path): path.is_dir() or path.read_bytes() for path in Path(".").rglob("*")}

        def limit_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        before = snapshot()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(lambda case: tpgm(*case[0], preexec_fn=limit_files if limit else None), cases))
        for (arguments, part), result in zip(cases, results):
            with self.subTest(arguments=arguments):
                self.assertEqual(result.returncode, status, result.stdout + result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertIn(part, result.stderr)
                self.assertTrue(result.stderr.startswith(f"tpgm {arguments[0]}: "), result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        after = snapshot()
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        self.assertEqual(changed, set())

    def run_with_notes(self, *arguments):
        """Succeeds; what it says on both streams."""
        result = tpgm(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout, result.stderr

    # inspect of one

    def test_inspect_one(self):
        text = self.expect(0, "inspect", "ft.safetensors")
        for name in self.FT:
            self.assertRegex(text, rf"(?m)^{re.escape(name)} +F32 ")
        self.assertRegex(text, r"(?m)^fc\.weight +F32 +\[3,2\] +6 +24 B$")
        self.assertIn("6 tensors, 28 parameters", text)
        self.assertIn("license: MIT", text)

    def test_inspect_one_says_what_model_it_is(self):
        write_safetensors("model.safetensors", self.FT, {"tpgm.model": "resnet:layers=1-1,width=8"})
        self.assertRegex(self.expect(0, "inspect", "model.safetensors"), "(?m)^model: resnet:layers=1-1,width=8$")
        result = json.loads(self.expect(0, "inspect", "model.safetensors", "--json"))
        self.assertEqual(result["model"], "resnet:layers=1-1,width=8")
        self.assertNotIn("model", json.loads(self.expect(0, "inspect", "ft.safetensors", "--json")))
        # Of another library, by its names, if a model has them.
        self.assertNotIn("model:", self.expect(0, "inspect", "ft.safetensors"))
        names = {f"student.{name}": self.FT["fc.weight"]
                 for name in ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "x")}
        write_safetensors("vit.safetensors", names)
        self.assertRegex(self.expect(0, "inspect", "vit.safetensors"), r"(?m)^model: vit, by its names \(layout: timm\)$")
        result = json.loads(self.expect(0, "inspect", "vit.safetensors", "--json"))
        self.assertEqual(result["recognized"], {"family": "vit", "layout": "timm"})
        swin = {name.replace("blocks", "layers.0.blocks"): each for name, each in names.items()}
        write_safetensors("swin.safetensors", swin)
        self.assertNotIn("model:", self.expect(0, "inspect", "swin.safetensors"))

    def test_inspect_one_as_json(self):
        result = json.loads(self.expect(0, "inspect", "ft.safetensors", "--json"))
        self.assertEqual(result["format"], "safetensors")
        self.assertEqual(result["metadata"], {"license": "MIT"})
        self.assertEqual((result["parameters"], result["bytes"]), (28, 112))
        self.assertEqual(
            [(each["name"], each["dtype"], each["parameters"]) for each in result["tensors"]],
            [(name, "F32", len(v[1]) if isinstance(v, tuple) else len(v)) for name, v in self.FT.items()],
        )
        self.assertEqual(result["tensors"][0]["shape"], [2, 2])

    def test_inspect_one_sorted_and_selected(self):
        def names(*arguments):
            result = json.loads(self.expect(0, "inspect", "pre.safetensors", "--json", *arguments))
            return [each["name"] for each in result["tensors"]]

        self.assertEqual(names(), list(self.PRE))
        self.assertEqual(names("--sort", "file"), list(self.PRE))
        self.assertEqual(
            names("--sort", "name")[2:],
            ["layer1.0.weight", "layer1.2.running_var", "layer1.2.weight", "layer1.10.weight"],
        )
        self.assertEqual(names("--sort", "size")[:2], ["layer1.0.weight", "fc.weight"])
        self.assertEqual(
            names("--only", "layer1.*", "--exclude", "*.running_var"),
            ["layer1.0.weight", "layer1.10.weight", "layer1.2.weight"],
        )
        self.assertEqual(names("--only", "fc.*", "--only", "conv1.*"), ["conv1.weight", "fc.weight"])

    def test_options_that_may_be_repeated_take_one_value_each(self):
        """So that they may stand before the checkpoints."""
        result = json.loads(self.expect(0, "inspect", "--json", "--only", "fc.*", "pre.safetensors"))
        self.assertEqual([each["name"] for each in result["tensors"]], ["fc.weight"])
        result = json.loads(self.expect(0, "inspect", "--json", "--only", "fc.*", "pre.safetensors", "ft.safetensors"))
        self.assertEqual([each["name"] for each in result["tensors"]], ["fc.weight"])
        self.expect(0, "wise", "--exclude", "fc.*", "pre.safetensors", "ft.safetensors", "-o", "x.safetensors")
        self.expect(0, "convert", "--rename", "fc.*=head.*", "--only", "fc.*", "pre.safetensors", "-o", "x.safetensors")

    def test_inspect_takes_every_format(self):
        for path, form, tensors in [
            ("torch/script_linear.pt", "TorchScript archive", "torch/script_linear.expected.safetensors"),
            ("torch/zip_module.pt", "PyTorch archive", "torch/zip_module.expected.safetensors"),
            ("torch/legacy_module.pt", "PyTorch pickle (before 1.6)", "torch/legacy_module.expected.safetensors"),
            ("torch/hf_sharded", "safetensors, 2 shards", "torch/hf.expected.safetensors"),
            ("torch/hf_bin", "PyTorch archive, 2 shards", "torch/hf.expected.safetensors"),
            ("torch/hf_single", "safetensors", "torch/hf.expected.safetensors"),
        ]:
            with self.subTest(path=path):
                result = json.loads(self.expect(0, "inspect", GOLDENS / path, "--json"))
                self.assertEqual(result["format"], form)
                expected, _ = read_safetensors(GOLDENS / tensors)
                self.assertEqual(
                    {each["name"]: (each["dtype"], each["shape"]) for each in result["tensors"]},
                    {name: (dtype, shape) for name, (dtype, shape, _) in expected.items()},
                )
                stdout, stderr = self.run_with_notes("inspect", GOLDENS / path)
                self.assertIn(form, stdout)
                self.assertEqual(stderr.count("\n"), len(result["notes"]))
                for note in result["notes"]:
                    self.assertIn(note, stderr)

    def test_notes_go_to_stderr(self):
        stdout, stderr = self.run_with_notes("inspect", GOLDENS / "torch/nested_training.pt")
        self.assertIn("tpgm inspect: ", stderr)
        self.assertIn("'state_dict'", stderr)
        self.assertNotIn("tpgm inspect", stdout)
        _, stderr = self.run_with_notes(
            "wise", GOLDENS / "torch/hf_bin", GOLDENS / "torch/hf_sharded", "-o", "x.safetensors"
        )
        self.assertIn("took 'model.safetensors.index.json' of the folder", stderr)
        self.assertEqual(stderr.count("of the folder"), 2)

    def test_inspect_takes_a_key(self):
        def names(*arguments):
            result = json.loads(self.expect(0, "inspect", GOLDENS / "torch/nested_dino.pt", "--json", *arguments))
            return {each["name"] for each in result["tensors"]}

        self.assertEqual(
            names("--key", "teacher"),
            set(read_safetensors(GOLDENS / "torch/nested_dino_teacher.expected.safetensors")[0]),
        )
        self.assertEqual(names(), set(read_safetensors(GOLDENS / "torch/nested_dino.expected.safetensors")[0]))
        self.refuse((["inspect", GOLDENS / "torch/nested_dino.pt", "--key", "nobody"], "'nobody'"))

    def test_inspect_refusals(self):
        Path("page.pt").write_text("<html></html>")
        Path("several").mkdir()
        for name in ["a.pt", "b.pt"]:
            shutil.copy(GOLDENS / "torch/zip_module.pt", f"several/{name}")
        Path("none").mkdir()
        two = ["inspect", "pre.safetensors", "ft.safetensors"]
        self.refuse(
            (["inspect", "absent.pt"], "cannot open 'absent.pt': No such file"),
            (["inspect", "pre.safetensors", "absent.pt"], "cannot open 'absent.pt': No such file"),
            (["inspect", "page.pt"], "web page"),
            (["inspect", "several"], "several checkpoints"),
            (["inspect", "none"], "no checkpoint"),
            (["inspect", GOLDENS / "torch/refused_system_zip.pt"], "refuses to call"),
            (
                ["inspect", "pre.safetensors", "--only", "cf.*"],
                "'cf.*' matches no parameter; the nearest is 'fc.weight'",
            ),
            (["inspect", "pre.safetensors", "--exclude", "cf.*"], "matches no parameter"),
            (["inspect", "pre.safetensors", "--key", "model"], "no keys"),
            ([*two, "--only", "cf.*"], "matches no parameter"),
            ([*two, "--plot", "no/such/x.svg"], "no/such/x.svg"),
            ([*two, "--only", "fc.*", "--plot", "x.svg"], "a plot takes two"),
        )
        self.refuse(
            (["inspect"], "--help"),
            (["inspect", "pre.safetensors", "--sort", "colour"], "--help"),
            (["inspect", "pre.safetensors", "--sort", "l2"], "takes two checkpoints"),
            (["inspect", "pre.safetensors", "--plot", "x.svg"], "takes two checkpoints"),
            status=2,
        )

    # inspect of two

    def test_inspect_two(self):
        result = json.loads(self.expect(0, "inspect", "pre.safetensors", "ft.safetensors", "--json"))
        tensors = {each["name"]: each for each in result["tensors"]}
        self.assertEqual(list(tensors), list(self.PRE))
        conv = tensors["conv1.weight"]
        self.assertEqual((conv["l2"], conv["mars"], conv["shape"]), (5, 7, [2, 2]))
        self.assertAlmostEqual(conv["relative"], 5 / math.sqrt(30))
        self.assertAlmostEqual(conv["cosine"], (1 + 4 + 18 + 32) / math.sqrt(30) / math.sqrt(105))
        self.assertTrue(tensors["layer1.0.weight"]["unchanged"])
        self.assertFalse(conv["unchanged"])
        self.assertTrue(tensors["layer1.2.running_var"]["buffer"])
        self.assertIsNone(tensors["layer1.10.weight"]["cosine"])  # of nothing
        self.assertEqual(
            [each["name"] for each in result["blocks"]], ["conv1", "layer1.0", "layer1.2", "layer1.10", "fc"]
        )
        self.assertEqual(result["all"]["tensors"], 5)
        self.assertAlmostEqual(result["all"]["l2"], math.sqrt(25 + 16 + 8 + 6))
        self.assertEqual((result["only_a"], result["only_b"], result["reshaped"]), ([], [], []))
        self.assertEqual(result["b"]["metadata"], {"license": "MIT"})

        text = self.expect(0, "inspect", "pre.safetensors", "ft.safetensors")
        self.assertRegex(text, r"(?m)^conv1\.weight +\[2,2\] +5 +7 +0\.913 +0\.97996$")
        self.assertRegex(text, r"(?m)^layer1\.0\.weight +\[8\] +unchanged$")
        self.assertRegex(text, r"(?m)^all parameters +5 +26 +7\.416 ")
        self.assertIn("6 tensors in both, 1 of them unchanged", text)

    def test_inspect_two_of_unlike_shape(self):
        write_safetensors(
            "other.safetensors", {"conv1.weight": ([2, 2], [1.0] * 4), "fc.weight": ([1, 2], [0.5] * 2), "new": [1.0]}
        )
        result = json.loads(self.expect(0, "inspect", "pre.safetensors", "other.safetensors", "--json"))
        self.assertEqual([each["name"] for each in result["tensors"]], ["conv1.weight"])
        self.assertEqual(result["reshaped"], [{"name": "fc.weight", "a": [3, 2], "b": [1, 2]}])
        self.assertEqual((len(result["only_a"]), result["only_b"]), (4, ["new"]))
        text = self.expect(0, "inspect", "pre.safetensors", "other.safetensors")
        self.assertIn("reshaped   fc.weight  [3,2] in A, [1,2] in B", text)
        self.assertIn("only in B  new", text)
        self.assertEqual(text.count("only in A  "), 4)

    def test_inspect_two_sorted(self):
        def names(by):
            result = json.loads(self.expect(0, "inspect", "pre.safetensors", "ft.safetensors", "--json", "--sort", by))
            return [each["name"] for each in result["tensors"]]

        orders = ["name", "size", "l2", "mars", "relative", "cosine"]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            by = dict(zip(orders, pool.map(names, orders)))
        layers = ["layer1.0.weight", "layer1.2.running_var", "layer1.2.weight", "layer1.10.weight"]
        self.assertEqual(by["name"], ["conv1.weight", "fc.weight", *layers])
        self.assertEqual(by["size"][:2], ["layer1.0.weight", "fc.weight"])
        self.assertEqual(by["l2"][:3], ["layer1.2.running_var", "conv1.weight", "layer1.10.weight"])
        self.assertEqual(by["mars"][:3], ["layer1.2.running_var", "layer1.10.weight", "conv1.weight"])
        self.assertEqual(  # 8, 2, 2, 1, 0.91, 0
            by["relative"],
            [
                "layer1.2.running_var",
                "layer1.2.weight",
                "fc.weight",
                "layer1.10.weight",
                "conv1.weight",
                "layer1.0.weight",
            ],
        )
        self.assertEqual((by["cosine"][0], by["cosine"][-1]), ("conv1.weight", "layer1.10.weight"))  # the last has none

    def test_inspect_two_plots(self):
        self.expect(0, "inspect", "pre.safetensors", "ft.safetensors", "--plot", "x.svg")
        svg = xml.etree.ElementTree.parse("x.svg").getroot()
        self.assertTrue(svg.tag.endswith("svg"))
        for name in ("conv1", "fc"):  # below the axis
            self.assertRegex(Path("x.svg").read_text(), rf">{name}</text>")

    # wise

    def test_wise(self):
        text = self.expect(0, "wise", "pre.safetensors", "ft.safetensors", "-o", "half.safetensors")
        self.assertEqual(text, "half.safetensors\nratio 0.5, 6 tensors, 112 B\n")
        merged, metadata = read_safetensors("half.safetensors")
        self.assertEqual(
            {name: each[1] for name, each in merged.items()},
            {name: v[0] if isinstance(v, tuple) else [len(v)] for name, v in self.FT.items()},
        )
        self.assertEqual(floats(merged["conv1.weight"]), [1, 2, 4.5, 6])
        self.assertEqual(floats(merged["layer1.2.running_var"]), [5, 5])
        self.assertEqual((metadata["format"], metadata["license"], metadata["tpgm.ratio"]), ("pt", "MIT", "0.5"))
        self.assertEqual(metadata["tpgm.command"], "tpgm wise pre.safetensors ft.safetensors --ratio 0.5")
        sizes = [[file["bytes"] for file in each["files"]] for each in json.loads(metadata["tpgm.inputs"])]
        self.assertEqual(sizes, [[Path(name).stat().st_size] for name in ["pre.safetensors", "ft.safetensors"]])
        first = Path("half.safetensors").read_bytes()
        self.expect(0, "wise", "./pre.safetensors", Path("ft.safetensors").resolve(), "-o", "half.safetensors")
        self.assertEqual(Path("half.safetensors").read_bytes(), first)

    def test_wise_ratios_and_filters(self):
        def merged(*arguments):
            self.expect(0, "wise", "pre.safetensors", "ft.safetensors", "-o", "x.safetensors", *arguments)
            return {name: floats(each) for name, each in read_safetensors("x.safetensors")[0].items()}

        def values(of):
            return {name: each[1] if isinstance(each, tuple) else each for name, each in of.items()}

        self.assertEqual(merged("--ratio", "1"), values(self.FT))
        self.assertEqual(merged("--ratio", "-1")["fc.weight"], [-0.5] * 6)
        both = merged("--filter", "*.weight=0.25", "--filter", "fc.*=0.75")
        self.assertEqual(
            (both["fc.weight"], both["layer1.10.weight"], both["layer1.2.running_var"]), ([1.25] * 6, [1.5] * 4, [5, 5])
        )
        excluded = merged("--exclude", "fc.*", "--exclude", "conv1.*", "--ratio", "0")
        self.assertEqual(excluded, values(self.PRE | {name: self.FT[name] for name in ["fc.weight", "conv1.weight"]}))

    def test_wise_sweeps(self):
        text = self.expect(0, "wise", "pre.safetensors", "ft.safetensors", "-o", "sweep", "--ratio", "0.1:0.9:0.1")
        names = [f"sweep/wise-0.{i}.safetensors" for i in range(1, 10)]
        self.assertEqual(text.splitlines()[::2], names)
        self.assertEqual(self.files(), ["ft.safetensors", "pre.safetensors", *names])
        self.expect(0, "wise", "pre.safetensors", "ft.safetensors", "-o", "single.safetensors", "--ratio", "0.3")
        self.assertEqual(Path(names[2]).read_bytes(), Path("single.safetensors").read_bytes())
        self.expect(0, "wise", "pre.safetensors", "ft.safetensors", "-o", "list/in", "--ratio", "0,0.25,1")
        self.assertEqual(
            sorted(os.listdir("list/in")), ["wise-0.25.safetensors", "wise-0.safetensors", "wise-1.safetensors"]
        )

        text = self.expect(0, "wise", "pre.safetensors", "ft.safetensors", "-o", "mix.safetensors", "--ratio", "0.3,1")
        self.assertEqual(text.splitlines()[::2], ["mix-ratio=0.3.safetensors", "mix-ratio=1.safetensors"])
        self.assertEqual(Path("mix-ratio=0.3.safetensors").read_bytes(), Path("single.safetensors").read_bytes())

    def test_wise_writes_into_folders(self):
        Path("there").mkdir()
        for folder in ["there", "new/"]:
            text = self.expect(0, "wise", "pre.safetensors", "ft.safetensors", "-o", folder)
            self.assertTrue(Path(text.splitlines()[0]).samefile(Path(folder) / "model.safetensors"), text)
            self.assertEqual(os.listdir(folder), ["model.safetensors"])

    def test_wise_writes_shards(self):
        self.expect(0, "wise", "pre.safetensors", "ft.safetensors", "-o", "whole.safetensors")
        text = self.expect(0, "wise", "pre.safetensors", "ft.safetensors", "-o", "shards/", "--shard-size", "32B")
        index = json.loads(Path("shards/model.safetensors.index.json").read_text())
        self.assertEqual(index["metadata"]["total_size"], 112)
        whole, _ = read_safetensors("whole.safetensors")
        parts = {}
        for shard in sorted(set(index["weight_map"].values())):
            tensors, metadata = read_safetensors(f"shards/{shard}")
            self.assertLessEqual(sum(len(each[2]) for each in tensors.values()), 32)
            self.assertEqual(metadata["format"], "pt")
            parts |= tensors
        self.assertEqual(parts, whole)
        self.assertEqual(sorted(text.splitlines()[:-1]), [name for name in self.files() if name.startswith("shards/")])

    def test_wise_refusals(self):
        write_safetensors("other.safetensors", self.FT | {"fc.weight": ([1, 2], [0.5] * 2)})
        os.link("pre.safetensors", "hard.safetensors")
        wise = ["wise", "pre.safetensors", "ft.safetensors", "-o"]
        self.refuse(
            ([*wise, "pre.safetensors"], "is an input"),
            ([*wise, "hard.safetensors"], "is an input"),
            ([*wise, "no/such/x.safetensors"], "no/such/x.safetensors"),
            ([*wise, "x.safetensors", "--exclude", "cf.*"], "matches no parameter; the nearest is 'fc.weight'"),
            ([*wise, "new/", "--exclude", "cf.*"], "matches no parameter"),
            ([*wise, "fresh", "--ratio", "0.1,0.2", "--exclude", "cf.*"], "matches no parameter"),
            (["wise", "pre.safetensors", "other.safetensors", "-o", "x.safetensors"], "--exclude 'fc.*'"),
        )
        write_safetensors("more.safetensors", self.FT | {f"head.{i}.w": [1.0] for i in range(12)})
        result = tpgm("wise", "pre.safetensors", "more.safetensors", "-o", "x.safetensors")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertTrue(result.stderr.startswith("tpgm wise: 12 tensors do not fit:\n  'head.0.w'"), result.stderr)
        self.assertRegex(result.stderr, r"\n  and \d+ more\n\S")
        self.assertEqual(result.stderr.count("\n  'head."), 10)
        self.assertIn("and 2 more", result.stderr)
        self.assertIn("--exclude 'head.0.*'", result.stderr)
        self.assertNotIn("x.safetensors", self.files())

    def test_wise_wrong_usage(self):
        wise = ["wise", "pre.safetensors", "ft.safetensors", "-o", "x.safetensors"]
        self.refuse(
            (wise[:3], "--help"),
            *(([*wise, "--ratio", ratio], "--help") for ratio in ["nan", "0.9:0.1:0.1"]),
            ([*wise, "--filter", "fc.*=much"], "--help"),
            ([*wise, "--shard-size", "5XB"], "--help"),
            status=2,
        )

    # convert

    def test_convert(self):
        for name in ["legacy_views", "script_traced"]:
            with self.subTest(name=name):
                self.run_with_notes("convert", GOLDENS / f"torch/{name}.pt", "-o", "x.safetensors")
                self.assertEqual(
                    read_safetensors("x.safetensors")[0],
                    read_safetensors(GOLDENS / f"torch/{name}.expected.safetensors")[0],
                )
        text = self.expect(0, "convert", "pre.safetensors", "-o", "x.safetensors")
        self.assertEqual(text, "x.safetensors\n6 tensors, 112 B, from safetensors\n")
        tensors, metadata = read_safetensors("x.safetensors")
        self.assertEqual(tensors, read_safetensors("pre.safetensors")[0])
        self.assertEqual((metadata["format"], metadata["tpgm.command"]), ("pt", "tpgm convert pre.safetensors"))

    def test_commands_are_recorded(self):
        def command_of(*arguments):
            self.run_with_notes(*arguments, "-o", "x.safetensors")
            return read_safetensors("x.safetensors")[1]["tpgm.command"]

        Path("below").mkdir()
        shutil.copy("pre.safetensors", "below/model.safetensors")
        self.assertEqual(
            command_of("wise", "pre.safetensors", "ft.safetensors", "--ratio", "0.25", "--filter", "fc*=0.50",
                       "--exclude", "conv1.*", "--shard-size", "1kB"),
            "tpgm wise pre.safetensors ft.safetensors --ratio 0.25 --filter 'fc*=0.5' --exclude 'conv1.*' "
            "--shard-size 1000",
        )
        self.assertEqual(
            command_of("convert", "pre.safetensors", "--dtype", "bf16", "--rename", "layer1.*=c.*", "--only", "layer1.*",
                       "--only", "fc.*", "--exclude", "fc.weight", "--shard-size", "1kB"),
            "tpgm convert pre.safetensors --dtype BF16 --rename 'layer1.*=c.*' --only 'layer1.*' --only 'fc.*' "
            "--exclude 'fc.weight' --shard-size 1000",
        )
        for folder in ["below", "below/"]:  # without what is above them
            self.assertEqual(command_of("convert", folder), "tpgm convert below")
            self.assertEqual(command_of("wise", folder, folder), "tpgm wise below below --ratio 0.5")
        odd = "today's model.safetensors"
        shutil.copy("pre.safetensors", odd)
        self.assertEqual(shlex.split(command_of("convert", odd)), ["tpgm", "convert", odd])

    def test_convert_types(self):
        for name, dtype, size in [("fp16", "F16", 2), ("BF16", "BF16", 2), ("fp8_e4m3", "F8_E4M3", 1)]:
            with self.subTest(name=name):
                self.expect(0, "convert", "pre.safetensors", "-o", "x.safetensors", "--dtype", name)
                tensors, _ = read_safetensors("x.safetensors")
                for each, (found, _, data) in tensors.items():
                    values = self.PRE[each][1] if isinstance(self.PRE[each], tuple) else self.PRE[each]
                    self.assertEqual((found, len(data)), (dtype, size * len(values)))
                    if found == "F16":
                        self.assertEqual(floats(tensors[each]), values)

    def test_convert_says_what_becomes_infinite(self):
        write_safetensors("large.safetensors", {"a.w": [1.0], "b.w": [1e5], "c.w": [-3.4e38], "d.w": [float("inf")]})
        stdout, stderr = self.run_with_notes("convert", "large.safetensors", "-o", "x.safetensors", "--dtype", "fp16")
        self.assertEqual(stderr.count("\n"), 1)
        self.assertTrue(stderr.startswith("tpgm convert: in 2 tensors"), stderr)
        self.assertIn("'b.w'", stderr)
        self.assertIn("4 tensors", stdout)
        self.assertEqual(floats(read_safetensors("x.safetensors")[0]["c.w"]), [-math.inf])
        stdout, stderr = self.run_with_notes("convert", "large.safetensors", "-o", "x.safetensors", "--dtype", "bf16")
        self.assertIn("'c.w'", stderr)  # beyond bf16's largest number, by a rounding

    def test_convert_names(self):
        def names(*arguments):
            self.expect(0, "convert", "pre.safetensors", "-o", "x.safetensors", *arguments)
            return set(read_safetensors("x.safetensors")[0])

        self.assertEqual(
            names("--only", "layer1.*", "--rename", "layer1.*=blocks.*"),
            {"blocks.0.weight", "blocks.10.weight", "blocks.2.weight", "blocks.2.running_var"},
        )
        self.assertEqual(
            names("--only", "fc.*", "--only", "conv1.*", "--rename", "fc.*=head.*", "--rename", "*.weight=*.w"),
            {"head.w", "conv1.w"},
        )

    def test_convert_takes_a_key(self):
        self.run_with_notes(
            "convert", GOLDENS / "torch/nested_ema.pt", "-o", "x.safetensors", "--key", "state_dict_ema"
        )
        tensors, metadata = read_safetensors("x.safetensors")
        self.assertEqual(tensors, read_safetensors(GOLDENS / "torch/nested_ema_ema.expected.safetensors")[0])
        self.assertIn("--key state_dict_ema", metadata["tpgm.command"].replace("'", ""))

    def test_convert_writes_shards(self):
        text = self.expect(0, "convert", "pre.safetensors", "-o", "out/", "--shard-size", "40")
        *files, last = text.splitlines()
        self.assertEqual(sorted(files), [name for name in self.files() if name.startswith("out/")])
        self.assertEqual(files[-1], "out/model.safetensors.index.json")
        self.assertTrue(last.startswith("6 tensors"), last)
        self.run_with_notes("convert", "out", "-o", "back.safetensors")
        self.assertEqual(read_safetensors("back.safetensors")[0], read_safetensors("pre.safetensors")[0])
        for size in ["1kB"]:
            with self.subTest(size=size):
                self.expect(0, "convert", "pre.safetensors", "-o", "one.safetensors", "--shard-size", size)

    def test_convert_refusals(self):
        os.symlink("pre.safetensors", "link.safetensors")
        Path("sharded").mkdir()
        self.run_with_notes("convert", "pre.safetensors", "-o", "sharded/", "--shard-size", "40")
        convert = ["convert", "pre.safetensors", "-o"]
        self.refuse(
            (["convert", "absent.pt", "-o", "x.safetensors"], "cannot open 'absent.pt'"),
            ([*convert, "link.safetensors"], "is an input"),
            ([*convert, "x.bin"], "name it *.safetensors"),
            ([*convert, "pre.safetensors/"], "pre.safetensors/"),
            ([*convert, "x.safetensors", "--rename", "*.weight=w"], "another tensor is called already"),
            ([*convert, "new/", "--only", "cf.*"], "matches no parameter"),
            (["convert", GOLDENS / "torch/refused_module_zip.pt", "-o", "x.safetensors"], "refused_module_zip.pt"),
        )
        index = "sharded/model.safetensors.index.json"  # the shards would replace those that are read
        self.refuse((["convert", index, "-o", "sharded", "--shard-size", "40", "--rename", "fc.*=x.*"], "is an input"))
        self.refuse(
            (["convert", "pre.safetensors"], "--help"),
            ([*convert, "x.safetensors", "--dtype", "int8"], "--help"),
            ([*convert, "x.safetensors", "--rename", "fc.weight"], "--help"),
            status=2,
        )

    # what can go wrong with a disk

    def test_a_full_disk_leaves_nothing_behind(self):
        write_safetensors("a.safetensors", {"w": [1.0] * 10000})
        write_safetensors("b.safetensors", {"w": [2.0] * 10000})
        Path("old.safetensors").write_text("old")
        self.refuse(
            (["wise", "a.safetensors", "b.safetensors", "-o", "old.safetensors"], "cannot write 'old.safetensors'"),
            (["convert", "a.safetensors", "-o", "old.safetensors"], "cannot write 'old.safetensors'"),
            limit=8192,
        )

    def test_a_disk_that_is_really_full(self):
        Path("disk").mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "none", "disk"], capture_output=True, check=False
        )
        if mounted.returncode != 0:
            self.skipTest("may not mount a small disk")
        self.addCleanup(subprocess.run, ["umount", "disk"], check=True)
        write_safetensors("a.safetensors", {"w": [1.0] * 20000})
        self.refuse(
            (["wise", "a.safetensors", "a.safetensors", "-o", "disk/x.safetensors"], "No space left on device"),
            (["wise", "a.safetensors", "a.safetensors", "-o", "disk", "--ratio", "0.1,0.2"], "No space left on device"),
            (["convert", "a.safetensors", "-o", "disk/x.safetensors"], "No space left on device (the file takes 80"),
        )
        self.expect(0, "convert", "a.safetensors", "-o", "disk/x.safetensors", "--dtype", "fp16")

    def test_a_folder_that_may_not_be_written_to(self):
        if os.geteuid() == 0:
            self.skipTest("nothing is read-only to root")
        Path("locked").mkdir(mode=0o555)
        self.refuse(
            (["wise", "pre.safetensors", "ft.safetensors", "-o", "locked/x.safetensors"], "locked"),
            (["wise", "pre.safetensors", "ft.safetensors", "-o", "locked/new", "--ratio", "0.1,0.2"], "locked"),
            (["convert", "pre.safetensors", "-o", "locked/x.safetensors"], "locked"),
            (["inspect", "pre.safetensors", "ft.safetensors", "--plot", "locked/x.svg"], "locked"),
        )

    # help

    def test_help_shows_every_default(self):
        for command, defaults in {
            "inspect": {
                "--sort": r"=file\b",
                "--only": "default: all",
                "--key": "default: the usual ones",
                "--json": "",
                "--plot": "",
                "--exclude": "",
            },
            "wise": {
                "--ratio": r"=0\.5\b",
                "--shard-size": "default: one file",
                "--filter": "",
                "--exclude": "",
                "--output": "",
            },
            "convert": {
                "--dtype": "default: as they are",
                "--only": "default: all",
                "--key": "default: the usual ones",
                "--shard-size": "default: one file",
                "--rename": "",
                "--exclude": "",
            },
        }.items():
            text = self.expect(0, command, "--help")
            self.assertNotIn("->", text)
            found = {}
            for line in text.splitlines():
                if match := re.match(r" +(?:-\w, *)?(--[\w-]+)", line):
                    option = match.group(1)
                    found[option] = ""
                if found:
                    found[option] += " " + line.strip()
            found = {option: re.sub(" +", " ", words) for option, words in found.items()}
            self.assertLessEqual(set(defaults), set(found), command)
            for option, default in defaults.items():
                with self.subTest(command=command, option=option):
                    self.assertRegex(found[option], default or option)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
