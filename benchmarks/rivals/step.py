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
from statistics import median

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


class Run:
    """A model, as it is or compiled. What goes wrong is its error, in one line."""

    def __init__(self, settings, tensors, compiled):
        self.settings = settings
        device = settings["device"]
        self.model, library = make_model(settings, tensors)
        self.said = {"name": f"{library}, {'compile' if compiled else 'eager'}", "torch": torch.__version__.split("+")[0]}
        self.model.to(device)
        self.images, self.labels = tensors["images"].to(device), tensors["labels"].to(device)
        if settings["channels_last"]:
            self.model.to(memory_format=torch.channels_last)
            self.images = self.images.contiguous(memory_format=torch.channels_last)
        adamw = settings["adamw"]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=adamw["lr"], betas=adamw["betas"],
                                           eps=adamw["eps"], weight_decay=adamw["weight_decay"], fused=True)
        self.forward = torch.compile(self.model) if compiled else self.model
        self.losses, self.training = [], True

    def autocast(self):
        return torch.autocast(self.settings["device"], dtype=torch.bfloat16) if self.settings["amp"] else nullcontext()

    def loss(self):
        with self.autocast():
            return torch.nn.functional.cross_entropy(self.forward(self.images), self.labels)

    def step(self):
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.detach())

    def infer(self):
        with torch.no_grad(), self.autocast():
            return self.forward(self.images)

    def work(self):
        self.step() if self.training else self.infer()

    def end_training(self):
        if "error" in self.said:
            return
        self.said["losses"] = [loss.item() for loss in self.losses]
        self.losses, self.optimizer, self.training = [], None, False
        self.model.eval()

    def end_inference(self):
        if "error" not in self.said:
            with torch.no_grad():
                self.said["inference_loss"] = self.loss().item()

    def attempt(self, work):
        if "error" in self.said:
            return None
        try:
            return work()
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            self.said["error"] = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
            return None

    def warm_up(self):
        for _ in range(self.settings["warmup"]):
            self.work()
        if not self.settings["warmup_s"]:
            return
        torch.cuda.synchronize()
        begin = time.perf_counter()
        while time.perf_counter() - begin < self.settings["warmup_s"]:
            self.work()
            torch.cuda.synchronize()

    def lap(self):
        begin = time.perf_counter()
        self.work()
        return (time.perf_counter() - begin) * 1e3

    def measure_cuda(self):
        self.warm_up()
        torch.cuda.reset_peak_memory_stats()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(self.settings["repeats"] + 1)]
        marks[0].record()
        for mark in marks[1:]:
            self.work()
            mark.record()
        marks[-1].synchronize()  # the first time that this waits for the device
        return {"ms": median([a.elapsed_time(b) for a, b in zip(marks, marks[1:])]),
                "peak_mib": torch.cuda.max_memory_allocated() / 2**20,
                "reserved_mib": torch.cuda.max_memory_reserved() / 2**20}


def measure_in_turns(runs, phase, turns):
    for run in runs:
        run.attempt(run.warm_up)
    laps = [[] for _ in runs]
    if turns:
        turns.ready()
    for _ in range(runs[0].settings["repeats"]):
        if turns:
            turns.wait()
        for run, times in zip(runs, laps):
            times.append(run.attempt(run.lap))
        if turns:
            turns.ready()
    for run, times in zip(runs, laps):
        if "error" not in run.said:
            run.said[phase] = {"ms": median(times), "peak_mib": 0.0, "reserved_mib": 0.0}


def run_phases(runs, settings, measure):
    measure(runs, "training")
    for run in runs:
        run.end_training()
    if settings["inference"]:
        measure(runs, "inference")
        for run in runs:
            run.attempt(run.end_inference)


def run_on_cuda(settings, tensors, compiled):
    def measure(runs, phase):
        runs[0].said[phase] = runs[0].attempt(runs[0].measure_cuda)

    run = Run(settings, tensors, compiled)
    run_phases([run], settings, measure)
    return run.said


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
    kinds = [False, True] if settings["compile"] else [False]
    if settings["device"] == "cuda":
        said = []
        for compiled in kinds:
            said.append(run_on_cuda(settings, tensors, compiled))
            torch.cuda.empty_cache()
        return {"runs": said}
    turns = Turns(Path(path).parent) if settings["turns"] else None
    runs = [Run(settings, tensors, compiled) for compiled in kinds]
    run_phases(runs, settings, lambda runs, phase: measure_in_turns(runs, phase, turns))
    return {"runs": [run.said for run in runs]}


def main(arguments):
    if len(arguments) != 1:
        sys.exit("usage: step.py INPUT.safetensors")
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not JSON
    try:
        said = measure_all(arguments[0])
    except Failure as failure:
        said = {"error": str(failure)}
    print(json.dumps(said), file=out)
    return 1 if "error" in said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
