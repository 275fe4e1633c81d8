"""The command `plot-attention`."""

from pathlib import Path

from keras_transformer.checks import require, within
from keras_transformer.plotting import check_picture, plot_attention
from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.languages import languages_of, require_languages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.lines import checked_lines, encode_lines, max_tokens
from keras_transformer.translate.finished_model import load_finished


def draw_attention(
    directory: str | Path,
    sentence: str,
    output: str | Path,
    target: str | None = None,
    layer: int | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> str:
    """Plots the cross-attention weights of each head of a decoder layer.

    Args:
        directory: model directory of a finished training.
        sentence: source sentence.
        output: the image file to write. Its suffix selects the format, such as .png, .pdf or .svg.
        target: target sentence. Default: the translation of the model with `BeamSearch()`.
        layer: number of the decoder layer, from 1. Default: the last layer.
        source_language: code of the source language, for a model with several languages. Default: that of the model.
        target_language: code of the target language, likewise.

    Returns:
        The target sentence.

    Raises:
        ValueError: if the directory contains no finished model, `layer` is out of range, the sentence is empty, the
            model does not know a language or needs one that is not given, or matplotlib is not installed or does not
            support the format.

    Warns:
        UserWarning: if a sentence is too long and is truncated.

    Example:

        draw_attention("runs/en-de", "Two men are outside.", "picture.png")
    """
    check_picture(output)
    direction = require_languages(directory, source_language, target_language)
    model, (source_tokenizer, target_tokenizer) = load_finished(ModelDirectory(directory))
    _, num_layers = model.config.depths
    layer = num_layers if layer is None else layer
    require(within(f"[1, {num_layers}]", layer=layer))
    longest = max_tokens(model.config.max_length) - languages_of(directory).max_source_prefix
    source_ids = encode_lines(source_tokenizer, checked_lines("sentence", [sentence]), longest)
    if len(source_ids[0]) == 1:
        raise ValueError(f"`sentence` must not be empty. Received: sentence={sentence!r}")
    source_ids, prefix = [direction.source_ids(source_ids[0])], direction.target_prefix
    if target is None:
        options = {"text_constraints": target_tokenizer.text_constraints, "prefix": [prefix] if prefix else None}
        tokens = model.generate(source_ids, **options).tokens[:, 0]
    else:
        (ids,) = encode_lines(target_tokenizer, checked_lines("target", [target]), longest)
        tokens = [[*prefix, *ids]]
    scores = model.attention_scores(source_ids, tokens)[layer - 1][0]
    with atomic_write(Path(output)) as temporary:
        plot_attention(
            scores, _pieces(source_tokenizer, source_ids[0]), _pieces(target_tokenizer, tokens[0]), temporary
        )
    return target_tokenizer.decode(tokens)[0]


def _pieces(tokenizer, ids):
    return [tokenizer.pieces[i] for i in ids]
