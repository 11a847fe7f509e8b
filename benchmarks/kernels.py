#!/usr/bin/env python3
"""Where a training step on a GPU goes, kernel by kernel, with NVIDIA's ncu around one step of `tpgm bench step`:

    python3 benchmarks/kernels.py --model resnet50 -b 256 --amp
    python3 benchmarks/kernels.py --method tpgm --model vit-b-16 -b 256 --amp --markdown

Options it does not know are those of `tpgm bench step`. GB/s is what a kernel moves to and from the device's memory,
beside a copy's in `tpgm bench projection`. Clocks and caches are as in a run (ncu would fix the ones and empty the
others), and kernels are launched one by one, without a CUDA graph. Needs the right to read the GPU's counters.

Matrix products are chosen by timing them in CUDA graphs, which ncu takes apart: those of two kernels, which split the
inner dimension, lose under it, and others are chosen than in a run.
"""

import argparse
import csv
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

TIME, BYTES = "gpu__time_duration.sum", "dram__bytes.sum"
# Share of the tensor cores' peak; the first that the GPU has.
TENSOR = ["sm__pipe_tensor_cycles_active", "sm__inst_executed_pipe_tensor", "sm__pipe_tensor_op_hmma_cycles_active"]
OF_PEAK = ".avg.pct_of_peak_sustained_elapsed"


class Failure(Exception):
    """Lines for the user to read."""


@dataclass
class Kernel:
    """All launches under one name."""

    calls: int = 0
    seconds: float = 0
    bytes: float = 0
    tensor: float = 0  # percent of the peak × seconds
    counted: bool = True  # the bytes of all its launches are known

    def add(self, launch):
        self.calls += 1
        self.seconds += launch["seconds"]
        self.tensor += (launch["tensor"] or 0) * launch["seconds"]
        self.counted &= launch["bytes"] is not None
        self.bytes += launch["bytes"] or 0


# --- names ------------------------------------------------------------------------------------------------------------
def without_inner(text, brackets):
    """a<b<c>, d> is a<b, d>: what is in two brackets or more goes."""
    kept, depth = "", 0
    for character in text:
        depth -= character == brackets[1]
        if depth == 0 or (depth == 1 and character not in brackets):
            kept += character
        depth += character == brackets[0]
    return kept


def shortened(name, width=72):
    """Without result, arguments, namespaces and the inner of template arguments:
    void at::native::f<4, at::native::g<float>, at::detail::Array<char *, 3>>(int, T2) is f<4, g, Array>.
    Of a lambda all that can be read is the function it is in."""
    name = re.sub(r"\((?:anonymous namespace)\)|<unnamed>", "", name)
    name = re.sub(r"\(\w[\w: ]*\)(?=-?\d)", "", name)  # (int)4
    name = re.sub(r"^void ", "", name)
    begin = re.split(r"[<(]", name, maxsplit=1)[0]
    kept = begin
    if name[len(begin):len(begin) + 1] == "<":
        inner = name[len(begin):]
        if "lambda" in inner:
            words = re.findall(r"(\w+)\(at::TensorIterator|(\w*[Ff]unctor\w*)|(\w+(?:_cuda|Ops|KernelImpl))\b", inner)
            words = [word for groups in words for word in groups if word and not word.startswith("gpu_kernel")]
            kept += f"<{words[0] if words else 'lambda'}>"
        else:
            end = len(without_arguments(inner))
            kept += without_inner(inner[:end], "<>")
    kept = re.sub(r"\w*::(?=[\w:])", "", kept)
    kept = re.sub(r"\s+", " ", kept).replace(" >", ">").strip(" :")
    return kept if len(kept) <= width else kept[:width - 1] + "…"


def without_arguments(text):
    """Up to the > that closes the first <."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if depth == 0:
            return text[:i + 1]
    return text


# --- ncu --------------------------------------------------------------------------------------------------------------
def find_ncu(given):
    places = [given] if given else ["ncu", "/usr/local/cuda/bin/ncu"]
    places += [] if given else sorted(map(str, Path("/opt/nvidia/nsight-compute").glob("*/ncu")), reverse=True)
    for place in places:
        if found := shutil.which(place):
            return found
    raise Failure(f"there is no {given or 'ncu'}; it comes with the CUDA toolkit. Say where it is with --ncu")


def run(command):
    try:
        return subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Failure(f"cannot run {command[0]}: {error.strerror}")


def tensor_metric(ncu):
    """None if ncu knows none for this GPU."""
    said = run([ncu, "--query-metrics"])
    known = {line.split()[0] for line in said.stdout.splitlines() if line.split()}
    return next((name + OF_PEAK for name in TENSOR if name in known), None)


def profile(arguments, rest):
    """ncu's table, as text, and the metric of the tensor cores in it."""
    ncu = find_ncu(arguments.ncu)
    tensor = tensor_metric(ncu)
    metrics = [TIME, BYTES] + ([tensor] if tensor else [])
    step = [arguments.tpgm, "bench", "step", "--device", "cuda", "--no-cuda-graph", "--profile", arguments.method,
            "--warmup", str(arguments.warmup), *rest]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        command = [ncu, "--target-processes", "all", "--profile-from-start", "off", "--clock-control", "none",
                   "--cache-control", "none", "--csv", "--page", "raw", "--print-units", "base",
                   "--print-kernel-base", "demangled", "--metrics", ",".join(metrics), "--log-file", str(log), *step]
        said = run(command)
        text = log.read_text(errors="replace") if log.exists() else ""
    if said.returncode != 0 or not table_begin(text):
        words = "\n".join(part.strip()[-4000:] for part in (said.stdout, said.stderr, text) if part.strip())
        raise Failure(f"ncu measured nothing (exit status {said.returncode}):\n{' '.join(command)}\n{words}")
    return text


def table_begin(text):
    found = re.search(r'^"ID",', text, re.MULTILINE)
    return found and text[found.start():]


def number(text):
    """In base units; None for what ncu could not measure."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def launches(text):
    """[{"name", "seconds", "bytes", "tensor"}] of ncu's CSV, wide (--page raw) or with a line for each metric."""
    lines = [line for line in table_begin(text).splitlines() if line.startswith('"')]
    found = defaultdict(dict)
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if not row["ID"] or not row.get("Kernel Name"):
            continue  # the line of units
        launch = found[row["ID"]]
        launch["name"] = row["Kernel Name"]
        launch |= {row["Metric Name"]: row["Metric Value"]} if "Metric Name" in row else row
    result = []
    for launch in found.values():
        time = number(launch.get(TIME, ""))
        if time is None:
            continue
        tensor = next((value for key, value in launch.items() if key and key.endswith(OF_PEAK)), "")
        result.append({"name": launch["name"], "seconds": time * 1e-9, "bytes": number(launch.get(BYTES, "")),
                       "tensor": number(tensor)})
    return result


def copy_bandwidth(tpgm):
    """GB/s of one large copy, each byte counted twice: read and written."""
    said = run([tpgm, "bench", "projection", "--device", "cuda", "--model-like", "vit-l-14", "--json"])
    if said.returncode != 0:
        raise Failure(f"tpgm bench projection: {said.stderr.strip()}")
    return json.loads(said.stdout)["copy_gb_s"]


# --- the table --------------------------------------------------------------------------------------------------------
HEADER = ["kernel", "calls", "ms", "of step", "GB/s", "of copy", "tensor"]


def table(all_launches, bandwidth, top):
    kernels = defaultdict(Kernel)
    for launch in all_launches:
        kernels[shortened(launch["name"])].add(launch)
    ordered = sorted(kernels.items(), key=lambda item: -item[1].seconds)
    total = sum(kernel.seconds for _, kernel in ordered)

    def row(name, kernel):
        rate = kernel.bytes / kernel.seconds / 1e9 if kernel.counted and kernel.seconds > 0 else None
        share = 100 * kernel.seconds / total if total else 0
        tensor = kernel.tensor / kernel.seconds if kernel.seconds > 0 else 0
        return [name, str(kernel.calls), f"{kernel.seconds * 1e3:.2f}", f"{share:.1f} %",
                "" if rate is None else f"{rate:.0f}", "" if rate is None else f"{100 * rate / bandwidth:.0f} %",
                f"{tensor:.0f} %" if tensor >= 0.5 else ""]

    rows = [row(name, kernel) for name, kernel in ordered[:top]]
    others, whole = Kernel(), Kernel()
    for launch in all_launches:
        whole.add(launch)
    for _, kernel in ordered[top:]:
        others.calls += kernel.calls
        others.seconds += kernel.seconds
        others.bytes += kernel.bytes
        others.tensor += kernel.tensor
        others.counted &= kernel.counted
    if others.calls:
        rows.append(row(f"{len(ordered) - top} others", others))
    return rows + [row("all", whole)]


def show(rows, markdown):
    if markdown:
        print("| " + " | ".join(HEADER) + " |\n|---|" + "---:|" * (len(HEADER) - 1))
        for name, *numbers in rows:
            print(f"| {name if name == 'all' or name.endswith(' others') else f'`{name}`'} | {' | '.join(numbers)} |")
        return
    widths = [max(len(row[i]) for row in [HEADER, *rows]) for i in range(len(HEADER))]
    for name, *numbers in [HEADER, *rows]:
        print(f"{name:<{widths[0]}}" + "".join(f"  {each:>{width}}" for each, width in zip(numbers, widths[1:])))


def positive(kind):
    def parse(text):
        value = kind(text)
        if value <= 0:
            raise ValueError
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("--tpgm", default="build/bin/tpgm", help="the command; default: %(default)s")
    parser.add_argument("--ncu", help="NVIDIA's profiler; default: on the path or where CUDA is usually installed")
    parser.add_argument("--method", default="ft", help="whose step; default: %(default)s, plain fine-tuning")
    parser.add_argument("--warmup", type=int, default=3, help="steps before the one that is measured; default: %(default)s")
    parser.add_argument("--bandwidth", type=positive(float), help="a copy's, in GB/s; default: measure it")
    parser.add_argument("--top", type=positive(int), default=10, help="kernels to show; default: %(default)s")
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    parser.add_argument("--save", type=Path, help="keep ncu's own table in this file")
    parser.add_argument("--read", type=Path, help="show one that was kept; needs --bandwidth, and runs nothing")
    arguments, rest = parser.parse_known_args()
    if arguments.read and rest:
        parser.error(f"--read runs nothing, and does not know {rest[0]}")
    try:
        if arguments.read:
            text = arguments.read.read_text(errors="replace")
            if not arguments.bandwidth:
                raise Failure("--read needs --bandwidth")
        else:
            text = profile(arguments, rest)
        bandwidth = arguments.bandwidth or copy_bandwidth(arguments.tpgm)
        if arguments.save:
            arguments.save.write_text(text)
        found = launches(text) if table_begin(text) else []
        if not found:
            raise Failure(f"{arguments.read} is not a table of ncu's" if arguments.read
                          else "no kernel was measured; ncu said:\n" + text[-4000:])
        show(table(found, bandwidth, arguments.top), arguments.markdown)
        print(f"\n{len(found)} launches; a copy moves {bandwidth:.0f} GB/s. tensor: share of the tensor cores' peak.")
    except Failure as failure:
        sys.exit(f"kernels.py: {failure}")
    except OSError as error:
        sys.exit(f"kernels.py: {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
