"""Pairs that share a row give what the pairs give apart."""

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.layers.positional_encoding import segment_positions
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy, TokenLoss

pytestmark = pytest.mark.portable

to_numpy = keras.ops.convert_to_numpy
VARIANTS = {"paper": {}, "learned": {"positions": "learned", "max_length": 9}, "norm_first": {"norm_first": True}}
APART = {
    "source": np.array([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 11, 12, 3, 0]], "int32"),
    "target": np.array([[2, 12, 13], [2, 14, 15], [2, 16, 0]], "int32"),
}
APART_LABELS = np.array([[12, 13, 3], [14, 15, 3], [16, 3, 0]], "int32")
# The first two pairs, and the third in a row of its own; more places on one side than on the other.
PACKED = {
    "source": np.array([[4, 5, 6, 7, 3, 8, 9, 3, 0], [10, 11, 12, 3, 0, 0, 0, 0, 0]], "int32"),
    "source_segments": np.array([[1, 1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 0, 0, 0, 0, 0]], "int32"),
    "target": np.array([[2, 12, 13, 2, 14, 15, 0], [2, 16, 0, 0, 0, 0, 0]], "int32"),
    "target_segments": np.array([[1, 1, 1, 2, 2, 2, 0], [1, 1, 0, 0, 0, 0, 0]], "int32"),
}
PACKED_LABELS = np.array([[12, 13, 3, 14, 15, 3, 0], [16, 3, 0, 0, 0, 0, 0]], "int32")


@pytest.fixture(params=VARIANTS)
def model(request, randomize):
    sizes = {"num_layers": 2, "d_model": 22, "num_heads": 3, "d_k": 5, "d_v": 7, "d_ff": 13, "dropout": 0.0}
    return randomize(Transformer(TransformerConfig(vocab_size=19, **sizes, **VARIANTS[request.param])), scale=0.3)


def test_packed_logits_equal_those_of_separate_rows(model):
    apart, packed = to_numpy(model(APART)), to_numpy(model(PACKED))
    assert packed.shape == (2, 7, 19)
    np.testing.assert_allclose(packed[0, :6], apart[:2].reshape(6, 19), atol=1e-5)
    np.testing.assert_allclose(packed[1, :2], apart[2, :2], atol=1e-5)


def trained(model, inputs, labels, **options):
    """Loss and metrics of a step of gradient descent, and the weights after it."""
    weights = (labels != 0) * (labels.size / (labels != 0).sum(dtype="float32"))
    model.compile(
        keras.optimizers.SGD(1.0),
        LabelSmoothedCrossEntropy(0.1),
        weighted_metrics=[TokenLoss(0.1), TokenAccuracy(), Perplexity()],
        **options,
    )
    found = model.train_on_batch(inputs, labels, sample_weight=weights, return_dict=True)
    return found, model.get_weights()


@pytest.mark.slow
def test_packed_loss_gradient_and_metrics_equal_those_of_separate_rows(model, few_steps):
    before = model.get_weights()
    apart, weights_apart = trained(model, APART, APART_LABELS, **few_steps)
    model.set_weights(before)
    packed, weights_packed = trained(model, PACKED, PACKED_LABELS, **few_steps)
    assert packed == pytest.approx(apart, rel=1e-6, abs=1e-5) and packed["token_accuracy"] < 1
    for one, other in zip(weights_packed, weights_apart, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert max(np.abs(one - old).max() for one, old in zip(weights_packed, before, strict=True)) > 0.01


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["paper", "learned", "norm_first"], indirect=True)
def test_a_compiled_step_is_the_same(model):
    """As `fit` runs it, whatever the backend compiles with."""
    model.compile(keras.optimizers.SGD(0.0), LabelSmoothedCrossEntropy(0.1, pad_id=0), jit_compile=True)
    losses = [model.train_on_batch(*batch) for batch in ((APART, APART_LABELS), (PACKED, PACKED_LABELS))]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_segments_change_the_logits(model):
    without = {name: PACKED[name] for name in ("source", "target")}
    assert np.abs(to_numpy(model(without)) - to_numpy(model(PACKED)))[0, 3:6].max() > 1e-2


def test_segments_of_one_side_are_refused(model):
    with pytest.raises(ValueError, match=r"`target_segments`.*Received: \['source_segments'\]"):
        model({name: ids for name, ids in PACKED.items() if name != "target_segments"})


def test_a_pairs_tokens_change_nothing_in_its_neighbour(model):
    changed = {**PACKED, "source": PACKED["source"].copy(), "target": PACKED["target"].copy()}
    changed["source"][0, :4], changed["target"][0, 1:3] = 17, 18
    before, after = to_numpy(model(PACKED)), to_numpy(model(changed))
    np.testing.assert_allclose(after[0, 3:6], before[0, 3:6], atol=1e-6)
    assert np.abs(after - before)[0, :3].max() > 1e-2


def test_positions_start_at_0_in_each_segment():
    segments = np.array([[1, 1, 1, 2, 3, 3, 0], [1, 2, 2, 2, 2, 2, 2]])
    assert to_numpy(segment_positions(segments)).tolist() == [[0, 1, 2, 0, 0, 1, 0], [0, 0, 1, 2, 3, 4, 5]]
