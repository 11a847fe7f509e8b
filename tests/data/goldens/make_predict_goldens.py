#!/usr/bin/env python3
"""Makes predict.safetensors: what transformers' CLIP makes of small PACS, through torchvision and Pillow.

In an environment with torch, torchvision, transformers, safetensors and Pillow:
python make_predict_goldens.py [folder]
"""
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MODELS = ROOT / "tests" / "weights" / "goldens"
sys.path.insert(0, str(MODELS))

import oracle_models  # noqa: E402

oracle_models.import_torchvision()

import torch  # noqa: E402
import torchvision.transforms as transforms  # noqa: E402
from PIL import Image  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import CLIPModel  # noqa: E402

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def main(folder):
    model = CLIPModel.from_pretrained(MODELS / "hf-clip").eval()
    size = model.config.vision_config.image_size
    view = transforms.Compose([
        transforms.Resize(size, transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(size),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ])
    with tempfile.TemporaryDirectory() as data:
        subprocess.run([sys.executable, ROOT / "scripts" / "make_small_datasets", Path(data) / "all"], check=True,
                       stdout=subprocess.DEVNULL)
        files = sorted((Path(data) / "all" / "pacs").rglob("*.jpg"))  # by domain, class and name
        images = torch.stack([view(Image.open(file).convert("RGB")) for file in files])
    with torch.no_grad():
        features = model.get_image_features(pixel_values=images)
    features = getattr(features, "pooler_output", features)
    save_file({"features": features.contiguous()}, Path(folder) / "predict.safetensors")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent)
