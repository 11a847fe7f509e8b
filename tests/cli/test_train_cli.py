"""Training as a user runs it: python3 test_train_cli.py path/to/tpgm

The variable TPGM_TENSORBOARD_PYTHON may name an interpreter that has the package `tensorboard`.
"""

import contextlib
import csv
import json
import os
import pty
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import test_cli
from test_cli import read_safetensors, tpgm
from test_models_cli import GOLDENS, ModelsCommand, tensor

HERE = Path(__file__).resolve().parent
MODEL = "resnet:layers=1-1,width=8,block=basic,stem=small,image_size=32,channels=1"
VIT = "vit:patch=8,width=64,depth=2,image_size=32,channels=1"
CLASSES = ("bars", "dots", "plain", "stripes")
EPOCHS, STEPS = 4, 36

os.environ["OMP_NUM_THREADS"] = "1"  # many small runs side by side

# Runs that are killed. Lines of the log (every 4 steps) are not where checkpoints (every 3) are.
RUNS = {
    "ft": (),
    "tpgm": ("--method", "tpgm"),
    "tpgm-rarely": ("--method", "tpgm", "--every", "5"),
    "tpgm-end": ("--method", "tpgm", "--every", "end", "--radius-steps", "30"),
    "ftp": ("--method", "ftp", "--model", VIT),
    "lp-ft": ("--method", "lp-ft", "--lp-lr", "0.02"),
    "mixed": ("--model-ema", "--model-ema-decay", "0.9", "--mixup", "0.8", "--cutmix", "1", "--smoothing", "0.1", "--opt",
              "sgd"),
}


def png(rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">2I5B", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def draw(name, away, noise):
    """Something to learn; away from home black is white."""
    phase = noise.randrange(8)

    def pixel(x, y):
        upright, flat = (x + phase) // 4 % 2, (y + phase) // 4 % 2
        ink = {"bars": upright, "stripes": flat, "dots": upright & flat, "plain": 0}[name]
        return max(0, min(255, int(40 + 150 * (ink ^ away) + noise.gauss(0, 30))))

    return png([[pixel(x, y) for x in range(32)] for y in range(32)])


def make_data(folder):
    noise = random.Random(0)
    for part, count in (("train/home", 24), ("test/home", 8), ("test/away", 8)):
        for name in CLASSES:
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                (folder / part / name / f"{i:02}.png").write_bytes(draw(name, part == "test/away", noise))


def read_log(run, times=False):
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    if not times:
        for line in lines:
            line.pop("seconds", None)
            line.pop("images_s", None)
    return lines


def read_result(run):
    return json.loads((run / "result.json").read_text())


def fields(message):
    """(number, value) of a protobuf message: varints and what has a length or a width, as bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        value = varint() if key & 7 in (0, 2) else {1: 8, 5: 4}[key & 7]
        if key & 7:
            value, at = message[at:at + value], at + value
        yield key >> 3, value


def event_steps(run):
    """(tag, step) of everything in the file for TensorBoard, without TensorBoard."""
    (path,) = run.glob("events.out.tfevents.*")
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        event = dict(fields(data[12:12 + size]))
        data = data[16 + size:]
        if 5 in event:
            found += [(dict(fields(value))[1].decode(), event.get(2, 0)) for _, value in fields(event[5])]
    return found


class TrainCommand(ModelsCommand):
    shared = None  # made once, for all classes
    whole = {}

    @classmethod
    def setUpClass(cls):
        if TrainCommand.shared is None:
            TrainCommand.shared = Path(tempfile.mkdtemp(prefix="tpgm-train-cli-"))
            unittest.addModuleCleanup(shutil.rmtree, TrainCommand.shared)
            make_data(TrainCommand.shared / "data")
        cls.data = TrainCommand.shared / "data"

    def command(self, output, *more, **changes):
        """`more` beats the usual, and `changes` (None: leave it out) beat both."""
        options = {"model": MODEL, "data-dir": self.data, "train": "home", "test": "away", "epochs": EPOCHS, "batch-size": 8,
                   "lr": 0.01, "workers": 1, "device": "cpu", "output": output}
        rest = []
        more = [str(each) for each in more]
        while more:
            name = more.pop(0)
            if name.startswith("--") and name[2:] in options:
                options[name[2:]] = more.pop(0)
            else:
                rest.append(name)
        options |= {name.replace("_", "-"): value for name, value in changes.items()}
        flat = [text for name, value in options.items() if value is not None for text in ("--" + name, str(value))]
        return ["train", *flat, *rest]

    def train(self, output, *more, **changes):
        """Trains; returns the finished process."""
        return self.run_ok(*self.command(output, *more, **changes))

    def reference(self, name="ft"):
        """The run of that name, uninterrupted."""
        run = self.shared / f"whole-{name}"
        if name not in self.whole:
            self.whole[name] = run
            result = tpgm(*self.command(run, *RUNS[name], "--log-every", 4, "--checkpoint-every", 3))
            self.assertEqual(result.returncode, 0, result.stderr)
        return run

    def refused(self, status, *arguments):
        """Fails; returns the only line of stderr."""
        return self.expect_one_line(status, *arguments)

    def assert_same_weights(self, one, other):
        for name in ("best", "last"):
            self.assertEqual((one / f"{name}.safetensors").read_bytes(), (other / f"{name}.safetensors").read_bytes(), name)

    def assert_same_run(self, whole, other):
        self.assert_same_weights(whole, other)
        self.assertEqual((whole / "summary.csv").read_text(), (other / "summary.csv").read_text())
        self.assertEqual(read_log(whole), read_log(other))
        self.assertEqual(*({**read_result(run), "seconds": 0} for run in (whole, other)))
        self.assertEqual(*([line for line in (run / "recipe.toml").read_text().splitlines()
                            if not line.startswith(("output", "workers"))] for run in (whole, other)))
        self.assertEqual((whole / "radii.json").exists(), (other / "radii.json").exists())
        if (whole / "radii.json").exists():
            self.assertEqual(*(json.loads((run / "radii.json").read_text()) for run in (whole, other)))
        self.assertEqual(event_steps(whole), event_steps(other))
        for things in (event_steps(other), [json.dumps(line) for line in read_log(other)]):
            self.assertEqual(len(things), len(set(things)), "something twice")

    def start(self, *arguments):
        process = subprocess.Popen([test_cli.COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    @staticmethod
    def wait_for(process, condition):
        """False if the process ends before."""
        while not condition():
            if process.poll() is not None:
                return False
            time.sleep(0.001)
        return True


    def stop(self, *arguments):
        """Starts a run and stops it after it has saved its state."""
        run = Path(arguments[arguments.index("-o" if "-o" in arguments else "--output") + 1])
        process = self.start(*arguments)
        self.assertTrue(self.wait_for(process, (run / "resume.safetensors").exists))
        process.send_signal(signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, 130)


class Killed(TrainCommand):
    def moments(self, run, rng):
        """When to kill: conditions, and how long to wait then."""
        lines = len(read_log(self.reference(run.name)))

        def log():
            return (run / "log.jsonl").read_text() if (run / "log.jsonl").exists() else ""

        yield (run / "recipe.toml").exists, rng.uniform(0, 0.03)  # before the first checkpoint
        for count in sorted(rng.sample(range(1, lines - 3), 2)):
            yield lambda: log().count("\n") >= count, rng.uniform(0, 0.03)  # noqa: B023
        yield lambda: True, rng.uniform(0.2, 0.9)
        yield lambda: log().count('"event":"epoch"') == EPOCHS, rng.uniform(0, 0.04)  # in the final projection or the tests

    def run_and_kill(self, name):
        run = self.folder / name
        begin = self.command(run, *RUNS[name], "--log-every", 4, "--checkpoint-every", 3)
        kills = 0
        for condition, delay in self.moments(run, random.Random(name)):
            process = self.start(*(["train", "--resume", run] if (run / "recipe.toml").exists() else begin))
            if self.wait_for(process, condition):
                time.sleep(delay)
            process.kill()
            process.communicate()
            if process.returncode == 0 or (run / "result.json").exists():
                break
            if process.returncode != -signal.SIGKILL:
                return kills, f"{name}: {process.returncode}"
            kills += 1
        else:
            result = tpgm("train", "--resume", run)
            if result.returncode != 0:
                return kills, f"{name}: {result.stderr}"
        return kills, ""

    def test_goes_on_bit_for_bit(self):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.reference, RUNS))
            results = list(pool.map(self.run_and_kill, RUNS))
        for name, (kills, error) in zip(RUNS, results, strict=True):
            with self.subTest(name):
                self.assertEqual(error, "")
                self.assertGreater(kills, 0)
                self.assertEqual(read_result(self.folder / name)["steps"], STEPS)
                self.assert_same_run(self.reference(name), self.folder / name)
        self.assertGreater(sum(kills for kills, _ in results), 2 * len(RUNS))

    def test_signals(self):
        for number, sign in ((signal.SIGINT, "recipe.toml"), (signal.SIGTERM, "resume.safetensors")):
            with self.subTest(number):
                run = self.folder / number.name
                process = self.start(*self.command(run, *RUNS["ft"], "--log-every", 4, "--checkpoint-every", 3))
                self.assertTrue(self.wait_for(process, (run / sign).exists))
                process.send_signal(number)
                out, said = process.communicate()
                self.assertEqual((process.returncode, out), (128 + number, ""), said)
                self.assertRegex(said, rf"stopped at step \d+; resume with: tpgm train --resume {run}\n$")
                self.assertTrue((run / "resume.safetensors").is_file())
                self.assertFalse((run / "result.json").exists())
                again = self.run_ok("train", "--resume", run)
                step = re.search(r"stopped at step (\d+)", said)[1]
                self.assertIn(f"resuming at step {step} of {STEPS}", again.stderr)
                self.assert_same_run(self.reference(), run)

    def test_a_second_signal_ends_it_at_once(self):
        run = self.folder / "run"
        slow = "resnet:layers=2-2,width=64,block=basic,stem=small,image_size=96,channels=1"
        process = self.start(*self.command(run, model=slow, batch_size=76, epochs=1))
        self.assertTrue(self.wait_for(process, (run / "recipe.toml").exists))
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)  # one that waits for another is lost
        self.assertEqual(process.wait(timeout=60), -signal.SIGINT)

    def test_in_the_last_act(self):
        """Killed when the last weights are there and result.json is not."""
        run = self.folder / "run"
        options = ("--method", "tpgm", "--every", "end", "--radius-steps", "400")
        process = self.start(*self.command(run, *options, epochs=1))
        state = run / "resume.safetensors"
        self.assertTrue(self.wait_for(process, state.exists))
        data = state.read_bytes()
        process.communicate()
        whole = Path(shutil.copytree(run, self.folder / "whole"))
        self.assertFalse(state.exists())
        for lost in ((), ("radii.json",)):  # what the killed process had not written yet
            if not lost:
                (run / "result.json").unlink()
            else:
                shutil.rmtree(run)
                shutil.copytree(whole, run)
                for name in ("result.json", "radii.json"):
                    (run / name).unlink()
                shutil.copy(whole / "last.safetensors", run / "best.safetensors")
            state.write_bytes(data)
            self.run_ok("train", "--resume", run)
            self.assert_same_run(whole, run)

    def test_workers_do_not_matter(self):
        run = self.folder / "run"
        self.train(run, *RUNS["mixed"], "--log-every", 4, "--checkpoint-every", 3, workers=3)
        self.assert_same_run(self.reference("mixed"), run)
        self.assertIn("workers = 3", (run / "recipe.toml").read_text())


def temporary(process, number):
    """The name of a temporary file of a process on this machine: with FNV-1a of the host's name."""
    machine = 0xcbf29ce484222325
    for byte in socket.gethostname().encode():
        machine = (machine ^ byte) * 0x100000001b3 % 2**64
    return f".tpgm-{machine % 2**32:08x}-{process}-{number}.tmp"


class Folders(TrainCommand):
    def begun(self):
        """A run that has a recipe and, after NaNs, no end."""
        run = self.folder / "begun"
        self.assertEqual(tpgm(*self.command(run, lr=1e17)).returncode, 1)
        return run

    def test_output(self):
        stopped = self.folder / "stopped"
        self.kill_after_a_state(stopped)
        self.assertIn("holds an unfinished run; resume that run", self.refused(1, *self.command(stopped)))
        before = sorted((path.name, path.read_bytes()) for path in self.reference().iterdir())
        self.assertIn("holds a finished run", self.refused(1, *self.command(self.reference())))
        self.assertEqual(before, sorted((path.name, path.read_bytes()) for path in self.reference().iterdir()))
        (self.folder / "thesis").mkdir()
        (self.folder / "thesis" / "text.tex").write_text("text")
        self.assertIn("is not empty", self.refused(1, *self.command(self.folder / "thesis")))
        self.assertIn("is a file", self.refused(1, *self.command(self.folder / "thesis" / "text.tex")))
        self.assertIn("holds no run that --overwrite could replace",
                      self.refused(1, *self.command(self.folder / "thesis"), "--overwrite"))
        self.assertIn("--output is required", self.refused(2, *self.command(None)))
        self.assertEqual(os.listdir(self.folder / "thesis"), ["text.tex"])

    def test_overwrite(self):
        begun = self.begun()
        self.refused(1, *self.command(begun), "--overwrite", "--checkpoint", "nowhere")  # a mistake deletes nothing
        self.assertTrue((begun / "recipe.toml").exists())
        result = tpgm(*self.command(begun), "--overwrite")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((begun / "best.safetensors").read_bytes(),
                         (self.reference() / "best.safetensors").read_bytes())
        self.refused(2, "train", "--resume", begun, "--overwrite")
        self.refused(2, *self.command(begun), "--overwrite", "--seeds", "0,1")
        (self.folder / "empty").mkdir()
        note = "--epochs 0: the fresh head stays random, so the accuracies mean nothing"
        self.assertEqual(self.train(self.folder / "empty", epochs=0).stderr.count(note), 1)
        self.assertIn(note, self.train(self.folder / "wise", "--method", "wise", epochs=0).stderr)
        # Of weights or a checkpoint it is not.
        start = self.reference("ft")
        for more in ({"weights": start}, {"checkpoint": start, "head": "checkpoint", "model": None}):
            self.assertNotIn(note, self.train(self.folder / "-".join(more), epochs=0, **more).stderr)

    def kill_after_a_state(self, run):
        process = subprocess.Popen([str(word) for word in (test_cli.COMMAND, *self.command(run, epochs=10000))],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (run / "resume.safetensors").exists():
            self.assertIsNone(process.poll(), "it ended by itself")
            time.sleep(0.01)
        process.kill()
        process.wait()

    def test_a_run_that_saved_nothing_starts_over(self):
        begun = self.begun()
        said = self.train(begun).stderr
        self.assertIn("ended before it saved anything; it starts over", said)
        self.assert_same_weights(begun, self.reference())
        # Killed while it was being made, with a temporary file of a file system without unnamed ones.
        with subprocess.Popen(["true"]) as process:
            process.wait()
        half = self.folder / "half"
        half.mkdir()
        shutil.copy(begun / "environment.json", half)
        (half / temporary(process.pid, 0)).write_text("half a recipe")
        self.assertIn("begin it again with: ", self.refused(1, "train", "--resume", half))
        self.train(half)
        self.assert_same_weights(half, self.reference())
        self.assertEqual([name for name in os.listdir(half) if name.endswith(".tmp")], [])
        # A folder of somebody else's is neither.
        for names in (["environment.json"], ["recipe.toml"], ["environment.json", "thesis.tex"]):
            other = self.folder / "-".join(names)
            other.mkdir()
            for name in names:
                (other / name).write_text("mine")
            self.refused(1, *self.command(other))
            self.assertEqual({name: (other / name).read_text() for name in os.listdir(other)},
                             dict.fromkeys(names, "mine"))
        shutil.copy(begun / "environment.json", self.folder / "environment.json-thesis.tex")
        self.assertIn("is not empty", self.refused(1, *self.command(self.folder / "environment.json-thesis.tex")))

    def test_resume_of_a_finished_run_cleans_up(self):
        run = self.folder / "finished"
        shutil.copytree(self.reference(), run)
        before = sorted(os.listdir(run))
        (run / "resume.safetensors").write_text("left by a kill at the very end")
        with subprocess.Popen(["true"]) as process:
            process.wait()
        (run / temporary(process.pid, 3)).write_text("a dead process's")
        (run / temporary(os.getpid(), 3)).write_text("a living process's")
        (run / ".tpgm-notes.tmp").write_text("a user's")
        result = tpgm("train", "--resume", run)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("is finished; there is nothing to resume", result.stderr)
        self.assertIn("ID", result.stdout)
        self.assertEqual(sorted(os.listdir(run)),
                         sorted([*before, temporary(os.getpid(), 3), ".tpgm-notes.tmp"]))
        self.assertEqual(json.loads(tpgm("train", "--resume", run, "--json").stdout),
                         json.loads((run / "result.json").read_text()))

    def test_a_full_disk_says_what_is_intact(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True).returncode:
            self.skipTest("may not mount a small disk")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        run = disk / "run"
        self.kill_after_a_state(run)
        with open(disk / "full", "wb") as file, contextlib.suppress(OSError):
            while True:
                os.write(file.fileno(), bytes(4096))
        said = tpgm("train", "--resume", run)
        self.assertEqual(said.returncode, 1, said.stderr)
        self.assertIn("No space left on device", said.stderr)
        self.assertIn(f"What the run saved is intact; make room and resume it with: tpgm train --resume {run}", said.stderr)
        (disk / "full").unlink()
        resumed = subprocess.Popen([str(word) for word in (test_cli.COMMAND, "train", "--resume", run)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        state = (run / "resume.safetensors").stat().st_mtime_ns
        while (run / "resume.safetensors").stat().st_mtime_ns == state:
            self.assertIsNone(resumed.poll(), "it does not resume")
            time.sleep(0.01)
        resumed.kill()
        resumed.communicate()

    def test_resume(self):
        begun = self.begun()
        self.assertIn("is not a run folder", self.refused(1, "train", "--resume", self.folder))
        self.assertIn("is not a run folder", self.refused(1, "train", "--resume", self.folder / "nowhere"))
        self.assertIn("--lr cannot change", self.refused(2, "train", "--resume", begun, "--lr", "1"))
        self.assertIn("takes no --config", self.refused(2, "train", "--resume", begun, "--dry-run"))
        self.assertIn("takes no --config", self.refused(2, "train", "--resume", begun, "-c", begun / "recipe.toml"))
        self.assertIn("step 2: the loss is nan", self.error(1, "train", "--resume", begun, "--workers", "2"))

    def test_contents(self):
        for name in ("ft", "tpgm", "tpgm-end", "ftp", "mixed"):
            with self.subTest(name):
                run = self.reference(name)
                files = {"best.safetensors", "environment.json", "events.out.tfevents.0.tpgm", "last.safetensors", "log.jsonl",
                         "predictions.safetensors", "recipe.toml", "result.json", "summary.csv"}
                radii = {"radii.json"} if name not in ("ft", "mixed") else set()
                self.assertEqual(set(os.listdir(run)), files | radii)
                self.check_result(run)
                self.check_log(run)
                if radii:
                    self.check_radii(run)

    def check_result(self, run):
        result = read_result(run)
        self.assertEqual([(test["name"], test["id"], test["pictures"]) for test in result["tests"]],
                         [("home", True, 32), ("away", False, 32)])
        for kind, average in ((True, "id_average"), (False, "ood_average")):
            self.assertAlmostEqual(result[average], statistics.mean(test["top1"] for test in result["tests"]
                                                                    if test["id"] == kind))
        self.assertEqual((result["steps"], result["skipped_steps"], result["seed"]), (STEPS, 0, 0))
        self.assertTrue(1 <= result["best_epoch"] <= EPOCHS)
        environment = json.loads((run / "environment.json").read_text())
        self.assertEqual((environment["device"], environment["threads"]), ("cpu", 1))
        self.assertIn("--data-dir", environment["command"])
        self.assertRegex(environment["started"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def check_log(self, run):
        log = read_log(run, times=True)
        result = read_result(run)
        steps = [line for line in log if line["event"] == "step"]
        self.assertEqual([line["step"] for line in steps], [4, 8, 9, 12, 16, 18, 20, 24, 27, 28, 32, 36])
        self.assertTrue(all(line["images_s"] > 0 for line in steps))
        epochs = [line for line in log if line["event"] == "epoch"]
        self.assertEqual([line["step"] for line in epochs], [9, 18, 27, 36])
        for epoch in epochs:  # the mean of its lines, each of which has so many steps
            parts = [(line, line["step"] - max([0, *(other["step"] for other in steps if other["step"] < line["step"])]))
                     for line in steps if line["epoch"] == epoch["epoch"]]
            for key in ("loss", "accuracy"):
                self.assertAlmostEqual(epoch["train_" + key], sum(line[key] * count for line, count in parts) / 9)
        best = max(epochs, key=lambda line: line["selection_accuracy"])  # the first of equals
        self.assertEqual(result["best_epoch"], best["epoch"])
        with open(run / "summary.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for row, epoch in zip(rows, epochs, strict=True):
            self.assertEqual(float(row["selection_accuracy"]), epoch["selection_accuracy"])
            self.assertEqual(row["best"], str(epoch["best"]).lower())
        self.assertEqual({line["name"]: line["top1"] for line in log if line["event"] == "test"},
                         {test["name"]: test["top1"] for test in result["tests"]})

    def check_radii(self, run):
        radii = json.loads((run / "radii.json").read_text())
        names = [name for name in read_safetensors(run / "best.safetensors")[0]
                 if "running_" not in name and "tracked" not in name and not name.startswith("head.")]
        self.assertEqual(sorted(radii["names"]), sorted(names))
        self.assertEqual(radii["steps"][-1], STEPS)
        times = [(step, -1 if act is None else act) for step, act in zip(radii["steps"], radii["radius_steps"], strict=True)]
        self.assertEqual(sorted(set(times)), times)
        self.assertEqual([len(row) for row in radii["radii"]], [len(names)] * len(times))
        self.assertIn([len(row) for row in radii["ratios"]],  # during the final projection they are not known
                      ([len(names)] * len(times), [0] * (len(times) - 1) + [len(names)]))
        self.assertTrue(all(0 <= ratio <= 1 for row in radii["ratios"] for ratio in row))
        self.assertTrue(all(radius >= 0 for row in radii["radii"] for radius in row))

    def test_other_commands_take_it(self):
        runs = [self.reference("ft"), self.reference("tpgm")]
        rows = json.loads(self.run_ok("eval", *runs, "--json").stdout)["checkpoints"]
        for row, run in zip(rows, runs, strict=True):
            result = read_result(run)
            self.assertEqual([(test["name"], test["id"], test["top1"], test["top5"]) for test in row["tests"]],
                             [(test["name"], test["id"], test["top1"], test["top5"]) for test in result["tests"]])
            self.assertEqual((row["id_average"], row["ood_average"]), (result["id_average"], result["ood_average"]))
        shown = json.loads(self.run_ok("inspect", runs[0], "--json").stdout)
        self.assertIn("head.weight", json.dumps(shown))
        mixed = self.folder / "mixed.safetensors"
        self.run_ok("wise", *runs, "--ratio", "0.25", "-o", mixed)
        values = [tensor(path, "head.weight")[1] for path in (*(run / "best.safetensors" for run in runs), mixed)]
        for a, b, mean in zip(*values, strict=True):
            self.assertAlmostEqual(mean, 0.75 * a + 0.25 * b, places=6)
        self.run_ok("predict", "--checkpoint", runs[0], "--data-dir", self.data, "--domains", "home/test", "-o",
                    self.folder / "logits.safetensors")
        (count, classes), logits = tensor(self.folder / "logits.safetensors", "logits")
        labels = struct.unpack(f"<{count}q", read_safetensors(self.folder / "logits.safetensors")[0]["labels"][2])
        right = [max(range(classes), key=lambda k: logits[classes * i + k]) == labels[i] for i in range(count)]
        self.assertAlmostEqual(100 * statistics.mean(right), read_result(runs[0])["id_average"])

    def test_a_class_list_replaces_the_classes_of_the_checkpoint(self):
        run, output = self.reference("ft"), self.folder / "logits.safetensors"
        common = ("predict", "--checkpoint", run, "--data-dir", self.data, "--domains", "home/test", "-o", output)
        metadata = read_safetensors(run / "best.safetensors")[1]
        classes = json.loads(metadata["tpgm.classes"])
        def labels_and_predictions(*more):
            self.run_ok(*common, *more)
            with open(self.folder / "logits.csv", newline="") as file:
                rows = list(csv.DictReader(file))
            labels = read_safetensors(output)[0]["labels"][2]
            return struct.unpack(f"<{len(rows)}q", labels), [row["prediction"] for row in rows]

        labels, predictions = labels_and_predictions()
        names = self.folder / "names.txt"
        names.write_text("\n".join(reversed(classes)))
        last = len(classes) - 1
        self.assertEqual(labels_and_predictions("--class-list", names),
                         (tuple(last - label for label in labels),
                          [classes[last - classes.index(name)] for name in predictions]))
        names.write_text("\n".join(classes[1:]))
        self.assertIn(f"the head has {len(classes)} classes, --class-list",
                      self.error(1, *common, "--class-list", names))

    def test_tensorboard(self):
        wanted = ("train/loss", "train/lr", "selection/accuracy", "test/home", "test/away", "ratios")
        program = ("import json, sys; sys.path.insert(0, sys.argv[1]); from test_tensorboard import read_events\n"
                   "found = read_events(sys.argv[2])\n"
                   "found['histograms'] = {tag: [(step, h.min, h.max, h.num) for step, h in series]"
                   " for tag, series in found['histograms'].items()}\n"
                   "print(json.dumps(found))")
        run = self.reference("tpgm")
        for python in (os.environ.get("TPGM_TENSORBOARD_PYTHON"), sys.executable):
            read = python and subprocess.run([python, "-c", program, HERE, run], capture_output=True, text=True, check=False)
            if read and read.returncode == 0:
                break
            if read and python != sys.executable:
                self.fail(f"{python}: {read.stderr}")
        else:
            self.skipTest("needs the package tensorboard, here or in the interpreter TPGM_TENSORBOARD_PYTHON")
        found = json.loads(read.stdout)
        scalars, log = found["scalars"], read_log(run)
        self.assertLessEqual(set(wanted), set(scalars) | set(found["histograms"]))
        for tag, key, event in (("train/loss", "loss", "step"), ("train/accuracy", "accuracy", "step"),
                                ("train/lr", "lr", "step"), ("selection/accuracy", "selection_accuracy", "epoch"),
                                ("selection/loss", "selection_loss", "epoch")):
            lines = [line for line in log if line["event"] == event]
            self.assertEqual([step for step, _ in scalars[tag]], [line["step"] for line in lines])
            for (_, value), line in zip(scalars[tag], lines, strict=True):
                self.assertAlmostEqual(value, line[key], delta=1e-6 * abs(line[key]))
        for test in read_result(run)["tests"]:
            self.assertEqual(scalars["test/" + test["name"]], [[STEPS, test["top1"]]])
        radii = json.loads((run / "radii.json").read_text())
        self.assertEqual(found["histograms"]["ratios"],
                         [[step, min(row), max(row), len(row)] for step, row in zip(radii["steps"], radii["ratios"])])


class Recipes(TrainCommand):
    def recipe(self, text, name="recipe.toml"):
        (self.folder / name).write_text(text)
        return self.folder / name

    def test_gives_the_run_again(self):
        for name in ("tpgm", "mixed"):
            with self.subTest(name):
                run = self.folder / name
                self.run_ok("train", "-c", self.reference(name) / "recipe.toml", "-o", run)
                self.assert_same_run(self.reference(name), run)

    def plan(self, *arguments):
        text = self.run_ok("train", "--dry-run", *arguments).stdout
        return dict(line.split(" = ", 1) for line in text.splitlines() if re.match(r"[a-z0-9-]+ = ", line))

    def test_flags_beat_recipes_beat_defaults(self):
        data = self.shared / "elsewhere"
        if not data.exists():
            data.symlink_to(self.data)
        self.recipe(f'data-dir = "{data}"\ntrain = "home"\nmodel = "{MODEL}"\nlr = 3\nepochs = 3\nopt_eps = 0.5\nmu = 3\n'
                    'no-aug = true\nmethod = "tpgm"', "base.toml")
        recipe = self.recipe('base = "base.toml"\nlr = 2\nbatch_size = 16\noutput = "run"\ntest = ["away", "home"]  # two')
        plan = self.plan("-c", recipe)
        self.assertEqual((plan["lr"], plan["epochs"], plan["batch-size"], plan["opt-eps"]), ("2", "3", "16", "0.5"))
        self.assertEqual((plan["no-aug"], plan["mu"], plan["momentum"]), ("true", '"3"', "0.9"))
        self.assertEqual((plan["output"], plan["test"]), (f'"{self.folder / "run"}"', '["away", "home"]'))
        self.assertEqual(plan["data-dir"], f'"{data}"')
        plan = self.plan("-c", recipe, "--lr", "1", "-b", "8", "--aug", "--test", "away", "--mu", "0.5")
        self.assertEqual((plan["lr"], plan["epochs"], plan["batch-size"], plan["no-aug"]), ("1", "3", "8", "false"))
        self.assertEqual((plan["test"], plan["mu"]), ('["away"]', '"0.5"'))
        # A list is checked as a whole.
        plan = self.plan("-c", recipe, "--opt-betas", "0.8,0.95", "--crop-scale", "0.5,1", "--mean", "0.5,0.4,0.3")
        self.assertEqual((plan["opt-betas"], plan["crop-scale"], plan["mean"]), ("[0.8, 0.95]", "[0.5, 1]", "[0.5, 0.4, 0.3]"))

    def test_mistakes(self):
        for text, said in (
                ("lerning-rate = 1", "no option 'lerning-rate'; did you mean"),
                ("epoch = 1", "no option 'epoch'; did you mean 'epochs'?"),
                ("batch_sise = 1", "did you mean 'batch-size'?"),
                ("[x]\nlr = 1", "there are no sections such as [x]"),
                ("lr = 1\nepochs = 3\nlr = 2", "has 'lr' twice"),
                ("lr = 1\nlr = 2", "has 'lr' twice"),
                ('test = "away"\ntest = "home"', "has 'test' twice"),
                ("opt-eps = 1\nopt_eps = 1", "has 'opt-eps' twice"),
                ("lr", "line 1: expected key = value"),
                ('lr = "fast"', "--lr must be a number, not 'fast'"),
                ("epochs = 1.5", "--epochs must be an integer, not '1.5'"),
                ("epochs = [1, 2]", "--epochs must be an integer"),
                ("no-aug = 3", "--no-aug must be true or false, not '3'"),
                ('base = "recipe.toml"', "each other's base"),
                ('base = "other.toml"', "each other's base"),
                ('base = "nowhere.toml"', f"there is no recipe '{self.folder / 'nowhere.toml'}'"),
                ('method = "tpgmm"', "no method 'tpgmm'; did you mean 'tpgm'?"),
                ('method = "ftp"\nmu = 1', "--mu is an option of l2-sp and tpgm, not of ftp"),
                ("epochs = -1", "--epochs -1: must be from 0"),
                ("lr = 1e30", "--lr 1e+30: must be from 0 to 1e+18")):
            with self.subTest(text):
                self.recipe('base = "recipe.toml"', "other.toml")
                self.assertIn(said, self.refused(1, "train", "-c", self.recipe(text + "\n"), "--dry-run"))
        self.assertIn("there is no recipe", self.refused(1, "train", "-c", self.folder / "nowhere.toml"))
        self.assertIn("there is no recipe", self.refused(1, "train", "-c", self.folder))

    def test_mistakes_in_flags(self):
        out = self.folder / "out"
        single = self.folder / "bars"
        for name in CLASSES:
            shutil.copytree(self.data / "train" / "home" / name, single / name)
        for status, said, more, changes in (
                (2, "--lerning-rate", ("--lerning-rate", "3"), {}),
                (2, "did you mean '--epochs'?", ("--epoch", "3"), {}),
                (2, "did you mean '--batch-size'?", ("--batch_sise=3",), {}),
                (2, "--epochs: must be an integer, not '1.5'", (), {"epochs": "1.5"}),
                (2, "must be sgd|adam|adamw, not 'rmsprop'", ("--opt", "rmsprop"), {}),
                (2, "--opt-betas: expected 2 numbers separated by commas, not 1", ("--opt-betas", "0.9"), {}),
                (1, "Did you mean 'home'?", (), {"train": "hme"}),
                (1, "Did you mean 'away'?", (), {"test": "awy"}),
                (1, "there is no '/nowhere'", (), {"data_dir": "/nowhere"}),
                (1, "--data-dir is needed", (), {"data_dir": None}),
                (1, "--model or --checkpoint is needed", (), {"model": None}),
                (1, "did you mean 'resnet50'?", (), {"model": "resnet51"}),
                (1, "learns from radius data, and there are none", ("--method", "tpgm", "--radius-fraction", "0"), {}),
                (1, "--fraction 0.01 of classes of 24 images leaves too few to hold out --radius-fraction 0.1; raise",
                 ("--method", "tpgm", "--fraction", "0.01"), {}),
                (1, "the test set bars is empty: --fraction 0.01 of classes of 24 images leaves too few to hold out 20 %",
                 ("--fraction", "0.01", "--dry-run"), {"data_dir": single, "train": None, "test": None}),
                (2, "--std: 0: must be above 0", ("--std", "0"), {}),
                (2, "--mean: 128: pixels are from 0 to 1 here; divide", ("--mean", "128"), {}),
                (2, "--crop-pct: 0: must be 0.01 or more", ("--crop-pct", "0"), {}),
                (2, "--crop-scale: 1,0.5: must be two numbers above 0, the smaller one", ("--crop-scale", "1,0.5"), {}),
                (2, "--opt-betas: 0.9,1.5: must be from 0 to below 1", ("--opt-betas", "0.9,1.5"), {}),
                (2, "--rand-augment: 2,31: the number of operations", ("--rand-augment", "2,31"), {}),
                (1, "are options of lp-ft, not of ft", ("--lp-epochs", "1"), {}),
                (1, "the head is what its first phase trains", ("--method", "lp-ft", "--head-lr", "0"), {}),
                (1, "--head checkpoint needs a --checkpoint", ("--head", "checkpoint"), {}),
                (1, "cannot open '/nowhere'", ("--checkpoint", "/nowhere"), {}),
                (2, "must be auto, cpu, cuda or cuda:N", (), {"device": "tpu"})):
            with self.subTest(said):
                self.assertIn(said, self.refused(status, *self.command(out, *more, **changes)))
                self.assertFalse(out.exists())

    def test_dry_run(self):
        result = tpgm(*self.command(self.folder / "run", "--method", "tpgm", "--test-fraction", "0.5", "--dry-run"),
                      cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(os.listdir(self.folder), [])
        recipe, _, rest = result.stdout.partition("\n# Data\n# ")
        for line in ('method = "tpgm"', "lr = 0.01", f"epochs = {EPOCHS}", f'output = "{self.folder / "run"}"'):
            self.assertIn(line + "\n", recipe)
        for line in ("train: home/train, 77 images", "10 % held out of home/train, 9 images",
                     "test home (ID): home/test, 16 images", "test away (OOD): away/test, 16 images", "constrained tensors: 18",
                     "backbone.stem.conv1.weight", "excluded tensors: 2\n#     head.weight  head.bias",
                     f"steps: {STEPS} ({EPOCHS} epochs of 9), 8 images each"):
            self.assertIn(line, rest)
        self.assertRegex(rest, r"memory, estimated: [\d.]+ MB \(weights [\d.]+ kB, gradients [\d.]+ kB")
        again = self.run_ok("train", "-c", self.recipe(result.stdout), "--dry-run")
        self.assertEqual(again.stdout, result.stdout)

    def test_notes_on_data(self):
        data = self.folder / "data"
        shutil.copytree(self.data, data)
        for name in ("train/home/dots/x.gif", "test/away/bars/y.bmp"):
            (data / name).write_bytes(b"")
        unread = f"2 files of '{data}' are not read: 1 .gif, 1 .bmp ("
        plan = self.run_ok(*self.command(self.folder / "run", "--dry-run", data_dir=data, epochs=1, batch_size=50))
        self.assertIn(f"# {unread}", plan.stdout)
        self.assertIn("# steps: 1 (1 epoch of 1), 50 images each\n", plan.stdout)
        self.assertIn("27 of 77 images are left out of each epoch, which has whole batches only\n", plan.stderr)
        said = self.train(self.folder / "run", data_dir=data, epochs=1, batch_size=50)
        self.assertIn("; 1 step in ", said.stdout)
        for text in (f"tpgm train: {unread}", "tpgm train: 27 of 77 images are left out",
                     "tpgm train: test sets: home has only 32 images (3.12 points each), away has only 32 images"):
            self.assertEqual(said.stderr.count(text), 1, text)
        self.assertEqual(self.run_ok("eval", self.folder / "run", "--fresh").stderr.count(unread), 1)

        (data / "test" / "away" / "extra").mkdir()
        shutil.copy(data / "test" / "away" / "dots" / "00.png", data / "test" / "away" / "extra")
        said = self.train(self.folder / "extra", data_dir=data, epochs=0)
        self.assertIn("train: home/train has no image of 1 of 5 classes, which other parts have: extra\n", said.stderr)
        (data / "test" / "away" / "extra").rename(data / "test" / "away" / "Dots")
        shutil.rmtree(data / "test" / "away" / "dots")
        error = self.refused(1, *self.command(self.folder / "none", "--dry-run", data_dir=data))
        self.assertIn("class 'Dots' of 'away/test' and 'dots' of 'home/test' differ only in case", error)

    def domains(self):
        """Three domains, as in PACS, and a data set beside them."""
        data = self.folder / "work" / "data"
        for domain, part, count in (("art", "train/home", 10), ("photo", "train/home", 20), ("sketch", "test/away", 8)):
            for name in CLASSES:
                (data / domain / name).mkdir(parents=True)
                for i in range(count):
                    shutil.copy(self.data / part / name / f"{i:02}.png", data / domain / name)
        shutil.copytree(self.data / "test" / "away", self.folder / "work" / "far")
        return data

    def test_several_domains(self):
        data, run = self.domains(), self.folder / "run"
        both = {"data_dir": data, "train": "art,photo", "test": "sketch"}
        plan = self.run_ok(*self.command(run, "--dry-run", **both)).stdout
        for line in ('train = ["art", "photo"]', "# train: art, 24 images", "# train: photo, 48 images", "# train: 2 domains, 72 images",
                     "# radius: 10 % held out of art, 4 images", "# selection: 2 domains, 12 images",
                     "# test art (ID): art, 8 images", "# test photo (ID): photo, 16 images",
                     "# test sketch (OOD): sketch, 32 images", f"# steps: {EPOCHS * 9} ({EPOCHS} epochs of 9), 8 images each"):
            self.assertIn(line + "\n", plan)
        self.train(run, "--method", "tpgm", **both)
        tests = [(test["name"], test["id"], test["pictures"]) for test in read_result(run)["tests"]]
        self.assertEqual(tests, [("art", True, 8), ("photo", True, 16), ("sketch", False, 32)])
        # The recipe makes it again, also stopped and resumed, and the run can be evaluated.
        again = self.folder / "again"
        self.run_ok("train", "-c", run / "recipe.toml", "-o", again)
        self.assert_same_run(run, again)
        stopped = self.folder / "stopped"
        self.stop("train", "-c", run / "recipe.toml", "-o", stopped, "--checkpoint-every", "3")
        self.run_ok("train", "--resume", stopped)
        self.assert_same_weights(run, stopped)
        found = json.loads(self.run_ok("eval", run, "--device", "cpu", "--json").stdout)["checkpoints"][0]["tests"]
        self.assertEqual([test["top1"] for test in found], [test["top1"] for test in read_result(run)["tests"]])
        self.run_ok("report", run, "-o", self.folder / "report.html")
        self.assertIn("on art and photo", (self.folder / "report.html").read_text())
        self.assertIn("Did you mean 'photo'?", self.refused(1, *self.command(self.folder / "x", **both | {"train": "art,foto"})))

    def test_a_test_in_another_folder(self):
        data, work = self.domains(), self.folder / "work"
        (self.folder / "elsewhere").mkdir()
        (work / "link").symlink_to(data / "art")  # link/.. is data
        for name, test, path in (("beside", "far=far", work / "far"), ("data", "far=../far", work / "far"),
                                 ("link", "far=link/../sketch", data / "sketch")):
            with self.subTest(name):
                run = self.folder / name
                command = self.command(run, data_dir="data", train="photo", test=test, epochs=0)
                result = tpgm(*command, cwd=work)
                self.assertEqual(result.returncode, 0, result.stderr)
                recipe = dict(line.split(" = ", 1) for line in (run / "recipe.toml").read_text().splitlines() if " = " in line)
                (entry,) = json.loads(recipe["test"])
                self.assertTrue(os.path.samefile(entry.removeprefix("far="), path), entry)
                self.assertTrue(entry.startswith("far=/"))
                result = tpgm("eval", run, "--device", "cpu", "--json", cwd=self.folder / "elsewhere")
                found = json.loads(result.stdout)["checkpoints"][0]["tests"]
                self.assertEqual([(test["name"], test["pictures"]) for test in found], [("photo", 16), ("far", 32)])
        result = tpgm(*self.command(self.folder / "x", data_dir="data", train="photo", test="far=nowhere"), cwd=work)
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"--test far: there is neither '{work}/nowhere' nor '{data}/nowhere'", result.stderr)
        # In a recipe, paths are relative to its folder.
        (work / "mine.toml").write_text(f'data-dir = "data"\ntrain = "photo"\ntest = "far=far"\nmodel = "{MODEL}"\n')
        plan = self.plan("-c", work / "mine.toml", "--device", "cpu")
        self.assertEqual(plan["test"], f'["far={work}/far"]')

    def test_a_mistake_in_the_data_of_an_older_run(self):
        """Which a new run may not have: the user cannot change the data of a run."""
        data, run = self.folder / "data", self.folder / "run"
        shutil.copytree(self.data, data)
        (data / "test/away/dots").rename(data / "test/away/Dots")
        self.assertIn("differ only in case", self.refused(1, *self.command(run, data_dir=data)))
        # Versions that did not look at the names took them for five classes.
        (self.folder / "classes.txt").write_text("\n".join(sorted([*CLASSES, "Dots"])))
        self.stop(*self.command(run, "--checkpoint-every", "3", data_dir=data, class_list=self.folder / "classes.txt"))
        recipe = run / "recipe.toml"
        recipe.write_text(re.sub('class-list = .*', 'class-list = ""', recipe.read_text()))
        note = "class 'Dots' of 'away/test' and 'dots' of 'home/test' differ only in case, and are two classes"
        self.assertIn(note, self.run_ok("train", "--resume", run).stderr)
        self.assertIn(note, self.run_ok("eval", run, "--device", "cpu", "--fresh").stderr)
        self.run_ok("report", run, "-o", self.folder / "report.html")
        self.assertIn("differ only in case, and are two classes", (self.folder / "report.html").read_text())

    def test_the_box(self):
        """A recipe of the box, cut short."""
        recipe = HERE.parents[1] / "recipes" / "glyphs" / "tpgm.toml"
        self.run_ok("train", "-c", recipe, "-o", self.folder / "run", "--fraction", "0.05", "--test-fraction", "0.05",
                    "--epochs", "1", "-b", "64", "--workers", "1")
        result = read_result(self.folder / "run")
        self.assertEqual([test["name"] for test in result["tests"]], ["sans", "serif", "mono", "hand", "deco"])


class Training(TrainCommand):
    def test_a_loss_that_is_not_finite(self):
        run = self.folder / "run"
        said = self.error(1, *self.command(run, lr=1e17))
        match = re.search(r"step 2: the loss is nan\. The batch: '(\S+)', .* and 5 more \(all in (\S+)\); "
                          "there is no checkpoint", said)
        self.assertTrue(match, said)
        files = Path(match[2]).read_text().splitlines()
        self.assertEqual(Path(match[2]), run / "bad_batch.txt")
        self.assertEqual((len(set(files)), files[0]), (8, match[1]))
        self.assertTrue(all(Path(file).is_file() for file in files))
        self.assertFalse((run / "result.json").exists())

        said = self.error(1, *self.command(self.folder / "late", "--checkpoint-every", "1", lr=1e17))
        self.assertIn(f"the last good state is {self.folder / 'late' / 'resume.safetensors'} of step 1.", said)

        skipped = self.train(self.folder / "skip", "--on-nan", "skip", lr=1e17, epochs=1)
        self.assertIn("step 2: skipped, its loss is not finite (1 in all)", skipped.stderr)
        self.assertIn("8 steps skipped", skipped.stdout)
        result = read_result(self.folder / "skip")
        self.assertEqual((result["steps"], result["skipped_steps"]), (9, 8))

    def test_bad_images(self):
        data = self.folder / "data"
        shutil.copytree(self.data, data)
        bad = data / "train" / "home" / "dots" / "03.png"
        for path in (bad, data / "test" / "away" / "bars" / "00.png"):
            path.write_text("no image")
        said = self.error(1, *self.command(self.folder / "error", data_dir=data, selection_fraction=0))
        self.assertIn(f"'{bad}': it is not an image", said)
        self.assertIn("--on-bad-image skip", said)
        self.train(self.folder / "skip", "--on-bad-image", "skip", data_dir=data, epochs=1)
        tests = read_result(self.folder / "skip")["tests"]
        self.assertEqual([(test["pictures"], test["skipped_pictures"]) for test in tests], [(32, 0), (31, 1)])

    def test_patience(self):
        result = self.train(self.folder / "run", "--patience", "2", lr=1e-9, epochs=20)
        self.assertIn("stopped early: no better epoch since 1", result.stderr)
        self.assertEqual((read_result(self.folder / "run")["steps"], read_result(self.folder / "run")["best_epoch"]), (27, 1))
        self.assertEqual(len((self.folder / "run" / "summary.csv").read_text().splitlines()), 1 + 3)

    def test_no_epochs(self):
        run = self.folder / "run"
        self.train(run, "--method", "tpgm", "--checkpoint", self.reference(), "--head", "checkpoint", epochs=0, model=None)
        self.assertEqual(read_result(run)["id_average"], read_result(self.reference())["id_average"])
        self.assertEqual((read_result(run)["steps"], read_result(run)["best_epoch"]), (0, 0))
        for name, entry in read_safetensors(self.reference() / "best.safetensors")[0].items():
            self.assertEqual(read_safetensors(run / "best.safetensors")[0][name][2], entry[2], name)

    def test_rows_of_a_head_by_class(self):
        data = self.folder / "few"
        for part in ("train", "test"):
            for name in ("stripes", "bars"):
                shutil.copytree(self.data / part / "home" / name, data / part / "far" / name)
        changes = {"data_dir": data, "train": None, "test": None, "model": None, "epochs": 0, "checkpoint": self.reference()}
        result = self.train(self.folder / "run", head="checkpoint", **changes)
        self.assertIn("the head keeps 2 of its 4 classes", result.stderr)
        whole, few = (tensor(path / "best.safetensors", "head.weight")[1] for path in (self.reference(), self.folder / "run"))
        width = len(whole) // 4
        self.assertEqual(few, whole[:width] + whole[3 * width:])  # bars and stripes
        (data / "train" / "far" / "bars").rename(data / "train" / "far" / "barz")
        self.assertIn("knows no class 'barz'; the nearest is 'bars'",
                      self.error(1, *self.command(self.folder / "none", head="checkpoint", **changes)))

    def test_an_anchor_and_other_weights(self):
        """--weights start elsewhere; a tiny radius brings them back."""
        run = self.folder / "run"
        options = {"checkpoint": self.reference("ft"), "head": "checkpoint", "model": None, "epochs": 1, "lr": 1e-4}
        self.train(run, "--method", "mars-sp", "--radius", "1e-6", "--weights", self.reference("mixed"), **options)
        for name in ("backbone.stem.conv1.weight", "backbone.layer1.0.conv1.weight"):
            anchor, start, end = (tensor(path / "best.safetensors", name)[1]
                                  for path in (self.reference("ft"), self.reference("mixed"), run))
            self.assertGreater(max(abs(a - b) for a, b in zip(anchor, start, strict=True)), 1e-3)
            self.assertLess(max(abs(a - b) for a, b in zip(anchor, end, strict=True)), 1e-5)

    def test_the_run_of_a_script_is_what_another_takes(self):
        """--weights of a model that is a file, with sizes behind it: what tables take WiSE-FT's and TPGM's last step from."""
        run = self.folder / "ft"
        options = {"model": f"script:{GOLDENS / 'torchvision-resnet-basic' / 'script.pt'}:image_size=32"}
        self.train(run, epochs=1, lr=1e-3, **options)
        name = "backbone.conv1.weight"
        tuned = tensor(run / "best.safetensors", name)[1]
        found = {}
        for ratio in (0, 0.5, 1):
            output = self.folder / f"wise-{ratio}"
            self.train(output, "--method", "wise", "--ratio", ratio, "--weights", run, epochs=0, **options)
            found[ratio] = tensor(output / "best.safetensors", name)[1]
        self.assertEqual(found[1], tuned)
        self.assertGreater(max(abs(a - b) for a, b in zip(found[0], tuned, strict=True)), 1e-5)
        for low, middle, high in zip(*(found[ratio] for ratio in (0, 0.5, 1)), strict=True):
            self.assertAlmostEqual(middle, (low + high) / 2, places=6)
        self.train(self.folder / "tpgm", "--method", "tpgm", "--every", "end", "--radius-steps", 2, "--weights", run, epochs=0,
                   **options)

    def test_one_set_to_hold_out(self):
        result = self.train(self.folder / "run", "--method", "tpgm", "--share-validation", epochs=1)
        self.assertIn("radii and selection use the same 19 images", result.stderr)

    def test_batches_of_one_step(self):
        losses = []
        for size, batches in ((16, 1), (8, 2)):
            run = self.folder / str(size)
            self.train(run, "--grad-accum-steps", batches, "--log-every", 1, model=VIT, batch_size=size, epochs=1, lr=1e-3)
            losses.append([line["loss"] for line in read_log(run) if line["event"] == "step"])
        self.assertEqual(len(losses[0]), 4)
        for whole, parts in zip(*losses, strict=True):
            self.assertAlmostEqual(whole, parts, places=4)

    def test_json(self):
        result = self.train(self.folder / "run", "--json", epochs=1)
        stored = read_result(self.folder / "run")
        self.assertTrue(stored.pop("weights").startswith("xxh3-128:"))
        self.assertEqual(json.loads(result.stdout), stored | {"run": str(self.folder / "run")})

    def test_plain_lines(self):
        result = self.train(self.folder / "run", epochs=2)
        for text in (result.stdout, result.stderr):
            self.assertNotRegex(text, "[\r\x1b]")
        for line in result.stderr.splitlines():
            self.assertTrue(line.startswith("tpgm train: "), line)
        self.assertRegex(result.stderr, r"epoch 2/2: loss [\d.]+, accuracy [\d.]+ %; selection [\d.]+ %")
        self.assertRegex(result.stdout, r"selection [\d.]+ %, epoch \d of 2; 18 steps in \d+ s\n")

    def lines_on_a_terminal(self, *arguments):
        master, slave = pty.openpty()
        process = subprocess.Popen([test_cli.COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=slave)
        os.close(slave)
        said = b""
        while True:
            try:
                said += os.read(master, 65536)
            except OSError:
                break
        os.close(master)
        self.assertEqual(process.wait(), 0)
        return said.decode()

    def test_a_line_on_a_terminal(self):  # of work that takes longer than a second
        said = self.lines_on_a_terminal(*self.command(self.folder / "run", epochs=60))
        self.assertRegex(said, r"\rft epoch \d+/60, step \d+/540, \d+ images/s, loss [\d.]+, accuracy [\d.]+ %, "
                               r"\d+ s left\x1b")

    def test_a_line_while_radii_are_learned(self):
        options = ("--method", "tpgm", "--every", "end", "--radius-steps", "2000")
        said = self.lines_on_a_terminal(*self.command(self.folder / "run", *options, epochs=1))
        self.assertRegex(said, r"\rlearning radii: step \d+ of 2000, loss \d+\.\d{4}, (\d+ min )?\d+ s left\x1b")
        self.assertNotIn("batches of radius data so far", said)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
