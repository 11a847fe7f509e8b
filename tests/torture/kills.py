"""Killed runs: python3 kills.py path/to/tpgm path/to/libtorture-faults.so --minutes M --seed S

Kills training runs, a sweep and a table, resumes them as the documentation says, possibly kills them again, and
compares what they leave with an uninterrupted run: every file must be the same except for times, nothing of the killed
processes may stay, and no other file may be touched. Even trials kill before or after a call that changes a file: all
such calls of all runs in turn. Odd trials send signals at random moments. Trial N of a seed is always the same but for
the moments at which signals arrive; --only N repeats it.
"""

import json
import os
import random
import shutil
import signal
import time

import hostile
from hostile import MODEL

VIT = "vit:patch=16,width=16,depth=2,heads=2,image_size=32,channels=1"
RUNS = {
    "tpgm": ("--method", "tpgm", "--every", "1"),
    "tpgm at the end": ("--method", "tpgm", "--every", "end", "--radius-steps", "10"),
    "ftp": ("--method", "ftp", "--model", VIT),
    "lp-ft": ("--method", "lp-ft", "--lp-lr", "0.02"),
    "spd": ("--method", "spd"),
    "average": ("--model-ema", "--model-ema-decay", "0.9", "--opt", "sgd"),
    "accumulated": ("--grad-accum-steps", "2", "--method", "tpgm", "--mixup", "0.8"),
    "sweep": ("--method", "tpgm", "--sweep", "lr=1e-2,1e-3", "-j", "2"),
    "overwrite": ("--method", "tpgm", "--every", "1", "--overwrite"),
    "reproduce": (),
}
AGAIN = ("sweep", "reproduce", "overwrite")  # the same command resumes it, or begins it anew
SIGNALS = ((signal.SIGKILL,), (signal.SIGKILL,), (signal.SIGTERM,), (signal.SIGINT,), (signal.SIGSTOP, signal.SIGKILL),
           (signal.SIGSTOP, signal.SIGCONT))
FOREIGN = {"notes.tex": "mine", ".tpgm-notes.tmp": "mine, too", "resume.txt": ""}


def make_table(folder, recipe):
    folder.mkdir()
    (folder / "paper.csv").write_text("row,recipe,home=Home,away=Away\nFT,ft,,\nTPGM,tpgm,,\nWISE,wise:ratio=0.5,,\n")
    (folder / "ft.toml").write_text(recipe)
    (folder / "tpgm.toml").write_text('base = "ft.toml"\nmethod = "tpgm"\n')
    (folder / "wise.toml").write_text('base = "ft.toml"\nmethod = "wise"\nepochs = 0\ntake = ["weights=ft"]\n')


class Kills:
    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.base = scratch / "base"
        hostile.make_data(self.base / "data", counts=(12, 3))
        flags = {"model": MODEL, "data-dir": self.base / "data", "train": "home", "test": "home,away", "epochs": 2,
                 "batch-size": 8, "lr": 0.01, "workers": 1, "device": "cpu", "log-every": 1, "checkpoint-every": 2}
        self.common = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
        recipe = {key: value if isinstance(value, (int, float)) else str(value) for key, value in flags.items()}
        recipe |= {key: recipe[key].split(",") for key in ("train", "test")}
        make_table(self.base / "table", "".join(f"{key} = {json.dumps(value)}\n" for key, value in recipe.items()))
        self.spoiler = hostile.Spoiler(options.library, scratch)
        self.whole, self.seconds, points = {}, {}, []
        for name in RUNS:
            folder = self.prepared(name, self.base / name)
            begin = time.monotonic()
            outcome, counts, _ = self.spoiler.run(self.begin(name), 600, folder=folder)
            self.seconds[name] = time.monotonic() - begin
            if outcome.status != 0:
                raise SystemExit(f"kills.py: {name} failed: {outcome.errors.decode()}")
            self.whole[name] = hostile.tree(folder)
            for kind in hostile.CHANGING:
                points.append([(name, f"{kind}:{n}:{when}") for n in range(1, counts[kind] + 1)
                               for when in ("before", "after")])
        self.points = hostile.interleaved(points, random.Random(options.seed))

    def prepared(self, name, folder):
        folder.mkdir()
        if name == "overwrite":
            shutil.copytree(self.base / "ftp" / "run", folder / "run")
        return folder

    def begin(self, name):
        if name == "reproduce":
            return [self.options.tpgm, "reproduce", self.base / "table", "-o", "run", "-j", "2"]
        words = list(self.common)
        more = list(RUNS[name])
        if "--model" in more:
            words[words.index("--model") + 1] = more.pop(more.index("--model") + 1)
            more.remove("--model")
        return [self.options.tpgm, "train", *words, "-o", "run", *more]

    def resume(self, name, folder, rng):
        """What the documentation says to do after a kill."""
        run = folder / "run"
        if name in AGAIN or not (run / "recipe.toml").exists():
            return self.begin(name)
        saved = any((run / f"{file}.safetensors").exists() for file in ("resume", "best", "last"))
        if not saved and not (run / "notes.tex").exists() and rng.random() < 0.5:
            return self.begin(name)
        return [self.options.tpgm, "train", "--resume", "run"]

    def put_foreign_files(self, folder):
        """Beside the files of each run that can be resumed: a folder without a recipe must hold nothing else."""
        for recipe in folder.rglob("recipe.toml"):
            for name, text in FOREIGN.items():
                (recipe.parent / name).write_text(text)

    def wrong(self, name, folder):
        found = hostile.tree(folder)
        foreign = {path for path in found if os.path.basename(path) in FOREIGN}
        for path in foreign:
            if (folder / path).read_text() != FOREIGN[os.path.basename(path)]:
                return f"{path} was changed"
        return hostile.difference(self.whole[name], found, foreign)

    def kill(self, words, name, folder, fault, rng):
        """Runs the command and kills it; (how it ended, what is wrong with that, whether a call was spoiled)."""
        signals = [] if fault else rng.choice(SIGNALS)
        delays = [rng.uniform(0, self.seconds[name] if i == 0 else 0.1) for i in range(len(signals))]
        # Some file systems have no unnamed files.
        faults = [fault] if fault else []
        if rng.random() < 0.3 and not (fault or "").startswith(("unnamed", "link")):
            faults.append("unnamed:1+:EOPNOTSUPP")
        outcome, _, spoiled = self.spoiler.run(words, self.options.limit, ",".join(faults), folder=folder,
                                               signals=list(zip(delays, signals, strict=True)))
        last = signals[-1] if signals else signal.SIGKILL
        allowed = {0, -last, *([] if last == signal.SIGKILL else [128 + last])}
        if fault and name in ("sweep", "reproduce"):
            allowed.add(1)  # it outlives its runs, and says which failed
        if outcome.too_long or outcome.status not in allowed:
            return outcome, f"exit {outcome.status} after {last.name}", spoiled
        if outcome.status == 128 + last and not outcome.errors.strip():
            return outcome, "no message", spoiled
        return outcome, None, spoiled

    def trial(self, number):
        rng = random.Random(f"{self.options.seed} {number}")
        name, fault = self.points[number // 2 % len(self.points)]
        if number % 2:
            name, fault = rng.choice(list(RUNS)), None
        kind = f"{name}: {fault.split(':')[0] if fault else 'signals'}"
        folder = self.prepared(name, self.scratch / f"trial-{number}")
        words = self.begin(name)
        kills = 0
        while True:
            outcome, problem, spoiled = self.kill(words, name, folder, fault, rng)
            if kills == 0 and fault and not spoiled:
                kind = "without a kill: the call did not come"
            kills += outcome.status != 0
            if problem is not None:
                break
            if kills == 1:
                self.put_foreign_files(folder)
            words = self.resume(name, folder, rng)
            if kills == 4 or rng.random() < 0.6:
                break
            fault = rng.choice([fault for run, fault in self.points if run == name]) if number % 2 == 0 else None
        if problem is None:
            outcome = hostile.run(words, self.options.limit, environment=hostile.environment(), folder=folder)
            problem = outcome.problem(0) or self.wrong(name, folder)
        if self.options.only is None:
            shutil.rmtree(folder, ignore_errors=True)
        return [(kind, problem, words, outcome)]


if __name__ == "__main__":
    hostile.main("kills", __doc__, lambda options, scratch, _: Kills(options, scratch).trial, library=True)
