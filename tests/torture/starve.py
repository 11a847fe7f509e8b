"""Starved machines and hostile names: python3 starve.py path/to/tpgm --minutes M --seed S

Runs commands with little memory, few open files, no temporary folder, read-only folders, without HOME, with names that try
to get out of tables and pages, with many files, huge images and lists, and many runs side by side. Each command must
succeed, or exit with 1 or 2 and one line that names the file or the option. Each scenario runs once, with small numbers,
if --trials is given; until the time is up, with larger ones, if --minutes is.
"""

import csv
import html.parser
import os
import random
import re
import shutil
import struct
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hostile
from hostile import GIB, MODEL

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
NAMES = ("\"quoted\" & 'so'", "<script>alert(1)</script>", "$(touch pwned)", "`touch pwned`", "=1+1", "@SUM(A1)", "-1+1",
         "a,b;c", "back\\slash", "\\input{x}", "a|b", "50%_#~^{}$", "..x", "größe 日本", "[link](http://x)", "%s%n", "{0}",
         "-rf", "--output", "]]>", "<!--", "a=b", "' onload='x", "…", " blank ", "a\x7f", "\x1b[31mred", "\x1b]0;title\x07",
         "tab\there", "return\rhere", "line\nbreak", "\u202egnp", "\udcff\udcfe", "\u2028", "\x9b31m")


def in_namespace(setup, words):
    """The command after `setup`, which changes mounts that only it sees. Its words are arguments, not text of the shell."""
    return ["unshare", "--mount", "sh", "-c", setup + " && exec \"$@\"", "sh", *words]


def can_mount():
    return subprocess.run(in_namespace("mount -t tmpfs none /mnt", ["true"]), capture_output=True, check=False).returncode == 0


class Tags(html.parser.HTMLParser):
    """Whether elements are closed in order, and which there are."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.scripts, self.handlers = [], [], 0, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def wrong_page(path, scripts):
    tags = Tags(path.read_text(encoding="utf-8"))
    if tags.wrong or tags.open:
        return f"{path.name} has elements that are not closed in order: {(tags.wrong + tags.open)[:5]}"
    if tags.scripts != scripts or tags.handlers:
        return f"{path.name} has {tags.scripts} scripts, not {scripts}, and handlers {tags.handlers[:3]}"
    return wrong_characters(path)


def wrong_characters(path):
    found = re.search(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]", path.read_bytes())
    return found and f"{path.name} has the control character {found[0]!r}"


def wrong_csv(path):
    with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = list(csv.reader(file, strict=True))
    lengths = {len(row) for row in rows}
    return None if len(lengths) == 1 else f"{path.name} has rows of {sorted(lengths)} fields"


def wrong_markdown(path):
    text = path.read_text(encoding="utf-8")
    counts = {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in text.splitlines() if line.startswith("|")}
    if len(counts) > 1:
        return f"{path.name} has rows of {sorted(counts)} bars"
    return f"{path.name} has <script" if "<script" in text else wrong_characters(path)


def wrong_latex(path):
    text = path.read_text(encoding="utf-8")
    text = text.replace("\\\\", " ")
    bare = re.sub(r"\\[&%$#_{}]", "", text)
    if bare.count("{") != bare.count("}"):
        return f"{path.name} has braces that do not match"
    if "\\input" in bare:
        return f"{path.name} has the command of a name"
    for line in bare.splitlines():
        if re.search(r"[#]|(?<!%)%(?! )", line) and not line.startswith("%"):
            return f"{path.name} has a bare character of TeX: {line[:80]}"
    return wrong_characters(path)


class Starve:
    def __init__(self, options, scratch):
        self.options, self.scratch, self.tpgm = options, scratch, options.tpgm
        self.long = options.trials is None
        self.base = scratch / "base"
        self.base.mkdir()
        hostile.make_data(self.base / "data")
        self.environment = hostile.environment()
        first = hostile.run(self.train(self.base / "run"), 600, environment=self.environment)
        if first.status != 0:
            raise SystemExit("starve.py: the first run failed: " + first.errors.decode())
        self.start_memory = hostile.peak_memory([self.tpgm, "--version"], env=self.environment)
        self.memory = max(hostile.peak_memory(words, env=self.environment) for words in (
            self.train(self.base / "other"), self.evaluate()))
        self.mounts = can_mount()
        self.skipped = [] if self.mounts else ["mounts"]

    def train(self, output, data=None, *more, train="home", test="home,away", epochs=1):
        return [self.tpgm, "train", "--model", MODEL, "--data-dir", data or self.base / "data", "--train", train, "--test", test,
                "--epochs", str(epochs), "--batch-size", "6", "--workers", "1", "--device", "cpu", "-o", output, *more]

    def evaluate(self, *more):
        return [self.tpgm, "eval", self.base / "run", "--fresh", "--workers", "1", *more]

    def predict(self, output, *more):
        return [self.tpgm, "predict", "--checkpoint", self.base / "run", "--data-dir", self.base / "data", "-o", output,
                "--workers", "1", *more]

    def report(self, output):
        return [self.tpgm, "report", self.base / "run", "-o", output]

    def some(self, folder):
        """Commands that write into the folder."""
        return [("train", self.train(folder / "new")), ("eval", self.evaluate("--csv", folder / "table.csv")),
                ("predict", self.predict(folder / "p.safetensors")), ("report", self.report(folder / "page.html")),
                ("inspect", [self.tpgm, "inspect", self.base / "run" / "best.safetensors"]),
                ("data check", [self.tpgm, "data", "check", self.base / "data"]),
                ("data shards", [self.tpgm, "data", "shards", self.base / "data", "-o", folder / "shards"])]

    def one(self, kind, words, problem=None, limit=1, status=None, names=True, **options):
        options = {"environment": self.environment} | options
        outcome = hostile.run(words, limit * self.options.limit, **options)
        found = outcome.problem(status, names)
        if found is None and problem is not None:
            try:
                found = problem(outcome)
            except (OSError, ValueError, csv.Error) as error:
                found = f"{type(error).__name__}: {error}"
        return kind, found, words, outcome

    # Scenarios: each gets a folder of its own and a source of random numbers.

    def memory_limit(self, folder, rng):
        for name, words in self.some(folder):
            room = rng.random() * 1.2 * (self.memory - self.start_memory)
            limit = int(self.start_memory + (32 << 20) + room)
            yield self.one(f"memory: {name}", words, memory=limit, folder=folder, names=False)

    def open_files(self, folder, rng):
        for name, words in self.some(folder):
            files = 64 if not self.long else rng.randrange(16, 65)
            yield self.one(f"open files: {name}", words, files=files, folder=folder, names=False,
                           status=0 if files == 64 and not name.startswith("data") else None)
        words = [*self.predict(folder / "q.safetensors"), "--workers", "64"]
        yield self.one("open files: predict --workers 64", words, files=64, folder=folder)

    def temporary_folder(self, folder, rng):
        for name, words in self.some(folder):
            yield self.one(f"no TMPDIR: {name}", words, environment=hostile.environment(TMPDIR=folder / "missing"), folder=folder,
                           status=0)
        if not self.mounts:
            return
        full = folder / "full"
        full.mkdir()
        setup = f"mount -t tmpfs -o size=4k none '{full}' && cp /etc/passwd '{full}/a' 2>/dev/null; true"
        for name, words in self.some(folder / "out"):
            shutil.rmtree(folder / "out", ignore_errors=True)
            (folder / "out").mkdir()
            yield self.one(f"full TMPDIR: {name}", in_namespace(setup, words),
                           environment=hostile.environment(TMPDIR=full), status=0)
        size = rng.choice((4, 16, 64))
        setup = f"mount -t tmpfs -o size={size}k none '{full}'"
        for name, words in self.some(full):
            yield self.one(f"full disk: {name}", in_namespace(setup, words))

    def read_only(self, folder, rng):
        if not self.mounts:
            return
        setup = f"mount --bind '{folder}' '{folder}' && mount -o remount,ro,bind '{folder}' && cd '{folder}'"
        for name, words in self.some(folder):
            status = 0 if name in ("inspect", "data check") else 1
            yield self.one(f"read-only: {name}", in_namespace(setup, words), status=status)
        relative = [word.relative_to(folder) if isinstance(word, Path) and word.is_relative_to(folder) else word
                    for word in self.train(folder / "new")]
        yield self.one("read-only: train, relative", in_namespace(setup, relative), status=1)

    def bare_environment(self, folder, rng):
        hostile.make_data(folder / "dätä", classes=("größe", "日本", "plain"), domains=("zuhause", "wégg"))
        bare = {"LANG": "C", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
        out = folder / "läuft"
        words = self.train(out, folder / "dätä", train="zuhause", test="zuhause,wégg")
        yield self.one("LANG=C, no HOME: train", words, environment=bare, status=0, folder=folder)
        yield self.one("LANG=C, no HOME: eval", [self.tpgm, "eval", out, "--fresh", "--per-class", folder / "ü.csv"],
                       lambda _: wrong_csv(folder / "ü.csv"), environment=bare, status=0, folder=folder)
        yield self.one("LANG=C, no HOME: report", [self.tpgm, "report", out, "-o", folder / "ü.html"],
                       lambda _: wrong_page(folder / "ü.html", self.scripts()), environment=bare, status=0, folder=folder)

    def scripts(self):
        """How many scripts a page has that is made of benign names."""
        if not hasattr(self, "count"):
            page = self.scratch / "benign.html"
            hostile.run(self.report(page), 600, environment=self.environment)
            self.count = Tags(page.read_text()).scripts
        return self.count

    def wrong_outputs(self, folder):
        if any(folder.rglob("pwned")):
            return "a name was executed"
        found = []
        for path in sorted(folder.rglob("*")):
            if "data" in path.relative_to(folder).parts or not path.is_file():
                continue
            check = {".csv": wrong_csv, ".md": wrong_markdown, ".tex": wrong_latex}.get(path.suffix)
            if path.suffix == ".html":
                found.append(wrong_page(path, self.scripts()))
            elif check:
                found.append(check(path))
        return next((each for each in found if each), None)

    def names_of(self, folder, names, domains, kind):
        try:
            hostile.make_data(folder / "data", classes=names, domains=domains, counts=(4, 2))
        except OSError:
            return  # this file system cannot hold the name
        # Paths that the user gave are printed to stdout as they are.
        out = folder / ("run " + re.sub(r"[\0-\x1f\x7f-\x9f]", "?", domains[0][:40]))
        words = self.train(out, folder / "data", train=domains[0], test=",".join(domains))
        yield self.one(f"{kind}: data check", [self.tpgm, "data", "check", folder / "data"], folder=folder)
        result = self.one(f"{kind}: train", words, lambda _: self.wrong_outputs(folder), folder=folder)
        yield result
        if not (out / "result.json").exists():
            return
        yield self.one(f"{kind}: eval", [self.tpgm, "eval", out, self.base / "run", "--data-dir", folder / "data", "--test", domains[1], "--fresh",
                                         "--class-list", folder / "data" / "train" / domains[0],
                                         "--csv", folder / "table.csv", "--per-class", folder / "classes.csv"],
                       lambda _: self.wrong_outputs(folder), folder=folder)
        yield self.one(f"{kind}: eval --per-class", [self.tpgm, "eval", out, "--fresh", "--csv", folder / "table.csv",
                                                     "--per-class", folder / "classes.csv"],
                       lambda _: self.wrong_outputs(folder), folder=folder)
        yield self.one(f"{kind}: predict", [self.tpgm, "predict", "--checkpoint", out, "--data-dir", folder / "data", "-o",
                                            folder / "p.safetensors"], lambda _: self.wrong_outputs(folder), folder=folder)
        yield self.one(f"{kind}: report", [self.tpgm, "report", out, "-o", folder / "page.html", "--title", names[0]],
                       lambda _: self.wrong_outputs(folder), folder=folder)
        yield self.one(f"{kind}: inspect", [self.tpgm, "inspect", out / "best.safetensors"], folder=folder)
        yield self.one(f"{kind}: data shards", [self.tpgm, "data", "shards", folder / "data", "-o", folder / "shards"], folder=folder)
        yield self.one(f"{kind}: missing", [self.tpgm, "inspect", folder / names[0]], folder=folder)

    def hostile_classes(self, folder, rng):
        usable = [name for name in NAMES if "/" not in name]
        yield from self.names_of(folder / "many", usable if self.long else usable[:25], ("home", "away"), "class names")
        for name in rng.sample(usable, 3 if not self.long else 8):
            place = folder / str(usable.index(name))
            yield from self.names_of(place, (name, "plain"), ("home", "away"), "class name")

    def hostile_domains(self, folder, rng):
        usable = [name for name in NAMES if "/" not in name and "," not in name and "=" not in name]
        for name in rng.sample(usable, 2 if not self.long else 8):
            place = folder / str(usable.index(name))
            yield from self.names_of(place, ("bars", "plain"), (name, "away"), "domain name")

    def hostile_images(self, folder, rng):
        for i, name in enumerate(NAMES):
            place = folder / "data" / "train" / "home" / ("a" if i % 2 else "b")
            place.mkdir(parents=True, exist_ok=True)
            if "/" not in name:
                try:
                    (place / f"{name}.png").write_bytes(hostile.png([[9 * i % 256] * 32] * 32))
                except OSError:
                    continue
        shutil.copytree(folder / "data" / "train", folder / "data" / "test")
        words = self.train(folder / "run", folder / "data", test="home")
        yield self.one("image names: train", words, lambda _: self.wrong_outputs(folder), folder=folder, status=0)
        yield self.one("image names: predict", [self.tpgm, "predict", "--checkpoint", folder / "run", "--data-dir",
                                                folder / "data", "-o", folder / "p.safetensors"],
                       lambda _: self.wrong_outputs(folder), folder=folder, status=0)
        yield self.one("image names: data shards", [self.tpgm, "data", "shards", folder / "data", "-o", folder / "shards"], folder=folder)
        for path in (folder / "data" / "train" / "home" / "a").iterdir():
            path.write_bytes(b"broken")
        yield self.one("image names: data check, broken", [self.tpgm, "data", "check", folder / "data"], folder=folder,
                       status=1)
        yield self.one("image names: train, broken", self.train(folder / "run2", folder / "data", test="home"), folder=folder,
                       status=1)
        yield self.one("image names: train, skip", self.train(folder / "run3", folder / "data", "--on-bad-image", "skip",
                                                              test="home"), folder=folder)

    def many_files(self, folder, rng):
        count = 200_000 if self.long else 20_000
        image = hostile.png([[128] * 4] * 4)
        for split, number in (("train", count), ("test", 20)):
            for i in range(number):
                place = folder / "data" / split / "home" / f"class{i % 2}"
                if i < 2:
                    place.mkdir(parents=True)
                (place / f"{i}.png").write_bytes(image)
        for i in range(1000):
            (folder / "data" / "train" / "home" / "class0" / f"{i}.txt").write_bytes(b"")
        yield self.one("many files: data check", [self.tpgm, "data", "check", folder / "data"], limit=6)
        words = self.train(folder / "run", folder / "data", "--fraction", "0.001", test="home")
        yield self.one("many files: train", words, limit=6, status=0)
        yield self.one("many files: report", [self.tpgm, "report", folder / "run"], limit=6, status=0)

    def huge_image(self, folder, rng):
        side = 20_000
        place = folder / "data" / "train" / "home" / "a"
        hostile.make_data(folder / "data", classes=("a", "b"), domains=("home",), counts=(3, 2))
        press = zlib.compressobj(1)
        rows = bytes(1000 * (side + 1))
        body = b"".join(press.compress(rows) for _ in range(side // 1000)) + press.flush()

        def chunk(name, data):
            return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

        (place / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 0, 0, 0, 0))
                                         + chunk(b"IDAT", body) + chunk(b"IEND", b""))
        yield self.one("huge image: train", self.train(folder / "run", folder / "data", test="home"), status=1)
        yield self.one("huge image: data check", [self.tpgm, "data", "check", folder / "data"])
        words = self.train(folder / "run2", folder / "data", "--max-pixels", "1000000000", test="home")
        yield self.one("huge image: train --max-pixels 1e9", words, limit=6)
        yield self.one("huge image: the same, little memory", self.train(
            folder / "run3", folder / "data", "--max-pixels", "1000000000", test="home"), limit=6,
            memory=self.memory + GIB // 4)

    def class_list(self, folder, rng):
        path = folder / "classes.txt"
        path.write_text("".join(f"class {i}\n" for i in range(1_000_000)))
        yield self.one("a million classes: train", self.train(folder / "run", None, "--class-list", path), status=1)
        yield self.one("a million classes: eval", self.evaluate("--class-list", path), status=1)
        yield self.one("a million classes: predict", self.predict(folder / "p.safetensors", "--class-list", path), status=1)

    def side_by_side(self, folder, rng):
        count = 64 if self.long else 16
        with ThreadPoolExecutor(count) as pool:
            results = list(pool.map(lambda i: self.one("side by side: runs of one folder", self.train(folder / f"run{i}"),
                                                       limit=count, status=0), range(count)))
            yield from results
            same = list(pool.map(lambda _: self.one("side by side: one run", self.train(folder / "same"), limit=count),
                                 range(count)))
        finished = sum(outcome.status == 0 for _, _, _, outcome in same)
        yield from same
        last = same[-1]
        yield "side by side: one run is made", None if finished == 1 else f"{finished} finished", last[2], last[3]
        page = [self.tpgm, "report", folder]
        yield self.one("side by side: report", page, limit=6, status=0)

    def scenarios(self):
        # What a little memory is enough for differs between machines; a test must not.
        return [*([self.memory_limit] if self.long else []), self.open_files, self.temporary_folder, self.read_only, self.bare_environment,
                self.hostile_classes, self.hostile_domains, self.hostile_images, self.many_files, self.huge_image,
                self.class_list, self.side_by_side]

    def trial(self, number):
        all_of_them = self.scenarios()
        rng = random.Random(f"{self.options.seed} {number}")
        folder = self.scratch / f"trial-{number}"
        folder.mkdir()
        try:
            return list(all_of_them[number % len(all_of_them)](folder, rng))
        finally:
            if self.options.only is None:
                shutil.rmtree(folder, ignore_errors=True)


def make_trial(options, scratch, campaign):
    starve = Starve(options, scratch)
    campaign.skipped.update(starve.skipped)
    return starve.trial


if __name__ == "__main__":
    hostile.main("starve", __doc__, make_trial)
