"""Failing calls: python3 faults.py path/to/tpgm path/to/libtorture-faults.so --minutes M --seed S

Runs each command once to count the calls by which it uses files, and then again and again, and lets one call fail (or
all from one on), or read or write fewer bytes. A command must either succeed with the same files as without the fault,
or exit with 1 and one line that names the file; then each file that it writes is complete, what it was before, or
absent, and the same command (of a run: the one that resumes it) makes what was missing. So it is after a kill. Calls that are interrupted or
do less than they were asked to must not matter. Trial N of a seed is always the same; --only N repeats it.
"""

import errno
import os
import random
import re
import shutil
import signal

import hostile
from hostile import MODEL

CANNOT_FAIL = ("EINTR", "short")
FAULTS = {
    "create": ("EIO", "ENOSPC", "EMFILE", "EINTR"), "unnamed": ("EIO", "ENOSPC", "EMFILE", "EINTR", "EOPNOTSUPP"),
    "write": ("EIO", "ENOSPC", "EINTR", "short"), "pwrite": ("EIO", "ENOSPC", "EDQUOT", "EINTR", "short"),
    "fsync": ("EIO", "ENOSPC", "EINTR"), "link": ("EIO", "ENOSPC"), "rename": ("EIO", "ENOSPC"),
    "allocate": ("EIO", "ENOSPC", "EINTR", "EOPNOTSUPP"), "truncate": ("EIO", "EINTR"), "unlink": ("EIO", "EROFS"),
    "mkdir": ("EIO", "ENOSPC"), "open": ("EIO", "EMFILE", "EINTR"), "read": ("EIO", "EINTR", "short"),
    "list": ("EIO", "EMFILE"), "mmap": ("ENOMEM",), "close": ("EIO", "EINTR"),
}
KILLS = ("before", "after")
TABLES = ("sweep.csv", "table.csv", "table.md", "table.tex")
LOGS = ("log.jsonl", "summary.csv", "events.out.tfevents.0.tpgm")


class Command:
    def __init__(self, name, words, old=(), before=None, resume=None):
        """`old`: outputs that may be there before. `before`: a folder to copy into the folder of the trial first."""
        self.name, self.words, self.old, self.before = name, words, old, before
        self.resume = resume  # instead of the same command, if there is a recipe

    def is_run(self):
        return self.name.startswith("train")  # kills.py kills those


class Faults:
    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.base = scratch / "base"
        data, tpgm = self.base / "data", options.tpgm
        hostile.make_data(data, counts=(10, 3))
        self.spoiler = hostile.Spoiler(options.library, scratch)
        here = ["--workers", "1", "--device", "cpu"]
        train = [tpgm, "train", "--model", MODEL, "--data-dir", data, "--train", "home", "--test", "home,away", "--epochs",
                 "1", "--batch-size", "8", "--lr", "0.01", "--log-every", "1", "--checkpoint-every", "2", *here]
        resume = [tpgm, "train", "--resume", "run"]
        before, tuned = self.base / "before", self.base / "tuned"
        self.must_run([*train, "--epochs", "0", "-o", before])
        self.must_run([*train[:2], "--checkpoint", before, "--head", "checkpoint", *train[4:], "-o", tuned])
        stopped = self.base / "stopped"
        stopped.mkdir()
        self.spoiler.run([*train, "--method", "tpgm", "-o", "run"], 600, "rename:4:after", folder=stopped)
        if not (stopped / "run" / "resume.safetensors").exists():
            raise SystemExit("faults.py: the run was not stopped")
        self.commands = [
            Command("train", [*train, "--method", "tpgm", "-o", "run"], resume=resume),
            Command("train --resume", resume, before=stopped, resume=resume),
            Command("train --sweep", [*train, "--sweep", "lr=1e-2,1e-3", "-o", "run"]),
            Command("wise", [tpgm, "wise", before, tuned, "-o", "x.safetensors"], ("x.safetensors",)),
            Command("wise, shards", [tpgm, "wise", before, tuned, "--shard-size", "8KB", "-o", "x.safetensors"]),
            Command("convert", [tpgm, "convert", tuned, "--dtype", "bf16", "-o", "x.safetensors"], ("x.safetensors",)),
            Command("predict", [tpgm, "predict", "--checkpoint", tuned, "--data-dir", data, "-o", "x.safetensors", *here],
                    ("x.safetensors", "x.csv")),
            Command("report", [tpgm, "report", before, tuned, "-o", "page.html"], ("page.html",)),
            Command("data shards", [tpgm, "data", "shards", data, "-o", "shards"]),
            Command("data split", [tpgm, "data", "split", data, "--train", "home", "-o", "lists"]),
            Command("project", [tpgm, "project", "--anchor", before, "--checkpoint", tuned, "--radius-data", data, "--part",
                                "home/test", "--radius-steps", "3", *here, "-o", "x.safetensors"], ("x.safetensors",)),
            Command("eval --per-class", [tpgm, "eval", before, tuned, "--fresh", *here, "--csv", "results.csv",
                                         "--per-class", "classes.csv"], ("results.csv", "classes.csv")),
        ]
        self.whole, self.points = {}, {}
        for command in self.commands:
            folder = self.begin(command, scratch / "whole" / command.name)
            outcome, counts, _ = self.spoiler.run(command.words, 600, folder=folder)
            if outcome.status != 0:
                raise SystemExit(f"faults.py: {command.name} failed: {outcome.errors.decode()}")
            self.whole[command.name] = hostile.tree(folder)
            groups = [[f"{kind}:{n}{more}:{fault}" for n in range(1, counts[kind] + 1)
                       for more in (("",) if fault in ("EINTR", *KILLS) else ("", "+"))]
                      for kind in hostile.KINDS
                      for fault in FAULTS[kind] + (KILLS if kind in hostile.CHANGING and not command.is_run() else ())]
            self.points[command.name] = hostile.interleaved(groups, random.Random(f"{options.seed} {command.name}"))

    def must_run(self, words):
        outcome = hostile.run(words, 600, environment=hostile.environment())
        if outcome.status != 0:
            raise SystemExit(f"faults.py: {outcome.errors.decode()}")

    @staticmethod
    def begin(command, folder):
        if command.before:
            shutil.copytree(command.before, folder)
        else:
            folder.mkdir(parents=True)
        return folder

    def wrong_message(self, command, fault, outcome):
        kind, _, what = fault.split(":")
        if what in CANNOT_FAIL:
            return f"{what} is not an error"
        text = outcome.errors.decode("utf-8", "replace")
        if not re.search(r"'[^']+'|\.log\b", text):
            return "the message names no file"
        if what in ("ENOSPC", "EDQUOT") and kind != "mkdir" and ".partial' to" not in text:
            if not re.search(r"(the file takes|there is no room for another file).*\bfree\b", text):
                return "the message does not say how much room is needed"
            if not re.search(r"intact|no part of it", text):
                return "the message does not say what is intact"
            if command.resume and "make room" not in text:
                return "the message has no command to continue with"
        return None

    def wrong_files(self, command, kind, what, before, folder):
        """After an error: each file is complete, or what it was."""
        whole = self.whole[command.name]
        for name, content in hostile.tree(folder).items():
            path = folder / name
            if content == before.get(name) or content == whole.get(name):
                continue
            if path.suffix == ".tmp" or ".partial" in name:
                if kind not in ("unlink", "open", "list") and what not in KILLS:
                    return f"{name} is left behind"
            elif path.name in (*LOGS, *TABLES) or name.endswith(".log"):
                continue  # a resumed run cuts a log; the tables of a sweep have the runs that did not fail
            elif path.suffix == ".safetensors" and "run" in path.parts:  # of an earlier epoch
                outcome = hostile.run([self.options.tpgm, "inspect", path], self.options.limit)
                if outcome.status != 0:
                    return f"{name} cannot be read: {outcome.errors.decode()}"
            elif not (path.name == "radii.json" and not isinstance(content, str)):
                return f"{name} is neither complete nor what it was"
        return None

    @staticmethod
    def remove_leftovers(folder):
        """What a user has to remove after a kill."""
        for path in folder.rglob("*.tmp"):
            path.unlink()
        for path in folder.glob("*.partial"):
            shutil.rmtree(path)

    def wrong_result(self, command, kind, what, folder):
        """At the end all files are those of a run without the fault."""
        found = hostile.tree(folder)
        # What could not be deleted stays, and the next command deletes it.
        ignored = [name for name in found if kind == "unlink" and name.endswith((".tmp", "/resume.safetensors"))]
        if command.name == "report" and kind in ("open", "read", "list", "mmap"):
            ignored += self.incomplete(self.whole["report"], found, what)
        return hostile.difference(self.whole[command.name], found, ignored)

    @staticmethod
    def incomplete(whole, found, what):
        """Files of a report that may differ, because the page says what it leaves out, or has fewer images."""
        page, expected = found["page.html"], whole["page.html"]
        if os.strerror(getattr(errno, what, 0)).encode() in page:
            return {*whole, *found}
        images = rb'(?s)<div class="image">.*?</div>\n?'
        return ["page.html"] if re.sub(images, b"", page) == re.sub(images, b"", expected) else []

    def trial(self, number):
        command = self.commands[number % len(self.commands)]
        points = self.points[command.name]
        fault = points[number // len(self.commands) % len(points)]
        kind, _, what = fault.split(":")
        rng = random.Random(f"{self.options.seed} {number}")
        folder = self.begin(command, self.scratch / f"trial-{number}")
        for name in command.old if rng.random() < 0.5 else ():
            (folder / name).write_text("old")
        before = hostile.tree(folder)
        words = command.words
        outcome, _, spoiled = self.spoiler.run(words, self.options.limit, fault, folder=folder)
        killed = what in KILLS and outcome.status == -signal.SIGKILL
        problem = None if killed else outcome.problem()
        if problem is None and outcome.status != 0:
            problem = None if killed else self.wrong_message(command, fault, outcome)
            problem = problem or self.wrong_files(command, kind, what, before, folder)
            if killed:
                self.remove_leftovers(folder)
            if problem is None and not (killed and hostile.tree(folder) == self.whole[command.name]):
                if command.resume and (folder / "run" / "recipe.toml").exists():
                    words = command.resume
                outcome = hostile.run(words, self.options.limit, environment=hostile.environment(), folder=folder)
                problem = outcome.problem(0)
                problem = problem and f"then {problem}"
        problem = problem or self.wrong_result(command, kind, what, folder)
        if self.options.only is None:
            shutil.rmtree(folder, ignore_errors=True)
        problem = problem and f"{problem} [{fault}]"
        title = f"{command.name}: {kind} {what}" if spoiled else "without a fault: the call did not come"
        return [(title, problem, words, outcome)]


if __name__ == "__main__":
    hostile.main("faults", __doc__, lambda options, scratch, _: Faults(options, scratch).trial, library=True)
