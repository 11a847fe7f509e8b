"""Damaged files of runs: python3 files.py path/to/tpgm --minutes M --seed S

Makes a finished run, a stopped run and a sweep, damages one of their files at random, and runs the commands that read
it, with limited time and memory. Trial N of a seed is always the same; --only N repeats it. Each command must succeed, or
exit with 1 or 2 and one line that names the file or the option.
"""

import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import time

import hostile
from hostile import GIB, MODEL

NUMBERS = ("-1", "0", "1", "0.01", "1e-308", "1e308", "-1e308", "NaN", "nan", "inf", "1e15", "1000000000000000",
           "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1" + 400 * "0", "4294967296")
VALUES = NUMBERS + ("null", "true", "\"\"", "\"text\"", "[]", "{}", "[1, [2, [3]]]", 300 * "[" + 300 * "]", 100000 * "[",
                    "{\"a\": 1}", "'\\x1b[31mred'", "\"\\u0000\"", "\"\xff\"")
PATHS = ("/", "/dev/zero", "/dev/full", "/proc/self/mem", "PIPE", "SELF", "RUN", "/proc/self/fd/0", "missing", 5000 * "a")
FILES = {
    "done": ("recipe.toml", "result.json", "radii.json", "environment.json", "log.jsonl", "summary.csv",
             "predictions.safetensors", "best.safetensors"),
    "stopped": ("recipe.toml", "resume.safetensors", "radii.json", "environment.json", "log.jsonl", "summary.csv"),
    "sweep": ("recipe.toml", "result.json", "summary.csv", "predictions.safetensors"),
}


def make_runs(tpgm, folder):
    hostile.make_data(folder / "data")
    environment = hostile.environment()
    common = [tpgm, "train", "--model", MODEL, "--data-dir", folder / "data", "--train", "home", "--test", "home,away",
              "--batch-size", "6", "--workers", "1", "--device", "cpu", "--method", "tpgm"]
    subprocess.run([*common, "--epochs", "2", "-o", folder / "done"], check=True, env=environment,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([*common, "--epochs", "1", "-o", folder / "sweep", "--sweep", "lr=1e-3,1e-4"], check=True,
                   env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stopped = folder / "stopped"
    process = subprocess.Popen([*common, "--epochs", "1000", "--checkpoint-every", "1", "-o", stopped], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (stopped / "resume.safetensors").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.wait()
    if not (stopped / "resume.safetensors").exists():
        raise SystemExit("files.py: the run was not stopped")
    # A resumed run is short.
    recipe = stopped / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 1000", "epochs = 1"))


def replace_value(text, rng):
    """A value of a JSON or TOML text becomes another one."""
    lines = text.split("\n")
    places = [i for i, line in enumerate(lines) if " = " in line or ":" in line]
    if not places:
        return text
    i = rng.choice(places)
    value = rng.choice(VALUES)
    separator = " = " if " = " in lines[i] else ":"
    parts = lines[i].split(separator)
    at = rng.randrange(1, len(parts))
    tail = "".join(mark for mark in "]},"
                   if separator == ":" and parts[at].rstrip().endswith(mark))
    rest = "," + parts[at].split(",", 1)[1] if separator == ":" and "," in parts[at] else tail
    parts[at] = value + rest
    lines[i] = separator.join(parts)
    return "\n".join(lines)


def replace_number(text, rng):
    """A number, wherever it is, becomes another one."""
    found = list(re.finditer(r"(?<![\w.])-?\d+(\.\d+)?(e-?\d+)?(?![\w.])", text))
    if not found:
        return text
    one = rng.choice(found)
    return text[:one.start()] + rng.choice(NUMBERS) + text[one.end():]


def set_key(text, rng):
    """Options that decide how much there is to do."""
    keys = {"crop-pct": NUMBERS, "epochs": NUMBERS, "workers": NUMBERS, "batch-size": NUMBERS, "log-every": NUMBERS,
            "validation-batch-size": NUMBERS, "radius-batch-size": NUMBERS, "image-size": NUMBERS, "max-pixels": NUMBERS,
            "grad-accum-steps": NUMBERS, "radius-steps": NUMBERS, "warmup-epochs": NUMBERS, "cache": NUMBERS,
            "color-jitter": ("[1e15, 1e15, 1e15]",), "rand-augment": ("[1e15, 9]", "[1e9, 30]"),
            "checkpoint-every": NUMBERS, "decay-epochs": NUMBERS, "patience": NUMBERS, "lp-epochs": NUMBERS,
            "crop-ratio": ("[1e-9, 1e9]", "[1e17, 1e18]"), "crop-scale": ("[1e-300, 1e17]", "[1e-9, 1e-9]"),
            "mean": ("[1e308]", "[NaN, 0, 0]"), "test": ("[\"a=/\"]", "[\"/\"]", "[\"..\"]", "[\"a=/proc\"]"),
            "train": ("[\"/\"]", "[\"..\"]", "[\".\"]", "[\"\"]"), "data-dir": ("\"/\"", "\"/proc\"", "\"/dev/zero\"", "\"\""),
            "model": tuple("\"resnet:" + MODEL[7:].replace(a, b) + "\"" for a, b in (
                ("size=32", "size=1000000000"), ("size=32", "size=100000"), ("size=32", "size=1"), ("size=32", "size=-1"),
                ("width=8", "width=1000000000"), ("width=8", "width=100000"), ("layers=1-1", "layers=1000000000"),
                ("layers=1-1", "layers=1-1-1-1-1-1-1-1-1-1"), ("channels=1", "channels=1000000000")))
            + ("\"vit:patch=1,width=64,depth=1000000,image_size=1000\"", "\"vit:patch=8,width=64,depth=2,image_size=65536\"")}
    key = rng.choice(sorted(keys))
    value = rng.choice(keys[key])
    lines = [f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in text.split("\n")]
    if not any(line.startswith(f"{key} = ") for line in lines):
        lines.append(f"{key} = {value}")
    return "\n".join(lines)


def change_lines(text, rng):
    lines = text.split("\n")
    i = rng.randrange(len(lines))
    what = rng.randrange(5)
    if what == 0:
        del lines[i]
    elif what == 1:
        lines.insert(i, lines[i])
    elif what == 2:
        lines[i] = "x" + lines[i] if rng.random() < 0.5 else lines[i].replace("\"", "\"_", 1)
    elif what == 3:
        rng.shuffle(lines)
    else:
        lines[i] = lines[i] * rng.choice((2, 1000))
    return "\n".join(lines)


def change_path(text, rng, run):
    lines = text.split("\n")
    i = rng.choice([i for i, line in enumerate(lines) if " = " in line])
    if rng.random() < 0.7:  # one that is a path
        keys = ("data-dir", "checkpoint", "head", "classnames", "templates", "vocab", "weights", "class-list", "groups",
                "output")
        places = [i for i, line in enumerate(lines) if line.split(" = ")[0] in keys]
        i = rng.choice(places) if places else i
    path = rng.choice(PATHS).replace("PIPE", str(run / "pipe")).replace("SELF", str(run / "recipe.toml"))
    lines[i] = lines[i].split(" = ")[0] + f" = \"{path.replace('RUN', str(run))}\""
    return "\n".join(lines)


def change_header(data, rng):
    """The header of a safetensors file, and its length so that it is read."""
    (size,) = struct.unpack("<Q", data[:8])
    header = data[8:8 + size].decode("utf-8", "replace")
    try:
        parsed = json.loads(header)
        entry = rng.choice(sorted(parsed))
        what = rng.randrange(8)
        value = parsed[entry]
        if what == 0:
            del parsed[entry]
        elif what == 1:
            parsed[entry + "x"] = parsed.pop(entry)
        elif what == 2 and "shape" in value:
            value["shape"] = rng.choice(([], [-1], [0], [1 << 62, 4], [1e308], ["1"], None, [[1]], [1 << 63], value["shape"][::-1],
                                         [1] * 100))
        elif what == 3 and "dtype" in value:
            value["dtype"] = rng.choice(("F64", "I8", "U8", "I64", "BF16", "x", "", 1, None, "BOOL"))
        elif what == 4 and "data_offsets" in value:
            value["data_offsets"] = rng.choice(([0, 0], [0], [0, 1 << 62], [-4, 0], [8, 4], None, "0", [0.5, 1]))
        elif what == 5:
            parsed[entry] = rng.choice((None, 1, "", [], {}, [[[]]]))
        elif what == 6 and entry == "__metadata__":
            key = rng.choice(sorted(value))
            value[key] = rng.choice(("", "x", "NaN", "1e308", "-1", "[1", "{\"a\": [[]]}", 100000 * "[", "\x1b[31m", "null", 7,
                                     "99999999999999999999", "[]", "{}"))
        elif what == 7 and entry == "__metadata__":
            del value[rng.choice(sorted(value))]
        header = json.dumps(parsed)
    except ValueError:
        pass
    if rng.random() < 0.3:
        header = replace_number(header, rng)
    encoded = header.encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + data[8 + size:]


def change_bytes(data, rng):
    data = bytearray(data)
    what = rng.randrange(4)
    if what == 0:
        for _ in range(rng.choice((1, 8, 100))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif what == 1:
        del data[rng.randrange(len(data)):]
    elif what == 2:
        at = rng.randrange(len(data))
        data[at:at + 4] = struct.pack("<f", rng.choice((float("nan"), float("inf"), -1e30, 0.0)))
    else:
        at = rng.randrange(len(data))
        data[at:at] = rng.randbytes(rng.choice((1, 64, 4096)))
    return bytes(data)


def replace_file(path, rng, run):
    """Another thing takes the file's place."""
    what = rng.choice(("pipe", "folder", "zero", "itself", "loop", "missing", "empty", "full", "huge"))
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what in ("zero", "full"):
        path.symlink_to(f"/dev/{what}")
    elif what == "itself":
        path.symlink_to(path)
    elif what == "loop":
        path.symlink_to(run)
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "huge":
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    return what


def mutate(path, rng, run):
    """Damages the file; the kind of damage in a word."""
    if rng.random() < 0.06:
        return "file: " + replace_file(path, rng, run)
    data = path.read_bytes()
    if not data:
        path.write_bytes(rng.randbytes(rng.choice((1, 100))))
        return "bytes"
    if path.suffix == ".safetensors":
        kind = rng.choice(("header", "header", "header", "bytes"))
        path.write_bytes(change_header(data, rng) if kind == "header" else change_bytes(data, rng))
        return kind
    kinds = ["value", "number", "lines", "bytes"]
    if path.name == "recipe.toml":
        kinds += ["option", "option", "option", "option", "path", "path"]
    kind = rng.choice(kinds)
    if kind == "bytes":
        path.write_bytes(change_bytes(data, rng))
        return kind
    text = data.decode()
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = {"value": lambda t: replace_value(t, rng), "number": lambda t: replace_number(t, rng),
                "lines": lambda t: change_lines(t, rng), "option": lambda t: set_key(t, rng),
                "path": lambda t: change_path(t, rng, run)}[kind](text)
    path.write_text(text, errors="surrogateescape")
    return kind


def commands(tpgm, kind, run, file, data):
    """(name, words) of what reads the file."""
    report = ("report", [tpgm, "report", run, "-o", run.parent / "page.html"])
    resume = ("train --resume", [tpgm, "train", "--resume", run])
    dry = ("train -c --dry-run", [tpgm, "train", "-c", run / "recipe.toml", "-o", run.parent / "new", "--dry-run"])
    evaluate = ("eval", [tpgm, "eval", run, "--per-class", run.parent / "classes.csv"])
    if kind == "sweep":
        return [report, ("eval", [tpgm, "eval", *sorted(each.parent for each in run.glob("*/recipe.toml"))])]
    if kind == "stopped":
        return {"recipe.toml": [resume, dry, report]}.get(file, [resume])
    predict = ("predict", [tpgm, "predict", "--checkpoint", run, "--data-dir", data, "-o", run.parent / "p.safetensors",
                           "--workers", "1"])
    inspect = ("inspect", [tpgm, "inspect", run / "best.safetensors"])
    fresh = ("eval --fresh", [tpgm, "eval", run, "--fresh"])
    return {"recipe.toml": [report, evaluate, fresh, predict, dry], "best.safetensors": [fresh, predict, inspect, report],
            "result.json": [report, evaluate, resume],
            "predictions.safetensors": [report, ("inspect", [tpgm, "inspect", run / file])]}.get(file, [report, evaluate])


def make_trial(options, scratch, _):
    base = scratch / "base"
    base.mkdir()
    make_runs(options.tpgm, base)
    environment = hostile.environment()
    needed = max(hostile.peak_memory(words, env=environment) for words in (
        [options.tpgm, "eval", base / "done", "--fresh"], [options.tpgm, "report", base / "done", "-o", base / "page.html"]))

    def trial(number):
        rng = random.Random(f"{options.seed} {number}")
        kind = rng.choice(("done", "done", "stopped", "stopped", "sweep"))
        folder = scratch / f"trial-{number}"
        folder.mkdir()
        run = folder / "run"
        shutil.copytree(base / kind, run)
        file = rng.choice(FILES[kind])
        path = rng.choice(sorted(path for path in run.rglob(file) if path.is_file()))
        os.mkfifo(path.parent / "pipe")
        damage = mutate(path, rng, path.parent)
        name, words = rng.choice(commands(options.tpgm, kind, run, file, base / "data"))
        outcome = hostile.run(words, options.limit, memory=needed + 2 * GIB, environment=environment, folder=folder)
        if options.only is None:
            shutil.rmtree(folder)
        else:
            print(f"{path}: {damage}")
        return [(f"{file}: {name}", outcome.problem(), words, outcome)]

    return trial


if __name__ == "__main__":
    hostile.main("files", __doc__, make_trial)
