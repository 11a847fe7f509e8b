"""What tpgm writes, read by those it is written for: PyTorch, safetensors and transformers.

    pip install torch transformers safetensors numpy xxhash && python check_written.py path/to/tpgm

Makes real checkpoints in a temporary folder, runs tpgm convert, wise and inspect on them, and compares: conversions bit
for bit, merges with torch's arithmetic, hashes with xxhash's. Prints a line per check; exits with 1 if one fails.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import transformers
import xxhash
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

warnings.filterwarnings("ignore")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
COMMAND = ""
FAILED = []


def tpgm(*arguments):
    result = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"tpgm {' '.join(map(str, arguments))}: {result.stderr}")
    return result.stdout


def check(what, true, detail=""):
    print(f"{'ok  ' if true else 'FAIL'} {what} {'' if true else detail}")
    if not true:
        FAILED.append(what)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def differing(actual, expected):
    """Names whose type, shape or bits differ."""
    return sorted(actual.keys() ^ expected.keys()) + [
        name
        for name in actual.keys() & expected.keys()
        if actual[name].dtype != expected[name].dtype
        or actual[name].shape != expected[name].shape
        or not torch.equal(bits(actual[name]), bits(expected[name]))
    ]


def check_same(what, actual, expected):
    wrong = differing(actual, expected)
    check(what, not wrong, f"differ: {wrong[:5]}")


def metadata_of(path):
    with safe_open(path, "pt") as file:
        return file.metadata()


def check_metadata(what, path, inputs):
    """The format Hugging Face asks for; name, size and hash of every input file."""
    metadata = metadata_of(path)
    check(f"{what}: format", metadata["format"] == "pt")
    recorded = json.loads(metadata["tpgm.inputs"])
    check(f"{what}: names of inputs", [each["name"] for each in recorded] == [Path(each).name for each in inputs])
    for each, source in zip(recorded, inputs):
        folder = source if source.is_dir() else source.parent
        for file in each["files"]:
            data = (folder / file["file"]).read_bytes()
            check(f"{what}: size of {file['file']}", file["bytes"] == len(data))
            digest = "xxh3-128:" + xxhash.xxh3_128_hexdigest(data)
            check(f"{what}: hash of {file['file']}", file["hash"] == digest, f"{file['hash']}, expected {digest}")
    check(f"{what}: no paths", str(inputs[0].parent) not in json.dumps(metadata))
    return metadata


def merged(pretrained, finetuned, ratio):
    """One rounding of θ₀ + ratio (θ − θ₀), which is taken in double."""
    return {
        name: (
            pretrained[name].double() + ratio * (tensor.double() - pretrained[name].double())
            if tensor.is_floating_point()
            else tensor
        )
        for name, tensor in finetuned.items()
    }


def check_merged(what, path, pretrained, finetuned, ratio):
    actual, expected = load_file(path), merged(pretrained, finetuned, ratio)
    wrong = sorted(actual.keys() ^ expected.keys())
    for name, tensor in finetuned.items():
        if name not in actual or actual[name].dtype != tensor.dtype or actual[name].shape != tensor.shape:
            wrong.append(name)
        elif not tensor.is_floating_point():
            wrong += [] if torch.equal(actual[name], tensor) else [name]
        else:
            info, size = torch.finfo(tensor.dtype), expected[name].abs()
            delta = (tensor.double() - pretrained[name].double()).abs()
            # Half a step of the type, which is computed in fp32: the ratio, the difference and the product.
            allowed = info.eps / 2 * torch.clamp(size, min=info.smallest_normal) + 2**-24 * (
                size + 3 * abs(ratio) * delta
            )
            wrong += [] if ((actual[name].double() - expected[name]).abs() <= allowed).all() else [name]
    check(what, not wrong, f"differ: {wrong[:5]}")


def moved(state, seed):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (
            (tensor.double() + 0.05 * torch.randn(tensor.shape, generator=generator, dtype=torch.double)).to(
                tensor.dtype
            )
            if tensor.is_floating_point()
            else tensor + 3
        )
        for name, tensor in state.items()
    }


def check_pytorch(folder):
    """Files of torch.save and torch.jit.save, plain, nested, old and strided."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 300)).eval()
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    tuned = moved(state, 1)
    torch.save(state, folder / "new.pt")
    torch.save(state, folder / "old.pth", _use_new_zipfile_serialization=False)
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{name}": each for name, each in state.items()}}, folder / "ddp.ckpt"
    )
    torch.jit.script(model).save(folder / "script.pt")
    torch.save(
        {name: each.t().contiguous().t() if each.dim() == 2 else each for name, each in state.items()},
        folder / "strided.pt",
    )
    torch.save(tuned, folder / "tuned.pt")
    for name in ["new.pt", "old.pth", "ddp.ckpt", "script.pt", "strided.pt"]:
        out = folder / "converted.safetensors"
        tpgm("convert", folder / name, "-o", out)
        check_same(f"convert {name}", load_file(out), state)
        check_metadata(f"convert {name}", out, [folder / name])
        tpgm("wise", folder / name, folder / "tuned.pt", "-o", folder / "half.safetensors")
        check_merged(f"wise {name}", folder / "half.safetensors", state, tuned, 0.5)
    for dtype in ["float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]:
        try:
            tpgm("convert", folder / "new.pt", "-o", folder / "cast.safetensors", "--dtype", dtype)
        except RuntimeError as error:
            check(f"convert --dtype {dtype}", False, error)
            continue
        expected = {
            n: each.to(getattr(torch, dtype)) if each.is_floating_point() else each for n, each in state.items()
        }
        check_same(f"convert --dtype {dtype}", load_file(folder / "cast.safetensors"), expected)

    tpgm(
        "wise",
        folder / "new.pt",
        folder / "tuned.pt",
        "-o",
        folder / "sweep",
        "--ratio",
        "0:1:0.25",
        "--exclude",
        "3.*",
    )
    for ratio in [0, 0.25, 0.5, 0.75, 1]:
        out = folder / "sweep" / f"wise-{ratio}.safetensors"
        check_merged(
            f"sweep {ratio}", out, state | {n: each for n, each in tuned.items() if n.startswith("3.")}, tuned, ratio
        )
        metadata = check_metadata(f"sweep {ratio}", out, [folder / "new.pt", folder / "tuned.pt"])
        check(f"sweep {ratio}: ratio", float(metadata["tpgm.ratio"]) == ratio)
    check_same("sweep 1 is FT bit for bit", load_file(folder / "sweep" / "wise-1.safetensors"), tuned)

    tpgm("wise", folder / "half.safetensors", folder / "tuned.pt", "-o", folder / "again.safetensors")
    metadata = check_metadata("chain", folder / "again.safetensors", [folder / "half.safetensors", folder / "tuned.pt"])
    made_by = json.loads(metadata["tpgm.inputs"])[0].get("made_by")
    check("chain: made_by", made_by == metadata_of(folder / "half.safetensors")["tpgm.command"], made_by)
    model.load_state_dict(load_file(folder / "again.safetensors"))
    check("a module takes the merge", True)


def check_types(folder):
    """Every type, by safetensors' own writer; PRE in one precision, FT in another."""
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(257, 33, generator=generator, dtype=torch.double)
    floats = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
    pre = {str(each): values.to(each) for each in floats} | {
        "complex": torch.complex(values, -values).to(torch.complex64)
    }
    ft = {
        name: (
            (each.to(torch.complex128) * 1.25).to(each.dtype)
            if each.is_complex()
            else (each.double() * 1.25).to(each.dtype)
        )
        for name, each in pre.items()
    }
    save_file(pre, folder / "pre.safetensors")
    save_file(ft, folder / "ft.safetensors", {"license": "MIT"})
    tpgm(
        "wise",
        folder / "pre.safetensors",
        folder / "ft.safetensors",
        "-o",
        folder / "out.safetensors",
        "--ratio",
        "0.3",
    )
    split = lambda state: {n: torch.view_as_real(each) if each.is_complex() else each for n, each in state.items()}
    actual = split(load_file(folder / "out.safetensors"))
    save_file({n: each.contiguous() for n, each in actual.items()}, folder / "split.safetensors")
    check_merged("wise of every type", folder / "split.safetensors", split(pre), split(ft), 0.3)
    check("metadata of FT are kept", metadata_of(folder / "out.safetensors")["license"] == "MIT")
    for wide, narrow in [
        (torch.float16, torch.float32),
        (torch.float32, torch.float16),
        (torch.float32, torch.bfloat16),
    ]:
        mixed = {"w": values.to(wide)}, {"w": (values * 1.25).to(narrow)}
        save_file(mixed[0], folder / "a.safetensors")
        save_file(mixed[1], folder / "b.safetensors")
        tpgm(
            "wise", folder / "a.safetensors", folder / "b.safetensors", "-o", folder / "c.safetensors", "--ratio", "0.3"
        )
        check_merged(f"wise of {wide} and {narrow}", folder / "c.safetensors", *mixed, 0.3)


def check_hugging_face(folder):
    """save_pretrained in, from_pretrained out: one file and shards, safetensors and pickles."""
    torch.manual_seed(3)
    config = transformers.BertConfig(
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=96,
        vocab_size=500,
        max_position_embeddings=64,
    )
    model = transformers.BertForSequenceClassification(config).eval()
    tuned = transformers.BertForSequenceClassification(config).eval()
    tuned.load_state_dict({name: each for name, each in moved(model.state_dict(), 4).items()})
    model.save_pretrained(folder / "single")
    model.save_pretrained(folder / "sharded", max_shard_size="100KB")
    tuned.save_pretrained(folder / "tuned", max_shard_size="70KB")
    check("the model is in shards", (folder / "sharded" / "model.safetensors.index.json").exists())
    state, tuned_state = load_file(folder / "single" / "model.safetensors"), dict(tuned.state_dict())
    text = torch.arange(20).reshape(2, 10)

    def loads(what, where, expected):
        shutil.copy(folder / "single" / "config.json", where)
        loaded, report = transformers.BertForSequenceClassification.from_pretrained(where, output_loading_info=True)
        problems = {key: each for key, each in report.items() if each}
        check(f"{what}: nothing is missing", not problems, problems)
        check_same(f"{what}: from_pretrained", dict(loaded.state_dict()), expected)
        return loaded

    with torch.no_grad():
        expected = model(text).logits
        for source in ["single", "sharded"]:
            for name, options in {"one": [], "shards": ["--shard-size", "90KB"]}.items():
                out = folder / f"{source}-{name}"
                tpgm("convert", folder / source, "-o", f"{out}/", *options)
                loaded = loads(f"convert {source} to {name}", out, dict(model.state_dict()))
                check(
                    f"convert {source} to {name}: the same answers", torch.equal(loaded.eval()(text).logits, expected)
                )
        index = json.loads((folder / "sharded-shards" / "model.safetensors.index.json").read_text())
        check("total_size", index["metadata"]["total_size"] == sum(each.nbytes for each in state.values()))
        for shard in set(index["weight_map"].values()):
            check_metadata(f"shard {shard}", folder / "sharded-shards" / shard, [folder / "sharded"])
            size = sum(each.nbytes for each in load_file(folder / "sharded-shards" / shard).values())
            tensors = list(index["weight_map"].values()).count(shard)
            check(f"shard {shard}: size", size <= 90_000 or tensors == 1, size)

        tpgm(
            "wise",
            folder / "sharded",
            folder / "tuned",
            "-o",
            f"{folder / 'merged'}/",
            "--shard-size",
            "120KB",
            "--ratio",
            "0.3",
        )
        merged_state = {
            name: tensor
            for shard in (folder / "merged").glob("*.safetensors")
            for name, tensor in load_file(shard).items()
        }
        save_file(merged_state, folder / "all.safetensors")
        check_merged("wise of shards", folder / "all.safetensors", state, tuned_state, 0.3)
        loads("wise of shards", folder / "merged", merged_state)

    torch.save(dict(model.state_dict()), folder / "pytorch_model.bin")
    tpgm("convert", folder / "pytorch_model.bin", "-o", f"{folder / 'from-bin'}/")
    loads("convert pytorch_model.bin", folder / "from-bin", dict(model.state_dict()))

    result = json.loads(tpgm("inspect", folder / "sharded", folder / "tuned", "--json"))
    wrong = []
    for each in result["tensors"]:
        a, b = state[each["name"]].double(), tuned_state[each["name"]].double()
        delta = (b - a).abs()
        mars = delta.sum() if delta.dim() < 2 else delta.flatten(1).sum(1).max()
        expected = {
            "l2": delta.norm(),
            "mars": mars,
            "relative": delta.norm() / a.norm() if delta.norm() > 0 else 0,
            "cosine": torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0),
        }
        for key, value in expected.items():
            value = float(value)
            if each[key] is None and key == "cosine" and (a.norm() == 0 or b.norm() == 0):
                continue
            if each[key] is None and key == "relative" and a.norm() == 0:
                continue
            if each[key] is None or abs(each[key] - value) > 1e-9 * max(1, abs(value)):
                wrong.append((each["name"], key, each[key], value))
    check("inspect of two", not wrong and len(result["tensors"]) == len(state), wrong[:3])
    one = json.loads(tpgm("inspect", folder / "sharded", "--json"))
    check(
        "inspect of one",
        {each["name"]: each["shape"] for each in one["tensors"]} == {n: list(t.shape) for n, t in state.items()},
    )


def main():
    with tempfile.TemporaryDirectory() as name:
        for each in [check_pytorch, check_types, check_hugging_face]:
            folder = Path(name) / each.__name__
            folder.mkdir()
            try:
                each(folder)
            except Exception as error:  # the other checks shall run, too
                check(each.__name__, False, repr(error))
    print(f"{len(FAILED)} failed" if FAILED else "all ok")
    return 1 if FAILED else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    COMMAND = str(Path(sys.argv[1]).resolve())
    sys.exit(main())
