#!/usr/bin/env python3
"""Writes what PyTorch and timm compute: steps of optimizers, rates of schedules, averages of weights.

    pip install torch timm safetensors
    python make_goldens.py [--output FOLDER]

The files here are by torch 2.13.0 (CPU) and timm 1.0.30.

    optim.json           parameters and their shapes, the rate of each step; cases: optimizer, options, dtype, groups
    optim.safetensors    parameters one after the other in a vector:
                         start               before the first step
                         grad                of every step [steps, ...]; 0 where there is none ("absent")
                         <case>/<step>       after that many steps, torch.optim with foreach=False and fused=False
                         <case>/<x>          exp_avg, exp_avg_sq or momentum after the last step; step, one number each
                         clip/<i>            gradients of the first step after clip_grad_norm_
    schedules.json       cases: source, options, phases, and the rate of every step
    ema.json             for each case its decay
    ema.safetensors      start/<name>, weights/<name>  the module before, and at each update, stacked
                         <case>/<update>/<name>        ModelEmaV2's after that many updates, without integer buffers,
                                                       which it rounds down; see copied/
                         copied/<name>                 ModelEmaV3's integer buffers after the last

The values are the same at every run on the same machine.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from timm.scheduler import CosineLRScheduler, StepLRScheduler
from timm.utils import ModelEmaV2, ModelEmaV3
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, StepLR

HERE = Path(__file__).resolve().parent

# --- optimizers -------------------------------------------------------------------------------------------------------
STEPS = 20
SHAPES = {
    "stem.weight": (6, 3, 3, 3),
    "stem.bias": (6,),
    "scale": (),
    "blocks.0.weight": (7, 11),
    "blocks.0.bias": (37,),  # neither 16 nor 32 divides it: vectors and a rest
    "late.weight": (5, 9),
    "late.bias": (5,),
    "head.weight": (4, 16),
    "head.bias": (4,),
}
ABSENT = {"late.weight": range(0, 7), "late.bias": range(0, 7), "blocks.0.bias": range(10, 13)}
HEAD = ["head.weight", "head.bias", "late.bias"]
RATES = [0.02 * (1 + step) if step < 4 else 0.08 * (1 - 0.05 * (step - 4)) for step in range(STEPS)]
KEPT = [8, 20]  # steps after which the parameters are stored; late.* takes its first one in the 8th


def groups(first_decay, second_decay, second_scale):
    """The body, and the head with a rate and a decay of its own."""
    body = [name for name in SHAPES if name not in HEAD]
    return [
        {"parameters": body, "lr_scale": 1.0, "weight_decay": first_decay},
        {"parameters": HEAD, "lr_scale": second_scale, "weight_decay": second_decay},
    ]


PLAIN, DECAYED = groups(0, 0, 0.5), groups(0.05, 0.01, 2.5)
SGD = {"opt": "sgd", "momentum": 0.9, "nesterov": False, "rate": 1.0}
ADAM = {"opt": "adam", "betas": [0.9, 0.999], "eps": 1e-8, "rate": 0.1}
OPTIM_CASES = {
    "sgd-plain": SGD | {"momentum": 0.0, "groups": PLAIN},
    "sgd-decay": SGD | {"momentum": 0.0, "groups": DECAYED},
    "sgd-momentum": SGD | {"groups": PLAIN},
    "sgd-momentum-decay": SGD | {"groups": DECAYED},
    "sgd-nesterov": SGD | {"nesterov": True, "groups": PLAIN},
    "sgd-nesterov-decay": SGD | {"nesterov": True, "momentum": 0.8, "groups": DECAYED},
    "adam": ADAM | {"groups": PLAIN},
    "adam-decay": ADAM | {"betas": [0.8, 0.95], "eps": 1e-3, "groups": DECAYED},
    "adamw": ADAM | {"opt": "adamw", "groups": PLAIN},
    "adamw-decay": ADAM | {"opt": "adamw", "betas": [0.85, 0.98], "groups": DECAYED},
    "sgd-float64": SGD | {"nesterov": True, "groups": DECAYED, "dtype": "float64"},
    "adamw-float64": ADAM | {"opt": "adamw", "groups": DECAYED, "dtype": "float64"},
    "sgd-plain-bfloat16": SGD | {"momentum": 0.0, "groups": DECAYED, "dtype": "bfloat16"},
    "sgd-bfloat16": SGD | {"groups": DECAYED, "dtype": "bfloat16"},
    "sgd-nesterov-bfloat16": SGD | {"nesterov": True, "groups": DECAYED, "dtype": "bfloat16"},
    "adamw-bfloat16": ADAM | {"opt": "adamw", "rate": 1.0, "groups": DECAYED, "dtype": "bfloat16"},
}
CLIPPED = [0.5, 1e-3, 1e6]  # the last is more than the norm


def make_optimizer(case, parameters):
    settings = [
        {"params": [parameters[name] for name in group["parameters"]], "weight_decay": group["weight_decay"]}
        for group in case["groups"]
    ]
    plain = {"foreach": False, "fused": False}
    if case["opt"] == "sgd":
        return torch.optim.SGD(settings, lr=1.0, momentum=case["momentum"], nesterov=case["nesterov"], **plain)
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[case["opt"]]
    return make(settings, lr=1.0, betas=tuple(case["betas"]), eps=case["eps"], **plain)


def flat(values):
    return torch.cat([value.detach().flatten() for value in values])


def optim_goldens(folder):
    generator = torch.Generator().manual_seed(1)
    start = {name: torch.randn(shape, generator=generator) * 0.5 for name, shape in SHAPES.items()}
    grads = {name: torch.randn((STEPS, *shape), generator=generator) for name, shape in SHAPES.items()}
    # Gradients of a network differ in size from tensor to tensor, and some are nothing.
    for k, name in enumerate(SHAPES):
        grads[name] *= 10.0 ** (-0.25 * k)
        grads[name][ABSENT.get(name, [])] = 0
    grads["blocks.0.weight"][:, 2] = 0
    tensors = {"start": flat(start.values())}
    tensors["grad"] = torch.stack([flat(grad[step] for grad in grads.values()) for step in range(STEPS)])
    present = lambda name, step: step not in ABSENT.get(name, ())

    cases = {}
    for title, case in OPTIM_CASES.items():
        case = {"dtype": "float32"} | case
        cases[title] = case
        dtype = getattr(torch, case["dtype"])
        parameters = {name: nn.Parameter(value.to(dtype, copy=True)) for name, value in start.items()}
        optimizer = make_optimizer(case, parameters)
        for step in range(STEPS):
            for name, parameter in parameters.items():
                parameter.grad = grads[name][step].to(dtype, copy=True) if present(name, step) else None
            for group, settings in zip(optimizer.param_groups, case["groups"]):
                group["lr"] = RATES[step] * case["rate"] * settings["lr_scale"]
            optimizer.step()
            if step + 1 in KEPT:
                tensors[f"{title}/{step + 1}"] = flat(parameters.values())
        states = [optimizer.state[parameter] for parameter in parameters.values()]
        for key in states[0]:
            if states[0][key] is not None:
                tensors[f"{title}/{key.replace('momentum_buffer', 'momentum')}"] = flat(state[key] for state in states)

    clips = []
    for i, most in enumerate(CLIPPED):
        parameters = {name: nn.Parameter(value.clone()) for name, value in start.items()}
        for name, parameter in parameters.items():
            parameter.grad = grads[name][0].clone() if present(name, 0) else None
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), most, foreach=False)
        clips.append({"most": most, "norm": norm.item()})
        none = lambda parameter: torch.zeros(parameter.shape)
        tensors[f"clip/{i}"] = flat(none(p) if p.grad is None else p.grad for p in parameters.values())
    shapes = [{"name": name, "shape": shape} for name, shape in SHAPES.items()]
    absent = {name: list(steps) for name, steps in ABSENT.items()}
    document = {"parameters": shapes, "lr": RATES, "kept": KEPT, "absent": absent, "clip": clips}
    lines = ",\n ".join(f"{json.dumps(title)}: {json.dumps(case)}" for title, case in cases.items())
    text = json.dumps(document)[:-1] + ', "cases": {\n ' + lines + "\n}}\n"
    (folder / "optim.json").write_text(text)
    save_file(tensors, folder / "optim.safetensors")


# --- schedules --------------------------------------------------------------------------------------------------------
def dummy_optimizer(lr):
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)


def timm_rates(make, lr, steps_per_epoch, epochs, on_updates):
    """As timm's train.py calls its schedulers: after an update with the number of updates, after an epoch with that."""
    optimizer = dummy_optimizer(lr)
    scheduler = make(optimizer, t_in_epochs=not on_updates, unit=steps_per_epoch if on_updates else 1)
    rates, updates = [], 0
    for epoch in range(epochs):
        for _ in range(steps_per_epoch):
            rates.append(optimizer.param_groups[0]["lr"])
            updates += 1
            scheduler.step_update(updates)
        scheduler.step(epoch + 1)
    return rates


def torch_rates(make, lr, steps_per_epoch, epochs, on_updates):
    optimizer = dummy_optimizer(lr)
    scheduler = make(optimizer, unit=steps_per_epoch if on_updates else 1)
    rates = []
    for _ in range(epochs):
        for _ in range(steps_per_epoch):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if on_updates:
                scheduler.step()
        if not on_updates:
            scheduler.step()
    return rates


def schedule_goldens(folder):
    cases = []

    def add(source, options, phases, steps_per_epoch, rates):
        case = {"source": source, "options": options, "phases": phases}
        cases.append(case | {"steps_per_epoch": steps_per_epoch, "lr": rates})

    for on_updates in [True, False]:
        for warmup, warmup_lr, min_lr in [(0, 0.0, 0.0), (2, 0.0, 0.0), (3, 1e-4, 2e-5), (7, 1e-3, 0.0)]:
            options = {"sched": "cosine", "on_updates": on_updates, "min_lr": min_lr, "warmup_lr": warmup_lr}
            rates, phases = [], []
            # Two phases are two schedulers, one after the other.
            for epochs, lr in [(7, 0.05), (9, 0.003)] if warmup == 3 else [(7, 0.05)]:
                rates += timm_rates(
                    lambda optimizer, t_in_epochs, unit: CosineLRScheduler(
                        optimizer, t_initial=epochs * unit, lr_min=min_lr, warmup_t=warmup * unit,
                        warmup_lr_init=warmup_lr, warmup_prefix=False, t_in_epochs=t_in_epochs),
                    lr, 5, epochs, on_updates)  # fmt: skip
                phases.append({"epochs": epochs, "lr": lr, "warmup_epochs": warmup})
            add("timm.scheduler.CosineLRScheduler", options, phases, 5, rates)
        for warmup, warmup_lr, decay_epochs, decay_rate in [(0, 0.0, 3, 0.1), (2, 1e-3, 2, 0.7)]:
            rates = timm_rates(
                lambda optimizer, t_in_epochs, unit: StepLRScheduler(
                    optimizer, decay_t=decay_epochs * unit, decay_rate=decay_rate, warmup_t=warmup * unit,
                    warmup_lr_init=warmup_lr, warmup_prefix=False, t_in_epochs=t_in_epochs),
                0.4, 4, 8, on_updates)  # fmt: skip
            options = {"sched": "step", "on_updates": on_updates, "warmup_lr": warmup_lr}
            options |= {"decay_epochs": decay_epochs, "decay_rate": decay_rate}
            phases = [{"epochs": 8, "lr": 0.4, "warmup_epochs": warmup}]
            add("timm.scheduler.StepLRScheduler", options, phases, 4, rates)

        rates = torch_rates(
            lambda optimizer, unit: CosineAnnealingLR(optimizer, T_max=6 * unit, eta_min=1e-3), 0.1, 3, 6, on_updates)
        add("torch.optim.lr_scheduler.CosineAnnealingLR", {"sched": "cosine", "on_updates": on_updates, "min_lr": 1e-3},
            [{"epochs": 6, "lr": 0.1, "warmup_epochs": 0}], 3, rates)  # fmt: skip
        rates = torch_rates(lambda optimizer, unit: StepLR(optimizer, 4 * unit, gamma=0.5), 0.1, 3, 10, on_updates)
        add("torch.optim.lr_scheduler.StepLR",
            {"sched": "step", "on_updates": on_updates, "decay_epochs": 4, "decay_rate": 0.5},
            [{"epochs": 10, "lr": 0.1, "warmup_epochs": 0}], 3, rates)  # fmt: skip
        rates = torch_rates(
            lambda optimizer, unit: LinearLR(optimizer, start_factor=0.25, total_iters=2 * unit), 0.2, 3, 4, on_updates)
        add("torch.optim.lr_scheduler.LinearLR", {"sched": "constant", "on_updates": on_updates, "warmup_lr": 0.05},
            [{"epochs": 4, "lr": 0.2, "warmup_epochs": 2}], 3, rates)  # fmt: skip
    lines = ",\n ".join(json.dumps(case) for case in cases)
    (folder / "schedules.json").write_text('{"cases": [\n ' + lines + "\n]}\n")


# --- averages ---------------------------------------------------------------------------------------------------------
UPDATES = 12
DECAYS = {"fast": 0.0, "short": 0.7, "long": 0.9998}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 7)
        self.norm = nn.BatchNorm1d(7)


def ema_goldens(folder):
    torch.manual_seed(3)
    net = Net()
    start = {name: value.clone() for name, value in net.state_dict().items()}
    generator = torch.Generator().manual_seed(4)
    states = []
    for update in range(UPDATES):
        state = {}
        for name, value in start.items():
            if value.is_floating_point():
                state[name] = value + torch.randn(value.shape, generator=generator)
            else:
                state[name] = torch.tensor(3 * update + 1)
        states.append(state)
    tensors = {f"start/{name}": value for name, value in start.items()}
    tensors |= {f"weights/{name}": torch.stack([state[name] for state in states]) for name in start}
    for title, decay in DECAYS.items():
        net.load_state_dict(start)
        ema, later = ModelEmaV2(net, decay=decay), ModelEmaV3(net, decay=decay)
        for update, state in enumerate(states):
            net.load_state_dict(state)
            ema.update(net)
            later.update(net)
            if update + 1 in [1, UPDATES]:
                for name, value in ema.module.state_dict().items():
                    if value.is_floating_point():
                        tensors[f"{title}/{update + 1}/{name}"] = value.clone()
        for name, value in later.module.state_dict().items():
            if not value.is_floating_point():
                tensors[f"copied/{name}"] = value.clone()
    document = {"updates": UPDATES, "decays": DECAYS}
    (folder / "ema.json").write_text(json.dumps(document) + "\n")
    save_file(tensors, folder / "ema.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=HERE, metavar="FOLDER")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    optim_goldens(folder)
    schedule_goldens(folder)
    ema_goldens(folder)


if __name__ == "__main__":
    main()
