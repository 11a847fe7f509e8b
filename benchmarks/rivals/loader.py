"""The batches that `tpgm bench loader` measures, as torchvision's transforms make them of Pillow's images, in one
thread: loader.py SETTINGS.json

    files, image_size, batch_size, mean, std
    go      a FIFO. Each line of it is a turn: "train 0 128" for the files from 0 to 127; "eval" keeps 7/8 of the
            resized image's shorter side, "eval_whole" all of it

Prints a line of JSON: {"name": "torchvision 0.28.0, Pillow 13.0.0", "torch": ...} or {"error": "..."}; then one a turn,
{"wall": seconds, "cpu": seconds}.
"""

import json
import math
import random
import sys
import time

from packages import Failure, load, load_torchvision

torch = Image = None  # in main, for an error that one can read


def load_transforms():
    """torchvision.transforms; None without it."""
    try:
        load_torchvision()
    except Failure:
        return None
    return load("torchvision.transforms")


def torchvision_pipelines(transforms, settings):
    size, bicubic = settings["image_size"], transforms.InterpolationMode.BICUBIC
    tensor = [transforms.ToTensor(), transforms.Normalize(settings["mean"], settings["std"])]

    def evaluation(resized):
        return transforms.Compose([transforms.Resize(resized, bicubic), transforms.CenterCrop(size), *tensor])

    train = transforms.Compose([transforms.RandomResizedCrop(size, interpolation=bicubic),
                                transforms.RandomHorizontalFlip(), *tensor])
    return {"train": train, "eval": evaluation(math.floor(size / 0.875)), "eval_whole": evaluation(size)}


def own_pipelines(settings):
    """What torchvision does with Pillow's images, call for call, where it is not installed."""
    numpy = load("numpy")
    size = settings["image_size"]
    mean = torch.tensor(settings["mean"]).view(-1, 1, 1)
    std = torch.tensor(settings["std"]).view(-1, 1, 1)

    def to_tensor(image):
        pixels = torch.from_numpy(numpy.array(image, numpy.uint8, copy=True))
        pixels = pixels.view(image.size[1], image.size[0], 3).permute((2, 0, 1)).contiguous()
        return pixels.to(torch.float32).div(255).clone().sub_(mean).div_(std)

    def crop_box(width, height):
        for _ in range(10):
            area = width * height * random.uniform(0.08, 1)
            ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left, top = random.randint(0, width - w), random.randint(0, height - h)
                return left, top, left + w, top + h
        w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
        left, top = (width - w) // 2, (height - h) // 2
        return left, top, left + w, top + h

    def train(image):
        image = image.crop(crop_box(*image.size)).resize((size, size), Image.BICUBIC)
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        return to_tensor(image)

    def evaluation(resized):
        def view(image):
            width, height = image.size
            shorter = min(width, height)
            image = image.resize((width * resized // shorter, height * resized // shorter), Image.BICUBIC)
            left, top = round((image.size[0] - size) / 2), round((image.size[1] - size) / 2)
            return to_tensor(image.crop((left, top, left + size, top + size)))
        return view

    return {"train": train, "eval": evaluation(math.floor(size / 0.875)), "eval_whole": evaluation(size)}


def open_image(path):
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def start(path):
    global torch, Image
    with open(path) as file:
        settings = json.load(file)
    torch = load("torch")
    pillow = load("PIL", "pillow")
    Image = load("PIL.Image", "pillow")
    torch.set_num_threads(1)
    transforms = load_transforms()
    if transforms:
        version = sys.modules["torchvision"].__version__.split("+")[0]
        name, pipelines = f"torchvision {version}", torchvision_pipelines(transforms, settings)
    else:
        name, pipelines = "torchvision's arithmetic", own_pipelines(settings)
    return settings, pipelines, {"name": f"{name}, Pillow {pillow.__version__}",
                                 "torch": torch.__version__.split("+")[0]}


def take_turn(settings, pipeline, files):
    wall, cpu = time.perf_counter(), time.process_time()
    size = settings["batch_size"]
    for begin in range(0, len(files), size):
        torch.stack([pipeline(open_image(path)) for path in files[begin : begin + size]])
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def main(arguments):
    if len(arguments) != 1:
        sys.exit("usage: loader.py SETTINGS.json")
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not JSON
    try:
        settings, pipelines, hello = start(arguments[0])
    except Failure as failure:
        print(json.dumps({"error": str(failure)}), file=out)
        return 1
    for pipeline in pipelines.values():  # what is done once is done before the first turn
        take_turn(settings, pipeline, settings["files"][:8])
    print(json.dumps(hello), file=out, flush=True)
    with open(settings["go"]) as turns:
        for turn in turns:
            work, begin, end = turn.split()
            print(json.dumps(take_turn(settings, pipelines[work], settings["files"][int(begin) : int(end)])),
                  file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
