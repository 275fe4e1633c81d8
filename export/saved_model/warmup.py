"""Warm-up requests, which TensorFlow Serving runs through a SavedModel before it serves clients."""

from pathlib import Path

import tensorflow as tf

#: Path in the SavedModel that TensorFlow Serving expects.
WARMUP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
#: Lines of the requests: a single line, and a full batch.
BATCH_SIZES = (1, 32)


def write_warmup(saved_model: Path, line: str) -> None:
    """Writes one request of `serving_default` for each of `BATCH_SIZES`.

    Args:
        saved_model: the SavedModel's folder.
        line: text of every line.
    """
    file = saved_model / WARMUP_FILE
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for size in BATCH_SIZES:
            writer.write(_prediction_log(tf.make_tensor_proto([line] * size, tf.string)))


def _prediction_log(text):
    """A serialized `tensorflow.serving.PredictionLog`, written here to avoid a dependency on its package.

    Reference:
        prediction_log.proto, predict.proto and model.proto in
        https://github.com/tensorflow/serving/tree/master/tensorflow_serving/apis
    """
    model_spec = _field(3, b"serving_default")  # ModelSpec.signature_name
    entry = _field(1, b"text") + _field(2, text.SerializeToString())  # Entry of the map PredictRequest.inputs
    request = _field(1, model_spec) + _field(2, entry)  # PredictRequest.model_spec and .inputs
    return _field(6, _field(1, request))  # PredictionLog.predict_log and PredictLog.request


def _field(number, payload):
    """A length-delimited field of Protocol Buffers: tag, length, payload."""
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _varint(value):
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
