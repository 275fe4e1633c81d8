"""Export to the files of Hugging Face's `MarianMTModel`, which the library transformers loads."""

import json
from pathlib import Path

import keras
import numpy as np

from keras_transformer.checks import require
from keras_transformer.export.format import Exported, Program
from keras_transformer.export.importer.families import MARIAN
from keras_transformer.export.importer.files import BIAS
from keras_transformer.export.importer.importer import read_checkpoint
from keras_transformer.export.importer.vocabulary import foreign_vocabulary, is_language_code
from keras_transformer.export.interop.weight_map import foreign_weights, safetensors
from keras_transformer.export.marian.config import inexpressible, special_ids, write_config
from keras_transformer.export.verify.equality import compare
from keras_transformer.translate.keras_translator import ModelTranslator


def write_huggingface(exported: Exported, path: Path) -> None:
    """Writes config.json, generation_config.json, model.safetensors, vocab.json and the tokenizer files.

    Token ids stay the same. Marian's positions have all sines in the first half of the features and all cosines in the
    second; the weights of a model with interleaved positions are permuted to this order. Only the search options that
    transformers supports are exported. Its length limit is 512 tokens for any source. Its length penalty is n^α, also
    if the strategy has the kind `"gnmt"`. The repetition penalty is exported for greedy search only, because
    transformers applies it to log probabilities in beam search.

    Raises:
        ValueError: if `MarianMTModel` does not support the model. The message lists all problems.
    """
    model, _, tokenizers, strategy, *_ = exported
    require_expressible(model.config, tokenizers, exported.languages)
    path.mkdir()
    safetensors().save_file(_tensors(model), path / "model.safetensors", metadata={"format": "pt"})
    for name, tokenizer in zip(("source.spm", "target.spm"), tokenizers, strict=True):
        (path / name).write_bytes(tokenizer.model)
    forbidden = tokenizers[1].text_constraints.forbidden
    contents = {
        "config.json": write_config(model.config, forbidden),
        "generation_config.json": {**special_ids(model.config, forbidden), **_search(strategy)},
        "vocab.json": foreign_vocabulary(tokenizers[0].pieces),
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "model_max_length": 512,
            "separate_vocabs": False,
            **{"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"},
        },
    }
    for name, content in contents.items():
        (path / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_huggingface(folder: Path, strategy) -> ModelTranslator:
    """Reads the files back into a Keras model, to verify them without transformers."""
    checkpoint = read_checkpoint(folder)
    return ModelTranslator(checkpoint.model, checkpoint.tokenizers, strategy, protect="off")


def require_expressible(config, tokenizers, languages) -> None:
    """Raises `ValueError` with all problems if `MarianMTModel` does not support a model with its languages."""
    problems = inexpressible(config)
    if not problems and tokenizers[0].pieces != tokenizers[1].pieces:
        problems.append("source and target must have the same vocabulary")
    tokens = [tokenizers[0].pieces[i] for i in languages.target_tokens.values()]
    if languages.forces_target or not all(map(is_language_code, tokens)):
        problems.append(
            "tokens of languages must be those of target languages, such as >>de<<, at the start of the source. "
            f"Received: {', '.join(tokens)}{' at the start of the target' * languages.forces_target}"
        )
    require(problems, of="MarianMTModel does not support this model")


def _tensors(model):
    config = model.config
    order = np.arange(config.d_model)
    if config.position_layout == "interleaved":
        order = np.concatenate([order[0::2], order[1::2]])
    tensors = {BIAS: np.zeros(config.vocab_size, "float32")}
    for weight in foreign_weights(model, MARIAN.modules({}).items()):
        array = keras.ops.convert_to_numpy(weight.variable).astype("float32")
        if weight.stream_axis is not None:
            array = np.take(array, order, axis=weight.stream_axis)
        tensors[weight.names[0]] = np.ascontiguousarray(array.T if weight.is_transposed else array)
    return {**tensors, BIAS: tensors[BIAS][None]}


def recorded_search(strategy) -> dict:
    """The options of a strategy that the files implement."""
    names = ["beam_size", "min_length", "no_repeat_ngram_size"]
    if strategy.beam_size == 1:
        names.append("repetition_penalty")
    if strategy.length_penalty == 0 or strategy.length_penalty_kind == "length":
        names += ["length_penalty", "length_penalty_kind"]
    return {name: getattr(strategy, name) for name in names}


def _search(strategy):
    options = {
        "num_beams": strategy.beam_size,
        "max_length": 512,
        "min_new_tokens": strategy.min_length,
        "no_repeat_ngram_size": strategy.no_repeat_ngram_size,
    }
    if strategy.beam_size == 1:  # transformers warns about beam search options if there is one beam.
        return {**options, "repetition_penalty": strategy.repetition_penalty}
    return {**options, "length_penalty": strategy.length_penalty, "early_stopping": "never"}


def programs(path: Path, exported: Exported) -> dict[str, Program]:
    """The programs of an export; see `ExportFormat`."""
    strategy = exported.strategy
    return {"huggingface": Program(read_huggingface(path, strategy), strategy, compare)}
