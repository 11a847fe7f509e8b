"""Makes the small files that the pages' commands run on: python3 fixtures.py path/to/tpgm OUT

Every page finds the same names. Data sets have the folders and names of the real ones with a few images in them,
checkpoints the layouts of the real ones with a few thousand weights. OUT is replaced.
"""

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "weights" / "goldens"
RESNET = "resnet:layers=1-1-1-1,width=4,block=basic,image_size=32"
NAMES = ["tench", "goldfish", "great white shark", "tiger shark", "hammerhead", "electric ray", "stingray", "cock"]


def tpgm(*arguments):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, done.args))}\n{done.stderr}")


def data():
    """domainnet, imagenet and its shifts, pacs, office-home; photos and sketches: class folders of one's own."""
    make = [sys.executable, ROOT / "scripts" / "make_small_datasets"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*make, f"{folder}/small"], check=True)
        subprocess.run([*make, f"{folder}/more", "--per-class", "12", "--classes", "4"], check=True)
        for each in Path(folder, "small").iterdir():
            shutil.move(each, ".")
        shutil.move(f"{folder}/more/pacs/photo", "photos")
        shutil.move(f"{folder}/more/pacs/sketch", "sketches")
        for name in os.listdir("photos"):  # photos that no model here has seen
            os.makedirs(f"held_out/{name}")
            for each in sorted(os.listdir(f"photos/{name}"))[-2:]:
                shutil.move(f"photos/{name}/{each}", f"held_out/{name}")


def glyphs():
    """The recipes, and the assets with ten of 62 characters and a few typefaces of each."""
    shutil.copytree(ROOT / "recipes", "recipes")
    with open("recipes/glyphs/tpgm-end.toml", "a", encoding="utf-8") as recipe:
        recipe.write("radius-steps = 20  # of 200\n")
    shutil.copytree(ROOT / "scripts", "scripts")
    Path("assets").mkdir()
    for each in (ROOT / "assets").iterdir():
        if each.name != "glyphs.tar":
            os.symlink(each, f"assets/{each.name}")
    taken, most = Counter(), {"train": 5, "radius": 1}
    with tarfile.open(ROOT / "assets" / "glyphs.tar") as whole, tarfile.open("assets/glyphs.tar", "w") as small:
        for member in whole:
            split, domain, name, _ = member.name.split("/")
            if name.startswith("digit_") and taken[split, domain, name] < most.get(split, 2):
                taken[split, domain, name] += 1
                small.addfile(member, whole.extractfile(member))


def forget(source, target):
    """Copies a safetensors file without its metadata: what another library would have saved."""
    content = Path(source).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(target).write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length:])


def checkpoints():
    """Formats are told apart by content, so some .pt files here are safetensors inside."""
    with tempfile.TemporaryDirectory() as folder:
        def made(name, model, *options, to):
            """Fine-tunes, and writes it as that library would."""
            tpgm("train", *(("--model", model) if model else ()), *options, "--radius-fraction", "0", "-o", f"{folder}/{name}")
            tpgm("convert", f"{folder}/{name}", "--to", to, "-o", f"{folder}/{name}.safetensors")
            return f"{folder}/{name}.safetensors"

        # Classifiers of photos: one pre-trained, one fine-tuned.
        photos = ("--data-dir", "photos", "--lr", "1e-2", "--batch-size", "8", "--no-aug", "--selection-fraction", "0")
        forget(made("pretrained", RESNET, *photos, "--epochs", "3", to="torchvision"), "pretrained.pt")
        forget(made("tuned", "", "--checkpoint", f"{folder}/pretrained", "--head", "checkpoint", *photos, "--epochs", "2",
                    to="torchvision"), "tuned.pt")
        # One of ImageNet's eight classes, and towers of CLIP.
        shutil.copy(made("resnet50", RESNET, "--data-dir", "imagenet", "--epochs", "0", to="torchvision"), "resnet50.pth")
        shutil.copy(made("rn50", "clip-resnet:layers=1-1-1-1,width=8,image_size=32,embedding=64", "--data-dir", "imagenet",
                         "--epochs", "0", to="openai"), "RN50.pt")
        tpgm("convert", GOLDENS / "hf-clip", "--to", "openai", "-o", f"{folder}/vit.safetensors")
        shutil.copy(f"{folder}/vit.safetensors", "ViT-B-16.pt")
        tpgm("train", "--checkpoint", GOLDENS / "hf-clip", "--data-dir", "photos", "--epochs", "0", "-o", f"{folder}/clip")
        shutil.copy(f"{folder}/clip/best.safetensors", "tuned.safetensors")
    shutil.copy(GOLDENS / "openai-clip-script" / "model.pt", "ViT-B-32.pt")
    shutil.copy(GOLDENS / "moco-v3-resnet" / "model.pth.tar", "r-50-1000ep.pth.tar")
    for name in ("model.pt", "mobilenet_v2.ts"):
        shutil.copy(GOLDENS / "torchvision-resnet-basic" / "script.pt", name)
    shutil.copytree(GOLDENS / "hf-clip-gelu", "sharded", ignore=shutil.ignore_patterns("expected*", "case.json"))
    shutil.copytree(GOLDENS / "hf-clip", "clip-vit-base-patch32",
                    ignore=shutil.ignore_patterns("expected*", "case.json", "names.txt", "templates.txt", "zeroshot*"))
    Path("bpe_simple_vocab_16e6.txt.gz").write_bytes(gzip.compress((GOLDENS / "hf-clip" / "merges.txt").read_bytes(), mtime=0))
    Path("names.txt").write_text("".join(f"{name}\n" for name in NAMES))
    Path("names.json").write_text(json.dumps(NAMES))
    Path("templates.txt").write_text("a photo of a {}.\nitap of my {}!\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    COMMAND, out = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    os.chdir(out)
    data()
    glyphs()
    checkpoints()
