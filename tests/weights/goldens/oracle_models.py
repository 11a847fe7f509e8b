"""Models of the Python libraries, with random weights, and what they compute: the other side of every comparison.

Each builder gives an Oracle: a model of one library, how that library writes its checkpoint, and its sizes. `reference`
runs it. make_model_goldens.py uses the builders with small sizes, scripts/parity with those of the papers.

Names in the results are those of the checkpoint, without the dict and the "module." that training scripts wrap it in.
"""

import contextlib
import copy
import dataclasses
import importlib.metadata
import importlib.util
import sys
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

FIRST_SEED = 20260


# --- libraries --------------------------------------------------------------------------------------------------------
def import_torchvision():
    """torchvision, also where its compiled operators cannot be loaded (a CUDA build beside a CPU torch).

    Its models need none of them, but importing it registers shapes for two, which must exist then.
    """
    try:
        import torchvision
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ["nms", "qnms"]:
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

        import_torchvision.library = library  # the operators live as long as this does
    return torchvision


def import_openai_clip():
    """clip.model alone: clip/__init__.py wants pkg_resources, which setuptools no longer has."""
    name = "clip.model"
    if name not in sys.modules:
        package = importlib.util.find_spec("clip")
        spec = importlib.util.spec_from_file_location(name, Path(package.origin).with_name("model.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


import_torchvision()  # before timm and open_clip, which import it themselves
import open_clip  # noqa: E402
import timm.layers  # noqa: E402
import transformers  # noqa: E402
from timm.models.vision_transformer import Block as TimmBlock  # noqa: E402
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer  # noqa: E402

transformers.utils.logging.disable_progress_bar()


def version(package):
    """'timm 1.0.30'; a build's suffix ('+cu130') is left out."""
    return f"{package} {importlib.metadata.version(package).split('+')[0]}"


# --- an oracle --------------------------------------------------------------------------------------------------------
def same(name):
    return name


@dataclasses.dataclass
class Oracle:
    """One model of one library."""

    model: nn.Module
    family: str  # "resnet", "vit", "clip-resnet", "clip-vit"
    library: str
    options: dict  # its sizes
    features: Callable  # images -> what the backbone gives, [B, D]; a CLIP's are not normalised
    save: Callable  # folder -> what it wrote there, to be opened as a checkpoint
    logits: Callable | None = None  # images -> [B, classes]
    text_features: Callable | None = None  # tokens -> [B, D], not normalised
    logit_scale: nn.Parameter | None = None
    checkpoint_name: Callable = same  # of a parameter or buffer of the model
    resized: Callable | None = None  # image size -> features of the model with its position embeddings resized
    padding: int = 0  # what follows the end of a text


def closing_norms(model):
    """The last norm of each block of a ResNet."""
    blocks = [module for module in model.modules() if hasattr(module, "conv2") and hasattr(module, "downsample")]
    return {block.bn3 if hasattr(block, "bn3") else block.bn2 for block in blocks}


def randomise(model, seed):
    """Gives every parameter and buffer a value of its own: no zeros, no ones, no two alike; of sizes that keep
    activations near one, so that nothing saturates in deep models. A ResNet's blocks add little to what they are given,
    or a few steps of training a deep one would blow up rounding errors."""
    generator = torch.Generator().manual_seed(seed)

    def normal(tensor, std, mean=0.0):
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * std + mean)

    norms = (nn.LayerNorm, nn.modules.batchnorm._BatchNorm)
    closing = closing_norms(model)
    with torch.no_grad():
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if name == "logit_scale":
                    parameter.fill_(2.5)
                elif name.endswith("bias"):
                    normal(parameter, 0.1)
                elif isinstance(module, norms):
                    normal(parameter, 0.1, mean=0.2 if module in closing else 0.75)
                elif isinstance(module, (nn.Linear, nn.Conv2d, nn.MultiheadAttention)):
                    normal(parameter, parameter[0].numel() ** -0.5)
                elif name in ("proj", "text_projection"):  # CLIP's, used as x @ proj
                    normal(parameter, parameter.shape[0] ** -0.5)
                else:  # embeddings and class tokens
                    normal(parameter, 0.5)
            for name, buffer in module.named_buffers(recurse=False):
                if name == "running_mean":
                    normal(buffer, 0.1)
                elif name == "running_var":
                    buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
                elif name == "num_batches_tracked":
                    buffer.fill_(17)
    return model


@contextlib.contextmanager
def headless(model, head):
    """Within it, the model gives what goes into its child `head`."""
    kept = getattr(model, head)
    setattr(model, head, nn.Identity())
    try:
        yield model
    finally:
        setattr(model, head, kept)


def below(model, head):
    def features(images):
        with headless(model, head):
            return model(images)

    return features


def state_of(model):
    """A copy of the model's state dict."""
    return OrderedDict((name, value.detach().clone()) for name, value in model.state_dict().items())


def file_saver(filename, contents):
    """Saves what contents() gives: by torch.save, or as safetensors where the name says so."""

    def save(folder):
        path = Path(folder) / filename
        if path.suffix == ".safetensors":
            from safetensors.torch import save_file

            save_file(contents(), path)
        else:
            torch.save(contents(), path)
        return [path]

    return save


# --- torchvision ------------------------------------------------------------------------------------------------------
def torchvision_resnet_module(block, layers, width, num_classes):
    """torchvision's ResNet of any width: its own has 64, 128, 256 and 512 planes written into it."""
    from torchvision.models import resnet

    block = {"basic": resnet.BasicBlock, "bottleneck": resnet.Bottleneck}[block]
    if width == 64:
        return resnet.ResNet(block, layers, num_classes=num_classes)

    class Narrow(resnet.ResNet):
        def _make_layer(self, block, planes, *args, **kwargs):
            if planes == 64:
                self.inplanes = width
            return super()._make_layer(block, planes * width // 64, *args, **kwargs)

    model = Narrow(block, layers)
    model.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
    model.bn1 = nn.BatchNorm2d(width)
    model.fc = nn.Linear(model.inplanes, num_classes)
    return model


def torchvision_resnet(seed, block, layers, width, image_size, num_classes, filename="model.pth"):
    model = randomise(torchvision_resnet_module(block, layers, width, num_classes), seed)
    options = {"block": block, "depth": list(layers), "width": width, "image_size": image_size, "channels": 3,
               "num_classes": num_classes}
    return Oracle(model, "resnet", version("torchvision"), options, below(model, "fc"),
                  file_saver(filename, model.state_dict), logits=model)


def timm_resnet(seed, name, options, filename="model.safetensors"):
    """A named timm ResNet, at full size: the narrow one is torchvision's, whose names timm shares."""
    model = randomise(timm.create_model(name, num_classes=options["num_classes"]), seed)
    return Oracle(model, "resnet", version("timm"), options, below(model, "fc"), file_saver(filename, model.state_dict),
                  logits=model)


def torchvision_vit(seed, image_size, patch, depth, heads, width, mlp, num_classes):
    from torchvision.models.vision_transformer import VisionTransformer

    model = randomise(VisionTransformer(image_size, patch, depth, heads, width, mlp, num_classes=num_classes), seed)
    options = {"depth": depth, "width": width, "heads": heads, "mlp": mlp, "patch": patch, "image_size": image_size,
               "channels": 3, "pool": "class", "activation": "gelu", "num_classes": num_classes}
    return Oracle(model, "vit", version("torchvision"), options, below(model, "heads"),
                  file_saver("model.pth", model.state_dict), logits=model)


# --- timm -------------------------------------------------------------------------------------------------------------
def timm_vit_module(image_size, patch, depth, heads, width, mlp, num_classes=0, pool="token", clip=False):
    """clip: as timm builds CLIP's image towers: a norm before the blocks, no bias of the patches, QuickGELU."""
    style = {"pre_norm": True, "norm_layer": partial(timm.layers.LayerNorm, eps=1e-5), "act_layer": "quick_gelu"}
    return TimmVisionTransformer(img_size=image_size, patch_size=patch, embed_dim=width, depth=depth, num_heads=heads,
                                 mlp_ratio=mlp / width, num_classes=num_classes, global_pool=pool,
                                 **(style if clip else {}))


def timm_features(model):
    return lambda images: model.forward_head(model.forward_features(images), pre_logits=True)


def timm_vit_options(image_size, patch, depth, heads, width, mlp, num_classes=0, pool="token", clip=False):
    options = {"depth": depth, "width": width, "heads": heads, "mlp": mlp, "patch": patch, "image_size": image_size,
               "channels": 3, "pool": {"token": "class", "avg": "mean"}[pool], "activation": "quick_gelu" if clip else "gelu", "num_classes": num_classes}
    return options | ({"pre_norm": True} if clip else {})


def timm_vit(seed, filename="model.pth", **sizes):
    model = randomise(timm_vit_module(**sizes), seed)

    def resized(image_size):
        larger = timm_vit_module(**sizes | {"image_size": image_size})
        grid = [image_size // sizes["patch"]] * 2
        state = state_of(model)
        state["pos_embed"] = timm.layers.resample_abs_pos_embed(state["pos_embed"], grid)
        larger.load_state_dict(state)
        return timm_features(larger.eval())

    return Oracle(model, "vit", version("timm"), timm_vit_options(**sizes), timm_features(model),
                  file_saver(filename, model.state_dict), logits=model if sizes.get("num_classes") else None,
                  resized=resized)


# --- checkpoints of self-supervised training --------------------------------------------------------------------------
def sincos_position_embedding(grid, width):
    """MoCo-v3's and MAE's fixed embedding, with zeros for the class token."""
    y, x = torch.meshgrid(torch.arange(grid).float(), torch.arange(grid).float(), indexing="ij")
    omega = 10000 ** -(torch.arange(width // 4).float() / (width // 4))
    x, y = x.flatten()[:, None] * omega, y.flatten()[:, None] * omega
    return torch.cat([torch.zeros(1, width), torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1)])[None]


def moco_mlp(layers, width, hidden, output, last_norm=True):
    modules = []
    for layer in range(layers):
        last = layer == layers - 1
        modules.append(nn.Linear(width if layer == 0 else hidden, output if last else hidden, bias=False))
        if not last:
            modules += [nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)]
        elif last_norm:
            modules.append(nn.BatchNorm1d(output, affine=False))
    return nn.Sequential(*modules)


def moco_checkpoint(training, arch):
    state = OrderedDict(("module." + name, value) for name, value in training.state_dict().items())
    optimizer = torch.optim.SGD(training.predictor.parameters(), lr=0.1)
    return {"epoch": 300, "arch": arch, "state_dict": state, "optimizer": optimizer.state_dict(), "scaler": {}}


def moco_v3(seed, encoder, head, predictor, head_layers, hidden, output):
    """The encoder with a projector for a head, its momentum twin and a predictor. Returns the training module."""
    setattr(encoder, head, moco_mlp(head_layers, getattr(encoder, head).in_features, hidden, output))
    training = nn.Module()
    training.base_encoder = encoder
    training.momentum_encoder = copy.deepcopy(encoder)
    training.predictor = predictor
    return randomise(training, seed)


def moco_resnet(seed, block, layers, width, image_size, hidden=4096, output=256):
    encoder = torchvision_resnet_module(block, layers, width, num_classes=2)
    training = moco_v3(seed, encoder, "fc", moco_mlp(2, output, hidden, output, last_norm=False), 2, hidden, output)
    options = {"block": block, "depth": list(layers), "width": width, "image_size": image_size, "channels": 3,
               "num_classes": 0}
    return Oracle(training, "resnet", version("torchvision") + ", MoCo-v3's names", options, below(encoder, "fc"),
                  file_saver("model.pth.tar", lambda: moco_checkpoint(training, "resnet50")))


def moco_vit(seed, hidden=4096, output=256, **sizes):
    encoder = timm_vit_module(**sizes, num_classes=2)
    training = moco_v3(seed, encoder, "head", moco_mlp(2, output, hidden, output), 3, hidden, output)
    for twin in (encoder, training.momentum_encoder):
        twin.pos_embed.data.copy_(sincos_position_embedding(sizes["image_size"] // sizes["patch"], sizes["width"]))
    return Oracle(training, "vit", version("timm") + ", MoCo-v3's names", timm_vit_options(**sizes),
                  timm_features(encoder), file_saver("model.pth.tar", lambda: moco_checkpoint(training, "vit_base")))


def mae_vit(seed, decoder_width, decoder_depth, decoder_heads, pool="token", **sizes):
    """Mean pooling takes the checkpoint's last norm for fc_norm, the norm of the mean."""
    encoder = randomise(timm_vit_module(**sizes, pool=pool), seed)
    grid, width, patch = sizes["image_size"] // sizes["patch"], sizes["width"], sizes["patch"]
    encoder.pos_embed.data.copy_(sincos_position_embedding(grid, width))

    decoder = nn.Module()
    decoder.mask_token = nn.Parameter(torch.zeros(1, 1, decoder_width))
    decoder.decoder_pos_embed = nn.Parameter(sincos_position_embedding(grid, decoder_width))
    decoder.decoder_embed = nn.Linear(width, decoder_width)
    decoder.decoder_blocks = nn.ModuleList(TimmBlock(decoder_width, decoder_heads, qkv_bias=True)
                                           for _ in range(decoder_depth))
    decoder.decoder_norm = nn.LayerNorm(decoder_width)
    decoder.decoder_pred = nn.Linear(decoder_width, patch * patch * 3)
    randomise(decoder, seed + 1)

    def checkpoint_name(name):
        return name.replace("fc_norm.", "norm.")

    def contents():
        state = OrderedDict((checkpoint_name(name), value) for name, value in encoder.state_dict().items())
        return {"model": state | decoder.state_dict()}

    return Oracle(encoder, "vit", version("timm") + ", MAE's names", timm_vit_options(**sizes, pool=pool),
                  timm_features(encoder), file_saver("model.pth", contents), checkpoint_name=checkpoint_name)


# --- OpenAI's CLIP ----------------------------------------------------------------------------------------------------
def clip_options(vision, text, embedding, activation):
    names = {"layers": "depth", "width": "width", "heads": "heads", "patch": "patch", "mlp": "mlp",
             "image_size": "image_size"}
    options = {names[key]: value for key, value in vision.items()} | {"channels": 3}
    text_names = {"layers": "text_depth", "width": "text_width", "heads": "text_heads", "mlp": "text_mlp",
                  "vocab": "vocab", "context": "context"}
    options |= {text_names[key]: value for key, value in text.items()}
    return options | {"embedding": embedding, "activation": activation}


def openai_clip_module(vision, text, embedding):
    module = import_openai_clip()
    layers = vision["layers"] if isinstance(vision["layers"], int) else tuple(vision["layers"])
    return module.CLIP(embedding, vision["image_size"], layers, vision["width"], vision.get("patch"), text["context"],
                       text["vocab"], text["width"], text["heads"], text["layers"])


def openai_script(model, image_size):
    """A TorchScript archive as OpenAI ships them: traced, in half precision, three sizes as buffers beside the
    weights. What the tracer notes down about source files, which names folders of this machine, is left out."""
    script = copy.deepcopy(model).eval()
    import_openai_clip().convert_weights(script)
    tokens = torch.randint(1, script.vocab_size, (2, script.context_length))
    sizes = {"input_resolution": image_size, "context_length": script.context_length, "vocab_size": script.vocab_size}
    for name, value in sizes.items():
        if hasattr(script, name):
            delattr(script, name)
        script.register_buffer(name, torch.tensor(value))
    return torch.jit.trace(script, (torch.randn(2, 3, image_size, image_size), tokens), check_trace=False)


def save_script(script, path):
    """torch.jit.save, less the debug records."""
    import io
    import zipfile

    buffer = io.BytesIO()
    torch.jit.save(script, buffer)
    with zipfile.ZipFile(buffer) as archive:
        records = {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}
    writer = torch._C.PyTorchFileWriter(str(path))
    for name, data in records.items():
        if not name.endswith(".debug_pkl") and name not in ("version", ".data/serialization_id"):
            writer.write_record(name, data, len(data))
    writer.write_end_of_file()


def openai_clip(seed, vision, text, embedding, script=False):
    """The heads are OpenAI's: an image tower has one for each 64 channels (of a ResNet: of its last layer's)."""
    model = randomise(openai_clip_module(vision, text, embedding), seed)
    module = import_openai_clip()
    module.convert_weights(model)  # to half precision, as OpenAI's files are
    half = state_of(model)
    model.float()

    def save_archive(folder):
        save_script(openai_script(model, vision["image_size"]), Path(folder) / "model.pt")
        return [Path(folder) / "model.pt"]

    residual = not isinstance(vision["layers"], int)
    heads = vision["width"] * 32 // 64 if residual else vision["width"] // 64
    return Oracle(model, "clip-resnet" if residual else "clip-vit", version("clip-anytorch") + " (OpenAI's clip)",
                  clip_options(vision | {"heads": heads}, text, embedding, "quick_gelu"), model.encode_image,
                  save_archive if script else file_saver("model.pt", lambda: half), text_features=model.encode_text,
                  logit_scale=model.logit_scale)


# --- open_clip --------------------------------------------------------------------------------------------------------
def open_clip_config(vision, text, embedding):
    vision_cfg = {"image_size": vision["image_size"], "layers": vision["layers"], "width": vision["width"]}
    if isinstance(vision["layers"], int):
        vision_cfg |= {"patch_size": vision["patch"], "head_width": vision["width"] // vision["heads"],
                       "mlp_ratio": vision["mlp"] / vision["width"]}
    else:
        vision_cfg |= {"patch_size": None, "head_width": vision["width"] * 32 // vision["heads"]}
    text_cfg = {"context_length": text["context"], "vocab_size": text["vocab"], "width": text["width"],
                "heads": text["heads"], "layers": text["layers"]}
    return {"embed_dim": embedding, "vision_cfg": vision_cfg, "text_cfg": text_cfg}


class NoTokenizer:
    def save_pretrained(self, folder):
        pass


def open_clip_oracle(seed, vision, text, embedding, quick_gelu=False, layout="training", tokenizer=NoTokenizer()):
    """layout: 'training', a file of open_clip's training; 'hub', a folder as it pushes to Hugging Face's hub."""
    config = open_clip_config(vision, text, embedding)
    if quick_gelu:
        config["quick_gelu"] = True
    model = randomise(open_clip.CLIP(**config), seed)

    def training():
        state = OrderedDict(("module." + name, value) for name, value in model.state_dict().items())
        optimizer = torch.optim.AdamW([model.logit_scale])
        return {"epoch": 3, "name": "golden", "state_dict": state, "optimizer": optimizer.state_dict()}

    def save_for_hub(folder):
        from open_clip.push_to_hf_hub import save_for_hf

        open_clip.model.set_model_preprocess_cfg(model, {"mean": open_clip.OPENAI_DATASET_MEAN,
                                                         "std": open_clip.OPENAI_DATASET_STD})
        save_for_hf(model, tokenizer, config, folder, safe_serialization=True)
        return [Path(folder)]

    def resized(image_size):
        larger = open_clip.CLIP(**open_clip_config(vision | {"image_size": image_size}, text, embedding),
                                quick_gelu=quick_gelu)
        state = state_of(model)
        open_clip.model.resize_pos_embed(state, larger)
        larger.load_state_dict(state)
        return larger.eval().encode_image

    residual = not isinstance(vision["layers"], int)
    return Oracle(model, "clip-resnet" if residual else "clip-vit", version("open_clip_torch"),
                  clip_options(vision, text, embedding, "quick_gelu" if quick_gelu else "gelu"), model.encode_image,
                  save_for_hub if layout == "hub" else file_saver("model.pt", training),
                  text_features=model.encode_text, logit_scale=model.logit_scale,
                  resized=None if residual else resized)


# --- Hugging Face's transformers --------------------------------------------------------------------------------------
def hf_vision_config(vision, projection, activation):
    return {"hidden_size": vision["width"], "intermediate_size": vision["mlp"], "num_hidden_layers": vision["layers"],
            "num_attention_heads": vision["heads"], "patch_size": vision["patch"], "image_size": vision["image_size"],
            "projection_dim": projection, "hidden_act": activation}


def hf_text_config(text, projection, activation):
    return {"hidden_size": text["width"], "intermediate_size": text["mlp"], "num_hidden_layers": text["layers"],
            "num_attention_heads": text["heads"], "vocab_size": text["vocab"],
            "max_position_embeddings": text["context"], "projection_dim": projection, "hidden_act": activation,
            "bos_token_id": text["vocab"] - 2, "eos_token_id": text["vocab"] - 1, "pad_token_id": text["vocab"] - 1}


def hf_saver(model, dtype=torch.float32, shard_size="50GB", tokenizer=None):
    """tokenizer: saved beside the model, in transformers 5's one file and in the two of the versions before."""

    def save(folder):
        copy.deepcopy(model).to(dtype).save_pretrained(folder, max_shard_size=shard_size)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
            tokenizer.backend_tokenizer.model.save(str(folder))
        return [Path(folder)]

    return save


def rounded(model, dtype):
    """The model with weights that dtype can hold, in float32."""
    return model.to(dtype).float()


def hf_clip(seed, vision, text, embedding, activation="quick_gelu", dtype=torch.float32, shard_size="50GB",
            tokenizer=None):
    config = transformers.CLIPConfig(vision_config=hf_vision_config(vision, embedding, activation),
                                     text_config=hf_text_config(text, embedding, activation), projection_dim=embedding)
    model = rounded(randomise(transformers.CLIPModel(config), seed), dtype)
    return Oracle(model, "clip-vit", version("transformers"), clip_options(vision, text, embedding, activation),
                  lambda images: model.get_image_features(images).pooler_output,
                  hf_saver(model, dtype, shard_size, tokenizer),
                  text_features=lambda tokens: model.get_text_features(tokens).pooler_output,
                  logit_scale=model.logit_scale, padding=text["vocab"] - 1)


def hf_clip_vision(seed, vision, embedding=None, activation="quick_gelu", old_names=False):
    """The image tower alone: CLIPVisionModelWithProjection, or CLIPVisionModel where there is no embedding.

    old_names: as transformers named CLIPVisionModel's tensors before version 5, with the buffer that it stored then.
    """
    config = transformers.CLIPVisionConfig(**hf_vision_config(vision, embedding or 512, activation))
    kind = transformers.CLIPVisionModelWithProjection if embedding else transformers.CLIPVisionModel
    model = randomise(kind(config), seed)

    def features(images):
        return model(images).image_embeds if embedding else model(images).pooler_output

    def old_name(name):
        return "vision_model." + name

    def save_old(folder):
        from safetensors.torch import save_file

        model.config.save_pretrained(folder)
        tensors = {old_name(name): value for name, value in model.state_dict().items()}
        tensors[old_name("embeddings.position_ids")] = model.embeddings.position_ids.clone()
        save_file(tensors, Path(folder) / "model.safetensors", metadata={"format": "pt"})
        return [Path(folder)]

    return Oracle(model, "clip-vit", version("transformers") + (", names of 4" if old_names else ""),
                  clip_options(vision, {}, embedding or vision["width"], activation), features,
                  save_old if old_names else hf_saver(model), checkpoint_name=old_name if old_names else same)


# --- what an oracle computes ------------------------------------------------------------------------------------------
def make_tokens(generator, texts, vocab, context, padding):
    """Start, some words, end, padding; of several lengths, the last one full."""
    start, end = vocab - 2, vocab - 1
    tokens = torch.full((texts, context), padding)
    for row in range(texts):
        words = context - 2 if row == texts - 1 else 1 + row * (context - 3) // texts
        tokens[row, 0] = start
        tokens[row, 1:1 + words] = torch.randint(1, start, (words,), generator=generator)
        tokens[row, 1 + words] = end
    return tokens


def make_inputs(oracle, seed, batch, texts=4):
    """images, upstream (of the features), and where there is a text tower tokens and upstream_text.

    upstream is small for ResNets: with steep steps of SGD, BatchNorm over few samples amplifies rounding errors.
    """
    generator = torch.Generator().manual_seed(seed)
    size = oracle.options["image_size"]
    inputs = {"images": torch.randn(batch, 3, size, size, generator=generator)}

    def upstream(features, scale):
        return torch.randn(features.shape, generator=generator) * scale / features.shape[1] ** 0.5

    with torch.no_grad():
        oracle.model.eval()
        inputs["upstream"] = upstream(oracle.features(inputs["images"]), 0.03 if has_batch_norm(oracle) else 1)
        if oracle.text_features:
            inputs["tokens"] = make_tokens(generator, texts, oracle.options["vocab"], oracle.options["context"],
                                           oracle.padding)
            inputs["upstream_text"] = upstream(oracle.text_features(inputs["tokens"]), 1)
    return inputs


def clip_logits(oracle, features, text_features):
    return oracle.logit_scale.exp() * F.normalize(features, dim=-1) @ F.normalize(text_features, dim=-1).T


def outputs(oracle, inputs):
    """features, logits and text_features of the model in evaluation mode."""
    oracle.model.eval()
    with torch.no_grad():
        out = {"features": oracle.features(inputs["images"])}
        if oracle.logits:
            out["logits"] = oracle.logits(inputs["images"])
        if oracle.text_features:
            out["text_features"] = oracle.text_features(inputs["tokens"])
            out["logits"] = clip_logits(oracle, out["features"], out["text_features"])
    return out


def gradients(oracle, prefix, loss):
    """Of every parameter that loss(), in training mode, depends on. Leaves the model as it was."""
    kept = [(buffer, buffer.clone()) for buffer in oracle.model.buffers()]
    oracle.model.train()
    oracle.model.zero_grad()
    loss().backward()
    found = {prefix + oracle.checkpoint_name(name): parameter.grad
             for name, parameter in oracle.model.named_parameters() if parameter.grad is not None}
    oracle.model.zero_grad()
    for buffer, value in kept:
        buffer.copy_(value)
    return found


def after_steps(oracle, inputs, steps, rate=0.01):
    """BatchNorm's buffers and the first convolution after steps of SGD. Leaves the model as it was."""
    state = state_of(oracle.model)
    oracle.model.train()
    optimizer = torch.optim.SGD(oracle.model.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        (oracle.features(inputs["images"]) * inputs["upstream"]).sum().backward()
        optimizer.step()
    found = {f"after/{oracle.checkpoint_name(name)}": buffer.clone()
             for name, buffer in oracle.model.named_buffers()
             if name in state and not torch.equal(buffer, state[name])}
    convolution = next(name for name, module in oracle.model.named_modules() if isinstance(module, nn.Conv2d))
    convolution = f"{convolution}.weight"
    found[f"after/{oracle.checkpoint_name(convolution)}"] = (
        oracle.model.get_parameter(convolution).detach().clone())
    oracle.model.zero_grad()
    oracle.model.load_state_dict(state)
    return found


def has_batch_norm(oracle):
    return "resnet" in oracle.family


def to_double(oracle, inputs):
    """The same in double precision. Changes the oracle; returns the inputs."""
    oracle.model.double()
    norm = import_openai_clip().LayerNorm
    norm.forward = nn.LayerNorm.forward  # OpenAI's goes down to float32 whatever it is given
    return {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}


def reference(oracle, inputs, steps=3):
    """All that is compared: outputs, gradients, and BatchNorm's buffers after some steps of training."""
    out = outputs(oracle, inputs)
    out |= gradients(oracle, "grad/", lambda: (oracle.features(inputs["images"]) * inputs["upstream"]).sum())
    if oracle.text_features:
        out |= gradients(oracle, "grad_text/",
                         lambda: (oracle.text_features(inputs["tokens"]) * inputs["upstream_text"]).sum())
    if has_batch_norm(oracle):
        out |= after_steps(oracle, inputs, steps)
    return out
