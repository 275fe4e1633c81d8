"""Backbones of keras-hub as the source of models: training, search, files and exports."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.decoding import BeamSearch
from keras_transformer.export import export_model

keras_hub = pytest.importorskip("keras_hub")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Of TensorFlow and NumPy, in exports.
]
to_numpy = keras.ops.convert_to_numpy
CONFIG = kt.TransformerConfig(vocab_size=23, num_layers=1, d_model=12, num_heads=2, d_ff=13, dropout=0.0)
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 12}
TARGET = np.array([[2, 12, 13, 14, 15], [2, 16, 17, 0, 0], [2, 5, 0, 0, 0]], "int32")
LENGTHS = np.array([[7], [5], [3]])
PADDING_MASK = (np.arange(7) < LENGTHS).astype("int32")
TEXT = {
    "token_ids": np.random.default_rng(0).integers(1, 19, (3, 7)).astype("int32") * PADDING_MASK,
    "segment_ids": np.zeros((3, 7), "int32"),
    "padding_mask": PADDING_MASK,
}
IMAGES = np.random.default_rng(1).random((3, 14, 21, 3), "float32")


def bert():
    """The output of the sequence, with a mask."""
    backbone = keras_hub.models.BertBackbone(vocabulary_size=19, intermediate_dim=13, dropout=0.0, **SIZES)
    x = backbone.output["sequence_output"]
    is_real = keras.ops.cast(backbone.input["padding_mask"], x.dtype)
    return keras.Model(backbone.input, keras.layers.Masking()(x * is_real[..., None]))


def vit():
    return keras_hub.models.ViTBackbone(image_shape=(14, 21, 3), patch_size=7, mlp_dim=13, **SIZES)


@pytest.fixture(params=[(bert, TEXT), (vit, IMAGES)], ids=["bert", "vit"], scope="module")
def case(request, randomize):
    make, source = request.param
    return make, source, randomize(kt.Transformer(CONFIG, source=make()), scale=0.3)


@pytest.mark.nightly
def test_a_model_is_trained_saved_and_loaded(case, tmp_path, few_steps):
    _, source, model = case
    model.compile("adam", kt.losses.LabelSmoothedCrossEntropy(0.1), **few_steps)
    before = [to_numpy(w) for w in model.source_embedding.trainable_weights]
    model.fit({"source": source, "target": TARGET}, np.roll(TARGET, -1, 1), verbose=0)
    after = [to_numpy(w) for w in model.source_embedding.trainable_weights]
    assert sum((new != old).any() for new, old in zip(after, before, strict=True)) > len(after) / 2
    model.save(tmp_path / "model.keras")
    loaded = kt.load_model(tmp_path / "model.keras")
    inputs = {"source": source, "target": TARGET}
    np.testing.assert_array_equal(to_numpy(loaded(inputs)), to_numpy(model(inputs)))


@pytest.mark.nightly
def test_hypotheses_have_the_scores_of_one_full_pass(case):
    _, source, model = case
    found = model.generate(source, BeamSearch(beam_size=3, extra_length=4, length_penalty=0.0))
    log_probs = model.token_log_probs(source, found.tokens[:, 0])
    np.testing.assert_allclose(log_probs.sum(axis=1), found.scores[:, 0], atol=1e-4)


def test_padding_is_not_attended_to(randomize):
    model = randomize(kt.Transformer(CONFIG, source=bert()), scale=0.3)
    short = {name: x[2:, :3] for name, x in TEXT.items()}
    padded = {name: x[2:] for name, x in TEXT.items()}
    logits = [to_numpy(model({"source": source, "target": TARGET[2:]})) for source in (short, padded)]
    np.testing.assert_allclose(*logits, atol=1e-5)


@pytest.mark.nightly
def test_exports_of_the_search_are_verified(case, tmp_path, tensorflow):
    _, source, model = case
    strategy = BeamSearch(beam_size=2, extra_length=4)
    found = export_model(model, tmp_path / "export", strategy, sample_inputs=source)
    assert [agreement.passed for agreement in found.values()] == [True, True]


@pytest.mark.nightly
def test_exports_of_a_classifier_are_verified(case, tmp_path, randomize, tensorflow):
    make, source, _ = case
    model = randomize(kt.SentenceClassifier(CONFIG, num_classes=5, source=make()), scale=0.3)
    found = export_model(model, tmp_path / "export", sample_inputs=source)
    assert [agreement.passed for agreement in found.values()] == [True, True]
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(kt.load_model(tmp_path / "model.keras")(source)), to_numpy(model(source)))
