"""Training and a report where there is no network: python3 test_offline_cli.py path/to/tpgm

Exits with 77, which ctest counts as skipped, where namespaces are not permitted.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from test_train_cli import MODEL, make_data

ISOLATED = (("unshare", "--net"), ("unshare", "--user", "--map-root-user", "--net"))


def isolation():
    """The first way that works here: a network namespace with nothing but a loopback device that is down."""
    for prefix in ISOLATED:
        if not shutil.which("unshare"):
            break
        if subprocess.run([*prefix, "cat", "/proc/net/route"], capture_output=True, check=False).returncode == 0:
            return prefix
    print("skipped: this system does not permit network namespaces")
    sys.exit(77)


def main():
    command, prefix = str(Path(sys.argv[1]).resolve()), isolation()
    os.environ["OMP_NUM_THREADS"] = "1"
    routes = subprocess.run([*prefix, "cat", "/proc/net/route"], capture_output=True, text=True, check=True).stdout
    assert routes.count("\n") <= 1, f"there is a network: {routes}"  # a heading at most
    with tempfile.TemporaryDirectory(prefix="tpgm-offline-") as folder:
        make_data(Path(folder) / "data")
        for words in (("train", "--data-dir", "data", "--train", "home", "--test", "away", "--model", MODEL, "--epochs", "1",
                       "--batch-size", "16", "--workers", "1", "--device", "cpu", "-o", "run"),
                      ("eval", "run", "--fresh"), ("report", "run", "-o", "page.html")):
            subprocess.run([*prefix, command, *words], cwd=folder, check=True, timeout=300, stdout=subprocess.DEVNULL)
        assert (Path(folder) / "run" / "result.json").is_file() and (Path(folder) / "page.html").is_file()


if __name__ == "__main__":
    main()
