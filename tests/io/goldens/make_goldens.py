"""Writes the golden files beside this script with the reference implementation of safetensors.

    pip install numpy ml_dtypes safetensors && python make_goldens.py

The files are compared value for value and byte for byte; test_safetensors.cpp states the values again.
"""

from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).parent

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
          ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz]

i = np.arange(6).reshape(2, 3)
dtypes = {"bool": i % 2 == 0, "complex64": (i + 1j * (i - 2)).astype(np.complex64)}
dtypes |= {np.dtype(t).name: (i - 2).astype(t) for t in SIGNED}
dtypes |= {np.dtype(t).name: (np.iinfo(t).max - i.astype(t)).astype(t) for t in UNSIGNED}
dtypes |= {np.dtype(t).name: (i / 2 - 1).astype(t) for t in FLOATS}
dtypes["float8_e8m0fnu"] = (2.0**i).astype(ml_dtypes.float8_e8m0fnu)
save_file(dtypes, HERE / "dtypes.safetensors")

# One metadata key only: the reference implementation writes several in no fixed order.
shapes = {f"rank{n}": np.arange(np.prod((2, 3, 1, 2)[:n], dtype=int), dtype=np.float32).reshape((2, 3, 1, 2)[:n])
          for n in range(5)}
shapes |= {"empty.first": np.zeros((0, 3), np.float32), "empty.last": np.zeros((3, 0), np.int64)}
save_file(shapes, HERE / "shapes.safetensors", metadata={"format": "pt"})

names = {'quote " back\\slash': np.array([1], np.uint8), "tab\tnew\nline\x01": np.array([2], np.uint8),
         "δ/日本/🦊": np.array([3], np.uint8), "": np.array([4], np.uint8)}
save_file(names, HERE / "names.safetensors", metadata={"ключ": "\"значение\"\u007f"})

save_file({}, HERE / "nothing.safetensors")
