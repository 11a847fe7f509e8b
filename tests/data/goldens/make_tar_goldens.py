#!/usr/bin/env python3
"""Writes tests/data/goldens/tars: the same files in the formats of Python's tarfile, and one by hand."""
import io
import tarfile
from pathlib import Path

HERE = Path(__file__).parent / "tars"
LONG = "a_folder_with_a_name_that_takes_room/" * 4  # 148 bytes, more than a header's field of 100


def member(name, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


MEMBERS = [
    member("train", type=tarfile.DIRTYPE, mode=0o755),
    member("train/000.jpg", b"picture 0"),
    member("train/000.cls", b"2\n"),
    member(f"train/{LONG}001.png", b"picture 1" * 100),
    member(f"train/{LONG}001.json", b'{"caption": "a", "label": 0}'),
    member("train/link.jpg", type=tarfile.SYMTYPE, linkname="000.jpg"),
    member(f"train/{LONG}link.jpg", type=tarfile.SYMTYPE, linkname=f"{LONG}001.png"),
    member("train/000_hard.jpg", type=tarfile.LNKTYPE, linkname="train/000.jpg"),
    member("train/fifo.jpg", type=tarfile.FIFOTYPE),
    member("train/empty.JPEG"),
    member("train/empty.cls", b" 1 "),
]


def archive(layout):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=layout) as tar:
        for info, data in MEMBERS:
            if layout == tarfile.USTAR_FORMAT and len(info.linkname) > 100:
                continue  # which it cannot say
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue().rstrip(b"\0") + bytes(1024)


def with_large_sizes(data):
    """Every octal size as GNU writes one of 8 GiB or more: a big-endian number."""
    data, at = bytearray(data), 0
    while data[at]:
        size = int(data[at + 124:at + 135], 8)
        data[at + 124:at + 136] = b"\x80" + size.to_bytes(11, "big")
        data[at + 148:at + 156] = b" " * 8
        data[at + 148:at + 155] = b"%06o\0" % sum(data[at:at + 512])
        at += 512 + (size + 511) // 512 * 512
    return bytes(data)


def padded(data):
    return data + bytes(-len(data) % 512)


HERE.mkdir(exist_ok=True)
LAYOUTS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
for name, layout in LAYOUTS.items():
    (HERE / f"{name}.tar").write_bytes(padded(archive(layout)))
(HERE / "base256.tar").write_bytes(padded(with_large_sizes(archive(tarfile.GNU_FORMAT))))
