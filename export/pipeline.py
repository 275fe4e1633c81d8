"""Exports that are verified before they appear: `export` of a model directory, `export_model` of a model."""

import dataclasses
import functools
import json
import sys
import time
from pathlib import Path

import keras

from keras_transformer.counting import counted
from keras_transformer.decoding import Shortlist
from keras_transformer.export.config import ExportConfig
from keras_transformer.export.format import Exported
from keras_transformer.export.registry import FORMATS
from keras_transformer.export.verify.equality import Agreement, VerificationError, compare_texts, random_source_batches
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.export.verify.quality import compare_bleu
from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.origin import fingerprint_of, write_origin
from keras_transformer.storage.source_text import source_text_of
from keras_transformer.text.files import read_lines
from keras_transformer.text.lines import max_tokens
from keras_transformer.translate.finished_model import load_finished
from keras_transformer.translate.keras_translator import ModelTranslator


def export_model(model, path: str | Path, strategy=None) -> dict[str, Agreement]:
    """Writes `PATH/saved_model`, `PATH/onnx/model.onnx` and `PATH/verification.json`.

    The programs of a `SentenceClassifier` map `source` int32 `[batch, source_length]` to `logits` float32
    `[batch, num_classes]`. Those of a `MaskedLanguageModel` map `tokens` int32 `[batch, length]` to `logits` float32
    `[batch, length, source vocabulary]`. Those of a `LanguageModel` map `prompt` int32 `[batch, prompt_length]` to
    `tokens` int32 `[batch, n_best, length]` and `scores` float32 `[batch, n_best]`, as `generate` does. Every axis must
    have at least one element. The SavedModel's signature is `serving_default`. Models of other dtypes are exported in
    float32. The metadata of `model.onnx` contain the model's configuration and the search.

    Args:
        model: `SentenceClassifier`, `MaskedLanguageModel` or `LanguageModel` with this package's special ids.
        path: the folder to create.
        strategy: search of a `LanguageModel`: `BeamSearch` or `GreedySearch`. Default: `GreedySearch()`.

    Returns:
        The `Agreement` of the programs `"saved_model"` and `"onnx"` with the model, as in verification.json.

    Raises:
        ValueError: if the folder exists, the model or the strategy is not supported, or the Keras backend is not
            TensorFlow.
        VerificationError: if a program does not agree with the model; see `export`. No files are left behind.

    Example:

        export_model(classifier, "runs/classifier/export")
    """
    _require_tensorflow()
    path = Path(path)
    if path.exists():
        raise ValueError(f"`path` must not exist. Received: path={path}")

    from keras_transformer.export.id_models import IdModel, write_onnx, write_saved_model

    exported = IdModel.of(model, strategy)
    with atomic_write(path) as temporary:
        (temporary / "onnx").mkdir(parents=True)
        programs = {
            "saved_model": write_saved_model(exported, temporary / "saved_model"),
            "onnx": write_onnx(exported, temporary / "onnx" / "model.onnx"),
        }
        found = {name: _passed(name, functools.partial(exported.verify, run)) for name, run in programs.items()}
        entries = {name: {**exported.search, **dataclasses.asdict(agreement)} for name, agreement in found.items()}
        _write_json(entries, temporary / "verification.json")
    return found


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
    for format in formats:
        check_supported(format, model, tokenizers)
    exported = Exported(model, directory, tokenizers, config.strategy, shortlist)
    batches = random_source_batches(model.config.source_vocabulary, min(30, max_tokens(model.config.max_length)))
    for format in formats:
        _export_format(format, exported, batches, texts)


def check_supported(format, model, tokenizers) -> None:
    """Raises `ValueError` if a format cannot express a model or its tokenizers."""
    if not format.require_supported:
        return
    if model.parts.blocks:
        layers = ", ".join(model.parts.blocks)
        raise ValueError(f"{format.format} does not support layers of your own in a model. Received: {layers}")
    format.require_supported(model.config, tokenizers)


def _read_texts(config):
    """The lines of `source` and `reference`, if they are given."""
    texts = [read_lines(path, config.encoding) for path in (config.source, config.reference) if path]
    if len({len(lines) for lines in texts}) > 1:
        raise ValueError(
            "`reference` must have as many lines as `source`. "
            f"Received: {counted(len(texts[0]), 'line')} in source, {len(texts[1])} in reference"
        )
    return texts


def _export_format(format, exported, batches, texts):
    """Writes the files, verifies them, moves them to their place and records them."""
    name, directory = format.name, exported.directory
    place, fingerprint = directory.exported(name), fingerprint_of(directory.model_file)
    _say(f"{name}: converting to {place}")
    with atomic_write(place) as temporary:
        started = time.monotonic()
        format.write(exported, temporary)
        write_origin(temporary, fingerprint, source_text_of(directory.path))
        _say(f"{name}: converted in {time.monotonic() - started:.0f} s, verifying")
        entries = {}
        for title, program in format.programs(temporary, exported.strategy).items():
            given = exported if program.has_search else exported._replace(shortlist=None)
            shortlist = {"shortlist": True} if given.shortlist else {}
            search = format.recorded_search(program.strategy) | shortlist
            references = texts if title == name else ()
            for subject, verify in _verifications(title, program, given, batches, references):
                entries[subject] = {"search": search, **_verified(subject, verify)}
    _record(directory.verification_file, name, entries)


def _verifications(title, program, exported, batches, texts):
    """The comparisons of a program with the Keras model, with their titles."""
    model, _, tokenizers, _, shortlist = exported
    constraints = tokenizers[1].text_constraints if program.has_search else None
    expected = KerasSearch(model, program.strategy, shortlist, constraints)
    yield title, functools.partial(program.verify, expected, program.client, batches)
    translator = ModelTranslator(model, tokenizers, program.strategy, protect="off", shortlist=shortlist)
    if program.takes_text:
        yield f"{title} text", functools.partial(_verify_text, translator, program.client, batches)
    if texts:
        yield f"{title} BLEU", functools.partial(_verify_bleu, translator, program.client, *texts)


def _verified(title, verify):
    """Runs a verification, prints its result, and returns it for verification.json."""
    started = time.monotonic()
    agreement = _passed(title, verify)
    _say(f"{title}: {agreement} ({time.monotonic() - started:.0f} s)")
    return dataclasses.asdict(agreement)


def _passed(title, verify):
    """Runs a verification and returns its result. Raises `VerificationError` if the program does not agree."""
    agreement = verify()
    if not agreement.passed:
        raise VerificationError(f"The {title} export does not agree with the Keras model: {agreement}")
    return agreement


def _verify_text(translator, client, batches):
    """Verifies the tokenizer and detokenizer inside a program, on the text of the same batches."""
    expected, found = [], []
    texts = [translator.source_tokenizer.decode(batch) for batch in batches]
    # Random bytes are no text. The sign in their place has more bytes than they have.
    for lines in [["", "  "], *([line.replace("\ufffd", " ") for line in text] for text in texts)]:
        expected += translator.translate(lines, batch_size=len(lines))
        found += client.translate(lines, batch_size=len(lines))
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
