"""What the torture tests share: tiny data, runs under limits, spoiled calls, comparable folders, and the verdict."""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MODEL = "resnet:layers=1-1,width=8,block=basic,stem=small,image_size=32,channels=1"
GIB = 1 << 30
FORBIDDEN = ("json.exception", "std::", "terminate", "INTERNAL ASSERT", "frame #", "Exception raised from", "basic_string",
             "_M_", "vector::")
# An option, a key, a quoted name, or a file's name.
NAMES_SOMETHING = re.compile(r"--[a-z]|`[a-z-]+`|'[^']*'|\w\.(toml|json|jsonl|csv|safetensors|png|txt|html|log)\b|line \d")
NOTE = re.compile(r"tpgm[ :]|  |a variant of this architecture, or an incomplete file\?")


def png(rows):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">2I5B", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def make_data(folder, classes=("bars", "dots", "plain"), domains=("home", "away"), counts=(6, 3)):
    """Images of 32 x 32: the class sets the brightness. `away` has no training images."""
    noise = random.Random(0)
    for domain in domains:
        for split, count in zip(("train", "test"), counts, strict=True):
            if domain == domains[-1] and split == "train" and len(domains) > 1:
                continue
            for number, name in enumerate(classes):
                place = Path(folder) / split / domain / name
                place.mkdir(parents=True)
                level = 40 + 150 * number // max(1, len(classes) - 1)
                for i in range(count):
                    rows = [[level + noise.randrange(60) for _ in range(32)] for _ in range(32)]
                    (place / f"{i:02}.png").write_bytes(png(rows))


class Outcome:
    """How a command ended."""

    def __init__(self, status, out, errors, seconds, too_long):
        self.status, self.out, self.errors = status, out, errors
        self.seconds, self.too_long = seconds, too_long

    def problem(self, status=None, names=True):
        """What the user must not see, in words; None if all is well. `status`: the only one that passes."""
        if self.too_long:
            return f"it still ran after {self.seconds:.0f} s"
        if self.status < 0:
            return f"signal {signal.Signals(-self.status).name}"
        text = self.errors.decode("utf-8", "replace")
        for word in FORBIDDEN:
            if word in text:
                return f"the message has '{word}'"
        raw = re.search(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]", self.errors + self.out)
        if raw:
            return f"the control character {raw[0]!r} reaches the terminal"
        if status is not None and self.status != status:
            return f"exit {self.status}, not {status}"
        if self.status not in (0, 1, 2):
            return f"exit {self.status}"
        if self.status == 0:
            return None
        lines = [line for line in text.splitlines() if line.strip()]
        if not lines:  # `data check` prints its findings
            return None if self.out.strip() else "no message"
        if not all(NOTE.match(line) for line in lines):
            return "more than one line"
        if names and not NAMES_SOMETHING.search(text):
            return "the message names no file or option"
        return None


def run(command, seconds, memory=None, files=None, environment=None, folder=None, after_fork=None, signals=()):
    """Runs a command under limits, in a process group of its own, which is killed as a whole if it takes too long.

    `signals`: (seconds to wait, signal) to send to the command, one after the other.
    """

    def limit():
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        if after_fork:
            after_fork()

    begin = time.monotonic()
    process = subprocess.Popen([os.fspath(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=environment, cwd=folder, preexec_fn=limit)
    too_long = False
    for delay, number in signals:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=delay)
            break
        process.send_signal(number)
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        too_long = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
    return Outcome(process.returncode, out, errors, time.monotonic() - begin, too_long)


KINDS = ("create", "unnamed", "write", "pwrite", "fsync", "link", "rename", "allocate", "truncate", "unlink", "mkdir",
         "open", "read", "list", "mmap", "close")
CHANGING = KINDS[:KINDS.index("open")]


class Spoiler:
    """Runs commands with the library of faults.cpp, which counts and spoils calls that use files below a folder."""

    def __init__(self, library, folder):
        self.library, self.folder = Path(library).resolve(strict=True), folder

    def run(self, command, seconds, fault="", **options):
        """(how it ended, number of calls of each kind, whether a call was spoiled)"""
        with tempfile.NamedTemporaryFile(prefix="tpgm-torture-counts-") as file:
            file.write(bytes(4096))
            file.flush()
            changes = {"LD_PRELOAD": self.library, "TPGM_FAULT_FOLDER": self.folder, "TPGM_FAULT_COUNTS": file.name,
                       "TPGM_FAULT": fault or None}
            outcome = run(command, seconds, environment=environment(**changes), **options)
            numbers = struct.unpack("<18q", Path(file.name).read_bytes()[:144])
        return outcome, dict(zip(KINDS, numbers[:len(KINDS)], strict=True)), numbers[-1] > 0


def events_of(data):
    """The events of a file for TensorBoard, without speeds, and without the time and the checksum of each."""
    found = []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        if len(data) < 16 + size:
            raise ValueError("an event is cut short")
        event = data[12 + 9:12 + size]
        found += [event] if b"train/images_s" not in event else []
        data = data[16 + size:]
    return found


def without_times(value):
    if isinstance(value, list):
        return [without_times(each) for each in value]
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in ("seconds", "images_s")}
    return value


def comparable(path, folder):
    """What must be the same in two runs of a command in different folders; None if nothing of the file."""
    if path.name == "environment.json" or path.suffix == ".log":
        return None
    data = path.read_bytes().replace(os.fsencode(folder), b"FOLDER")
    if ".tfevents." in path.name:
        return events_of(data)
    if path.suffix == ".jsonl":
        return [without_times(json.loads(line)) for line in data.splitlines()]
    if path.suffix == ".json":
        return without_times(json.loads(data))
    if path.suffix == ".toml":
        return [line for line in data.splitlines() if not line.startswith(b"workers = ")]
    if path.suffix in (".md", ".tex", ".csv", ".html"):
        return re.sub(rb"[\d.]+ (min|s|ms|seconds?)\b", b"TIME", data)
    return data


def tree(folder):
    """What is to be compared of all files below a folder, by their relative paths."""
    result = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            try:
                result[str(path.relative_to(folder))] = comparable(path, folder)
            except (ValueError, struct.error) as error:
                result[str(path.relative_to(folder))] = f"unreadable: {error}"
    return result


def difference(expected, found, ignored=()):
    """How a tree differs from another one, in words; None if it does not."""
    for name in sorted({*expected, *found} - {*ignored}):
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is too many"
        if expected[name] != found[name]:
            return f"{name} differs" + (f": {found[name]}" if isinstance(found[name], str) else "")
    return None


def interleaved(groups, rng):
    """The elements of the groups in random order, one of each group in turn."""
    groups = rng.sample([rng.sample(group, len(group)) for group in groups], len(groups))
    return [group[i] for i in range(max(map(len, groups), default=0)) for group in groups if i < len(group)]


def peak_memory(command, **options):
    """Address space that a command needs, in bytes."""
    process = subprocess.Popen([os.fspath(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               **options)
    peak = 0
    while process.poll() is None:
        with contextlib.suppress(OSError):
            found = re.search(r"VmPeak:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
            peak = max(peak, int(found[1]) << 10 if found else 0)
        time.sleep(0.002)
    return peak


def environment(**changes):
    """That of this process, with one thread for each command; None takes a variable away."""
    result = os.environ | {"OMP_NUM_THREADS": "1"}
    for name, value in changes.items():
        result.pop(name, None)
        if value is not None:
            result[name] = str(value)
    return result


def arguments(text, library=False):
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("tpgm", type=Path)
    if library:
        parser.add_argument("library", type=Path, help="the library that is built from faults.cpp")
    parser.add_argument("--minutes", type=float, help="end after so long")
    parser.add_argument("--trials", type=int, help="end after so many, however long they take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="commands side by side")
    parser.add_argument("--limit", type=float, default=10, help="seconds that a command may take")
    parser.add_argument("--only", type=int, help="one trial, by its number, with all that it prints")
    parsed = parser.parse_args()
    parsed.tpgm = parsed.tpgm.resolve()
    if parsed.minutes is None and parsed.trials is None and parsed.only is None:
        parsed.minutes = 1
    return parsed


class Campaign:
    """Counts trials by kind, and prints those that fail."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.trials, self.failures, self.skipped = Counter(), Counter(), Counter()
        self.end = None if options.minutes is None else time.monotonic() + 60 * options.minutes

    def time_is_up(self):
        return self.end is not None and time.monotonic() > self.end

    def count(self, kind, problem, number, command, outcome):
        self.trials[kind] += 1
        if problem is None:
            return
        self.failures[kind] += 1
        print(f"FAIL {self.name} {number} {kind}: {problem}\n  {' '.join(map(str, command))}", flush=True)
        if outcome is not None and outcome.status != 0:
            print("  " + outcome.errors.decode("utf-8", "replace")[-600:].strip(), flush=True)

    def run_all(self, trial):
        """Calls trial(number) for 0, 1, ...; each gives (kind, problem, command, outcome) for what it ran."""
        options = self.options
        if options.only is not None:
            for found in trial(options.only):
                self.count(found[0], found[1], options.only, *found[2:])
                print(f"{found[0]}: exit {found[3].status}: {found[3].errors.decode('utf-8', 'replace')}")
            return
        last = options.trials if options.trials is not None else 1 << 60
        with ThreadPoolExecutor(options.jobs) as pool:
            number = 0
            while number < last and not self.time_is_up():
                numbers = range(number, min(last, number + 4 * options.jobs))
                for which, results in zip(numbers, pool.map(trial, numbers), strict=True):
                    for kind, problem, command, outcome in results:
                        self.count(kind, problem, which, command, outcome)
                number = numbers.stop

    def finish(self):
        for kind in sorted(self.trials):
            print(f"{self.name:<8} {kind:<44} {self.trials[kind]:>6} trials {self.failures[kind]:>4} failures")
        for kind in sorted(self.skipped):
            print(f"{self.name:<8} {kind:<44} not possible here")
        print(f"{self.name}: {self.trials.total()} trials, {self.failures.total()} failures, seed {self.options.seed}")
        sys.exit(1 if self.failures.total() else 0)


def main(name, text, make_trial, library=False):
    """A campaign as a program. make_trial(options, scratch, campaign) gives what run_all() calls."""
    options = arguments(text, library)
    campaign = Campaign(name, options)
    scratch = Path(tempfile.mkdtemp(prefix=f"tpgm-torture-{name}-")).resolve()
    try:
        campaign.run_all(make_trial(options, scratch, campaign))
    finally:
        if options.only is None:
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            print(scratch)
    campaign.finish()
