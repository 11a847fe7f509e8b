"""What TensorBoard itself finds in event files: python3 test_tensorboard.py path/to/file-or-folder [tag ...]

Exits 0 when every tag is there, 1 naming those that are not, 77 (skipped) without the package `tensorboard`.
"""

import sys


def read_events(folder):
    """{"scalars": {tag: [(step, value)]}, "histograms": {tag: [(step, histogram)]}}, steps in the order of the file.

    A histogram has min, max, num, sum, sum_squares, bucket_limit and bucket. Raises ImportError without tensorboard.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})  # 0: all, not a sample
    events.Reload()
    tags = events.Tags()
    return {
        "scalars": {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags["scalars"]},
        "histograms": {tag: [(event.step, event.histogram_value) for event in events.Histograms(tag)]
                       for tag in tags["histograms"]},
    }


def main(folder, *tags):
    try:
        found = read_events(folder)
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    for kind, series in found.items():
        for tag, values in series.items():
            print(f"{kind} {tag}: {len(values)}, the last at step {values[-1][0]}")
    missing = [tag for tag in tags if not any(tag in series for series in found.values())]
    if missing:
        print(f"not in {folder}: {', '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
