"""One export: verified programs of a model directory, in its folder `export/`."""

import contextlib
import dataclasses
import functools
import json
import sys
import time

from keras_transformer.counting import counted
from keras_transformer.decoding import Shortlist
from keras_transformer.export.backend import require_tensorflow
from keras_transformer.export.config import ExportConfig
from keras_transformer.export.registry import FORMATS
from keras_transformer.export.verify.equality import VerificationError, compare_texts, random_source_batches
from keras_transformer.export.verify.quality import compare_bleu
from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.origin import fingerprint_of, write_origin
from keras_transformer.storage.source_text import source_text_of
from keras_transformer.text.files import read_lines
from keras_transformer.text.lines import max_tokens
from keras_transformer.translate.finished_model import load_finished
from keras_transformer.translate.keras_translator import ModelTranslator


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
    for name in config.programs:
        directory.require_replaceable(name)
        if prepare := FORMATS[name].prepare:
            prepare()
    texts = tuple(read_lines(path, config.encoding) for path in (config.source, config.reference) if path)
    shortlist = None
    if config.shortlist:
        shortlist = Shortlist.load(directory.require_shortlist())
    model, tokenizers = load_finished(directory)
    require_tensorflow()
    if shortlist:
        shortlist.check(model.config, config.strategy)
    batches = random_source_batches(model.config.source_vocabulary, min(30, max_tokens(model.config.max_length)))
    if len({len(lines) for lines in texts}) > 1:
        raise ValueError(
            "`reference` must have as many lines as `source`. "
            f"Received: {counted(len(texts[0]), 'line')} in source, {len(texts[1])} in reference"
        )
    for name in config.programs:
        if require_supported := FORMATS[name].require_supported:
            require_supported(model.config, tokenizers)
    for name in config.programs:
        _export_one(name, directory, model, shortlist, tokenizers, config.strategy, batches, texts)


def _verify_text(translator, client, batches):
    """Verifies the tokenizer and detokenizer inside a program, on the text of the same batches."""
    expected, found = [], []
    texts = [translator.source_tokenizer.decode(batch) for batch in batches]
    # Random bytes are no text. The sign in their place has more bytes than they have.
    for lines in [["", "  "], *([line.replace("\ufffd", " ") for line in text] for text in texts)]:
        expected += translator.translate(lines, batch_size=len(lines))
        found += client.translate(lines, batch_size=len(lines))
    return compare_texts(expected, found)


def _bleu(translator, client, source, reference):
    return compare_bleu(translator.translate(source), client.translate(source), reference)


def _export_one(name, directory, model, shortlist, tokenizers, strategy, batches, texts):
    place = directory.exported(name)
    fingerprint = fingerprint_of(directory.model_file)
    _say(f"{name}: converting to {place}")
    with atomic_write(place) as temporary:
        started = time.monotonic()
        tokens = shortlist, tokenizers[1].text_constraints
        with _searching_among(model, *tokens):
            FORMATS[name].write(model, directory, tokenizers, strategy, temporary)
        write_origin(temporary, fingerprint, source_text_of(directory.path))
        _say(f"{name}: converted in {time.monotonic() - started:.0f} s, verifying")
        entries = {}
        for title, program in FORMATS[name].programs(temporary, strategy).items():
            translator = ModelTranslator(model, tokenizers, program.strategy, protect="off")
            verifications = {title: functools.partial(program.verify, model, program.strategy, program.client, batches)}
            if program.takes_text:
                verifications[f"{title} text"] = functools.partial(_verify_text, translator, program.client, batches)
            if texts and title == name:
                verifications[f"{title} BLEU"] = functools.partial(_bleu, translator, program.client, *texts)
            has_shortlist = {"shortlist": True} if shortlist and program.has_search else {}
            search = FORMATS[name].recorded_search(program.strategy) | has_shortlist
            with _searching_among(model, *(tokens if program.has_search else (None, None))):
                entries |= {title: {"search": search, **_passed(title, run)} for title, run in verifications.items()}
    _record(directory, name, entries)


@contextlib.contextmanager
def _searching_among(model, shortlist, text_constraints):
    """Gives the searches of a model a shortlist and constraints for a while."""
    before = model.shortlist, model.text_constraints
    model.shortlist, model.text_constraints = shortlist, text_constraints
    try:
        yield
    finally:
        model.shortlist, model.text_constraints = before


def _passed(title, verify):
    """Runs a verification. Returns its result for verification.json.

    Raises:
        VerificationError: if it fails.
    """
    started = time.monotonic()
    agreement = verify()
    if not agreement.passed:
        raise VerificationError(f"The {title} export does not agree with the Keras model: {agreement}")
    _say(f"{title}: {agreement} ({time.monotonic() - started:.0f} s)")
    return dataclasses.asdict(agreement)


def _record(directory, name, new_entries):
    file = directory.verification_file
    entries = json.loads(file.read_text()) if file.exists() else {}
    entries = {program: entry for program, entry in entries.items() if not f"{program} ".startswith(f"{name} ")}
    with atomic_write(file) as temporary:
        temporary.write_text(json.dumps({**entries, **new_entries}, indent=2) + "\n")


def _say(line):
    print(line, file=sys.stderr)
