#!/usr/bin/env python3
"""Writes <case>/: small models of the Python libraries as these save them, and what the libraries compute with them.

    pip install torch transformers timm open_clip_torch safetensors
    pip install --no-deps torchvision clip-anytorch       # --no-deps: or they bring a torch of their own
    python make_model_goldens.py [--output FOLDER] [CASE ...]

The files here are by torch 2.13.0, torchvision 0.28.0, timm 1.0.30, transformers 5.22.2, open_clip_torch 3.3.0,
clip-anytorch 2.6.0 (OpenAI's clip package). A case's folder has

    a checkpoint            as the library writes it
    case.json               family, sizes, library, and which of the files is the checkpoint ("." is the folder)
    expected.safetensors    images, upstream [B, D]; tokens, upstream_text for CLIP with a text tower
                            features, logits, text_features     in evaluation mode; a CLIP's are not normalised
                            grad/<name>, grad_text/<name>       of (features * upstream).sum(), and the same for
                                                                text, in training mode
                            after/<name>                        BatchNorm's buffers and the first convolution after
                                                                three steps of SGD(lr=0.01) on the loss of grad/
                            resized_images, resized_features    with position embeddings resized by the library
    script.pt               (torchvision-resnet-basic) the model as TorchScript
    zeroshot.safetensors    (hf-clip) head [K, D] for names.txt and templates.txt, images, logits

Names are the checkpoint's, without the dict and the "module." that training scripts wrap it in. The values are the
same at every run on the same machine. OpenAI's towers are 64 channels wide or more, so that their cases have no
gradients of tensors above LARGEST_GRADIENT, and are small all the same.
"""

import argparse
import dataclasses
import gzip
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Callable

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

import oracle_models as oracles

HERE = Path(__file__).resolve().parent
BATCH = 3
LARGEST_GRADIENT = 13_000  # elements

NAMES = ["cat", "golden retriever", "crème brûlée", "O'Brien's 2 dogs", "火鍋 hot pot", "ZÜRICH  tram"]
TEMPLATES = ["a photo of a {}.", "{} in the wild", "itap of my {}!"]


# --- a small tokenizer ------------------------------------------------------------------------------------------------
MERGES = 500
VOCAB = 2 * 256 + MERGES + 2


def small_tokenizer():
    """CLIP's tokenizer with the first merges of its vocabulary."""
    import open_clip
    from open_clip.tokenizer import bytes_to_unicode
    from transformers import CLIPTokenizer

    text = gzip.open(Path(open_clip.__file__).with_name("bpe_simple_vocab_16e6.txt.gz"), "rt", encoding="utf-8").read()
    merges = [tuple(line.split()) for line in text.split("\n")[1:1 + MERGES]]
    letters = list(bytes_to_unicode().values())
    tokens = letters + [letter + "</w>" for letter in letters] + ["".join(merge) for merge in merges]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    assert len(tokens) == VOCAB
    return CLIPTokenizer(vocab={token: number for number, token in enumerate(tokens)}, merges=merges,
                         model_max_length=77)


def tokenize(tokenizer, texts):
    return tokenizer(texts, padding="max_length", truncation=True, max_length=77, return_tensors="pt")["input_ids"]


# --- the cases --------------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Case:
    build: Callable  # seed -> Oracle
    resized: int | None = None  # an image size
    variants: dict = dataclasses.field(default_factory=dict)  # name -> build, of the same checkpoint
    largest_gradient: int | None = None
    tokens: Callable | None = None  # where made-up ones will not do
    also: Callable | None = None  # (oracle, folder): writes more


VIT = {"image_size": 32, "patch": 8, "depth": 2, "heads": 2, "width": 24, "mlp": 96}
VISION = {"image_size": 32, "patch": 8, "layers": 2, "heads": 3, "width": 24, "mlp": 80}
TEXT = {"layers": 3, "heads": 3, "width": 24, "mlp": 60, "vocab": VOCAB, "context": 77}
SHORT_TEXT = {"layers": 2, "heads": 2, "width": 16, "vocab": 120, "context": 20}
ONE_HEAD_TEXT = SHORT_TEXT | {"heads": 1}
RESNET = {"layers": [1, 2, 1, 1], "width": 4, "image_size": 64}


def sentences():
    return tokenize(small_tokenizer(), ["a photo of a cat.", "Crème brûlée & 火鍋", "it's the 3rd dog!",
                                        "many words " * 60])


def hf_clip(seed):
    return oracles.hf_clip(seed, VISION | {"heads": 2, "width": 32}, TEXT, 24, tokenizer=small_tokenizer())


def hf_clip_gelu(seed):
    vision = VISION | {"heads": 4, "mlp": 56, "layers": 3}
    text = TEXT | {"heads": 2, "width": 20, "mlp": 36, "layers": 2, "vocab": 150, "context": 24}
    return oracles.hf_clip(seed, vision, text, 28, activation="gelu", dtype=torch.float16, shard_size="40KB")


def open_clip_hub(seed):
    return oracles.open_clip_oracle(seed, VISION, SHORT_TEXT | {"vocab": VOCAB, "context": 77}, 28, layout="hub",
                                    tokenizer=small_tokenizer())


def mae(pool):
    return partial(oracles.mae_vit, decoder_width=16, decoder_depth=1, decoder_heads=2, pool=pool,
                   **VIT | {"mlp": 64})


def write_zero_shot(oracle, folder):
    """A head from class names: per class the mean over the templates of normalised embeddings, normalised again."""
    tokenizer = transformers_tokenizer(folder)
    images = load_file(folder / "expected.safetensors")["images"]
    with torch.no_grad():
        oracle.model.eval()
        rows = []
        for name in NAMES:
            tokens = tokenize(tokenizer, [template.replace("{}", name) for template in TEMPLATES])
            mean = F.normalize(oracle.text_features(tokens), dim=-1).mean(0)
            rows.append(F.normalize(mean, dim=-1) * oracle.logit_scale.exp())
        head = torch.stack(rows)
        logits = F.normalize(oracle.features(images), dim=-1) @ head.T
    (folder / "names.txt").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    (folder / "templates.txt").write_text("\n".join(TEMPLATES) + "\n", encoding="utf-8")
    save_file({"head": head, "images": images, "logits": logits}, folder / "zeroshot.safetensors")


def write_script(oracle, folder):
    """The same model as TorchScript."""
    oracles.save_script(torch.jit.script(oracle.model), folder / "script.pt")


def transformers_tokenizer(folder):
    from transformers import CLIPTokenizer

    return CLIPTokenizer.from_pretrained(folder)


CASES = {
    "hf-clip": Case(hf_clip, tokens=sentences, also=write_zero_shot),
    "hf-clip-gelu": Case(hf_clip_gelu),
    "hf-clip-vision": Case(partial(oracles.hf_clip_vision, vision=VISION)),
    "hf-clip-vision-4": Case(partial(oracles.hf_clip_vision, vision=VISION | {"mlp": 64}, old_names=True)),
    "hf-clip-vision-proj": Case(partial(oracles.hf_clip_vision, vision=VISION, embedding=28)),
    "openai-clip-vit": Case(
        partial(oracles.openai_clip, vision={"image_size": 32, "patch": 8, "layers": 2, "width": 64},
                text={"layers": 1, "heads": 1, "width": 64, "vocab": 96, "context": 16}, embedding=24),
        largest_gradient=LARGEST_GRADIENT),
    "openai-clip-script": Case(
        partial(oracles.openai_clip, vision={"image_size": 16, "patch": 4, "layers": 1, "width": 128},
                text=ONE_HEAD_TEXT, embedding=24, script=True), largest_gradient=LARGEST_GRADIENT // 6),
    "openai-clip-rn": Case(
        partial(oracles.openai_clip, vision=RESNET, text=ONE_HEAD_TEXT, embedding=16),
        largest_gradient=LARGEST_GRADIENT),
    "open-clip-vit": Case(
        partial(oracles.open_clip_oracle, vision=VISION, text=SHORT_TEXT, embedding=28), resized=48),
    "open-clip-vit-hf": Case(open_clip_hub),
    "open-clip-rn": Case(
        partial(oracles.open_clip_oracle, vision=RESNET | {"width": 2, "heads": 4}, text=SHORT_TEXT, embedding=24)),
    "torchvision-resnet-basic": Case(
        partial(oracles.torchvision_resnet, block="basic", layers=[2, 1, 1, 1], width=4, image_size=64,
                num_classes=7), also=write_script),
    "torchvision-resnet-bottleneck": Case(
        partial(oracles.torchvision_resnet, block="bottleneck", num_classes=7, **RESNET)),
    "torchvision-vit": Case(partial(oracles.torchvision_vit, num_classes=7, **VIT)),
    "timm-vit": Case(partial(oracles.timm_vit, num_classes=7, **VIT), resized=48),
    "timm-vit-avg": Case(
        partial(oracles.timm_vit, num_classes=7, pool="avg", **VIT | {"heads": 4, "mlp": 80}), resized=24),
    "timm-vit-clip": Case(
        partial(oracles.timm_vit, num_classes=7, clip=True, filename="model.safetensors", **VIT | {"mlp": 80}),
        resized=48),
    "moco-v3-resnet": Case(
        partial(oracles.moco_resnet, block="bottleneck", hidden=24, output=12,
                **RESNET | {"layers": [1, 1, 1, 1], "width": 2})),
    "moco-v3-vit": Case(partial(oracles.moco_vit, hidden=24, output=12, **VIT | {"mlp": 64})),
    "mae-vit": Case(mae("token"), variants={"avg": mae("avg")}),
}


# --- writing them -----------------------------------------------------------------------------------------------------
def expected(case, oracle, seed):
    inputs = oracles.make_inputs(oracle, seed, BATCH)
    if case.tokens:
        inputs["tokens"] = case.tokens()
    tensors = inputs | oracles.reference(oracle, inputs)
    if case.resized:
        generator = torch.Generator().manual_seed(seed + 1)
        tensors["resized_images"] = torch.randn(2, 3, case.resized, case.resized, generator=generator)
        with torch.no_grad():
            tensors["resized_features"] = oracle.resized(case.resized)(tensors["resized_images"])
    if case.largest_gradient:
        tensors = {name: value for name, value in tensors.items()
                   if not name.startswith("grad") or value.numel() <= case.largest_gradient}
    return {name: value.contiguous() for name, value in tensors.items()}


def describe(oracle, paths, folder, variants):
    checkpoints = [str(path.relative_to(folder)) for path in paths]
    text = {"model": oracle.family, "library": oracle.library, "checkpoint": checkpoints[0], "options": oracle.options}
    if variants:  # other options for the same checkpoint, and what to expect then
        text["variants"] = {f"expected-{name}.safetensors": variant.options for name, variant in variants.items()}
    return json.dumps(text, indent=2) + "\n"


def write(name, folder):
    case, seed = CASES[name], oracles.FIRST_SEED + list(CASES).index(name)
    folder.mkdir()
    oracle = case.build(seed)
    variants = {key: build(seed) for key, build in case.variants.items()}
    paths = oracle.save(folder)
    save_file(expected(case, oracle, seed), folder / "expected.safetensors")
    for key, variant in variants.items():
        save_file(expected(case, variant, seed), folder / f"expected-{key}.safetensors")
    (folder / "case.json").write_text(describe(oracle, paths, folder, variants))
    if case.also:
        case.also(oracle, folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes 0600


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="those to write; all without")
    parser.add_argument("--output", type=Path, default=HERE, help="the folder to write into")
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    torch.set_num_threads(1)
    for name in arguments.cases or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            write(name, Path(scratch) / name)
            shutil.rmtree(arguments.output / name, ignore_errors=True)
            shutil.copytree(Path(scratch) / name, arguments.output / name)
        files = list((arguments.output / name).iterdir())
        print(f"{name:32}{sum(file.stat().st_size for file in files) // 1024:6} KB")


if __name__ == "__main__":
    main()
