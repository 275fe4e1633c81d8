"""One export: model directory in, verified programs in its `export/` folder out."""

import dataclasses
import functools
import json
import sys
import time

from keras_transformer.atomic_files import replacing
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.backend import require_tensorflow
from keras_transformer.export.config import QUANTIZED, ExportConfig
from keras_transformer.export.ctranslate2 import require_supported, write_ctranslate2
from keras_transformer.export.ctranslate2_translator import CTranslate2Translator
from keras_transformer.export.huggingface import (
    read_huggingface,
    recorded_search,
    require_expressible,
    write_huggingface,
)
from keras_transformer.export.onnx import write_onnx
from keras_transformer.export.onnx_steps import OnnxGreedySearch
from keras_transformer.export.onnx_translator import OnnxTranslator
from keras_transformer.export.origin import fingerprint_of, write_origin
from keras_transformer.export.saved_model import write_saved_model
from keras_transformer.export.saved_model_translator import SavedModelTranslator
from keras_transformer.export.verify import VerificationError, compare, compare_texts, made_up_batches
from keras_transformer.export.verify_quality import compare_bleu, judge
from keras_transformer.export.verify_search import check_search
from keras_transformer.keras_translator import ModelTranslator
from keras_transformer.lines import longest_line
from keras_transformer.model_directory import ModelDirectory, export_name
from keras_transformer.saving import load_finished
from keras_transformer.text_files import read_lines

#: Name of the export -> what writes it.
WRITERS = {
    "saved_model": write_saved_model,
    "onnx": write_onnx,
    **{export_name("onnx", name): functools.partial(write_onnx, quantize=name) for name in QUANTIZED},
    "ctranslate2": write_ctranslate2,
    "huggingface": write_huggingface,
}

#: Name of an export -> what refuses models that it cannot express.
_REQUIREMENTS = {"ctranslate2": require_supported, "huggingface": require_expressible}


def _programs(name, path, strategy):
    """What an export holds: client, search, and what proves it."""
    if name == "saved_model":
        return {"saved_model": (SavedModelTranslator(path), strategy, compare)}
    if name == "huggingface":
        return {"huggingface": (read_huggingface(path, strategy), strategy, compare)}
    if name == "ctranslate2":
        beam = dataclasses.replace(strategy, n_best=1, length_penalty=0.0)
        searches = {"ctranslate2 greedy": dataclasses.replace(beam, beam_size=1), "ctranslate2 beam": beam}
        return {
            program: (CTranslate2Translator(path, search), search, check_search) for program, search in searches.items()
        }
    prove = compare if name == "onnx" else judge
    greedy = BeamSearch(beam_size=1, length_penalty=0.0, extra_length=strategy.extra_length)
    return {
        name: (OnnxTranslator(path), strategy, prove),
        f"{name} encoder and decoder": (OnnxGreedySearch(path, strategy.extra_length), greedy, prove),
    }


def export(path: str, config: ExportConfig) -> None:
    """Exports a model, each format proven against the Keras model before it appears.

    Args:
        path: a finished model directory.
        config: the formats and the search.

    Raises:
        ValueError: if the directory holds no finished model, one that a format cannot express, or Keras's
            backend is not TensorFlow; nothing is written.
        VerificationError: if an export disagrees with the model; it is not left behind.
    """
    directory = ModelDirectory(path)
    directory.require_finished()
    with directory.locked():
        _export(directory, config)


def _export(directory, config):
    for name in config.programs:
        directory.require_replaceable(name)
    texts = tuple(read_lines(path, config.encoding) for path in (config.source, config.reference) if path)
    model, tokenizers = load_finished(directory)
    require_tensorflow()
    batches = made_up_batches(model.config.source_vocabulary, min(30, longest_line(model.config.max_length)))
    if len({len(lines) for lines in texts}) > 1:
        raise ValueError(
            f"`reference` must have as many lines as `source`. Received: {[len(lines) for lines in texts]}"
        )
    for name in config.programs:
        if name in _REQUIREMENTS:
            _REQUIREMENTS[name](model.config, tokenizers)
    for name in config.programs:
        _export_one(name, directory, model, tokenizers, config.strategy, batches, texts)


def _verify_text(translator, client, batches):
    """Proves tokenizer and detokenizer of a program that has its own, on the same batches."""
    expected, found = [], []
    for lines in [["", "  "], *(translator.source_tokenizer.decode(batch) for batch in batches)]:
        expected += translator.translate(lines, batch_size=len(lines))
        found += client.translate(lines, batch_size=len(lines))
    return compare_texts(expected, found)


def _bleu(translator, client, source, reference):
    return compare_bleu(translator.translate(source), client.translate(source), reference)


def _export_one(name, directory, model, tokenizers, strategy, batches, texts):
    place = directory.exported(name)
    fingerprint = fingerprint_of(directory.model_file)
    _say(f"{name}: converting to {place}")
    with replacing(place) as temporary:
        started = time.monotonic()
        WRITERS[name](model, directory, tokenizers, strategy, temporary)
        write_origin(temporary, fingerprint)
        _say(f"{name}: converted in {time.monotonic() - started:.0f} s, verifying")
        entries = {}
        for program, (client, search, prove) in _programs(name, temporary, strategy).items():
            proofs = {program: functools.partial(prove, model, search, client, batches)}
            translator = ModelTranslator(model, tokenizers, search)
            if name == "saved_model":
                proofs[f"{program} text"] = functools.partial(_verify_text, translator, client, batches)
            if texts and program == name:
                proofs[f"{program} BLEU"] = functools.partial(_bleu, translator, client, *texts)
            entries |= {title: _passed(title, search, proof) for title, proof in proofs.items()}
    _record(directory, name, entries)


def _passed(program, search, proof):
    """What a proof finds, to be recorded."""
    started = time.monotonic()
    agreement = proof()
    if not agreement.passed:
        raise VerificationError(f"The {program} export does not agree with the Keras model: {agreement}")
    _say(f"{program}: {agreement} ({time.monotonic() - started:.0f} s)")
    options = recorded_search(search) if program == "huggingface" else dataclasses.asdict(search)
    return {"search": options, **dataclasses.asdict(agreement)}


def _record(directory, name, new_entries):
    file = directory.verification_file
    entries = json.loads(file.read_text()) if file.exists() else {}
    entries = {program: entry for program, entry in entries.items() if not f"{program} ".startswith(f"{name} ")}
    with replacing(file) as temporary:
        temporary.write_text(json.dumps({**entries, **new_entries}, indent=2) + "\n")


def _say(line):
    print(line, file=sys.stderr)
