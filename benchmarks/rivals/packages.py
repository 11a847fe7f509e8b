"""What the rivals need of others, loaded with an error that one can read."""
import importlib
import sys


class Failure(Exception):
    """A line for the user to read."""


def load(package, distribution=None):
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.split(".")[0]:
            raise
        name = distribution or package
        raise Failure(f"the rival takes {name}, which is not installed: '{sys.executable}' -m pip install {name}")


def load_torchvision():
    """Also where its compiled operators are for another build of torch: what is used here needs none of them."""
    try:
        return load("torchvision")
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    load_torchvision.library = load("torch").library.Library("torchvision", "DEF")  # lives as long as the operators
    for operator in ["nms", "qnms"]:
        load_torchvision.library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return load("torchvision")
