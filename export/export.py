"""One export: model directory in, verified programs in its `export/` folder out."""

import dataclasses
import json
import sys

from keras_transformer.export.config import ExportConfig
from keras_transformer.export.onnx import write_onnx
from keras_transformer.export.onnx_translator import OnnxTranslator
from keras_transformer.export.saved_model import write_saved_model
from keras_transformer.export.saved_model_translator import SavedModelTranslator
from keras_transformer.export.verify import VerificationError, compare, made_up_batches
from keras_transformer.model_directory import ModelDirectory, replacing
from keras_transformer.saving import load_model
from keras_transformer.translation import load_tokenizers

#: Format -> what writes it and what runs it.
_EXPORTERS = {
    "saved_model": (write_saved_model, SavedModelTranslator),
    "onnx": (write_onnx, OnnxTranslator),
}


def export(path: str, config: ExportConfig) -> None:
    """Exports a model, each format proven against the Keras model before it appears.

    Args:
        path: a finished model directory.
        config: the formats and the search.

    Raises:
        ValueError: if the directory holds no finished model.
        VerificationError: if an export disagrees with the model; it is not left behind.
    """
    directory = ModelDirectory(path)
    directory.require_finished()
    tokenizers = load_tokenizers(directory)
    model = load_model(directory.model_file, compile=False)
    batches = made_up_batches(model.config.source_vocabulary)
    with directory.locked():
        for name in config.formats:
            _export_one(name, directory, model, tokenizers, config.strategy, batches)


def _export_one(name, directory, model, tokenizers, strategy, batches):
    write, translator_class = _EXPORTERS[name]
    place = directory.export / name
    print(f"{name}: exporting to {place}", file=sys.stderr)
    with replacing(place) as temporary:
        write(model, directory, tokenizers, strategy, temporary)
        agreement = compare(model, strategy, translator_class(temporary), batches)
        if not agreement.passed:
            raise VerificationError(f"The {name} export does not agree with the Keras model: {agreement}")
    print(f"{name}: {agreement.equal} of {agreement.sentences} sentences equal, {agreement.ties} ties", file=sys.stderr)
    _record(directory, name, {"search": dataclasses.asdict(strategy), **dataclasses.asdict(agreement)})


def _record(directory, name, entry):
    file = directory.verification_file
    entries = json.loads(file.read_text()) if file.exists() else {}
    with replacing(file) as temporary:
        temporary.write_text(json.dumps({**entries, name: entry}, indent=2) + "\n")
