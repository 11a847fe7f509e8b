"""Writes torch/: checkpoints by PyTorch and transformers, and what PyTorch reads from them as *.expected.safetensors.

    pip install torch transformers safetensors numpy && python make_torch_goldens.py

The values are the same at every run; so are the bytes, but for legacy files, whose storages are named by addresses,
and TorchScript. refused_* must not be read, and say why; all others have an expected file, or share one.
"""

import argparse
import collections
import io
import json
import os
import pickle
import shutil
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).parent / "torch"
warnings.filterwarnings("ignore")


def expect(name, tensors):
    out = {}
    for key, value in tensors.items():
        value = value.detach().resolve_conj().resolve_neg()
        if value.dtype == torch.complex128:  # safetensors has no name for it
            key, value = key + ".real", torch.view_as_real(value)
        out[key] = value.clone(memory_format=torch.contiguous_format)
    save_file(out, HERE / f"{name}.expected.safetensors")
    (HERE / f"{name}.expected.safetensors").chmod(0o644)


def save(name, obj, take=lambda loaded: loaded, **options):
    """torch.save; expected is what torch.load reads, or the part of it that `take` takes."""
    torch.save(obj, HERE / f"{name}.pt", **options)
    expect(name, take(torch.load(HERE / f"{name}.pt", weights_only=False, map_location="cpu")))


def save_both(name, obj, **options):
    save(f"zip_{name}", obj, **options)
    if isinstance(obj, dict):  # PyTorch writes the newer dtypes into legacy files, but cannot read them
        new = torch.storage._new_dtypes()
        for key in [key for key, value in obj.items() if isinstance(value, torch.Tensor) and value.dtype in new]:
            obj.pop(key)
    save(f"legacy_{name}", obj, _use_new_zipfile_serialization=False, **options)


def without(prefix):
    return lambda loaded: {key.replace(prefix, "", 1): value for key, value in loaded.items()}


def repack(source, target, method):
    with zipfile.ZipFile(HERE / f"{source}.pt") as old, zipfile.ZipFile(HERE / f"{target}.pt", "w", method) as new:
        for name in old.namelist():
            short = name.split("/", 1)[1]
            if short == "data.pkl" or short == "version" or short.startswith("data/"):
                new.writestr(zipfile.ZipInfo("archive/" + short), old.read(name), method)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 2)
        self.bn = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.head(self.bn(self.conv(x)).mean((2, 3))) * self.scale


def net(seed=0):
    torch.manual_seed(seed)
    model = Net()
    model(torch.randn(4, 2, 3, 3))  # so that BatchNorm's statistics are something
    return model


def state(prefix=""):
    return collections.OrderedDict((prefix + key, value) for key, value in net().state_dict().items())


# --- torch.save, as an archive and as the stream before 1.6 -----------------------------------------------------------
def make_plain():
    i = torch.arange(6).reshape(2, 3)
    dtypes = {str(t)[6:]: (i - 2).to(t) for t in [torch.int8, torch.int16, torch.int32, torch.int64]}
    dtypes |= {str(t)[6:]: (-1 - i).to(t) for t in [torch.uint8, torch.uint16, torch.uint32, torch.uint64]}
    dtypes |= {str(t)[6:]: (i / 2 - 1).to(t)
               for t in [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
                         torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]}
    dtypes |= {"bool": i % 2 == 0, "float8_e8m0fnu": torch.exp2(i.float()).to(torch.float8_e8m0fnu),
               "complex64": torch.complex(i.float(), i.float() - 2),
               "complex128": torch.complex(i.double(), i.double() - 2)}
    save_both("dtypes", dtypes)

    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    wide = torch.arange(10, dtype=torch.bfloat16)
    narrow = torch.arange(16).to(torch.uint16)  # an untyped storage: its offset is still in elements
    save_both("views", {"transposed": base.t(), "stepped": base[1:, 1:6:2], "expanded": base[1].expand(3, 6),
                        "column": base[:, 2], "scalar": base[2, 3], "base": base, "tied": base, "tail": wide[7:],
                        "middle": wide[2:6], "overlap": wide.as_strided((3, 4), (2, 1)), "uint16": narrow[3:9:2],
                        "channels_last": torch.arange(16.).reshape(1, 2, 2, 4).to(memory_format=torch.channels_last),
                        "bool": (base > 3).t()[1:3], "expanded.scalar": torch.tensor(2.5).expand(2, 2),
                        "permuted.empty": torch.zeros(0, 3).t(), "stride of one": base[:1].t()})
    save_both("shapes", {"scalar": torch.tensor(7), "scalar.bool": torch.tensor(True), "empty": torch.zeros(0),
                         "empty.first": torch.zeros(0, 3), "empty.last": torch.zeros(3, 0, dtype=torch.int64),
                         "empty.view": torch.ones(4)[4:], "empty.uint16": torch.zeros(0, dtype=torch.uint16),
                         "rank5": torch.arange(12.).reshape(1, 2, 1, 3, 2), "one": torch.ones(1)})
    save_both("module", net().state_dict())  # with _metadata
    save_both("parameters", dict(net().named_parameters()))

    tied = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    with torch.no_grad():
        for p in tied.parameters():
            p.copy_(torch.arange(p.numel(), dtype=p.dtype).reshape(p.shape))
    tied["b"].weight = tied["a"].weight
    save_both("tied", tied.state_dict())

    attributed = torch.ones(2)
    attributed.note = {"from": "python"}
    parameter = nn.Parameter(torch.arange(3.))
    parameter.note = ("python", 1, None)
    frozen = nn.Parameter(torch.arange(2), requires_grad=False)
    save_both("subclasses", {"attributed": attributed, "attributed.parameter": parameter, "frozen": frozen,
                             "buffer": nn.Buffer(torch.arange(4.)), "grad": torch.ones(2, requires_grad=True)})
    by_default = collections.defaultdict(list, {"w": torch.arange(2.)})
    save_both("defaultdict", by_default)
    save_both("names", {"δ/日本/🦊": torch.tensor([1]), "quote \" back\\slash": torch.tensor([2]),
                        "tab\tnew\nline\x01": torch.tensor([3]), "x" * 300: torch.tensor([4]), "": torch.tensor([5])})
    for protocol in [2, 3, 4, 5]:
        save_both(f"protocol{protocol}", {"state_dict": state(), "epoch": 1 << 40, "large": 1 << 70, "big": -5,
                                          "bytes": b"\x00\xff", "text": "é", "float": 0.1, "set": {1, 2},
                                          "flags": (True, False, None), "list": [[], {}, ()]},
                  take=lambda loaded: loaded["state_dict"], pickle_protocol=protocol)
    # 90 tensors: the memo goes beyond a byte; one storage, so that the file is small
    many = torch.arange(90, dtype=torch.uint8)
    save("zip_many", {f"{n}": many[n:n + 1] for n in range(90)})

    # as PyTorch 1.6 had it, and anybody who packs it again: no byteorder, nothing aligned
    repack("zip_module", "zip_repacked", zipfile.ZIP_STORED)
    expect("zip_repacked", torch.load(HERE / "zip_repacked.pt"))
    repack("zip_module", "refused_deflated", zipfile.ZIP_DEFLATED)

    tag = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: "cuda:0"
    save_both("cuda", state())
    torch.serialization.location_tag = tag


class StorageView:
    """Of a storage that is itself a view, which legacy files up to PyTorch 0.3 have."""

    def __init__(self, *view):
        self.view = view


class HandPickler(pickle.Pickler):
    def persistent_id(self, obj):
        return obj.view if isinstance(obj, StorageView) else None


class Rebuild:
    def __init__(self, *args):
        self.args = args

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, self.args


class RebuildOld(Rebuild):
    def __reduce__(self):
        return torch._utils._rebuild_tensor, self.args


class Python2Pickler(pickle._Pickler):
    """Strings of bytes, long integers, OrderedDict from a list: as in the files of torchvision's first models."""

    dispatch = pickle._Pickler.dispatch.copy()

    def persistent_id(self, obj):
        return obj.view if isinstance(obj, StorageView) else None

    def save_str(self, obj):
        data = obj.encode()
        self.write(pickle.SHORT_BINSTRING + bytes([len(data)]) + data)
        self.memoize(obj)

    def save_long(self, obj):
        data = pickle.encode_long(obj)
        self.write(pickle.LONG1 + bytes([len(data)]) + data)

    def save_ordered(self, obj):
        self.save_reduce(collections.OrderedDict, ([[key, value] for key, value in obj.items()],), obj=obj)

    dispatch[str] = save_str
    dispatch[int] = save_long
    dispatch[collections.OrderedDict] = save_ordered


def legacy_bytes(obj, storages, little=True, pickler=HandPickler):
    out = io.BytesIO()
    sizes = {"short": 2, "int": 4, "long": 4}
    for value in [torch.serialization.MAGIC_NUMBER, 1001,
                  {"protocol_version": 1001, "little_endian": little, "type_sizes": sizes}]:
        pickle.dump(value, out, protocol=2)
    pickler(out, protocol=2).dump(obj)
    pickle.dump(sorted(storages), out, protocol=2)
    for key in sorted(storages):
        numel, data = storages[key]
        out.write(numel.to_bytes(8, "little" if little else "big") + data)
    return out.getvalue()


def make_legacy_by_hand():
    hooks = collections.OrderedDict()
    data = np.arange(10, dtype=np.float32)

    def view(key, offset, size):
        return StorageView("storage", torch.FloatStorage, "100", "cpu", 10, (key, offset, size))

    (HERE / "legacy_storage_view.pt").write_bytes(legacy_bytes(
        {"whole": Rebuild(StorageView("storage", torch.FloatStorage, "100", "cpu", 10, None), 0, (10,), (1,), False,
                          hooks),
         "view": Rebuild(view("101", 4, 6), 1, (2, 2), (2, 1), False, hooks),
         "other": Rebuild(view("102", 2, 3), 0, (3,), (1,), False, hooks)}, {"100": (10, data.tobytes())}))
    expect("legacy_storage_view", torch.load(HERE / "legacy_storage_view.pt", weights_only=False))

    storage = StorageView("storage", torch.FloatStorage, "100", "cuda:1", 10, None)
    tensors = collections.OrderedDict([("module.a", RebuildOld(storage, 0, (2, 3), (3, 1))),
                                       ("module.b", Rebuild(storage, 6, (4,), (1,), False, hooks))])
    (HERE / "legacy_python2.pt").write_bytes(legacy_bytes({"state_dict": tensors, "arch": "resnet18"},
                                                          {"100": (10, data.tobytes())}, pickler=Python2Pickler))
    loaded = torch.load(HERE / "legacy_python2.pt", weights_only=False, map_location="cpu")
    expect("legacy_python2", without("module.")(loaded["state_dict"]))


# --- nested -----------------------------------------------------------------------------------------------------------
def make_nested():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.ones(2, 2, 3, 3)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    training = {"state_dict": model.state_dict(), "epoch": 3, "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "args": argparse.Namespace(lr=1e-3, data="/data", sizes=[1, 2], nothing=None),
                "best_acc": np.float64(0.75), "seen": np.int64(12), "history": np.arange(3.),
                "device": model.scale.device, "dtype": torch.float16, "size": torch.Size([2, 3]),
                "rng": torch.get_rng_state()[:16].clone()}
    for name, options in [("nested_training", {}), ("nested_training4", {"pickle_protocol": 4}),
                          ("nested_legacy", {"_use_new_zipfile_serialization": False})]:
        save(name, training, lambda loaded: loaded["state_dict"], **options)
    save("nested_model", {"model": state(), "optimizer": optimizer.state_dict(), "epoch": 3},
         lambda loaded: loaded["model"])
    save("nested_twice", {"model": {"state_dict": state(), "step": 1}}, lambda loaded: loaded["model"]["state_dict"])
    ema = {key: value + 1 for key, value in state().items()}
    save("nested_ema", {"state_dict": state(), "state_dict_ema": ema}, lambda loaded: loaded["state_dict"])
    expect("nested_ema_ema", ema)
    save("nested_unknown", {"weird": state(), "step": 1}, lambda loaded: loaded["weird"])
    torch.manual_seed(1)
    student = {"module.backbone.w": torch.randn(2, 3), "module.head.b": torch.randn(2)}
    teacher = {"backbone.w": torch.randn(2, 3), "head.b": torch.randn(2)}
    save("nested_dino", {"student": student, "teacher": teacher, "optimizer": optimizer.state_dict(), "epoch": 1},
         lambda loaded: {f"{key}.{name}": value for key in ["student", "teacher"]
                         for name, value in loaded[key].items()})
    expect("nested_dino_student", {key[7:]: value for key, value in student.items()})
    expect("nested_dino_teacher", teacher)

    for name, prefix in [("ddp", "module."), ("compiled", "_orig_mod."), ("ddp_compiled", "module._orig_mod."),
                         ("backbone", "backbone.")]:
        save(f"prefix_{name}", {"state_dict": state(prefix)},
             lambda loaded, prefix=prefix: without(prefix)(loaded["state_dict"]))
    save("prefix_inner", collections.OrderedDict((key.replace(".", "._orig_mod.", 1), value)
                                                 for key, value in state().items()), without("_orig_mod."))
    save("prefix_not_all", {"module.w": torch.ones(2), "head.w": torch.zeros(2)})  # stays


# --- TorchScript ------------------------------------------------------------------------------------------------------
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 2, bias=False)
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.bn(self.conv(x))


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Inner()
        self.again = self.first
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU())])
        self.params = nn.ParameterList([nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(1))])
        self.weight16 = nn.Parameter(torch.randn(3).half())
        self.register_buffer("steps", torch.tensor(12))
        self.register_buffer("kept", torch.arange(6.).reshape(2, 3).t())
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.register_parameter("absent", None)
        self.plain = torch.arange(5.)  # an attribute: not in the state dict
        self.several = [torch.zeros(2), torch.ones(2)]
        self.table = {"a": 1}
        self.rate: float = 0.5

    def forward(self, x):
        y = self.first(x).mean((2, 3)) + self.again(x).mean((2, 3)) + self.plain.sum() * self.rate
        for block in self.blocks:
            y = block(y)
        for parameter in self.params:
            y = y + parameter
        return y + self.weight16.float() + self.kept[:, 0] + self.passing.sum() + self.several[0].sum() + self.steps


def make_scripts():
    torch.manual_seed(2)
    model = Scripted().eval()
    x = torch.randn(2, 2, 3, 3)
    for name, scripted in [("script_scripted", torch.jit.script(model)), ("script_traced", torch.jit.trace(model, x)),
                           ("script_linear", torch.jit.script(nn.Linear(2, 2)))]:
        torch.jit.save(scripted, HERE / f"{name}.pt")
        loaded = torch.jit.load(HERE / f"{name}.pt").state_dict()
        assert "plain" not in loaded
        expect(name, loaded)
    half = torch.jit.trace(Inner().eval().half(), x.half())
    torch.jit.save(half, HERE / "script_half.pt")
    expect("script_half", torch.jit.load(HERE / "script_half.pt").state_dict())


# --- Hugging Face -----------------------------------------------------------------------------------------------------
def make_hugging_face():
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(3)
    tower = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
             "projection_dim": 4}
    config = CLIPConfig(text_config=tower | {"vocab_size": 12, "max_position_embeddings": 4, "eos_token_id": 2,
                                             "bos_token_id": 1},
                        vision_config=tower | {"image_size": 4, "patch_size": 2}, projection_dim=4)
    model = CLIPModel(config)
    model.save_pretrained(HERE / "hf_sharded", max_shard_size="3KB")
    model.save_pretrained(HERE / "hf_single")
    for file in HERE.glob("hf_*/*.safetensors"):
        file.chmod(0o644)
    expect("hf", model.state_dict())

    folder = HERE / "hf_bin"
    folder.mkdir()
    tensors = list(model.state_dict().items())
    half = len(tensors) // 2
    weight_map = {}
    for n, part in enumerate([tensors[:half], tensors[half:]]):
        name = f"pytorch_model-{n + 1:05}-of-00002.bin"
        torch.save(collections.OrderedDict(part), folder / name)
        weight_map |= {key: name for key, _ in part}
    size = sum(value.nbytes for _, value in tensors)
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}, indent=2))
    (folder / "config.json").write_text(json.dumps({"architectures": ["CLIPModel"], "model_type": "clip"}))


# --- refused ----------------------------------------------------------------------------------------------------------
class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/tpgm-was-here",)


class Tiny(nn.Module):
    pass


class Evaluated:
    def __reduce__(self):
        return eval, ("1",)


def archive(name, pickled, records=()):
    writer = torch._C.PyTorchFileWriter(str(HERE / f"{name}.pt"))
    writer.write_record("data.pkl", pickled, len(pickled))
    writer.write_record("byteorder", "little", 6)
    for key, data in records:
        writer.write_record(f"data/{key}", data, len(data))
    writer.write_end_of_file()


def hand_archive(name, obj, records=()):
    out = io.BytesIO()
    HandPickler(out, protocol=2).dump(obj)
    archive(name, out.getvalue(), records)


def make_refused():
    def refuse(name, obj, **options):
        torch.save(obj, HERE / f"refused_{name}.pt", **options)

    legacy = {"_use_new_zipfile_serialization": False}
    hidden = {"state_dict": {"w": torch.ones(2)}, "extra": Evil()}
    refuse("system_zip", hidden)
    refuse("system_zip4", hidden, pickle_protocol=4)
    refuse("system_legacy", hidden, **legacy)
    refuse("eval", {"w": torch.ones(2), "x": Evaluated()})
    archive("refused_system_inst", b"(S'touch /tmp/tpgm-was-here'\nios\nsystem\n.")
    archive("refused_system_obj", b"(cos\nsystem\nS'touch /tmp/tpgm-was-here'\no.")
    # the name is known, what it is to call is not
    rebuild = b"ctorch._tensor\n_rebuild_from_type_v2\n(cposix\nsystem\nctorch\nTensor\n(S'true'\nt}tR."
    archive("refused_system_argument", b"}S'w'\n" + rebuild[:-1] + b"s.")
    refuse("module_zip", nn.Sequential(nn.Linear(2, 2)))
    refuse("module_legacy", Tiny(), **legacy)  # with its source
    refuse("nested_module", {"model": nn.Sequential(nn.Linear(2, 2)), "epoch": 1})
    refuse("sparse", {"good": torch.ones(2), "w": torch.eye(3).to_sparse()})
    refuse("sparse_csr", {"good": torch.ones(2), "w": torch.eye(3).to_sparse_csr()})
    refuse("quantized", {"good": torch.ones(2), "w": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)})
    refuse("meta", {"good": torch.ones(2), "w": torch.ones(2, device="meta")})
    refuse("nested_tensor", {"good": torch.ones(2), "w": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])})
    lazy = torch.tensor([1 + 2j, 3 - 4j])
    refuse("conj", {"good": torch.ones(2), "w": lazy.conj()})
    refuse("neg", {"good": torch.ones(2), "w": lazy.conj().imag})
    refuse("bare", torch.ones(2))
    refuse("list", [torch.ones(2), torch.zeros(2)])
    refuse("no_tensors", {"epoch": 3, "args": {"lr": 0.1}})
    (HERE / "refused_pickle.pt").write_bytes(pickle.dumps({"w": [1., 2.]}, protocol=4))
    (HERE / "refused_pickled_tensor.pt").write_bytes(pickle.dumps({"w": torch.ones(2)}, protocol=2))

    sys.byteorder = "big"  # the record; the data is byte-swapped by hand
    refuse("big_endian_zip", {"w": torch.tensor([1, 2], dtype=torch.int16).view(torch.uint8).flip(0).view(torch.int16)})
    sys.byteorder = "little"
    hooks = collections.OrderedDict()

    def storage(key, numel):
        return StorageView("storage", torch.FloatStorage, key, "cpu", numel)

    def rebuilt(key, numel, offset, size, stride):
        return {"w": Rebuild(storage(key, numel), offset, size, stride, False, hooks)}

    (HERE / "refused_big_endian_legacy.pt").write_bytes(legacy_bytes(
        {"w": Rebuild(StorageView("storage", torch.FloatStorage, "1", "cpu", 2, None), 0, (2,), (1,), False, hooks)},
        {"1": (2, np.ones(2, ">f4").tobytes())}, little=False))
    data = np.ones(4, np.float32).tobytes()
    for name, args in {"beyond_storage": ("0", 4, 1, (4,), (1,)), "beyond_record": ("0", 400, 0, (400,), (1,)),
                       "missing_record": ("7", 4, 0, (4,), (1,)), "path": ("../../data/0", 4, 0, (4,), (1,)),
                       "negative_offset": ("0", 4, -1, (2,), (1,)), "negative_size": ("0", 4, 0, (-2,), (1,)),
                       "negative_stride": ("0", 4, 3, (2,), (-1,)), "ranks_differ": ("0", 4, 0, (2, 2), (1,)),
                       "overflow": ("0", 4, 0, (1 << 62, 8), (1, 1)), "huge_stride": ("0", 4, 0, (3,), (1 << 62,)),
                       "float_size": ("0", 4, 0, (2.5,), (1,))}.items():
        hand_archive(f"refused_{name}", rebuilt(*args), [("0", data)])
    for name, kind in {"wrong_kind": ("module", torch.FloatStorage, "0", "cpu", 4),
                       "short_id": ("storage", torch.FloatStorage, "0"),
                       "unknown_storage": ("storage", collections.OrderedDict, "0", "cpu", 4)}.items():
        hand_archive(f"refused_{name}", {"w": Rebuild(StorageView(*kind), 0, (4,), (1,), False, hooks)}, [("0", data)])


if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    make_plain()
    make_legacy_by_hand()
    make_nested()
    make_scripts()
    make_hugging_face()
    make_refused()
