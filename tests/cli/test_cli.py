"""The `tpgm` command as a user runs it: python3 test_cli.py path/to/tpgm"""

import json
import re
import subprocess
import sys
import unittest

COMMAND = ""


def tpgm(*arguments):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=300, check=False)


def has_gpu():
    return "CUDA: yes" in tpgm("--version").stdout


SMALL_THEORY = ("theory", "--draws", "2", "--epsilon", "0.5,4", "--radius-steps", "60", "--test-points", "500")


class CommandTest(unittest.TestCase):
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
            ("bench", "projection"): {"--device": "cpu", "--model-like": "resnet50", "--dtype": "float32", "--repeats": "20"},
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
        self.assertTrue(said.startswith("tpgm bench: --device cuda"), said)

    def test_bench_projection(self):
        result = json.loads(self.expect(0, "bench", "projection", "--json", "--repeats", "1"))
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


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    COMMAND = sys.argv.pop(1)
    unittest.main()
