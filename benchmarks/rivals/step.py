"""A training step and an inference batch of the model that `tpgm bench step` measures, as its Python library has it:
step.py INPUT, where INPUT is a safetensors file.

    weights/NAME               of the library's model, loaded strictly; head/weight and head/bias for CLIP's towers
    images, labels             the batch
    metadata "settings"        JSON: the model's sizes, the device, how often, and so on

Prints JSON: {"runs": [{"name": "timm 1.0.30, eager", "training_ms": ...}, ...]} or {"error": "..."} in one line.
"""

import importlib.metadata
import json
import os
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from packages import Failure, load, load_torchvision

torch = None  # in main, for an error that one can read


# --- the libraries' models --------------------------------------------------------------------------------------------
def make_resnet(sizes, classes):
    load_torchvision()
    resnet = load("torchvision.models.resnet")
    layers = [int(blocks) for blocks in sizes["layers"].split("-")]
    if len(layers) != 4:
        raise Failure(f"torchvision's ResNets have four stages, and this one has {len(layers)}")
    width = sizes["width"]

    class ResNet(resnet.ResNet):  # of any width: its own has 64, 128, 256 and 512 planes written into it
        def _make_layer(self, block, planes, *args, **kwargs):
            if planes == 64:
                self.inplanes = width
            return super()._make_layer(block, planes * width // 64, *args, **kwargs)

    block = {"basic": resnet.BasicBlock, "bottleneck": resnet.Bottleneck}[sizes["block"]]
    if width == 64:
        model = resnet.ResNet(block, layers, num_classes=classes)
    else:
        model = ResNet(block, layers)
        model.bn1 = torch.nn.BatchNorm2d(width)
        model.fc = torch.nn.Linear(model.inplanes, classes)
    small = sizes["stem"] == "small"
    if small or width != 64 or sizes["channels"] != 3:
        kernel, stride = (3, 1) if small else (7, 2)
        model.conv1 = torch.nn.Conv2d(sizes["channels"], width, kernel, stride, kernel // 2, bias=False)
    if small:
        model.maxpool = torch.nn.Identity()
    return model


def make_vit(sizes, classes):
    load_torchvision()  # before timm, which imports it
    timm = load("timm")
    vit = load("timm.models.vision_transformer")
    model = vit.VisionTransformer(
        img_size=sizes["image_size"], patch_size=sizes["patch"], in_chans=sizes["channels"], num_classes=classes,
        embed_dim=sizes["width"], depth=sizes["depth"], num_heads=sizes["heads"],
        mlp_ratio=sizes["mlp"] / sizes["width"], global_pool="avg" if sizes["pool"] == "mean" else "token",
        pre_norm=sizes["pre_norm"], norm_layer=partial(timm.layers.LayerNorm, eps=sizes["eps"]),
        act_layer=sizes["activation"])
    model.set_grad_checkpointing(sizes["recompute"])
    return model


def make_clip(sizes, classes):
    load_torchvision()  # before open_clip, which imports it
    load("open_clip", "open_clip_torch")
    if sizes["channels"] != 3 or not sizes["embedding"]:
        raise Failure("open_clip's image towers have 3 channels and a projection (embedding)")
    if sizes["family"] == "clip-resnet":
        layers = [int(blocks) for blocks in sizes["layers"].split("-")]
        if len(layers) != 4:
            raise Failure(f"open_clip's ResNets have four stages, and this one has {len(layers)}")
        visual = load("open_clip.modified_resnet").ModifiedResNet(
            layers, output_dim=sizes["embedding"], heads=sizes["heads"], image_size=sizes["image_size"],
            width=sizes["width"])
    else:
        transformer = load("open_clip.transformer")
        visual = transformer.VisionTransformer(
            image_size=sizes["image_size"], patch_size=sizes["patch"], width=sizes["width"], layers=sizes["depth"],
            heads=sizes["heads"], mlp_ratio=sizes["mlp"] / sizes["width"], output_dim=sizes["embedding"],
            act_layer=transformer.QuickGELU if sizes["activation"] == "quick_gelu" else torch.nn.GELU,
            norm_layer=partial(transformer.LayerNorm, eps=sizes["eps"]))
        visual.set_grad_checkpointing(sizes["recompute"])

    class WithHead(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.visual = visual
            self.head = torch.nn.Linear(sizes["embedding"], classes)

        def forward(self, images):
            return self.head(self.visual(images))

    return WithHead()


LIBRARIES = {"resnet": (make_resnet, "torchvision"), "vit": (make_vit, "timm"),
             "clip-resnet": (make_clip, "open_clip_torch"), "clip-vit": (make_clip, "open_clip_torch")}


def make_model(settings, tensors):
    make, library = LIBRARIES[settings["model"]["family"]]
    model = make(settings["model"], settings["classes"])
    weights = {name.removeprefix("weights/"): value for name, value in tensors.items() if name.startswith("weights/")}
    weights |= {name.replace("/", "."): value for name, value in tensors.items() if name.startswith("head/")}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        first = str(error).split("\n")[1:2] or [str(error)]
        raise Failure(f"these weights are not of a model that {library} has: {first[0].strip()}")
    return model, f"{library} {importlib.metadata.version(library).split('+')[0]}"


# --- measuring --------------------------------------------------------------------------------------------------------
class Turns:
    """On the CPU, `tpgm` and this take turns step by step, so that a machine whose speed drifts is fair to both."""

    def __init__(self, folder):
        self.go = os.open(folder / "go", os.O_RDONLY)
        self.done = os.open(folder / "done", os.O_WRONLY)

    def ready(self):
        os.write(self.done, b".")

    def wait(self):
        if not os.read(self.go, 1):
            sys.exit("tpgm is gone")


def measure(settings, turns, work):
    """The median in ms, and the most memory of the device that tensors took, in MiB."""
    for _ in range(settings["warmup"]):
        work()
    if settings["device"] == "cuda":
        return measure_cuda(settings, work)
    laps = []
    if turns:
        turns.ready()
    for _ in range(settings["repeats"]):
        if turns:
            turns.wait()
        begin = time.perf_counter()
        work()
        laps.append((time.perf_counter() - begin) * 1e3)
        if turns:
            turns.ready()
    return sorted(laps)[len(laps) // 2], 0.0


def measure_cuda(settings, work):
    torch.cuda.reset_peak_memory_stats()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(settings["repeats"] + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    marks[-1].synchronize()  # nobody has waited for the device before
    laps = sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
    return laps[len(laps) // 2], torch.cuda.max_memory_allocated() / 2**20


def run(settings, tensors, turns, compiled):
    device = settings["device"]
    model, library = make_model(settings, tensors)
    model.to(device)
    images, labels = tensors["images"].to(device), tensors["labels"].to(device)
    if settings["channels_last"]:
        model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    adamw = settings["adamw"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=adamw["lr"], betas=adamw["betas"], eps=adamw["eps"],
                                  weight_decay=adamw["weight_decay"], fused=True)
    forward = torch.compile(model) if compiled else model

    def autocast():
        return torch.autocast(device, dtype=torch.bfloat16) if settings["amp"] else nullcontext()

    def loss_of():
        with autocast():
            return torch.nn.functional.cross_entropy(forward(images), labels)

    losses = []

    def step():
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())

    def infer():
        with autocast():
            return forward(images)

    model.train()
    training_ms, training_peak = measure(settings, turns, step)
    losses = [loss.item() for loss in losses]
    del optimizer
    model.eval()
    with torch.no_grad():
        inference_ms, inference_peak = measure(settings, turns, infer)
        inference_loss = loss_of().item()
    return {"name": f"{library}, {'compile' if compiled else 'eager'}", "torch": torch.__version__.split("+")[0],
            "training_ms": training_ms, "inference_ms": inference_ms, "training_peak_mib": training_peak,
            "inference_peak_mib": inference_peak, "losses": losses, "inference_loss": inference_loss}


def read(path):
    with load("safetensors").safe_open(path, "pt") as file:
        return json.loads(file.metadata()["settings"]), {name: file.get_tensor(name) for name in file.keys()}


def measure_all(path):
    global torch
    torch = load("torch")
    settings, tensors = read(path)
    if settings["device"] == "cuda" and not torch.cuda.is_available():
        raise Failure(f"its torch {torch.__version__} sees no CUDA device")
    torch.set_num_threads(settings["threads"])
    torch.backends.cudnn.benchmark = True  # as training scripts have it, and `tpgm bench step`
    runs = []
    turns = Turns(Path(path).parent) if settings["turns"] else None
    for compiled in [False, True] if settings["compile"] else [False]:
        runs.append(run(settings, tensors, None if compiled else turns, compiled))
        if settings["device"] == "cuda":
            torch.cuda.empty_cache()
    return {"runs": runs}


def main(arguments):
    if len(arguments) != 1:
        sys.exit("usage: step.py INPUT.safetensors")
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no JSON
    try:
        said = measure_all(arguments[0])
    except Failure as failure:
        said = {"error": str(failure)}
    print(json.dumps(said), file=out)
    return 1 if "error" in said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
