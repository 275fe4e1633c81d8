"""A sentence in, a picture out: where a model looks as it translates."""

from pathlib import Path

from keras_transformer.model_directory import ModelDirectory
from keras_transformer.plotting import check_picture, plot_attention
from keras_transformer.text.lines import checked_lines, encode_lines, max_tokens


def draw_attention(
    directory: str | Path, sentence: str, output: str | Path, target: str | None = None, layer: int | None = None
) -> str:
    """Draws the attention to the source of all heads of a decoder layer.

    Args:
        directory: a finished model directory.
        sentence: the source.
        output: the picture; its suffix says the format, such as .png, .pdf or .svg.
        target: a translation. Default: the model's own, by `BeamSearch()`.
        layer: 1 for the decoder's first layer. Default: its last.

    Returns:
        The translation.

    Raises:
        ValueError: if the directory holds no finished model, there is no such layer, the sentence has no text,
            matplotlib is not installed, or it does not know the format.

    Warns:
        UserWarning: if a line has more subwords than a model is given, and is cut.

    Example:

        draw_attention("runs/en-de", "Two men are outside.", "picture.png")
    """
    check_picture(output)
    directory = ModelDirectory(directory)
    directory.require_finished()  # Before the import of Keras, which takes many seconds.

    from keras_transformer.saving import load_finished

    model, (of_source, of_target) = load_finished(directory)
    num_layers = model.config.num_layers
    layer = num_layers if layer is None else layer
    if not 1 <= layer <= num_layers:
        raise ValueError(f"`layer` must be in [1, {num_layers}]. Received: layer={layer}")
    longest = max_tokens(model.config.max_length)
    source_ids = encode_lines(of_source, checked_lines("sentence", [sentence]), longest)
    if len(source_ids[0]) == 1:
        raise ValueError(f"The sentence must have text. Received: {sentence!r}")
    if target is None:
        tokens = model.generate(source_ids).tokens[:, 0]
    else:
        tokens = encode_lines(of_target, checked_lines("target", [target]), longest)
    scores = model.attention_scores(source_ids, tokens)[layer - 1][0]
    plot_attention(scores, _pieces(of_source, source_ids[0]), _pieces(of_target, tokens[0]), output)
    return of_target.decode(tokens)[0]


def _pieces(tokenizer, ids):
    return [tokenizer.pieces[i] for i in ids]
