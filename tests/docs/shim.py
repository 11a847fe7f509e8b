"""What `tpgm` is while the pages are tested: the command itself, made smaller where the smallest data do not suffice.

python3 shim.py path/to/tpgm ARGUMENT...

  project    five radius steps instead of 200
  reproduce  one row (ft), one seed, one learning rate, one epoch, all of the few images: not up to 182 runs
  bench      one repetition of the smallest thing it measures, instead of minutes

Options that a page gives stay as they are; everything else is passed on untouched.
"""

import os
import sys

SMALLER = {
    ("project",): {"--radius-steps": "5"},
    ("reproduce",): {"--rows": "ft", "--seeds": "0", "--lr": "1e-3", "--epochs": "1", "--fraction": "1", "--test-fraction": "1"},
    ("bench", "io"): {"--gigabytes": "0.001", "--repeats": "1"},
    ("bench", "loader"): {"--images": "20", "--repeats": "1"},
    ("bench", "projection"): {"--repeats": "1"},
    ("bench", "step"): {"--batch-size": "1", "--repeats": "1", "--warmup": "0"},
}


def main(command, *arguments):
    arguments = list(arguments)
    for words, options in SMALLER.items():
        if tuple(arguments[:len(words)]) == words and not {"--dry-run", "--help"} & set(arguments):
            for name, value in options.items():
                if name not in arguments and not (name == "--batch-size" and "-b" in arguments):
                    arguments += [name, value]
    os.execv(command, ["tpgm", *arguments])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
