"""Import of encoder-decoders from the files of the library transformers."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import keras_transformer as kt
from keras_transformer.config import PAD_ID, TransformerConfig
from keras_transformer.export.importer.files import BIAS, OUTPUT, Files, names_with_rows, read_files
from keras_transformer.export.importer.hub import locate
from keras_transformer.export.importer.original import require_transformers, sample_lines
from keras_transformer.export.importer.vocabulary import Layout, lay_out, rewritten, split, warn_of_lacking
from keras_transformer.export.interop.stored import Tensor, changed
from keras_transformer.export.interop.weight_map import assign_weights, foreign_weights
from keras_transformer.storage.languages import Languages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.languages import checked_language, find_language, is_language, normal_code
from keras_transformer.text.tokenization import Tokenizer

#: Logit bias of padding and of duplicate pieces. It makes their probability 0.
_EXCLUDED_LOGIT = -100.0
#: Fields of tokenizer_config.json with the source language and with the target language.
_LANGUAGE_NAMES = (("source_lang", "src_lang"), ("target_lang", "tgt_lang"))


class Checkpoint(NamedTuple):
    """An imported model.

    Attributes:
        model: the `Transformer`.
        tokenizers: source tokenizer and target tokenizer.
        languages: the `Languages` of the model, with the tokens of languages of a model of several.
        model_type: `model_type` of config.json, such as `"marian"`.
    """

    model: "kt.Transformer"
    tokenizers: tuple[Tokenizer, Tokenizer]
    languages: Languages
    model_type: str


def import_checkpoint(
    directory: str | Path,
    output: str | Path,
    overwrite: bool = False,
    source_language: str | None = None,
    target_language: str | None = None,
    verify: bool = False,
    source: str | Path | None = None,
) -> ModelDirectory:
    """Imports an encoder-decoder of Hugging Face's transformers as a finished model directory; see `read_checkpoint`.

    Args:
        directory: the folder of the model, or a model of the Hugging Face Hub; see `read_checkpoint`. The record of the
            model directory contains the name and the commit of the latter as `downloaded_from`.
        output: the model directory to write.
        overwrite: replace an existing model or run in `output`.
        source_language: code of the source language, such as `en`. For a model of several languages, the default one.
            Default: that of tokenizer_config.json, if the file exists.
        target_language: code of the target language, such as `de`. Default: that with which each translation starts
            (`forced_bos_token_id`), or that of tokenizer_config.json.
        verify: compare the token ids, the logits and the hypotheses of greedy and beam search with those of
            transformers. The record of the model directory contains the result as `verified_against`. Needs the extra
            `transformers`.
        source: a text file in UTF-8, plain or `.gz`. With `verify`, its first 200 lines are compared. Default: random
            pieces of the vocabulary.

    Returns:
        The model directory.

    Raises:
        ValueError: if the files are invalid or cannot be downloaded, or the model is not supported. The message lists
            all problems, and nothing is written to `output`. Also if a model of several languages does not know a
            language, `source` is given without `verify`, or a package that `verify` needs is not installed.
        VerificationError: if the imported model does not agree with that of transformers. Nothing is written.

    Example:

        import_checkpoint("hf://Helsinki-NLP/opus-mt-en-de", "runs/opus-en-de")
    """
    ModelDirectory(output).require_free(overwrite)
    checked_language("source_language", source_language)
    checked_language("target_language", target_language)
    if source is not None and not verify:
        raise ValueError(f"`source` must be given with `verify` only. Received: source={source}")
    lines = None if source is None else sample_lines(source)
    if verify:
        require_transformers()
    folder, name = locate(directory)
    model, pair, languages, model_type = checkpoint = read_checkpoint(folder)
    languages = languages.with_default(source_language, target_language)
    origin: dict[str, Any] = {"imported_from": model_type, **({"downloaded_from": name} if name else {})}
    if verify:
        from keras_transformer.export.importer.verification import compare_with_original

        found = compare_with_original(folder, checkpoint._replace(languages=languages), lines)
        origin["verified_against"] = dataclasses.asdict(found)
    tokenizers = list({tokenizer.sha256: tokenizer for tokenizer in pair}.values())
    from keras_transformer.saving import large_weights_on_disk  # Imported here, as errors in files need no Keras.

    with large_weights_on_disk():
        return ModelDirectory.create(output, model, tokenizers, overwrite=overwrite, **languages.to_record(), **origin)


def read_checkpoint(directory: str | Path) -> Checkpoint:
    """Reads an encoder-decoder of Hugging Face's transformers from its files. transformers is not needed.

    config.json determines the family: Marian (OPUS-MT), M2M-100 and NLLB-200 without mixtures of experts, mBART-50, T5,
    T5 v1.1, FLAN-T5, mT5, MADLAD-400. Token ids become those of this package: the special pieces first, then the pieces
    of the model in their order. A model that starts with padding or the end token gets a separate start token. Rows of
    the embedding that belong to no piece are symbols that are never generated.

    Args:
        directory: folder with config.json, the weights (`model.safetensors` or `pytorch_model.bin`, in one file or
            several; the latter needs the extra `torch`) and the files of the tokenizer: `source.spm`, `target.spm` and
            `vocab.json` of Marian, `sentencepiece.bpe.model` of M2M-100 (with `vocab.json`), NLLB-200 and mBART-50,
            `spiece.model` of T5, or `tokenizer.json` in place of one of the last two; the files in which transformers
            lists further pieces, such as `tokenizer_config.json`; and, if it exists, `generation_config.json`, for the
            target language of a model that has only one. Or `hf://owner/name[@revision]`: a
            model of the Hugging Face Hub, where the revision is a branch, a tag or a commit. Only these files are
            downloaded, to the cache of huggingface_hub. Needs the extra `hub`.

    Returns:
        The `Checkpoint`.

    Raises:
        ValueError: if the files are invalid or cannot be downloaded, or the model is not supported. The message lists
            all problems. A downloaded file whose checksum is not that of the hub is deleted.

    Warns:
        UserWarning: if vocab.json lacks pieces of a SentencePiece model.

    Example:

        model, tokenizers, languages, _ = read_checkpoint("hf://facebook/nllb-200-distilled-600M")
        translator = ModelTranslator(model, tokenizers, languages=languages)
        translator.translate(["Two men are outside."], source_language="en", target_language="de")[0].text
    """
    folder, _ = locate(directory)
    files = read_files(folder)
    warn_of_lacking(files.vocabulary.ids, files.models)
    layout = lay_out(files.vocabulary, files.config, [*files.models.values()], files.family.vocabulary.language)
    model = kt.Transformer(TransformerConfig(**{**files.fields, "vocab_size": len(layout.pieces)}))
    weights = foreign_weights(model, files.family.modules(files.fields).items())
    assign_weights(model, weights, _in_our_order(files, layout))
    tokenizers = [Tokenizer(rewritten(spm, layout)) for spm in files.models.values()]
    languages = _languages(files, layout)
    return Checkpoint(model, (tokenizers[0], tokenizers[-1]), languages, files.config["model_type"])


def _languages(files: Files, layout: Layout) -> Languages:
    """The languages of the vocabulary. The default ones are those of tokenizer_config.json.

    If each translation of a model starts with the token of one language, this is the default target language.
    """
    ids = {piece: i for i, piece in enumerate(layout.pieces)}
    tokens = {code: ids[piece] for piece, code in layout.languages.items()}
    codes = [files.tokenizer.get(name) or files.tokenizer.get(other) for name, other in _LANGUAGE_NAMES]
    source, target = (normal_code(code) if isinstance(code, str) and is_language(code) else None for code in codes)
    if not tokens:
        return Languages(source, target)
    forced = files.family.forces_language
    target = next((code for code, i in tokens.items() if layout.rows[i] == files.forced_id), target)
    return Languages(
        (find_language(source, tokens) if forced else source) if source else None,
        find_language(target, tokens) if target else None,
        source_tokens=tokens if forced else {},
        target_tokens=tokens,
        forces_target=forced,
        source_start=tuple(ids[piece] for piece in _before_languages(files, layout)),
    )


def _before_languages(files: Files, layout: Layout) -> list[str]:
    """The pieces that precede that of a language at the start of a line: the word-boundary marker `▁`, or none.

    SentencePiece makes the marker, and MADLAD-400 was trained with it. transformers divides a line before SentencePiece
    does if the files of the tokenizer list the pieces of languages, so that there is no marker.
    """
    if not files.family.vocabulary.language_in_line or layout.languages.keys() & files.vocabulary.listed:
        return []
    language, model = next(iter(layout.languages)), next(iter(files.models.values()))
    *before, last = split(model, language)
    return before if last == language else []


def _in_our_order(files: Files, layout: Layout) -> dict[str, Tensor]:
    """The tensors with the rows of our vocabulary."""

    def reordered(tensor):
        return changed(tensor, lambda x: x[layout.rows], rows=len(layout.rows))

    names = names_with_rows(files.family, files.fields)
    tensors = {**files.tensors, **{name: reordered(files.tensors[name]) for name in names if name in files.tensors}}
    bias = np.where(layout.is_copy, np.float32(_EXCLUDED_LOGIT), np.asarray(tensors[BIAS], "float32"))
    # Marian has no padding. OPUS-MT models were converted with a row of zeros for it; its logit is 0, and the search of
    # transformers excludes it.
    output = OUTPUT if OUTPUT in tensors else next(name for name in names if name in tensors)
    if bias[PAD_ID] == 0 and not np.asarray(files.tensors[output])[layout.rows[PAD_ID]].any():
        bias[PAD_ID] = _EXCLUDED_LOGIT
    return {**tensors, BIAS: bias}
