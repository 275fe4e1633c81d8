import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizer's operations
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

from keras_transformer.export.saved_model.warmup import BATCH_SIZES, WARMUP_FILE, write_warmup

#: The fields of TensorFlow Serving's messages in a request: number, and type if the field is a message.
MESSAGES = {
    "PredictionLog": {"predict_log": (6, "PredictLog")},
    "PredictLog": {"request": (1, "PredictRequest")},
    "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, "InputsEntry")},
    "ModelSpec": {"name": (1, None), "signature_name": (3, None)},
    "InputsEntry": {"key": (1, None), "value": (2, None)},
}


@pytest.fixture(scope="module")
def prediction_log():
    """The class of `tensorflow.serving.PredictionLog`, created from `MESSAGES`."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="log.proto", package="serving", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            described = message.field.add(name=field_name, number=number, label=field.LABEL_OPTIONAL)
            described.type = field.TYPE_MESSAGE if kind else field.TYPE_BYTES
            if kind:
                described.type_name = f".serving.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("serving.PredictionLog"))


@pytest.fixture(scope="module")
def requests(prediction_log):
    """The requests in the warm-up file of a SavedModel: signature, name of the input and its lines."""

    def requests(saved_model):
        for record in tf.data.TFRecordDataset(str(saved_model / WARMUP_FILE)).as_numpy_iterator():
            log = prediction_log.FromString(record)
            assert log.SerializeToString() == record  # There are no other fields.
            request = log.predict_log.request
            lines = tf.make_ndarray(tensor_pb2.TensorProto.FromString(request.inputs.value))
            yield request.model_spec.signature_name.decode(), request.inputs.key.decode(), lines.tolist()

    return requests


@pytest.mark.parametrize("line", ["two men", "ein langer Satz " * 40, ""])
def test_what_is_written(requests, tmp_path, line):
    write_warmup(tmp_path, line)
    expected = [("serving_default", "text", [line.encode()] * size) for size in (1, 32)]
    assert list(requests(tmp_path)) == expected


def test_the_requests_of_an_export_run(requests, exported):
    saved_model = exported / "export" / "saved_model"
    loaded = tf.saved_model.load(str(saved_model))
    for (signature, name, lines), size in zip(requests(saved_model), BATCH_SIZES, strict=True):
        result = loaded.signatures[signature](**{name: tf.constant(lines)})
        assert len(lines) == size == len(result["translation"]) and lines[0].strip()
        assert len(set(result["translation"].numpy())) == 1 and (result["score"].numpy() < 0).all()
