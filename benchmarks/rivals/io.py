"""The usual way to merge two checkpoints in Python: io.py A B OUT. Prints the seconds it took after the imports."""

import sys
import time

from safetensors.torch import load_file, save_file

begin = time.perf_counter()
a, b = load_file(sys.argv[1]), load_file(sys.argv[2])
save_file({name: (1 - 0.5) * a[name] + 0.5 * b[name] for name in a}, sys.argv[3], metadata={"format": "pt"})
print(time.perf_counter() - begin)
