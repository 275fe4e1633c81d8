import dataclasses

import keras
import numpy as np
import pytest

from keras_transformer import LanguageModel, Transformer, TransformerConfig, load_model
from keras_transformer.losses import LabelSmoothedCrossEntropy, RDropCrossEntropy
from keras_transformer.metrics import TokenLoss

to_numpy = keras.ops.convert_to_numpy
CONFIG = TransformerConfig(vocab_size=12, num_layers=1, d_model=8, num_heads=2, d_ff=16, dropout=0.3)
SOURCE = np.array([[4, 5, 3, 0], [6, 7, 8, 3]])
TARGET = np.array([[2, 9, 4], [2, 5, 0]])
LABELS = np.array([[9, 4, 3], [5, 3, 0]])
INPUTS = {
    "plain": {"source": SOURCE, "target": TARGET},
    "packed": {
        "source": SOURCE,
        "target": TARGET,
        "source_segments": np.array([[1, 2, 2, 0], [1, 1, 1, 1]]),
        "target_segments": np.array([[1, 2, 2], [1, 1, 0]]),
    },
}


def compiled(model, loss, few_steps):
    metrics = [TokenLoss(name="loss", pad_id=0)]
    r_drop = isinstance(loss, RDropCrossEntropy)
    model.compile(keras.optimizers.SGD(0.1), loss, r_drop=r_drop, weighted_metrics=metrics, **few_steps)
    return model


@pytest.mark.parametrize("kind", INPUTS)
def test_training_runs_two_passes_with_different_dropout(kind):
    model = Transformer(CONFIG)
    model.compile(loss=RDropCrossEntropy(), r_drop=True)
    logits = to_numpy(model(INPUTS[kind], training=True))
    assert logits.shape == (2, 2, 3, 12)
    assert abs(logits[:, 0] - logits[:, 1]).max() > 1e-3
    assert model(INPUTS[kind]).shape == (2, 3, 12)


@pytest.mark.parametrize("kind", INPUTS)
def test_without_dropout_both_passes_equal_one(kind):
    model = Transformer(dataclasses.replace(CONFIG, dropout=0.0))
    expected = to_numpy(model(INPUTS[kind], training=True))
    model.compile(loss=RDropCrossEntropy(), r_drop=True)
    logits = to_numpy(model(INPUTS[kind], training=True))
    np.testing.assert_allclose(logits, np.stack([expected, expected], axis=1), atol=1e-5)


@pytest.mark.portable
def test_without_dropout_it_trains_like_one_pass(few_steps):
    ours, theirs = (Transformer(dataclasses.replace(CONFIG, dropout=0.0)) for _ in range(2))
    theirs.set_weights(ours.get_weights())
    weights = (LABELS != 0).astype("float32")
    losses = []
    for model, loss in ((ours, RDropCrossEntropy(5.0)), (theirs, LabelSmoothedCrossEntropy())):
        history = compiled(model, loss, few_steps).fit(INPUTS["plain"], LABELS, sample_weight=weights, verbose=0)
        losses += history.history["loss"]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.portable
@pytest.mark.nightly
def test_the_difference_of_the_passes_is_trained(tmp_path):
    """With a large alpha, the two passes of one batch become similar."""
    options = {"jit_compile": keras.backend.backend() == "jax"}  # XLA would compile for longer than 20 steps take.
    model = compiled(Transformer(CONFIG), RDropCrossEntropy(50.0), options)

    def difference():
        logits = to_numpy(model(INPUTS["plain"], training=True))
        return abs(logits[:, 0] - logits[:, 1]).mean()

    before = np.mean([difference() for _ in range(5)])
    model.fit(INPUTS["plain"], LABELS, epochs=20, verbose=0)
    model.save(tmp_path / "model.keras")
    model = load_model(tmp_path / "model.keras")
    assert model.loss.alpha == 50.0
    assert np.mean([difference() for _ in range(5)]) < 0.7 * before


def test_the_setting_is_explicit():
    with pytest.raises(ValueError, match="`r_drop` must be True.*Received: r_drop=False"):
        Transformer(CONFIG).compile(loss=RDropCrossEntropy())


@pytest.mark.parametrize("loss", [RDropCrossEntropy(), LabelSmoothedCrossEntropy()])
def test_a_saved_model_keeps_the_setting(loss, tmp_path):
    model = compiled(LanguageModel(CONFIG), loss, {})
    model.save(tmp_path / "model.keras")
    passes = [2] if isinstance(loss, RDropCrossEntropy) else []
    assert load_model(tmp_path / "model.keras")(TARGET, training=True).shape == (2, *passes, 3, 12)
    without = load_model(tmp_path / "model.keras", compile=False)
    assert without(TARGET, training=True).shape == (2, 3, 12)


def test_the_loss_of_a_file_without_the_setting_decides():
    model, old = compiled(LanguageModel(CONFIG), RDropCrossEntropy(), {}), LanguageModel(CONFIG)
    config = model.get_compile_config()
    assert config.pop("r_drop")
    old.compile_from_config(config)
    assert old(TARGET, training=True).shape == (2, 2, 3, 12)


@pytest.mark.portable
def test_a_language_model_trains_with_r_drop(few_steps):
    model = compiled(LanguageModel(CONFIG), RDropCrossEntropy(pad_id=0), few_steps)
    assert model(TARGET, training=True).shape == (2, 2, 3, 12)
    history = model.fit(TARGET, LABELS, validation_data=(TARGET, LABELS), verbose=0).history
    assert np.isfinite(history["loss"] + history["val_loss"]).all()


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.portable
def test_labels_may_have_a_last_axis_of_1(length, few_steps):
    losses = []
    for labels in (LABELS[:, :length], LABELS[:, :length, None]):
        keras.utils.set_random_seed(1)
        model = compiled(LanguageModel(CONFIG), RDropCrossEntropy(pad_id=0), few_steps)
        losses.append(model.train_on_batch(TARGET[:, :length], labels, return_dict=True)["loss"])
    assert losses[0] == losses[1]
