#!/usr/bin/env python3
"""Writes augment.safetensors and mix.safetensors: what torchvision makes of PIL images, and timm of batches.

    pip install torch timm safetensors pillow
    pip install --no-deps torchvision       # --no-deps: or it brings a torch of its own
    python make_augment_goldens.py [--output FOLDER]

The files here are by Pillow 13.0.0, torch 2.13.0, torchvision 0.28.0, timm 1.0.30. In augment.safetensors, pictures
being [height, width, 3] of bytes,

    image/<name>                                the pictures
    <function of image_ops.h>/<name>/<factor>   what becomes of them
    color_jitter/<i>/changes [n, 2]             property and factor, in the order that ColorJitter drew
    color_jitter/<i>/result                     image/natural after them
    affine/<i>/changes [1, 4]                   angle in degrees, pixels to the right and down, scale
    affine/<i>/result                           image/natural after them
    rand_augment/<i>/changes [n, 3]             operation, magnitude (0..30), whether it is negative
    rand_augment/<i>/result                     image/natural after them
    magnitudes/<width>/<height> [14, 31]        RandAugment's table

and in mix.safetensors

    images, labels                              a batch
    <case>/mix [7]                              cutmix, lambda, top, bottom, left, right, smoothing
    <case>/images, <case>/targets               what timm's Mixup makes of the batch
"""

import argparse
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "weights" / "goldens"))
from oracle_models import import_torchvision  # noqa: E402

import_torchvision()
from torchvision.transforms import ColorJitter, InterpolationMode, RandAugment, RandomAffine, autoaugment  # noqa: E402
from torchvision.transforms import functional as F  # noqa: E402
from torchvision.transforms import transforms  # noqa: E402

FACTORS = [0, 0.35, 1, 1.27, 1.9]
SLOPES = [float(slope) for slope in torch.linspace(0, 0.3, 31)[[0, 9, 30]]] + [-0.17]
PROPERTIES = ["brightness", "contrast", "saturation", "hue"]


# --- pictures ---------------------------------------------------------------------------------------------------------
def pictures():
    """Smooth colours with edges and noise, a gradient too small to be equalized in even steps, and corner cases."""
    random = np.random.default_rng(0)
    coarse = Image.fromarray(random.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    natural = np.asarray(coarse.resize((40, 32), Image.Resampling.BICUBIC)).astype(int)
    natural = natural + random.integers(-12, 13, natural.shape)
    natural[4:12, 5:16] = [250, 40, 10]
    natural[20:30, 22:37] = natural[20:30, 22:37].mean(-1, keepdims=True)  # grey
    natural[15, :] = 255
    natural[:, 3] = 0
    y, x = np.mgrid[:17, :21]
    gradient = np.stack([x * 12, y * 15, 40 + (x + y) * 5], -1)
    return {
        "natural": natural.clip(0, 255),
        "gradient": gradient,
        "flat": np.full((4, 5, 3), [10, 200, 90]),
        "thin": random.integers(0, 256, (9, 2, 3)),
        "pixel": np.array([[[200, 100, 51]]]),
    }


# --- one function at a time -------------------------------------------------------------------------------------------
def apply_op(name):
    return lambda image, amount: autoaugment._apply_op(image, name, amount, InterpolationMode.NEAREST, None)


FUNCTIONS = {
    "adjust_brightness": (F.adjust_brightness, FACTORS),
    "adjust_contrast": (F.adjust_contrast, FACTORS),
    "adjust_saturation": (F.adjust_saturation, FACTORS),
    "adjust_sharpness": (F.adjust_sharpness, FACTORS),
    "adjust_hue": (F.adjust_hue, [0, 0.1, -0.03, 0.31, 0.5, -0.5]),
    "posterize": (lambda image, bits: F.posterize(image, int(bits)), [1, 4, 7, 8]),
    "solarize": (F.solarize, [0, 127.5, 178, 255, 256]),
    "autocontrast": (lambda image, _: F.autocontrast(image), [0]),
    "equalize": (lambda image, _: F.equalize(image), [0]),
    "shear_x": (apply_op("ShearX"), SLOPES),
    "shear_y": (apply_op("ShearY"), SLOPES),
    "translate_x": (apply_op("TranslateX"), [0, 7.9, -3, 50]),
    "translate_y": (apply_op("TranslateY"), [0, 7.9, -3, -50]),
    "rotate": (apply_op("Rotate"), [0, 9, -9, 30, -17.3, 90, 180]),
}


def tensor(image):
    return torch.from_numpy(np.array(image, dtype=np.uint8))


# --- whole transforms -------------------------------------------------------------------------------------------------
def color_jitter(image, seed):
    """The result, and the changes in the order in which the transform made them."""
    changes = []

    def recorded(number, function):
        def call(picture, factor):
            changes.append((number, factor))
            return function(picture, factor)

        return call

    torch.manual_seed(seed)
    with mock.patch.multiple(transforms.F, **{
            f"adjust_{name}": recorded(number, getattr(F, f"adjust_{name}"))
            for number, name in enumerate(PROPERTIES)}):
        result = ColorJitter(0.4, 0.5, 1.5, 0.3)(image)
    return result, torch.tensor(changes, dtype=torch.float64)


def affine(image, seed):
    """The first leaves the image as it is."""
    torch.manual_seed(seed)
    changes = []
    apply = F.affine

    def recorded(picture, angle, translate, scale, shear, **options):
        changes.append((angle, *translate, scale))
        return apply(picture, angle, translate, scale, shear, **options)

    strength = 0.0 if seed == 0 else 0.3
    with mock.patch.object(transforms.F, "affine", recorded):
        result = RandomAffine(100 * strength, (strength, strength), (1 - strength, 1 + strength),
                              interpolation=InterpolationMode.BILINEAR)(image)
    return result, torch.tensor(changes, dtype=torch.float64)


def rand_augment(image, seed):
    torch.manual_seed(seed)
    magnitude = int(torch.randint(31, (1,)))
    names = list(RandAugment()._augmentation_space(31, (1, 1)))
    changes = []
    apply = autoaugment._apply_op

    def recorded(picture, name, amount, **options):
        changes.append((names.index(name), magnitude, int(np.signbit(amount))))
        return apply(picture, name, amount, **options)

    with mock.patch.object(autoaugment, "_apply_op", recorded):
        result = RandAugment(num_ops=5, magnitude=magnitude)(image)
    return result, torch.tensor(changes, dtype=torch.int64)


def magnitudes(width, height):
    space = RandAugment()._augmentation_space(31, (height, width))
    return torch.stack([amounts.double().expand(31) for amounts, _ in space.values()])


def augment_goldens():
    tensors = {}
    for picture, pixels in pictures().items():
        image = Image.fromarray(pixels.astype(np.uint8))
        tensors[f"image/{picture}"] = tensor(image)
        for name, (function, factors) in FUNCTIONS.items():
            for factor in factors:
                tensors[f"{name}/{picture}/{factor!r}"] = tensor(function(image, float(factor)))
    natural = Image.fromarray(tensors["image/natural"].numpy())
    for name, transform, count in [("color_jitter", color_jitter, 6), ("affine", affine, 8),
                                   ("rand_augment", rand_augment, 14)]:
        for seed in range(count):
            result, tensors[f"{name}/{seed}/changes"] = transform(natural, seed)
            tensors[f"{name}/{seed}/result"] = tensor(result)
    for width, height in [(224, 224), (37, 331), (662, 100)]:
        tensors[f"magnitudes/{width}/{height}"] = magnitudes(width, height)
    return tensors


# --- batches ----------------------------------------------------------------------------------------------------------
MIXES = {
    "none": {"mixup_alpha": 0.8, "prob": 0.0, "label_smoothing": 0.1},
    "mixup": {"mixup_alpha": 2.0, "label_smoothing": 0.0},
    "mixup-smooth": {"mixup_alpha": 4.0, "label_smoothing": 0.1},
    "cutmix": {"mixup_alpha": 0.0, "cutmix_alpha": 1.0, "label_smoothing": 0.1},
    "cutmix-edge": {"mixup_alpha": 0.0, "cutmix_alpha": 1.0, "label_smoothing": 0.0},
    "both-1": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "label_smoothing": 0.1},
    "both-2": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "label_smoothing": 0.3},
}


def mix_goldens():
    from timm.data import mixup

    torch.manual_seed(0)
    images, labels = torch.randn(4, 3, 9, 12), torch.tensor([2, 0, 4, 4])
    tensors = {"images": images, "labels": labels}
    find_box, find_targets = mixup.cutmix_bbox_and_lam, mixup.mixup_target
    for seed, (name, options) in enumerate(MIXES.items()):
        np.random.seed(seed)
        box, shares = [], []

        def recorded_box(*arguments, **named):
            result = find_box(*arguments, **named)
            box.extend(int(side) for side in result[0])
            return result

        def recorded_targets(target, num_classes, lam, smoothing):
            shares.append(float(lam))
            return find_targets(target, num_classes, lam, smoothing)

        with mock.patch.multiple(mixup, cutmix_bbox_and_lam=recorded_box, mixup_target=recorded_targets):
            mixed, targets = mixup.Mixup(num_classes=5, **options)(images.clone(), labels)
        values = [bool(box), *shares, *(box or [0, 0, 0, 0]), options["label_smoothing"]]
        tensors[f"{name}/mix"] = torch.tensor(values, dtype=torch.float64)
        tensors[f"{name}/images"], tensors[f"{name}/targets"] = mixed, targets
    return tensors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=HERE)
    folder = parser.parse_args().output
    for file, tensors in {"augment": augment_goldens(), "mix": mix_goldens()}.items():
        save_file({name: value.contiguous() for name, value in tensors.items()}, folder / f"{file}.safetensors")
