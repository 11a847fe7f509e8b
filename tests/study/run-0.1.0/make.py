"""Makes the run folders beside this file: python3 make.py path/to/tpgm (of version 0.1.0, commit cc18fa5)

`finished` went through; `stopped` is the same run, stopped by SIGTERM. They are what that version wrote, but for two things: the
folder of the data is called FOLDER, and environment.json names no machine. tests/cli/test_older_runs_cli.py uses them.
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = "/FOLDER"  # in recipes: where data/ is
PARTS = {"train/home": 16, "test/home": 6, "test/away": 6}
CLASSES = ("bars", "dots", "plain")
MODEL = "resnet:layers=1-1,width=4,block=basic,stem=small,image_size=16,channels=1"
OPTIONS = ("--model", MODEL, "--train", "home", "--test", "away", "--method", "tpgm", "--epochs", "4", "--batch-size", "4",
           "--lr", "0.01", "--radius-fraction", "0.2", "--selection-fraction", "0.2", "--no-aug", "--device", "cpu",
           "--workers", "1", "--log-every", "2", "--checkpoint-every", "1")


def png(rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">2I5B", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def make_data(folder):
    """The data of the runs, the same pixels on every machine."""
    for p, (part, count) in enumerate(PARTS.items()):
        for name in CLASSES:
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                def pixel(x, y):
                    ink = {"bars": (x + i) // 4 % 2, "dots": (x + i) // 4 % 2 & (y + i) // 4 % 2, "plain": 0}[name]
                    away = part.endswith("away")
                    return 40 + 120 * (ink ^ away) + (x * 7 + y * 13 + i * 29 + p * 31) % 61

                (folder / part / name / f"{i:02}.png").write_bytes(png([[pixel(x, y) for x in range(16)] for y in range(16)]))


def keep(run, folder):
    target = HERE / run.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in run.iterdir():
        if not path.name.startswith("events"):  # it is begun anew where it is not
            shutil.copy(path, target)
    recipe = target / "recipe.toml"
    recipe.write_text(recipe.read_text().replace(str(folder), FOLDER))
    environment = json.loads((target / "environment.json").read_text())
    environment |= {"host": "box", "command": environment["command"].replace(str(folder), FOLDER)}
    (target / "environment.json").write_text(json.dumps(environment, indent=2) + "\n")


def main(command):
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder / "data")
        start = lambda run: subprocess.Popen([command, "train", *OPTIONS, "--data-dir", folder / "data", "-o", folder / run])
        if start("finished").wait() != 0:
            sys.exit("the run failed")
        process = start("stopped")
        log = folder / "stopped" / "log.jsonl"
        while not log.exists() or '"epoch": 2' not in log.read_text().replace('":', '": '):
            time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
        process.wait()
        if not (folder / "stopped" / "resume.safetensors").exists():
            sys.exit("the run was over before it could be stopped; try again")
        for run in ("finished", "stopped"):
            keep(folder / run, folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
