#!/usr/bin/env python3
"""Writes what 20 steps of training make of small models, with torch's loops, losses and optimizers and timm's mixup.

    pip install torch timm safetensors
    pip install --no-deps torchvision       # --no-deps: or it brings a torch of its own
    python make_step_goldens.py [--output FOLDER]

The files here are by torch 2.13.0 (CPU), torchvision 0.28.0 and timm 1.0.30.

    resnet.safetensors   the weights before the first step, as torchvision names them
    vit.safetensors      as timm names them
    steps.json           models: their family with what weights do not show, and the order of the tensors in a vector;
                         cases: the options, the rate and the share of mixup of each step
    steps.safetensors    images [24, 3, 32, 32], bytes, of which models see (bytes - 128) / 64, a ViT the upper left
                         quarter; labels; batches [40, 8], which of the images each batch has
                         <case>/<model>           weights and buffers after the last step, one after the other
                         <case>/<model>/losses    of every batch

The values are the same at every run on the same machine.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "weights" / "goldens"))
import oracle_models as oracles  # noqa: E402
from timm.data.mixup import Mixup  # noqa: E402
from timm.loss import SoftTargetCrossEntropy  # noqa: E402
from timm.optim import param_groups_weight_decay  # noqa: E402
from timm.scheduler import CosineLRScheduler  # noqa: E402

STEPS, BATCH, CLASSES = 20, 8, 5
SGD = {"opt": "sgd", "lr": 0.005, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4, "decay_all": True}
ADAM = {"opt": "adam", "lr": 5e-4, "weight_decay": 0.0}
ADAMW = {"opt": "adamw", "lr": 5e-4, "weight_decay": 0.1}
COSINE = {"epochs": 4, "warmup_epochs": 1, "warmup_lr": 1e-5, "min_lr": 1e-6}  # 5 steps an epoch
CASES = {
    "sgd": SGD,
    "adam": ADAM,
    "adamw": ADAMW,
    "smoothing": ADAMW | {"smoothing": 0.1},
    "mixup": ADAMW | {"smoothing": 0.1, "mixup": True},
    "clip": SGD | {"clip_grad": 1.0},
    "accumulation": ADAMW | {"batches": 2},
    "cosine": ADAMW | {"cosine": COSINE},
    "head-lr": SGD | {"head_scale": 10.0, "lr": 0.001},
    "bf16": SGD | {"amp": True, "lr": 0.001},  # with more, the ResNet's in bf16 is far from the one in fp32
}


def make_resnet():
    sizes = {"block": "basic", "layers": [1, 1, 1, 1], "width": 2, "image_size": 32}
    # Of the first seeds one whose twenty steps do not blow up rounding errors: two channels and BatchNorms over eight
    # pixels make a ReLU's kink or a small variance weigh more than in models of use.
    return oracles.torchvision_resnet(4, **sizes, num_classes=CLASSES).model


def make_vit():
    sizes = {"image_size": 16, "patch": 4, "depth": 2, "heads": 2, "width": 16, "mlp": 32}
    return oracles.timm_vit(2, **sizes, num_classes=CLASSES).model


MODELS = {
    "resnet": {"make": make_resnet, "model": "resnet:image_size=32", "head": "fc."},
    "vit": {"make": make_vit, "model": "vit:heads=2,activation=gelu", "head": "head."},
}


def make_groups(model, case, head):
    """By decay, and the head with a rate of its own. A class token is one vector: it has none, like biases and norms."""
    groups = []
    for of_head in (False, True):
        part = torch.nn.Module()
        for name, parameter in model.named_parameters():
            if name.startswith(head) == of_head:
                part.register_parameter(name.replace(".", "/"), parameter)
        if case.get("decay_all"):
            split = [{"params": list(part.parameters()), "weight_decay": case["weight_decay"]}]
        else:
            split = param_groups_weight_decay(part, case["weight_decay"], no_weight_decay_list=["cls_token"])
        groups += [group | {"lr_scale": case.get("head_scale", 1.0) if of_head else 1.0} for group in split]
    return groups


def make_optimizer(case, groups):
    if case["opt"] == "sgd":
        return torch.optim.SGD(groups, lr=1.0, momentum=case["momentum"], nesterov=case["nesterov"])
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[case["opt"]](groups, lr=1.0)


def rates(case):
    if "cosine" not in case:
        return [case["lr"]] * STEPS
    cosine = case["cosine"]
    each = STEPS // cosine["epochs"]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=case["lr"])
    scheduler = CosineLRScheduler(optimizer, t_initial=STEPS, warmup_t=cosine["warmup_epochs"] * each,
                                  warmup_lr_init=cosine["warmup_lr"], lr_min=cosine["min_lr"], t_in_epochs=False)
    result = []
    for step in range(STEPS):
        scheduler.step_update(step)
        result.append(optimizer.param_groups[0]["lr"])
    return result


def train(model, case, head, images, labels, batches):
    """The losses of the batches."""
    optimizer = make_optimizer(case, make_groups(model, case, head))
    mixup = Mixup(label_smoothing=case.get("smoothing", 0.0), num_classes=CLASSES)
    smoothed = torch.nn.CrossEntropyLoss(label_smoothing=case.get("smoothing", 0.0))
    amp = torch.autocast("cpu", torch.bfloat16) if case.get("amp") else contextlib.nullcontext()
    torch.backends.mkldnn.enabled = not case.get("amp")  # its AMX code is killed in some virtual machines
    each = case.get("batches", 1)
    losses, norms = [], []
    model.train()
    for step, rate in enumerate(case["rates"]):
        optimizer.zero_grad()
        for batch in batches[step * each:(step + 1) * each]:
            x, y = images[batch].clone(), labels[batch]
            criterion = smoothed
            if "lambdas" in case:
                mixup._params_per_batch = lambda: (case["lambdas"][step], False)
                x, y = mixup(x, y)
                criterion = SoftTargetCrossEntropy()
            with amp:
                logits = model(x)
            loss = criterion(logits.float(), y)
            (loss / each).backward()
            losses.append(loss.item())
        if "clip_grad" in case:
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), case["clip_grad"]).item())
        for group in optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]
        optimizer.step()
    torch.backends.mkldnn.enabled = True
    if norms:
        print(f"  norms from {min(norms):.2f} to {max(norms):.2f}")
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=HERE)
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(7)
    count = 24
    # Noise about a colour of each class, so that there is something to learn.
    labels = torch.arange(count) % CLASSES
    colours = torch.randint(64, 192, (CLASSES, 3, 1, 1), generator=generator)
    noise = torch.randint(-64, 64, (count, 3, 32, 32), generator=generator)
    pictures = (colours[labels] + noise).clamp(0, 255).to(torch.uint8)
    batches = torch.stack([torch.randperm(count, generator=generator)[:BATCH] for _ in range(2 * STEPS)])
    lambdas = torch.rand(STEPS, generator=generator, dtype=torch.float64).tolist()
    lambdas[3] = 1.0  # not mixed
    tensors = {"images": pictures, "labels": labels, "batches": batches}
    images = (pictures.float() - 128) / 64

    cases = {name: case | {"rates": rates(case)} for name, case in CASES.items()}
    cases["mixup"]["lambdas"] = lambdas
    models = {}
    for name, kind in MODELS.items():
        start = kind["make"]()
        state = start.state_dict()
        save_file(state, folder / f"{name}.safetensors")
        order = [key for key in state if not key.endswith("num_batches_tracked")]
        models[name] = {"model": kind["model"],
                        "tensors": [{"name": key, "shape": list(state[key].shape)} for key in order]}
        for title, case in cases.items():
            model = kind["make"]()
            seen = images if name == "resnet" else images[:, :, :16, :16]
            losses = train(model, case, kind["head"], seen, labels, batches)
            after = model.state_dict()
            tensors[f"{title}/{name}"] = torch.cat([after[key].flatten() for key in order])
            tensors[f"{title}/{name}/losses"] = torch.tensor(losses)
            print(f"{title}/{name}: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    text = json.dumps({"models": models, "cases": cases}, indent=1)
    (folder / "steps.json").write_text(text + "\n")
    save_file(tensors, folder / "steps.safetensors")


if __name__ == "__main__":
    main()
