"""Runs the commands of one page, as they stand: python3 run_page.py path/to/tpgm FIXTURES PAGE

Blocks marked `sh` and `python` are run in order, in a fresh folder with a copy of FIXTURES (made by fixtures.py). The
folder looks like a checkout of the project to them: recipes/ and assets/ are there, the latter with fewer images.
`python` blocks are run by the interpreter that TPGM_PYTHON_ORACLE names (with torch, transformers, safetensors, Pillow),
and skipped without it. `sh no-test: REASON` is not run; its reason is printed.

PATH has a `tpgm` that is shim.py: it makes those commands smaller that take long on the smallest of data, too.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pages import ROOT, RUN, blocks

LIMIT = 120  # seconds for a block


def make_folder(folder, fixtures, command):
    shutil.copytree(fixtures, folder, dirs_exist_ok=True, symlinks=True)
    shim = folder / ".bin" / "tpgm"
    shim.parent.mkdir()
    shim.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'tests/docs/shim.py'))} "
                    f"{shlex.quote(str(command))} \"$@\"\n")
    shim.chmod(0o755)
    environment = dict(os.environ, PATH=f"{shim.parent}:{os.environ['PATH']}", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
                       TRANSFORMERS_OFFLINE="1", HOME=str(folder))
    return environment


def run(block, folder, environment):
    """None if it went well, else what was printed."""
    if block.language == "sh":
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    else:
        command = [os.environ["TPGM_PYTHON_ORACLE"], "-c", block.text]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT, text=True, errors="replace", check=False)
    except subprocess.TimeoutExpired as late:
        return f"{late.stdout or ''}\nstill running after {LIMIT} s"
    if os.environ.get("TPGM_DOCS_VERBOSE"):
        print(done.stdout)
    return None if done.returncode == 0 else f"{done.stdout}\nexit status {done.returncode}"


def main(command, fixtures, page):
    failed = 0
    folder = Path(tempfile.mkdtemp(prefix="tpgm-docs-"))
    try:
        environment = make_folder(folder, fixtures, Path(command).resolve())
        for block in blocks(ROOT / page):
            if block.problem:
                print(f"FAILED   {block.where}: {block.problem}")
                failed += 1
                continue
            if block.language not in RUN:
                continue
            first = next((line for line in block.text.splitlines() if line.strip()), "").strip()[:70]
            if block.reason:
                print(f"not run  {block.where}: {block.reason}  ({first})")
                continue
            if block.language == "python" and not os.environ.get("TPGM_PYTHON_ORACLE"):
                print(f"skipped  {block.where}: TPGM_PYTHON_ORACLE names no Python  ({first})")
                continue
            start = time.monotonic()
            said = run(block, folder, environment)
            seconds = time.monotonic() - start
            print(f"{'ok' if said is None else 'FAILED':8} {block.where}: {seconds:.1f} s  ({first})", flush=True)
            if said is not None:
                failed += 1
                print("  | " + "\n  | ".join((block.text + "\n" + said).splitlines()[-60:]))
    finally:
        if os.environ.get("TPGM_DOCS_KEEP"):
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
