"""The record of the format `saved_model`."""

from keras_transformer.export.format import ExportFormat, late

SAVED_MODEL = ExportFormat(
    "saved_model",
    "a TensorFlow SavedModel",
    late("saved_model.export:write_saved_model"),
    late("saved_model.export:programs"),
)
