"""The record of the format `saved_model`."""

from keras_transformer.export.format import ExportFormat, Program


def _write(*arguments):
    from keras_transformer.export.saved_model.export import write_saved_model

    write_saved_model(*arguments)


def _programs(path, strategy):
    from keras_transformer.export.verify.equality import compare

    return {"saved_model": Program(_load(path, protect="off"), strategy, compare, takes_text=True)}


def _load(directory, **options):
    from keras_transformer.export.saved_model.translator import SavedModelTranslator

    return SavedModelTranslator(directory, **options)


SAVED_MODEL = ExportFormat(
    "saved_model",
    "a TensorFlow SavedModel",
    _write,
    _programs,
    _load,
    client_packages=("tensorflow", "tensorflow-text"),
)
