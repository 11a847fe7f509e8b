#!/usr/bin/env python3
"""make_seeds.py FOLDER: writes seeds for the fuzz targets, parts of the goldens and files made by hand, into FOLDER/TARGET

The goldens themselves are seeds as well (see run); they are not copied.
"""
import gzip
import io
import json
import pickletools
import struct
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

HERE = Path(__file__).parent
GOLDENS = HERE.parent / "io" / "goldens"
OUTPUT = Path(sys.argv[1])
LARGEST = 1500  # bytes: libFuzzer mutates small seeds better, and large ones bring no new opcodes


def write(target, name, data):
    path = OUTPUT / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def after_pickles(data, count):
    """What follows the first `count` pickles."""
    for _ in range(count):
        end = next(at for opcode, _, at in pickletools.genops(data) if opcode.name == "STOP")
        data = data[end + 1:]
    return data


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def zip64(name, data):
    """One stored record whose sizes and offset stand in zip64 fields."""
    beyond = 0xFFFFFFFF
    crc = zlib.crc32(data)
    local = struct.pack("<IHHHIIIIHH", 0x04034B50, 45, 0, 0, 0, crc, beyond, beyond, len(name), 20)
    local += name + struct.pack("<HHQQ", 1, 16, len(data), len(data)) + data
    central = struct.pack("<IHHHHIIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, crc, beyond, beyond, len(name),
                          28, 0, 0, 0, 0, beyond)
    central += name + struct.pack("<HHQQQ", 1, 24, len(data), len(data), 0)
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, len(central), len(local))
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(local) + len(central), 1)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, beyond, beyond, 0)
    return local + central + end64 + locator + end


def parts_of_goldens():
    for path in sorted((GOLDENS / "torch").glob("*.pt")):
        data = path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
                pickle = archive.read(name)
                script = any(each.endswith("/constants.pkl") for each in archive.namelist())
            if len(pickle) <= LARGEST:
                write("pickle", path.stem, pickle)
                write("torch_archive", path.stem, bytes([script]) + pickle)
        elif path.stem.startswith("legacy_") and len(data) <= LARGEST:
            write("torch_archive", path.stem, b"\2" + after_pickles(data, 3))


def hand_made():
    tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    bools = {"dtype": "BOOL", "shape": [2], "data_offsets": [8, 10], "extra": [{}]}
    header = {"__metadata__": {"a": "b"}, "x": tensor, "y": bools}
    write("safetensors", "metadata", safetensors(header, bytes(10)))
    header = (b'{"u\\u00e9\\ud83d\\ude00":{"shape":[],"dtype":"F8_E4M3","data_offsets":[0,1]},'
              b'"z":{"shape":[0,3],"dtype":"C64","data_offsets":[1,1]}}   ')
    write("safetensors", "odd", safetensors(header, b"\1"))
    write("shard_index", "two", b'{"metadata":{"total_size":1e3,"n":[null,true,-1]},'
                                b'"weight_map":{"a.b":"m-1.safetensors","c":"m-2.safetensors"}}')
    write("shard_index", "outside", b'{"weight_map":{"a":"../m"}}')
    write("zip", "zip64", zip64(b"a/data.pkl", b"\x80\x02}."))
    deflated = io.BytesIO()
    with zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"comment"
        for name, text in {"a/code/__torch__.py": "class M(Module):\n" * 8, "a/version": "3\n"}.items():
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    write("zip", "deflated", deflated.getvalue())
    # Every kind of opcode that no golden has: text ones, big integers, sets, OBJ and INST, NEWOBJ_EX.
    write("pickle", "text", b"(lp0\nI01\naL-5L\naF1.5\naS'a'\nag0\na(dp1\nVk\nVv\ns.")
    write("pickle", "odd", b"\x80\x05\x8f(\x8a\x02\xff\xff\x8b\x09\0\0\0" b"123456789\x90"
                           b"N\x89C\x01x\x87B\x01\0\0\0y(ctypes\nSimpleNamespace\no}\x8c\x01kK\x01sb"
                           b"(ipathlib\nPath\n\x8c\x08builtins\x8c\x03int\x93)}\x92\x942000(1.")
    storage = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x10tQ"
    view = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x01(K\x02K\x03t(K\x06K\x02t\x89}tR"
    longest = b"\x8a\x08" + struct.pack("<q", 2**63 - 1)  # as a stride of a size of 1, where it means nothing
    repeated = (b"ctorch._utils\n_rebuild_tensor_v3\n(" + storage + b"K\0(K\x04K\x01t(K\0" + longest +
                b"t\x89}ctorch\nint16\ntR")
    state = b"\x80\x02}(X\x05\0\0\0model}(U\x01w" + view + b"U\x01r" + repeated + b"uU\x01eK\x07u."
    write("torch_archive", "views", b"\0" + state)
    module = b"c__torch__\nM\n)\x81}(U\x01w" + view + b"U\x01cc__torch__.m\nL\n)\x81}(U\x01dh\0ubub"
    inner = b"c__torch__.m\nM\n)\x81}U\x01b" + view + b"sbq\x000"
    write("torch_archive", "script", b"\1\x80\x02" + inner + module + b".")
    write("torch_archive", "stream", b"\2" + state + b"\x80\x02]U\x010a." + struct.pack("<Q", 16) + bytes(64))


def vocabularies():
    """The least that each kind of file must have: tokens 'a' and 'b', one merge."""
    tokens = ["a", "b", "a</w>", "b</w>", "ab</w>", "<|startoftext|>", "<|endoftext|>"]
    vocab = {token: i for i, token in enumerate(tokens)}
    words = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Removed", "invert": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    space = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
    tokenizer = {
        "added_tokens": [{"id": 6, "content": tokens[6], "single_word": False, "normalized": False},
                         {"id": 7, "content": "Ab é", "normalized": True}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, space, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "decoder": {"x": [1.5, None]},
        "model": {"type": "BPE", "dropout": None, "end_of_word_suffix": "</w>", "vocab": vocab,
                  "merges": [["a", "b</w>"]]},
    }
    compact = json.dumps(tokenizer, separators=(",", ":"))
    write("vocabulary", "tokenizer", compact.encode())
    write("vocabulary", "merges_as_text", compact.replace('["a","b</w>"]', '"a b</w>"').encode())
    write("vocabulary", "vocab", json.dumps(vocab).encode())
    write("vocabulary", "vocab_and_merges", json.dumps(vocab).encode() + b"\0#version: 0.2\na b</w>\n")
    write("vocabulary", "list", b"title\na b</w>\r\na b\nab a</w>\n")
    for name, data in {"packed": compact.encode(), "packed_list": b"title\na b</w>\n"}.items():
        write("vocabulary", name, gzip.compress(data, mtime=0))


def configs():
    vision = {"image_size": 32, "num_channels": 3, "patch_size": 8, "hidden_size": 64, "num_hidden_layers": 2,
              "num_attention_heads": 4, "intermediate_size": 128, "layer_norm_eps": 1e-5, "hidden_act": "gelu"}
    text = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
            "vocab_size": 99, "max_position_embeddings": 16, "eos_token_id": 2}
    both = {"model_type": "clip", "vision_config": vision, "text_config": text}
    write("config_json", "clip", json.dumps(both).encode())
    write("config_json", "vision", json.dumps({"model_type": "clip_vision_model", **vision}).encode())
    vision = {"image_size": 32, "layers": 2, "width": 64, "head_width": 16, "patch_size": 8}
    text = {"context_length": 16, "vocab_size": 99, "width": 64, "heads": 4, "layers": 2}
    model = {"embed_dim": 32, "quick_gelu": True, "vision_cfg": vision, "text_cfg": text}
    third = [0.5, 0.5, 0.5]
    images = {"mean": third, "std": third, "interpolation": "bicubic"}
    squash = images | {"size": [32, 32], "resize_mode": "squash"}
    write("config_json", "open_clip", json.dumps({"model_cfg": model, "preprocess_cfg": squash}).encode())
    timm = images | {"crop_pct": 0.9, "crop_mode": "center", "input_size": [3, 32, 32]}
    write("config_json", "timm", json.dumps({"architecture": "vit", "pretrained_cfg": timm}).encode())
    processor = {"do_resize": True, "size": {"shortest_edge": 36}, "resample": 3, "do_center_crop": True,
                 "crop_size": {"height": 32, "width": 32}, "do_rescale": True, "rescale_factor": 1 / 255,
                 "do_normalize": True, "image_mean": third, "image_std": third}
    write("config_json", "processor", json.dumps(processor).encode())
    write("config_json", "processors", json.dumps({"image_processor": processor}).encode())


def tar(layout, files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=layout) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    data = out.getvalue().rstrip(b"\0")
    return data + bytes(-len(data) % 512 + 512)


def tars():
    labelled = {"train/0.jpg": b"p", "train/0.cls": b"3\n", "./1.PNG": b"",
                "./1.json": b'{"label": "a", "cls": [1]}'}
    write("tar", "labelled", tar(tarfile.USTAR_FORMAT, labelled))
    long = "folder/" * 20 + "x.jpeg"
    write("tar", "gnu", tar(tarfile.GNU_FORMAT, {long: b"p"}))
    write("tar", "pax", tar(tarfile.PAX_FORMAT, {long: b"p"}))
    sized = bytearray(tar(tarfile.USTAR_FORMAT, {"x": b"10 size=1\n", "a.jpg": b"p"}))
    sized[156:157] = b"x"
    sized[1024 + 124:1024 + 136] = b"\x80" + bytes(11)
    write("tar", "sizes", bytes(sized))


def recipes():
    write("toml", "recipe", b'# a recipe\nbase = "common.toml"\nlr = 1e-3  # a number\ntest = [\n  "a", \'b\',\n]\namp = true\n')
    write("toml", "escapes", b'data-dir = "a\\"b\\\\c#d\\n"\r\ntest = []\n')
    write("toml", "section", b"[optim]\nlr = 1\n")


def image_lists():
    write("image_list", "folders", b"real/cat/1 2.jpg 0\nreal/dog/1.jpg 2\r\n\n\t/a/cat/2.jpg\t0  \n")
    write("image_list", "numbers", b"1.jpg 0\n./2.jpg 2000")
    write("image_list", "wrong", b"a/1.jpg 0\na/2.jpg -1\n")


def run_folders():
    old = HERE.parent / "study" / "run-0.1.0"
    test = {"name": "sketch", "id": False, "pictures": 40, "skipped_pictures": 0, "scored_classes": 5, "top1": 82.5}
    result = {"tests": [test, test | {"name": "real", "id": True, "top1": None}], "selection": 90.0, "seconds": 12.5,
              "weights": "xxh128:0123456789abcdef"}
    write("run_record", "result", json.dumps(result, indent=2).encode())
    radii = {"names": ["a.weight", "b.bias"], "steps": [1, 2, 2], "radii": [[0.1, 0], [0.2, 1e-3], [0.3, 2]],
             "ratios": [[], [1, None], [0.5, 0.5]], "radius_steps": [None, None, 4]}
    write("run_record", "radii", json.dumps(radii).encode())
    environment = {"command": "tpgm train", "version": "0.1.0", "libtorch": "2.13.0", "device": "cpu", "threads": 2,
                   "host": "h", "started": "2026-01-01T00:00:00Z"}
    write("run_record", "environment", json.dumps(environment).encode())
    write("run_record", "summary", b"epoch,lr,train_loss,selection_accuracy\n1,0.1,2.5,\n2,0.1,nan,80.5\n")
    write("run_record", "nested", b'{"tests":[],"names":[],"radii":[],"ratios":[],"steps":[],"radius_steps":' +
          b"[" * 40 + b"]" * 40 + b"}")
    for path in sorted(old.rglob("*")):
        if path.suffix in (".json", ".csv") and path.stat().st_size <= 1 << 14:
            write("run_record", "old-" + "-".join(path.relative_to(old).parts), path.read_bytes())
    state = {"step": 120, "data": "0123", "epochs_done": 1, "best_epoch": 1, "best": 80.5, "radius_batches": 3,
             "skipped": 0, "epoch_loss": 0.5, "epoch_right": 3, "epoch_images": 4, "window_loss": 0.5, "window_right": 3,
             "window_images": 4, "seconds": 1.5}
    write("run_state", "state", json.dumps(state).encode())
    write("run_state", "large", json.dumps(state | {"epochs_done": 2**63 - 1, "step": -1}).encode())


def tables_and_lists():
    write("paper_csv", "table", b"# a table\nrow,recipe,real=Real,sketch\nFT,ft,80.93 (0.08),\n"
                                b'"TPGM, l2","tpgm:mu=0.1,norm=l2", 1e1 ,4\r\n')
    write("class_names", "lines", b"\xef\xbb\xbftabby cat\ndog \r\n\n")
    write("class_names", "list", b'["tabby cat", "dog"]')
    write("class_names", "index", b'{"0": ["n01440764", "tench"], "10": "brambling", "2": "shark"}')
    write("class_names", "templates", b"a photo of a {}.\n\n{} and {}\n")
    write("metadata", "classes", b'["cat", "d\\u00f6g"]')
    write("metadata", "view", b'{"mean":[0.5],"std":[0.2,0.2,0.2],"crop_pct":0.9,"interpolation":"bicubic"}')
    write("metadata", "ratio", b"0.5")
    write("metadata", "nested", b'{"mean":' + b"[" * 40 + b"]" * 40 + b"}")
    write("braces", "range", b"a-{008..12}-{b,,c}.tar")
    write("braces", "wide", b"{0000000000..3}{1..")
    for i, text in enumerate(["1.5e-3,inf", "-7", "auto", "4GiB", "true", "layer*.[0-9].w?ight\nlayer1.10.weight",
                              "wieght-decay", "encoder_layer_3.mlp\nencoder_layer_12.mlp"]):
        write("values", str(i), text.encode())


parts_of_goldens()
hand_made()
run_folders()
tables_and_lists()
vocabularies()
configs()
tars()
image_lists()
recipes()
