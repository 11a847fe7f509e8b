#!/usr/bin/env python3
"""Writes images/: JPEGs and PNGs, sound and damaged, what Pillow makes of them, and torchvision's views of some.

    pip install pillow numpy torch safetensors
    pip install --no-deps torchvision                     # --no-deps: or it brings a torch of its own
    python make_image_goldens.py [--output FOLDER]

The files here are by Pillow 13.0.0 (libjpeg-turbo 3.2.0), torch 2.13.0, torchvision 0.28.0. There are

    *.jpg, *.png            by Pillow, or by hand where it cannot write them
    parts_*, calm_*         larger ones, of which parts are decoded, the second without fine detail; their pixels are
                            not here
    pixels.safetensors      <file> [H, W, 3]: np.asarray(Image.open(file).convert("RGB"))
    views.safetensors       resize/<source>/<interpolation>/<w>x<h>
                            eval/<source>/<interpolation>/<image_size>/<crop_pct>
                            rows_first/resize/...: the same with rows first, where Pillow takes the columns first
    cases.json              refused: files that Pillow cannot load, and its words
                            damaged: of a file, [position, xor] of bytes changed or the length it is cut to, and
                                     zlib.crc32 of the pixels, or null where Pillow cannot load it
                            crops: RandomResizedCrop.get_params of images of several sizes: the box where its ten
                                   tries must fail, else means and deciles over many draws
"""
import argparse
import base64
import io
import json
import struct
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image, features
from safetensors.numpy import save

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "weights" / "goldens"))
sys.dont_write_bytecode = True
from oracle_models import import_torchvision  # noqa: E402

import_torchvision()
from torchvision.transforms import CenterCrop, InterpolationMode, RandomResizedCrop, Resize  # noqa: E402

warnings.simplefilter("ignore")  # Pillow's, of palettes with transparency


# --- images -----------------------------------------------------------------------------------------------------------
def photo(width, height, channels=3, seed=0, waves=(0.02, 0.5)):
    """Gradients, waves (radians per pixel), an edge and some noise: uint8 [height, width, channels]."""
    rng = np.random.default_rng([seed, width, height])
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for c in range(channels):
        a, b, phase = rng.uniform(*waves, 3)
        plane = 128 + 60 * np.sin(a * x + b * y + 6 * phase) + 50 * (x / width - y / height) * (-1) ** c
        plane += np.where((x - width * rng.uniform(0.2, 0.8)) ** 2 + (y - height / 2) ** 2 < height**2 / 16, 70, -20)
        planes.append(plane + rng.normal(0, 6, plane.shape))
    return np.stack(planes, -1).clip(0, 255).astype(np.uint8)


def jpeg(pixels, mode=None, **options):
    buffer = io.BytesIO()
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels, mode)
    picture.save(buffer, "JPEG", **{"quality": 85} | options)
    return buffer.getvalue()


# --- JPEG by hand -----------------------------------------------------------------------------------------------------
def segments(data):
    """(marker, position, length) up to the scan."""
    at = 2
    while True:
        marker, length = struct.unpack_from(">HH", data, at)
        yield marker, at, length + 2
        if marker == 0xFFDA:
            return
        at += length + 2


def find(data, wanted):
    return next((at, length) for marker, at, length in segments(data) if marker == wanted)


def without(data, marker):
    at, length = find(data, marker)
    return data[:at] + data[at + length:]


def with_segment(data, marker, body):
    return data[:2] + struct.pack(">HH", marker, len(body) + 2) + body + data[2:]


def adobe(data, transform):
    """With the Adobe marker's statement of colours."""
    return with_segment(data, 0xFFEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, transform))


def patched(data, at, new):
    return data[:at] + new + data[at + len(new):]


def reshaped(data, width, height, first_sampling):
    """The blocks of an MCU put in another arrangement: as valid, if of scrambled content."""
    at, _ = find(data, 0xFFC0)
    data = patched(data, at + 5, struct.pack(">HH", height, width))
    return patched(data, at + 11, bytes([first_sampling]))


def two_components(data):
    """A grey one's blocks taken for those of two components in turn; the picture is half as wide."""
    at, length = find(data, 0xFFC0)
    height, width = struct.unpack_from(">HH", data, at + 5)
    frame = struct.pack(">HHBHHB", 0xFFC0, 14, 8, height, width // 2, 2) + bytes([1, 0x11, 0, 2, 0x11, 0])
    data = data[:at] + frame + data[at + length:]
    at, length = find(data, 0xFFDA)
    return data[:at] + struct.pack(">HHB", 0xFFDA, 10, 2) + bytes([1, 0, 2, 0, 0, 63, 0]) + data[at + length:]


def in_scans(planes, **options):
    """A scan for each component, of blocks that were those of a grey picture."""
    greys = [jpeg(planes[:, :, c:c + 1], **options) for c in range(3)]
    frame, length = find(greys[0], 0xFFC0)
    data = greys[0][:frame] + struct.pack(">HH", 0xFFC0, 17) + greys[0][frame + 4:frame + 9] + b"\3"
    data += b"".join(bytes([c, 0x11, 0]) for c in (1, 2, 3)) + greys[0][frame + length:find(greys[0], 0xFFDA)[0]]
    for c, grey in enumerate(greys, 1):
        scan, length = find(grey, 0xFFDA)
        data += struct.pack(">HHBBBBBB", 0xFFDA, 8, 1, c, 0, 0, 63, 0) + without_eoi(grey[scan + length:])
    return data + b"\xff\xd9"


def some_scans(data, count):
    """The first scans, then the end."""
    parts = data.split(b"\xff\xda")  # in coded data 0xff is followed by 0
    assert len(parts) > count + 1
    last = parts[count]  # what leads to the next scan is tables, which may stay
    return b"\xff\xda".join(parts[:count] + [last]) + b"\xff\xd9"


def without_eoi(data):
    assert data.endswith(b"\xff\xd9")
    return data[:-2]


def jpegs():
    rgb, grey, cmyk = photo(53, 41), photo(53, 41, 1), photo(53, 41, 4)
    colour = jpeg(rgb)  # 4:2:0
    yield "444", jpeg(rgb, subsampling=0)
    yield "422", jpeg(rgb, subsampling=1)
    yield "420", colour
    # 4:2:2 has as many blocks in an MCU as 4:4:0, 4:2:0 as 4:1:1 and its tall twin.
    yield "440", reshaped(jpeg(rgb, subsampling=1), 4 * 8 - 3, 6 * 16 - 5, 0x12)
    yield "411", reshaped(colour, 4 * 32 - 9, 3 * 8 - 3, 0x41)
    yield "141", reshaped(colour, 4 * 8 - 1, 3 * 32 - 11, 0x14)
    yield "grey", jpeg(grey)
    yield "progressive", jpeg(rgb, progressive=True)
    yield "progressive_grey", jpeg(grey, progressive=True)
    yield "progressive_444", jpeg(rgb, progressive=True, subsampling=0)
    yield "optimised", jpeg(rgb, optimize=True)
    yield "quality_5", jpeg(rgb, quality=5)
    yield "quality_100", jpeg(rgb, quality=100, subsampling=0)
    inks = jpeg(cmyk, "CMYK")
    yield "cmyk", inks
    yield "cmyk_plain", without(inks, 0xFFEE)
    at, _ = find(inks, 0xFFEE)
    yield "ycck", patched(inks, at + 15, b"\2")
    yield "ycck_progressive", adobe(without(jpeg(cmyk, "CMYK", progressive=True), 0xFFEE), 2)
    yield "rgb", jpeg(rgb, keep_rgb=True)
    yield "rgb_adobe", adobe(without(jpeg(rgb, subsampling=0), 0xFFE0), 0)
    yield "ycc_adobe", adobe(without(colour, 0xFFE0), 1)
    yield "ycc_adobe_2", adobe(without(colour, 0xFFE0), 2)  # makes no sense for three components
    yield "no_jfif", without(colour, 0xFFE0)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "exif_turned", jpeg(rgb, exif=exif)
    yield "icc", jpeg(rgb, icc_profile=b"no profile, but nobody should look")
    yield "restarts", jpeg(rgb, restart_marker_blocks=2)
    yield "restarts_rows", jpeg(rgb, restart_marker_rows=1, subsampling=0)
    yield "comment", with_segment(colour, 0xFFFE, b"x" * 3000)
    yield "fill_bytes", colour[:2] + b"\xff\xff" + colour[2:]
    for width, height in [(1, 1), (7, 3), (8, 8), (17, 31), (16, 16), (1, 40), (40, 1)]:
        yield f"{width}x{height}", jpeg(photo(width, height))
    yield "1x1_grey", jpeg(photo(1, 1, 1))
    yield "arithmetic", base64.b64decode(ARITHMETIC)
    yield "arithmetic_progressive", base64.b64decode(ARITHMETIC_PROGRESSIVE)
    yield "trailing", colour + b"garbage after the end" * 9
    yield "two_pictures", colour + jpeg(grey)
    scans = in_scans(rgb)
    yield "scans", scans
    yield "scans_missing", some_scans(scans, 2)
    for count in (1, 3, 6):  # what is missing is smoothed over
        yield f"progressive_{count}_scans", some_scans(jpeg(rgb, progressive=True, quality=95), count)
    # Refused by Pillow, all but a few.
    yield "no_eoi", without_eoi(colour)
    yield "no_eoi_progressive", without_eoi(jpeg(rgb, progressive=True))
    yield "no_eoi_garbage", without_eoi(colour) + b"\0" * 50
    yield "two_components", two_components(jpeg(photo(64, 16, 1)))
    frame, length = find(colour, 0xFFC0)
    yield "no_frame", colour[:frame] + colour[frame + length:]
    yield "two_frames", colour[:frame] + colour[frame:frame + length] + colour[frame:]
    yield "zero_width", patched(colour, frame + 7, b"\0\0")
    yield "zero_height", patched(colour, frame + 5, b"\0\0")
    yield "12_bits", patched(colour, frame + 4, b"\x0c")
    yield "sampling_0", patched(colour, frame + 11, b"\0")
    yield "sampling_5", patched(colour, frame + 11, b"\x55")
    yield "no_huffman", without(colour, 0xFFC4)
    tables = [(at, length) for marker, at, length in segments(colour) if marker == 0xFFC4]
    other = b"".join(colour[at:at + 4] + b"\0" + colour[at + 5:at + length] for at, length in tables[2:3])
    # The standard's tables are taken instead of the missing ones, also when the file is read once more.
    yield "other_huffman_after", without_eoi(without(colour, 0xFFC4)) + other + b"\xff\xd9"
    yield "no_quantisation", without(colour, 0xFFDB)
    yield "hierarchical", patched(colour, frame, b"\xff\xc5")
    yield "frame_after", without_eoi(colour) + colour[frame:frame + length] + b"\xff\xd9"
    yield "tables_after", without_eoi(colour) + b"\xff\xc4\0\x05abc\xff\xd9"
    yield "half_segment_after", without_eoi(colour) + b"\xff\xe1\x40\0abc"
    yield "soi_after", without_eoi(colour) + b"\xff\xd8\xff\xd9"
    scan, length = find(colour, 0xFFDA)
    yield "scan_twice", without_eoi(colour) + colour[scan:]
    yield "no_scan", colour[:scan] + b"\xff\xd9"
    yield "empty_scan", colour[:scan + length] + b"\xff\xd9"
    yield "half_scan", colour[:(scan + length + len(colour)) // 2] + b"\xff\xd9"
    yield "header_only", colour[:scan]
    yield "twice_soi", b"\xff\xd8" + colour


def larger():
    """Of which parts are decoded."""
    rgb = photo(150, 118)
    yield "parts_444.jpg", jpeg(rgb, quality=40, subsampling=0)
    yield "parts_422.jpg", jpeg(rgb, quality=40, subsampling=1)
    yield "parts_420.jpg", jpeg(rgb, quality=40)
    yield "parts_440.jpg", reshaped(jpeg(rgb, quality=40, subsampling=1), 10 * 8 - 3, 15 * 16 - 5, 0x12)
    yield "parts_411.jpg", reshaped(jpeg(rgb, quality=40), 10 * 32 - 9, 8 * 8 - 3, 0x41)
    yield "parts_grey.jpg", jpeg(photo(150, 118, 1), quality=40)
    yield "parts_progressive.jpg", jpeg(rgb, quality=40, progressive=True)
    yield "parts_progressive_3_scans.jpg", some_scans(jpeg(rgb, quality=40, progressive=True), 3)
    yield "parts_scans.jpg", in_scans(rgb, quality=40)
    yield "parts_restarts.jpg", jpeg(rgb, quality=40, restart_marker_blocks=3)
    yield "parts_cmyk.jpg", jpeg(photo(150, 118, 4), "CMYK", quality=40)
    yield "parts_rgb.jpg", jpeg(rgb, quality=40, keep_rgb=True)
    yield "parts_arithmetic.jpg", base64.b64decode(ARITHMETIC_PROGRESSIVE)
    flat = photo(67, 53) // 16 * 16
    yield "parts_rgb.png", png(flat, 8, 2)
    yield "parts_interlaced.png", png(flat, 8, 2, 1)
    yield "parts_grey_1.png", png(samples_of(67, 53, 1, 1), 1, 0)
    entries = chunk(b"PLTE", bytes(range(96, 144)))
    yield "parts_palette_4_interlaced.png", png(samples_of(67, 53, 1, 4), 4, 3, 1, before=entries)
    calm = photo(200, 150, 4, waves=(0.01, 0.08))
    yield "calm_420.jpg", jpeg(calm[:, :, :3])
    yield "calm_444.jpg", jpeg(calm[:, :, :3], subsampling=0)
    yield "calm_progressive.jpg", jpeg(calm[:, :, :3], progressive=True)
    yield "calm_cmyk.jpg", jpeg(calm, "CMYK", quality=70)


# A grey and a coloured 40 × 24 by libjpeg-turbo with arith_code set, the second by jpeg_simple_progression as well.
ARITHMETIC = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYV"
    "pQYEpRUk//yQALCAAYACgBAREA/8wABgAQEAX/2gAIAQEAAD8A0mg7hVMKcXKCXcjiyLjD3Jn9GQdAToC/tuJDHXACHfRZx4hYtFRWOctoAqce"
    "9RHpijQS4jrBVJmI7OI2I6Udr5+CSThjC4umO0CVRxP580kFdwl27B4BIgK3lXF93ETXtuvp/wCv6XJ1GfUjz5OpXF40sFiV+v4Rcxeq3zjrQ7"
    "5NI631+3p/i7mA/9k=")
ARITHMETIC_PROGRESSIVE = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYV"
    "pQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT0//ygARCAAY"
    "ACgDASIAAhEBAxEB/8wABgAQARD/2gAMAwEAAhADEAAAAc8W6igkJBUnp511ZIcEvGZEg0Uxo2HmgP/MAAQQBf/aAAgBAQABBQI5J7izg91Uyh"
    "EDfr9fnUlFO31NNRE1vHpOM9gFlrm69hxLmE4g/8wABBEF/9oACAEDAQE/ATZP7SOEygL90NSIbfW/vwbK89DnhzKnR0p75kD/zAAEEQX/2gAI"
    "AQIBAT8BHl+K/Z18GZ+Ec93mIeCurvADZl3QfG6yC5dOz//MAAQQBf/aAAgBAQAGPwISyulqSRVyG15h/8wABBAF/9oACAEBAAE/If7w9DN1l3"
    "cEpUYpG+YvshlWQLKqJCsx+ZX/2gAMAwEAAgADAAAAEBQGN+/A/8wABBEF/9oACAEDAQE/EOEzMKotQPohomITy1xJR9yJ/8wABBEF/9oACAEC"
    "AQE/EPczkGpcI4pNs/Fg1qtkUcCH7jXG6Zer4kD/zAAEEAX/2gAIAQEAAT8QqXqWFTR3uCDSD+6Zb3L04za20zU179JwPbMBZCXjyt9flGnYes"
    "61WOGdvcCW/9k=")


# --- PNG by hand ------------------------------------------------------------------------------------------------------
SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(name, body, crc=None):
    crc = zlib.crc32(name + body) if crc is None else crc
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", crc)


def header(width, height, depth, colour, interlace=0, compression=0, filtering=0):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, compression, filtering, interlace))


def packed(samples, depth):
    """Rows of samples [H, W, C] as bytes."""
    rows = samples.reshape(len(samples), -1)
    if depth == 16:
        return [row.astype(">u2").tobytes() for row in rows]
    bits = (rows[:, :, None] >> np.arange(depth)[::-1]) & 1
    return [np.packbits(row.astype(np.uint8)).tobytes() for row in bits.reshape(len(rows), -1)]


def paeth(left, up, corner):
    estimate = left + up - corner
    return min((abs(estimate - value), order, value) for order, value in enumerate([left, up, corner]))[2]


def filtered(rows, unit):
    """Every filter in turn."""
    result, above = b"", bytes(len(rows[0]) if rows else 0)
    for number, row in enumerate(rows):
        kind, line = number % 5, bytearray()
        for i, value in enumerate(row):
            left, up, corner = (row[i - unit] if i >= unit else 0), above[i], (above[i - unit] if i >= unit else 0)
            line.append((value - [0, left, up, (left + up) // 2, paeth(left, up, corner)][kind]) & 255)
        result, above = result + bytes([kind]) + line, row
    return result


def png(samples, depth, colour, interlace=0, before=b"", between=b"", pieces=1):
    height, width, channels = samples.shape
    assert channels == CHANNELS[colour]
    unit = max(1, channels * depth // 8)
    if interlace:
        parts = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        raw = b"".join(filtered(packed(part, depth), unit) for part in parts if part.size)
    else:
        raw = filtered(packed(samples, depth), unit)
    data = zlib.compress(raw, 9)
    size = -(-len(data) // pieces)
    idat = between.join(chunk(b"IDAT", data[at:at + size]) for at in range(0, len(data), size))
    return SIGNATURE + header(width, height, depth, colour, interlace) + before + idat + chunk(b"IEND", b"")


def samples_of(width, height, channels, depth, seed=1):
    values = photo(width, height, channels, seed).astype(np.int64)
    if depth == 16:  # low bytes of all kinds, and some values below 256, at which Pillow clips grey
        noise = np.random.default_rng(seed).integers(0, 256, values.shape)
        return np.where(noise < 128, values * 256 + noise, values)
    return values >> (8 - depth)


def pngs():
    width, height = 37, 29
    palette = np.random.default_rng(2).integers(0, 256, (256, 3), np.uint8).tobytes()
    alphas = bytes(range(0, 256, 3))
    kinds = {0: "grey", 2: "rgb", 3: "palette", 4: "grey_alpha", 6: "rgba"}
    for colour, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            entries = chunk(b"PLTE", palette[:3 << depth]) if colour == 3 else b""
            data = samples_of(width, height, CHANNELS[colour], depth)
            name = f"{kinds[colour]}_{depth}"
            yield name, png(data, depth, colour, before=entries)
            yield f"{name}_interlaced", png(data, depth, colour, 1, before=entries)
            if colour == 3:
                trns = chunk(b"tRNS", alphas[:1 << depth])
                yield f"{name}_trns", png(data, depth, colour, before=entries + trns)
            if colour in (0, 2):
                trns = chunk(b"tRNS", np.asarray(data[3, 5], ">u2").tobytes())
                yield f"{name}_trns", png(data, depth, colour, before=trns)
    rgb = samples_of(width, height, 3, 8)
    index = samples_of(width, height, 1, 4)
    entries = chunk(b"PLTE", palette[:48])
    one = chunk(b"tRNS", b"\xff\xff\0\xff")
    yield "palette_4_one_transparent", png(index, 4, 3, before=entries + one)
    buffer = io.BytesIO()
    Image.fromarray(rgb.astype(np.uint8)).save(buffer, "PNG", optimize=True)
    yield "pillow", buffer.getvalue()
    for w, h in [(1, 1), (2, 1), (1, 5), (3, 3), (5, 4)]:  # passes without pixels
        yield f"{w}x{h}_interlaced", png(samples_of(w, h, 3, 8), 8, 2, 1)
    yield "gama", png(rgb, 8, 2, before=chunk(b"gAMA", struct.pack(">I", 100000)))
    yield "srgb", png(rgb, 8, 2, before=chunk(b"sRGB", b"\0"))
    profile = b"a name\0\0" + zlib.compress(b"no profile, but nobody should look" * 9)
    yield "iccp", png(rgb, 8, 2, before=chunk(b"iCCP", profile))
    yield "chrm", png(rgb, 8, 2, before=chunk(b"cHRM", struct.pack(">8I", *[31270, 32900] * 4)))
    yield "bkgd", png(samples_of(width, height, 4, 8), 8, 6, before=chunk(b"bKGD", bytes(6)))
    yield "sbit", png(rgb, 8, 2, before=chunk(b"sBIT", b"\5\6\5"))
    yield "text", png(rgb, 8, 2, before=chunk(b"tEXt", b"Title\0text") + chunk(b"zTXt", b"k\0\0" + zlib.compress(b"v")))
    yield "private", png(rgb, 8, 2, before=chunk(b"prVt", b"whatever"))
    yield "rgb_suggested_palette", png(rgb, 8, 2, before=chunk(b"PLTE", palette[:30]))
    yield "pieces", png(rgb, 8, 2, pieces=7)
    yield "empty_pieces", png(rgb, 8, 2, pieces=3, between=chunk(b"IDAT", b""))
    frames = [Image.fromarray(photo(width, height, 3, seed)) for seed in range(3)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:], duration=40)
    yield "animated", buffer.getvalue()
    whole = png(rgb, 8, 2)
    yield "trailing", whole + b"garbage after the end" * 9
    yield "no_iend", whole[:-12]
    yield "cut_iend", whole[:-3]
    idat = whole.index(b"IDAT") - 4
    end = len(whole) - 12
    data = zlib.decompress(whole[idat + 8:end - 4])
    start, iend = whole[:idat], whole[end:]
    yield "cut_after_data", whole[:end - 4]  # all of the data, no CRC
    yield "idat_too_long", start + chunk(b"IDAT", zlib.compress(data + data[:500])) + iend
    yield "idat_too_short", start + chunk(b"IDAT", zlib.compress(data[:-1])) + iend
    yield "idat_half", start + chunk(b"IDAT", zlib.compress(data[:len(data) // 2])) + iend
    yield "idat_garbage_after", start + chunk(b"IDAT", zlib.compress(data) + b"garbage") + iend
    yield "no_adler", start + chunk(b"IDAT", zlib.compress(data)[:-4]) + iend
    yield "wrong_adler", start + chunk(b"IDAT", zlib.compress(data)[:-4] + b"abcd") + iend
    yield "filter_9", start + chunk(b"IDAT", zlib.compress(b"\x09" + data[1:])) + iend
    yield "no_idat", start + iend
    yield "empty_idat", start + chunk(b"IDAT", b"") + iend
    yield "split_by_text", png(rgb, 8, 2, pieces=2, between=chunk(b"tEXt", b"a\0b"))
    yield "crc_ihdr", patched(whole, 29, b"abcd")
    yield "crc_idat", patched(whole, end - 4, b"abcd")
    yield "crc_iend", patched(whole, len(whole) - 4, b"abcd")
    yield "crc_ancillary", png(rgb, 8, 2, before=chunk(b"tEXt", b"a\0b", 0))
    yield "crc_gama", png(rgb, 8, 2, before=chunk(b"gAMA", struct.pack(">I", 45455), 0))
    yield "crc_plte", png(index, 4, 3, before=chunk(b"PLTE", palette[:48], 0))
    yield "short_gama", png(rgb, 8, 2, before=chunk(b"gAMA", b"\0"))
    yield "short_trns", png(rgb, 8, 2, before=chunk(b"tRNS", b"\0"))
    yield "unknown_critical", png(rgb, 8, 2, before=chunk(b"ABCD", b"whatever"))
    yield "zero_width", SIGNATURE + header(0, 5, 8, 2) + chunk(b"IDAT", zlib.compress(bytes(5))) + iend
    yield "zero_height", SIGNATURE + header(5, 0, 8, 2) + chunk(b"IDAT", zlib.compress(b"")) + iend
    yield "depth_3", SIGNATURE + header(width, height, 3, 0) + whole[idat:]
    yield "colour_5", SIGNATURE + header(width, height, 8, 5) + whole[idat:]
    yield "rgb_4", SIGNATURE + header(width, height, 4, 2) + whole[idat:]
    yield "palette_16", SIGNATURE + header(width, height, 16, 3) + entries + whole[idat:]
    yield "compression_1", SIGNATURE + header(width, height, 8, 2, compression=1) + whole[idat:]
    yield "filtering_1", SIGNATURE + header(width, height, 8, 2, filtering=1) + whole[idat:]
    yield "interlace_2", SIGNATURE + header(width, height, 8, 2, interlace=2) + whole[idat:]
    yield "no_palette", png(index, 4, 3)
    yield "short_palette", png(index, 4, 3, before=chunk(b"PLTE", palette[:15]))  # indices reach beyond
    yield "uneven_palette", png(index, 4, 3, before=chunk(b"PLTE", palette[:47]))
    yield "empty_palette", png(index, 4, 3, before=chunk(b"PLTE", b""))
    yield "long_palette", png(index, 4, 3, before=chunk(b"PLTE", palette[:60]))
    yield "palette_after", SIGNATURE + header(width, height, 4, 3) + png(index, 4, 3)[33:-12] + entries + iend
    yield "no_ihdr", SIGNATURE + whole[idat:]
    yield "twice_ihdr", whole[:33] + whole[8:]
    yield "signature_only", SIGNATURE
    yield "ihdr_only", whole[:33]
    yield "huge_chunk", whole[:33] + struct.pack(">I", 0x7FFFFFF0) + b"tEXt" + bytes(100)
    yield "rgba_few_pixels_as.jpg", png(samples_of(9, 7, 4, 8), 8, 6)  # content decides, not the name


def others():
    """Neither JPEG nor PNG."""
    small = Image.fromarray(photo(8, 6))
    for kind, name in {"GIF": "gif", "WEBP": "webp", "BMP": "bmp", "TIFF": "tiff", "PPM": "ppm", "ICO": "ico",
                       "JPEG2000": "jp2", "AVIF": "avif"}.items():
        buffer = io.BytesIO()
        small.save(buffer, kind)
        yield f"other.{name}", buffer.getvalue()


# --- what Pillow makes of them ----------------------------------------------------------------------------------------
def decoded(data):
    """Pixels or the words of the error."""
    try:
        with Image.open(io.BytesIO(data), formats=["JPEG", "PNG"]) as picture:
            picture.load()
            return np.ascontiguousarray(np.asarray(picture.convert("RGB")))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).split(' <_io')[0]}"


def damages(files):
    rng = np.random.default_rng(3)
    cuts = {"420.jpg": 40, "progressive.jpg": 40, "restarts.jpg": 20, "cmyk.jpg": 20, "rgb_8.png": 40,
            "palette_4_interlaced.png": 20, "pieces.png": 20}
    flips = {"420.jpg": 80, "444.jpg": 30, "grey.jpg": 30, "progressive.jpg": 80, "restarts.jpg": 40, "cmyk.jpg": 20,
             "440.jpg": 20, "rgb_8.png": 80, "rgb_16.png": 20, "palette_4_interlaced.png": 40, "iccp.png": 40,
             "grey_1.png": 20}
    for name, count in cuts.items():
        for cut in sorted({1, 3, len(files[name]) - 1} | set(rng.integers(1, len(files[name]), count).tolist())):
            yield name, {"cut": cut}, files[name][:cut]
    for name, count in flips.items():
        data = files[name]
        # Half of them in a JPEG's scan, after the last marker's header; the rest anywhere.
        scan = data.rindex(b"\xff\xda") + 14 if name.endswith("jpg") else data.index(b"IDAT") + 4
        for number in range(count):
            mutated, changes = bytearray(data), []
            for _ in range(int(rng.integers(1, 4))):
                at, xor = int(rng.integers(scan if number % 2 else 0, len(data))), 1 << int(rng.integers(0, 8))
                mutated[at] ^= xor
                changes.append([at, xor])
            yield name, {"flip": changes}, bytes(mutated)


# --- views ------------------------------------------------------------------------------------------------------------
MODES = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}
PIL_MODES = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
SOURCES = {"view_landscape.jpg": (150, 100), "view_portrait.png": (61, 97), "view_tiny.png": (5, 7),
           "view_column.png": (1, 30), "view_row.png": (30, 1), "view_wide.png": (500, 3), "view_square.png": (64, 64),
           "view_dot.png": (1, 1)}
RESIZES = {"view_landscape.jpg": [(40, 27), (75, 30), (33, 60), (1, 1), (21, 120)],
           "view_portrait.png": [(32, 32), (61, 30), (70, 50), (7, 5)], "view_tiny.png": [(40, 40), (3, 11), (1, 1)],
           "view_column.png": [(1, 7), (10, 10)], "view_row.png": [(7, 1), (10, 10)],
           "view_wide.png": [(50, 50), (40, 1), (3, 500)], "view_square.png": [(63, 65), (32, 32)],
           "view_dot.png": [(1, 1), (9, 4)]}
EVALS = {"view_landscape.jpg": [(32, 0.875), (48, 1.0), (40, 0.9), (56, 0.95), (33, 0.875), (24, 1.25)],
         "view_portrait.png": [(32, 0.875), (48, 1.0), (33, 0.9), (24, 1.25), (25, 1.6)],
         "view_tiny.png": [(32, 0.875), (16, 1.0), (17, 1.3)],
         "view_column.png": [(16, 0.875), (16, 1.0)], "view_row.png": [(16, 0.875)],
         "view_wide.png": [(16, 0.875), (16, 1.0), (15, 0.96), (16, 1.25)],
         "view_square.png": [(32, 0.875), (64, 1.0), (56, 0.875), (33, 1.0), (40, 1.5)], "view_dot.png": [(8, 0.875)]}


def views(files):
    result = {}
    for name, sizes in RESIZES.items():
        picture = Image.open(io.BytesIO(files[name])).convert("RGB")
        for mode, resampling in PIL_MODES.items():
            for size in sizes:
                key = f"resize/{name}/{mode}/{size[0]}x{size[1]}"
                result[key] = np.array(picture.resize(size, resampling))
                rows_first = np.array(picture.resize((size[0], picture.height), resampling).resize(size, resampling))
                if (rows_first != result[key]).any():
                    result[f"rows_first/{key}"] = rows_first
    for name, options in EVALS.items():
        picture = Image.open(io.BytesIO(files[name])).convert("RGB")
        for mode, interpolation in MODES.items():
            for size, crop_pct in options:
                resized = Resize(int(size / crop_pct), interpolation)(picture)
                result[f"eval/{name}/{mode}/{size}/{crop_pct}"] = np.array(CenterCrop(size)(resized))
    return result


DRAWS = 20_000


def crops():
    torch.manual_seed(0)
    usual = [0.08, 1.0], [3 / 4, 4 / 3]
    deciles = torch.arange(1, 10, dtype=torch.float64) / 10
    for width, height, scale, ratio in [(500, 375, *usual), (224, 224, *usual), (120, 400, *usual), (700, 200, *usual),
                                        (64, 48, [0.5, 0.9], [0.5, 2.0]), (500, 3, *usual), (3, 500, *usual),
                                        (1, 9, *usual), (1000, 7, [0.3, 1.0], [0.9, 1.2]),
                                        (7, 1001, [0.5, 0.5], [1, 1]), (501, 100, [0.9, 1.0], [3 / 4, 4 / 3]),
                                        (1, 1, *usual)]:
        case = {"width": width, "height": height, "scale": scale, "ratio": ratio}
        picture = Image.new("L", (width, height))
        drawn = [RandomResizedCrop.get_params(picture, scale, ratio) for _ in range(DRAWS)]
        top, left, h, w = torch.tensor(drawn, dtype=torch.float64).unbind(1)
        if len(set(drawn)) == 1:
            case["box"] = [int(value[0]) for value in (left, top, w, h)]
        else:
            values = {"area": w * h / (width * height), "log_ratio": (w / h).log(), "left": left / width,
                      "top": top / height}
            for name, value in values.items():
                case[name] = {"mean": round(value.mean().item(), 5), "std": round(value.std().item(), 5),
                              "deciles": [round(q, 5) for q in value.quantile(deciles).tolist()]}
        yield case


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=HERE / "images")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.jpg": data for name, data in jpegs()}
    files |= {name if "." in name else f"{name}.png": data for name, data in pngs()}
    files |= dict(others())
    for name, size in SOURCES.items():
        buffer = io.BytesIO()
        Image.fromarray(photo(*size)).save(buffer, **{"format": "JPEG", "quality": 90} if name.endswith("jpg")
                                           else {"format": "PNG", "optimize": True})
        files[name] = buffer.getvalue()
    for name, data in larger():
        (output / name).write_bytes(data)
    pixels, refused = {}, {}
    for name, data in files.items():
        (output / name).write_bytes(data)
        outcome = decoded(data)
        if isinstance(outcome, str):
            refused[name] = outcome
        else:
            pixels[name] = outcome
    damaged = []
    for name, change, data in damages(files):
        outcome = decoded(data)
        crc = None if isinstance(outcome, str) else zlib.crc32(outcome.tobytes())
        damaged.append({"of": name, **change, "crc": crc})
    (output / "pixels.safetensors").write_bytes(save(pixels))
    (output / "views.safetensors").write_bytes(save(views(files)))
    cases = {"refused": refused, "damaged": damaged, "crops": list(crops())}
    text = json.dumps(cases, separators=(",", ":"))
    for start in ('{"of"', '{"width"', '"damaged"', '"crops"'):
        text = text.replace(f",{start}", f",\n{start}")
    (output / "cases.json").write_text(text + "\n")
    print(f"{len(pixels)} images, {len(refused)} refused, {len(damaged)} damaged "
          f"({sum(case['crc'] is None for case in damaged)} refused), by libjpeg-turbo "
          f"{features.version('libjpeg_turbo')}")


if __name__ == "__main__":
    main()
