"""Conversion of config.json to `TransformerConfig`, by the table of a family."""

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any

from keras_transformer.checks import one_of
from keras_transformer.config import TransformerConfig
from keras_transformer.export.importer.families import FAMILIES
from keras_transformer.export.importer.family import Family

#: Fields of config.json with the ids of padding, of the end and of the start.
IDS = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
#: Values of `model_type` of mixtures of experts.
_EXPERTS = ("nllb-moe", "switch_transformers")


def find_family(config: Mapping[str, Any]) -> tuple[Family | None, list[str]]:
    """The family of a model by its config.json; or `None`, and the problem."""
    if "model_type" not in config:
        return None, ["config.json must have `model_type`"]
    if config["model_type"] in _EXPERTS:
        return None, [f"mixtures of experts are not supported. Received: model_type={config['model_type']!r}"]
    found = [family for family in FAMILIES if config["model_type"] in family.model_types]
    known = [kind for family in FAMILIES for kind in family.model_types]
    return (found[0], []) if found else (None, [*one_of(known, model_type=config["model_type"])])


def read_config(config: Mapping[str, Any], family: Family) -> tuple[dict[str, Any] | None, list[str]]:
    """Converts the contents of config.json to fields of `TransformerConfig`, without the vocabulary size.

    Returns:
        The fields, or `None` if they cannot be determined; and a list of problems.
    """
    config = {**{name: config.get(other) for name, other in family.fallbacks.items()}, **config}
    if config.get("architectures") in [[name] for name in family.former_architectures]:
        config["architectures"] = [family.architecture]
    required = {"architectures": [family.architecture], **family.required}
    problems = [
        f"`{name}` must be {value!r}; other architectures are not supported. Received: {config[name]!r}"
        for name, value in required.items()
        if config.get(name, value) != value
    ]
    sizes = _size_problems(config, family)
    chosen, unknown = _chosen(config, family)
    if sizes or unknown:
        return None, problems + sizes + unknown
    fields = {
        **_sizes(config, family),
        **{ours: config.get(theirs, default) for ours, (theirs, default) in family.rates.items()},
        **{name: _value(value, config) for name, value in {**family.fixed, **chosen}.items()},
    }
    size = config["vocab_size"]
    outside = [name for name in IDS if not 0 <= config[name] < size]
    problems += [f"`{name}` must be in [0, {size}). Received: {config[name]}" for name in outside]
    start, end = config["decoder_start_token_id"], config["eos_token_id"]
    if family.forces_language and start != end:
        problems.append(f"`decoder_start_token_id` must be `eos_token_id`, {end}. Received: {start}")
    try:
        TransformerConfig(vocab_size=size, **fields)
    except ValueError as error:
        return None, problems + [line.removeprefix("- ") for line in str(error).splitlines()[1:]]
    return fields, problems


def tokenizer_problems(settings: Mapping[str, Any], family: Family, files: Iterable[str]) -> list[str]:
    """Problems with the tokenizer of a model, which decides where the tokens of languages stand.

    Args:
        settings: the fields of config.json and of tokenizer_config.json.
        family: the table of its family.
        files: the names of all files of the model.
    """
    own = sorted(fnmatch.filter(files, "tokenization_*.py"))
    problems = [
        f"`{name}` must be {' or '.join(map(repr, supported))}; other tokenizers are not supported. "
        f"Received: {settings[name]!r}"
        for name, supported in family.tokenizer.items()
        if settings.get(name, supported[0]) not in supported
    ]
    return problems + ([f"a tokenizer in Python is not supported. Received: {', '.join(own)}"] if own else [])


def _value(value, config):
    return value(config) if callable(value) else value


def _sizes(config, family):
    fields = {ours: config[_names(theirs)[0]] for ours, theirs in family.sizes.items()}
    encoder, decoder = (fields[f"num_{stack}_layers"] for stack in ("encoder", "decoder"))
    return {**fields, "num_layers": encoder} if encoder == decoder else fields


def _names(names):
    """The names of fields of config.json: one or several."""
    return (names,) if isinstance(names, str) else names


def _size_problems(config, family):
    """Problems with the fields that determine the sizes."""
    sizes = [_names(theirs) for theirs in family.sizes.values()]
    numbers = dict.fromkeys(["vocab_size", *IDS, *(name for names in sizes for name in names)])
    wrong = [name for name in numbers if type(config.get(name)) is not int or (name not in IDS and config[name] < 1)]
    problems = [
        f"`{name}` must be int{'' if name in IDS else ', at least 1'}. Received: {config.get(name)!r}" for name in wrong
    ]
    for first, *others in dict.fromkeys(sizes):
        problems += [
            f"`{other}` must equal `{first}`. Received: {config.get(other)} and {config.get(first)}"
            for other in others
            if config.get(first) != config.get(other)
        ]
    return problems


def _chosen(config, family):
    """The fields that the options of config.json decide, and the problems with these options."""
    fields, problems = {}, []
    for names, option in family.options.items():
        name = next((name for name in _names(names) if name in config), _names(names)[-1])
        value = config.get(name, option.default)
        if value in [*option.values]:
            fields |= option.values[value]
        else:
            known = ", ".join(str(value) for value in option.values if value is not None)
            problems.append(f"`{name}` must be one of {known}. Received: {name}={value!r}")
    return fields, problems
