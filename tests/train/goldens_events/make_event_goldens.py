#!/usr/bin/env python3
"""Writes golden.tfevents: a few values as torch puts them into TensorBoard's messages, and TensorBoard into a file.

    pip install torch tensorboard
    python make_event_goldens.py [--output FOLDER]

The file here is by torch 2.13.0, tensorboard 2.21.0. test_event_file.cpp writes the same values. Sums of them are
exact, so that no order of adding matters.
"""
import argparse
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import histogram, histogram_raw, scalar

TIME = 1700000000.25


def events():
    yield Event(wall_time=TIME, file_version="brain.Event:2")
    yield Event(wall_time=TIME, step=0, summary=scalar("loss/train", 0.1))
    yield Event(wall_time=TIME + 1, step=300, summary=scalar("loss/train", 0.0))
    yield Event(wall_time=TIME + 2, step=2**40, summary=scalar("größe", -1e-3))
    values = np.array([0.125, 0.25, 0.25, 0.75, 0.375, 0.5])
    yield Event(wall_time=TIME + 3, step=300, summary=histogram("radii", values, np.linspace(0, 1, 9)))
    # From the first bucket to the last, and limits that are not round numbers.
    values = np.array([0.0, 0.25, 0.375, 0.75])
    yield Event(wall_time=TIME + 4, step=1, summary=histogram("ratios", values, np.linspace(0, 0.75, 11)))
    # With a bucket for what is below 0 and one for what is above 1.
    values = np.array([-3.0, 0.5, 0.5, 7.0])
    counts, limits = np.histogram(values, [-3, *np.linspace(0, 1, 5), 7])
    yield Event(wall_time=TIME + 5, step=2, summary=histogram_raw(
        "outside", values.min(), values.max(), len(values), values.sum(), values @ values, limits[1:], counts))
    # Equal limits, which numpy moves apart.
    yield Event(wall_time=TIME + 6, step=3, summary=histogram("equal", np.full(3, 2.0), 4))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent)
    with open(parser.parse_args().output / "golden.tfevents", "wb") as file:
        for event in events():
            RecordWriter(file).write(event.SerializeToString())


if __name__ == "__main__":
    main()
