"""Writes a `LanguageModel` in a layout of Hugging Face's decoders."""

import dataclasses
import json
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer.checks import one_of, require
from keras_transformer.config import TransformerConfig
from keras_transformer.export.huggingface.layouts import IDS, LAYOUTS, OUTPUT, Layout
from keras_transformer.export.interop.weight_map import safetensors, weights_of_layers
from keras_transformer.layers.adaptation import quantization_configs
from keras_transformer.models import LanguageModel
from keras_transformer.storage.atomic_files import atomic_write


def export_huggingface(model: LanguageModel, path: str | Path) -> None:
    """Writes a folder that `AutoModelForCausalLM.from_pretrained` of Hugging Face's transformers loads.

    The parts of the model determine the architecture:

    - `LlamaForCausalLM`: rotary positions, RMS normalization and gated feed-forward layers; with or without grouped
      queries and biases.
    - `GPT2LMHeadModel`: learned positions, layer normalization, plain feed-forward layers and biases.

    Both normalize before each part and after the last layer. The folder contains config.json, generation_config.json
    and model.safetensors, in float32. Token ids stay the same: inputs of transformers start with `bos_id`, which
    `generate` of this package adds itself. If embeddings are scaled, the file contains the scaled table, and the output
    has its own matrix. `generate` of transformers does not generate `pad_id` or `bos_id`, as here. Rates of
    dropout that the architecture does not have are omitted.

    Args:
        model: a `LanguageModel`. LoRA is merged into the weights.
        path: the folder to create.

    Raises:
        ValueError: if the folder exists, safetensors is not installed, or neither architecture supports the model. The
            message lists all problems with the architecture that has the fewest.

    Example:

        export_huggingface(model, "runs/llama")
        transformers.AutoModelForCausalLM.from_pretrained("runs/llama")
    """
    path = Path(path)
    if path.exists():
        raise ValueError(f"`path` must not exist. Received: path={path}")
    layout = _layout_of(model)
    library = safetensors()
    contents = {"config.json": _config(layout, model.config), "generation_config.json": _generation(model.config)}
    with atomic_write(path, owns_folder=False) as temporary:
        temporary.mkdir()
        library.save_file(dict(_tensors(layout, model)), temporary / "model.safetensors", metadata={"format": "pt"})
        for name, content in contents.items():
            (temporary / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _layout_of(model) -> Layout:
    """The layout of a model. Raises `ValueError` with the problems of the nearest one if none supports it."""
    if not isinstance(model, LanguageModel):
        raise ValueError(f"`model` must be a LanguageModel. Received: {type(model).__name__}")
    fields = settings(model.config)
    found = [(layout, [*_problems(layout, fields)]) for layout in LAYOUTS]
    layout, problems = min(found, key=lambda pair: len(pair[1]))
    require(problems, _layer_problems(model), of=f"{layout.architecture} does not support this model")
    return layout


def settings(config: TransformerConfig) -> dict[str, Any]:
    """The fields of a configuration with their default values filled in, and sizes that follow from them."""
    d_k, d_v = config.head_dims
    return {
        **dataclasses.asdict(config),
        "num_decoder_layers": config.depths[1],
        "num_kv_heads": config.kv_heads,
        # The file contains the scaled embedding, and the output is not scaled.
        "is_tied": config.has_tied_output and not config.scale_embedding,
        "d_k": d_k,
        "d_v": d_v,
        "final_norm": config.norm_first if config.final_norm is None else config.final_norm,
        "logits_scale": 1.0 if config.logits_scale is None else config.logits_scale,
        "d_model / num_heads": config.d_model / config.num_heads,
        "d_model % num_heads": config.d_model % config.num_heads,
    }


def _problems(layout, fields):
    for name, value in layout.required.items():
        if fields[name] != value:
            yield f"`{name}` must be {value!r}. Received: {name}={fields[name]!r}"
    for name, other in layout.equal.items():
        if fields[name] != fields[other]:
            yield f"`{name}` must equal `{other}`. Received: {name}={fields[name]}, {other}={fields[other]:g}"
    yield from one_of([*layout.activations], activation=fields["activation"])


def _layer_problems(model):
    for name in model.parts.blocks:
        yield f"Layers of your own are not supported. Received: {name}"
    if quantization_configs(model):
        yield "A quantized model is not supported. Export the model before `quantize`"


def _config(layout, config):
    """The contents of config.json."""
    fields = {**settings(config), "activation": layout.activations[config.activation]}
    named = {theirs: fields[ours] for theirs, ours in layout.fields.items()}
    return {"architectures": [layout.architecture], **layout.constants, **named}


def _generation(config):
    """The contents of generation_config.json."""
    ids = {theirs: getattr(config, ours) for theirs, ours in IDS.items()}
    return {**ids, "suppress_tokens": sorted({config.pad_id, config.bos_id})}


def _tensors(layout, model) -> Iterator[tuple[str, np.ndarray]]:
    """Names and values of the weights in the file."""
    for module, layers in _modules(layout, model):
        named = next(named for kind, named in weights_of_layers().items() if isinstance(layers[0], kind))
        for name, attribute in named.items():
            weights = [getattr(layer, attribute) for layer in layers]
            if weights[0] is None:  # A projection without bias.
                continue
            array = np.concatenate([keras.ops.convert_to_numpy(x).astype("float32") for x in weights], axis=-1)
            if layers[0] is model.embedding and model.embedding.scale and module != OUTPUT:
                array *= np.float32(model.config.d_model**0.5)
            is_transposed = attribute == "kernel" and layout.has_transposed_kernels
            yield f"{module}.{name}", np.ascontiguousarray(array.T if is_transposed else array)


def _modules(layout, model) -> Iterator[tuple[str, list[Any]]]:
    """Names of the modules in the file, and the layers of the model whose weights they hold."""
    for module, paths in layout.modules.items():
        if module != OUTPUT or not settings(model.config)["is_tied"]:
            yield module, [operator.attrgetter(path)(model) for path in paths]
    for i, block in enumerate(model.decoder.layers):
        for module, paths in layout.block_modules.items():
            yield f"{layout.block.format(i)}.{module}", [operator.attrgetter(path)(block) for path in paths]
