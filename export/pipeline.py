"""Exports that are verified before they appear: `export` of a model directory, `export_model` of a model."""

import dataclasses
import functools
import itertools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformer.config import PAD_ID
from keras_transformer.counting import counted
from keras_transformer.decoding import Shortlist
from keras_transformer.export.config import ExportConfig
from keras_transformer.export.format import Exported
from keras_transformer.export.registry import FORMATS
from keras_transformer.export.verify.equality import VerificationError, batches_of, compare_texts, random_source_batches
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.export.verify.quality import compare_bleu
from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.languages import Direction
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.origin import fingerprint_of, write_origin
from keras_transformer.storage.source_text import source_text_of
from keras_transformer.text.files import read_lines
from keras_transformer.text.lines import max_tokens
from keras_transformer.translate.finished_model import load_finished
from keras_transformer.translate.keras_translator import ModelTranslator


def export_model(
    model,
    path: str | Path,
    strategy=None,
    formats: Sequence[str] = ("saved_model", "onnx"),
    sample_inputs=None,
    metric=None,
    prefix: bool = False,
) -> dict[str, Any]:
    """Exports a model that is in memory, without tokenizers. Each format is verified, or nothing appears.

    A model that generates tokens (`Transformer`, `Ensemble`, `LanguageModel`, a `Seq2Seq` of your own) becomes its
    search: `source` (the structure of `Transformer` and `Seq2Seq`) or `prompt` (`LanguageModel`) -> `tokens` int32
    `[batch, n_best, length]` and `scores` float32 `[batch, n_best]`, as of `generate`, with more columns of padding at
    times. Other models (`SentenceClassifier`, `MaskedLanguageModel`, any functional Keras model) become one call, with
    their own inputs and outputs by name. The output of a model of this package is called `logits`.

    Axes that are `None` in the model's inputs may have any size of at least one. The SavedModel's signature is
    `serving_default`. The metadata of `model.onnx` contain the configuration of a model of this package and the search.

    The ONNX formats of a `LanguageModel` without layers of your own also have `decoder.onnx`: its cache is an input and
    an output, for a loop of your own.

    Verification: hypotheses must equal those of Keras; see `export`. Of samples, the noise must lead to each token in
    the distribution of the Keras model. Outputs of a call in float32 must agree to 1e-4 of the largest output. Those of
    int8 and float16 must have a similarity of at least 0.999.

    Args:
        model: the model, of any dtype. It is exported in float32, or in the type of the format.
        path: the folder to create. It gets one folder per format, and verification.json.
        strategy: search of a model that generates tokens. Default: `BeamSearch()`; for a `LanguageModel`
            `GreedySearch()`. With a `Sampling` the programs have the input `noise`, float32 `[batch, n_samples,
            noise_length]`, uniform random numbers in [0, 1): `strategy.noise(batch, noise_length)` with a seed gives
            the samples of `generate` with that seed. `noise_length` is at least n + max(`extra_length`, 1). n is the
            number of positions of a memory that has a mask, and otherwise 0; or the length of the prefix if that is
            larger. For a `LanguageModel`, n is the length of the prompt plus 1.
        formats: `"saved_model"`, `"onnx"`, `"onnx_int8"` and `"onnx_float16"`.
        sample_inputs: an input of the model with a batch axis, for the verification, or a list of them. For a model
            with a list of inputs, that list. Default: random token ids, or normal random numbers for float inputs.
        metric: similarity of two lists of outputs, a callable that returns at most 1, for int8 and float16 formats of
            a model without a search. Default: the cosine.
        prefix: whether the programs have the input `prefix`, int32 `[batch, prefix_length]`, padded: the first tokens
            of the hypotheses of each row, as in `generate`. It has at least one column.

    Returns:
        The agreement of each program with the model, as in verification.json, by the name of the program: an
        `Agreement` for a search, a `LikelihoodReport` for one in int8 or float16, a `SampleAgreement` for a sampling,
        and an `OutputAgreement` for a call.

    Raises:
        ValueError: if the folder exists, the model, the strategy or a format is not supported, `sample_inputs` is
            required, or the Keras backend is not TensorFlow.
        VerificationError: if a program does not agree with the model. No files are left behind.

    Example:

        export_model(classifier, "runs/classifier/export", formats=["onnx_int8"])
    """
    _require_tensorflow()
    path = Path(path)
    if path.exists():
        raise ValueError(f"`path` must not exist. Received: path={path}")

    from keras_transformer.export.model_checks import checked_export, checked_formats, sample_batches

    formats = checked_formats(formats)
    exported = checked_export(model, strategy, metric, prefix)
    batches = sample_batches(exported.model, sample_inputs)
    found = {}
    with atomic_write(path) as temporary:
        temporary.mkdir()
        for name in formats:
            found |= _write(FORMATS[name], exported, temporary / name, batches)
        _write_json(_entries(found), temporary / "verification.json")
    return {title: agreement for title, (_, agreement) in found.items()}


def export(path: str, config: ExportConfig) -> None:
    """Exports a model. Each format is verified against the Keras model before its files appear.

    Args:
        path: a finished model directory.
        config: the formats and the search.

    Raises:
        ValueError: if the directory contains no finished model, a format cannot express the model, or the Keras
            backend is not TensorFlow. Nothing is written.
        VerificationError: if an export does not agree with the Keras model. Its files are deleted.

    Example:

        export("runs/en-de", ExportConfig(format="onnx", beam_size=4))
    """
    directory = ModelDirectory(path)
    directory.require_finished()
    with directory.locked():
        _export(directory, config)


def _export(directory, config):
    formats = [FORMATS[name] for name in config.names]
    _require_tensorflow()
    for format in formats:
        directory.require_replaceable(format.name)
        if format.prepare:
            format.prepare()
    texts = _read_texts(config)
    shortlist = Shortlist.load(directory.require_shortlist()) if config.shortlist else None
    model, tokenizers = load_finished(directory)
    if shortlist:
        shortlist.check(model.config, config.strategy)
    exported = Exported(model, directory, tokenizers, config.strategy, shortlist, texts=texts)
    for format in formats:
        check_supported(format, exported)
    if shortlist and exported.languages.forces_target:
        raise ValueError(
            "`shortlist` must not be used for a model that is forced to write the token of a language. "
            f"Received: shortlist=True, {directory.path}"
        )
    if texts and not exported.languages.has_default:
        raise ValueError(
            "`source` and `reference` require a model with default languages. `import` and `train` record those of "
            f"`--source_language` and `--target_language`. Received: {directory.path}"
        )
    batches = _batches(exported)
    for format in formats:
        _export_format(format, exported, batches)


def _batches(exported):
    """The sources with which programs are verified: those of the text, again and again, or random ones."""
    model, longest = exported.model, max_tokens(exported.model.config.max_length)
    size = model.count_params()
    if exported.texts:
        direction = exported.languages.direction(None, None)
        rows = [direction.source_ids(ids) for ids in exported.tokenizers[0].encode(exported.texts[0]) if len(ids) > 1]
        if rows := [ids for ids in rows if len(ids) <= longest]:
            return batches_of(itertools.cycle(rows), PAD_ID, size)
    return random_source_batches(model.config.source_vocabulary, min(30, longest), num_parameters=size)


def check_supported(format, exported: Exported) -> None:
    """Raises `ValueError` if a format cannot express a model with its tokenizers and languages."""
    if not format.require_supported:
        return
    if exported.model.parts.blocks:
        layers = ", ".join(exported.model.parts.blocks)
        raise ValueError(f"{format.format} does not support layers of your own in a model. Received: {layers}")
    format.require_supported(exported.model.config, exported.tokenizers, exported.languages)


def _read_texts(config):
    """The lines of `source` and `reference`, if they are given."""
    texts = [read_lines(path, config.encoding) for path in (config.source, config.reference) if path]
    if len({len(lines) for lines in texts}) > 1:
        raise ValueError(
            "`reference` must have as many lines as `source`. "
            f"Received: {counted(len(texts[0]), 'line')} in source, {len(texts[1])} in reference"
        )
    return texts


def _export_format(format, exported, batches):
    """Writes the files, verifies them, moves them to their place and records them."""
    directory = exported.directory
    place = directory.exported(format.name)
    with atomic_write(place) as temporary:
        _say(f"{format.name}: converting to {place}")
        found = _write(format, exported, temporary, batches)
    _record(directory.verification_file, format.name, _entries(found))


def _write(format, exported, path, batches):
    """Writes the files of a format and verifies them. Returns the search and the agreement of each comparison."""
    started = time.monotonic()
    format.write(exported, path)
    if (directory := exported.directory) is not None:  # Clients read it, also those that verify.
        fingerprint, source_text = fingerprint_of(directory.model_file), source_text_of(directory.path)
        write_origin(path, fingerprint, source_text, exported.languages)
    _say(f"{format.name}: converted in {time.monotonic() - started:.0f} s, verifying")
    found = {}
    for title, program in format.programs(path, exported).items():
        given = exported if program.has_search else exported._replace(shortlist=None)
        compared = exported.texts if title == format.name else ()
        search = {} if program.strategy is None else format.recorded_search(program.strategy)
        search |= {"shortlist": True} if given.shortlist else {}
        for subject, verify in _verifications(title, program, given, batches, compared):
            found[subject] = search, _verified(subject, verify)
        program.release()
    return found


def _entries(found):
    """The entries of verification.json."""
    return {
        title: {**({"search": search} if search else {}), **dataclasses.asdict(agreement)}
        for title, (search, agreement) in found.items()
    }


def _verifications(title, program, exported, batches, texts):
    """The comparisons of a program with the Keras model, with their titles."""
    if program.reference is not None:
        yield title, functools.partial(program.verify, program.reference, program.client, batches)
        return
    model, tokenizers, shortlist = exported.model, exported.tokenizers, exported.shortlist
    constraints = tokenizers[1].text_constraints if program.has_search else None
    expected = KerasSearch(model, program.strategy, shortlist, constraints)
    yield title, functools.partial(program.verify, expected, program.client, batches)
    options = {"protect": "off", "shortlist": shortlist, "languages": exported.languages}
    translator = ModelTranslator(model, tokenizers, program.strategy, **options)
    if program.takes_text:
        yield f"{title} text", functools.partial(_verify_text, translator, program.client, batches)
    if texts:
        yield f"{title} BLEU", functools.partial(_verify_bleu, translator, program.client, *texts)


def _verified(title, verify):
    """Runs a verification, prints its result and returns it, or raises `VerificationError`."""
    started = time.monotonic()
    agreement = verify()
    if not agreement.passed:
        raise VerificationError(f"The {title} export does not agree with the Keras model: {agreement}")
    _say(f"{title}: {agreement} ({time.monotonic() - started:.0f} s)")
    return agreement


def _verify_text(translator, client, batches):
    """Verifies the tokenizer and detokenizer inside a program, on the text of the same batches."""
    expected, found = [], []
    texts = [translator.source_tokenizer.decode(batch) for batch in batches]
    turns = itertools.cycle([*translator.languages.directions()] or [Direction()])
    # Random bytes are no text. The sign in their place has more bytes than they have.
    for lines in [["", "  "], *([line.replace("\ufffd", " ") for line in text] for text in texts)]:
        directions = [next(turns) for _ in lines]
        languages = {
            "source_language": [each.source for each in directions],
            "target_language": [each.target for each in directions],
        }
        for one, results in ((translator, expected), (client, found)):
            results += one.translate(lines, batch_size=len(lines), **languages)
    return compare_texts(expected, found)


def _verify_bleu(translator, client, source, reference):
    return compare_bleu(translator.translate(source), client.translate(source), reference)


def _record(file, name, entries):
    """Replaces the entries of an export in verification.json."""
    recorded = json.loads(file.read_text()) if file.exists() else {}
    others = {title: entry for title, entry in recorded.items() if not f"{title} ".startswith(f"{name} ")}
    with atomic_write(file) as temporary:
        _write_json({**others, **entries}, temporary)


def _write_json(entries, file):
    file.write_text(json.dumps(entries, indent=2) + "\n")


def _require_tensorflow():
    name = keras.backend.backend()
    if name != "tensorflow":
        raise ValueError(f"The Keras backend must be tensorflow for an export. Received: KERAS_BACKEND={name}")


def _say(line):
    print(line, file=sys.stderr)
