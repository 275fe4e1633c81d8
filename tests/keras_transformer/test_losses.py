import re

import keras
import numpy as np
import pytest

from keras_transformer.losses import LabelSmoothedCrossEntropy, RDropCrossEntropy, token_cross_entropy
from keras_transformer.metrics import TokenAccuracy, TokenLoss

to_numpy = keras.ops.convert_to_numpy
LABELS = np.array([[3, 1, 0, 4, 2], [6, 0, 5, 0, 0], [1, 2, 3, 4, 5]])


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(scale=3, size=(3, 5, 7)).astype("float32")


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_each_token_is_the_formula(logits, smoothing, reference):
    expected = reference.smoothed_cross_entropy(LABELS, logits, smoothing)
    np.testing.assert_allclose(to_numpy(token_cross_entropy(LABELS, logits, smoothing)), expected, rtol=1e-5)
    loss = LabelSmoothedCrossEntropy(smoothing, reduction="none")
    np.testing.assert_allclose(to_numpy(loss(LABELS, logits)), expected, rtol=1e-5)


def test_without_smoothing_a_logit_may_be_infinite():
    logits = np.array([[0.0, -np.inf, 0.0]], "float32")
    assert to_numpy(token_cross_entropy(np.array([0]), logits)) == pytest.approx(np.log(2))


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="inspects the gradient of JAX")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_has_no_scatter(logits, smoothing):
    import jax

    gradient = jax.grad(lambda logits: token_cross_entropy(LABELS, logits, smoothing).sum())
    assert "scatter" not in str(jax.make_jaxpr(gradient)(logits))


def test_all_ids_are_exact_if_the_default_dtype_is_half_precision():
    keras.config.set_floatx("bfloat16")
    try:
        logits = np.zeros((1, 1, 3000), "float32")
        logits[..., 2999] = 20
        assert float(LabelSmoothedCrossEntropy(0.0)(np.array([[2999]]), logits)) < 0.1
        metric = TokenAccuracy()
        metric.update_state(np.array([[2999]]), logits)
        assert float(metric.result()) == 1
    finally:
        keras.config.set_floatx("float32")


def test_is_the_cross_entropy_of_keras(logits):
    expected = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1, reduction="none")
    np.testing.assert_allclose(
        to_numpy(LabelSmoothedCrossEntropy(0.1, reduction=None)(LABELS, logits)),
        to_numpy(expected(np.eye(7)[LABELS], logits)),
        rtol=1e-5,
    )


def test_default_is_the_mean_over_all_slots(logits, reference):
    tokens = reference.smoothed_cross_entropy(LABELS, logits, 0.1)
    assert float(LabelSmoothedCrossEntropy()(LABELS, logits)) == pytest.approx(tokens.mean(), rel=1e-5)


def test_pad_id_gives_the_mean_over_real_tokens(logits, reference):
    tokens = reference.smoothed_cross_entropy(LABELS, logits, 0.1)
    loss = LabelSmoothedCrossEntropy(0.1, pad_id=0)
    assert float(loss(LABELS, logits)) == pytest.approx(tokens[LABELS != 0].mean(), rel=1e-5)
    weights = np.random.default_rng(1).random(LABELS.shape).astype("float32")
    expected = np.average(tokens, weights=weights * (LABELS != 0))
    assert float(loss(LABELS, logits, sample_weight=weights)) == pytest.approx(expected, rel=1e-5)


def test_global_weights_give_the_token_mean_on_any_number_of_replicas(logits, reference):
    mask = (LABELS != 0).astype("float32")
    weights = mask * mask.size / mask.sum()
    loss = LabelSmoothedCrossEntropy(0.1)
    expected = reference.smoothed_cross_entropy(LABELS, logits, 0.1)[LABELS != 0].mean()
    assert float(loss(LABELS, logits, weights)) == pytest.approx(expected, rel=1e-5)
    shares = [float(loss(LABELS[i : i + 1], logits[i : i + 1], weights[i : i + 1])) for i in range(3)]
    assert np.mean(shares) == pytest.approx(expected, rel=1e-5)


def test_padding_changes_nothing(logits):
    loss = LabelSmoothedCrossEntropy(0.1, pad_id=0)
    changed = np.where((LABELS == 0)[..., None], 50.0, logits).astype("float32")
    assert float(loss(LABELS, changed)) == pytest.approx(float(loss(LABELS, logits)), rel=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_is_float32_on_half_precision_logits(logits, dtype, reference):
    half = keras.ops.cast(logits, dtype)
    rounded = to_numpy(keras.ops.cast(half, "float32"))
    expected = reference.smoothed_cross_entropy(LABELS, rounded, 0.1)
    np.testing.assert_allclose(to_numpy(token_cross_entropy(LABELS, half, 0.1)), expected, rtol=1e-5)
    loss = LabelSmoothedCrossEntropy(0.1)(LABELS, half)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    assert float(loss) == pytest.approx(expected.mean(), rel=1e-6)


def test_large_logits_stay_finite():
    logits = np.array([[[3e4, -3e4, 0.0]]], "float32")
    assert float(LabelSmoothedCrossEntropy(0.0)(np.array([[1]]), logits)) == pytest.approx(6e4)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_label_smoothing_out_of_range_is_refused(smoothing):
    with pytest.raises(ValueError, match=rf"`label_smoothing`.*Received: label_smoothing={smoothing}"):
        LabelSmoothedCrossEntropy(smoothing)


@pytest.mark.parametrize("pad_id", [None, 0])
def test_configuration_round_trip(pad_id):
    loss = LabelSmoothedCrossEntropy(0.2, pad_id=pad_id, name="mine")
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert type(copy) is LabelSmoothedCrossEntropy
    assert copy.get_config() == loss.get_config()
    assert (copy.label_smoothing, copy.pad_id, copy.reduction, copy.name) == (0.2, pad_id, loss.reduction, "mine")


def test_configurations_of_version_0_1_are_read():
    for loss in (RDropCrossEntropy(2.0, 0.3, pad_id=0), TokenLoss(0.3)):
        config = loss.get_config()
        config["smoothing"] = config.pop("label_smoothing")
        assert type(loss).from_config(config).get_config() == loss.get_config()


def test_r_drop_is_the_formula(logits, reference):
    other = np.random.default_rng(1).normal(scale=3, size=logits.shape).astype("float32")
    log_p, log_q = reference.log_softmax(logits), reference.log_softmax(other)
    divergences = [(np.exp(a) * (a - b)).sum(-1) for a, b in ((log_p, log_q), (log_q, log_p))]
    losses = [reference.smoothed_cross_entropy(LABELS, one, 0.1) for one in (logits, other)]
    expected = sum(losses) / 2 + 3.0 * sum(divergences) / 4
    loss = RDropCrossEntropy(3.0, label_smoothing=0.1, reduction="none")
    np.testing.assert_allclose(to_numpy(loss(LABELS, np.stack([logits, other], axis=1))), expected, rtol=1e-5)
    np.testing.assert_allclose(to_numpy(loss(LABELS, logits)), losses[0], rtol=1e-5)


def test_r_drop_ignores_padding(logits, reference):
    both = np.stack([logits, np.where((LABELS == 0)[..., None], 50.0 * logits, logits)], axis=1)
    tokens = reference.smoothed_cross_entropy(LABELS, logits, 0.1)
    assert float(RDropCrossEntropy(3.0, 0.1, pad_id=0)(LABELS, both)) == pytest.approx(
        tokens[LABELS != 0].mean(), rel=1e-5
    )


def test_r_drop_requires_an_alpha_that_is_not_negative():
    with pytest.raises(ValueError, match=r"alpha=-1"):
        RDropCrossEntropy(-1)


@pytest.mark.parametrize("pad_id", [None, 0])
@pytest.mark.parametrize("make", [LabelSmoothedCrossEntropy, RDropCrossEntropy])
def test_labels_of_classes_may_have_a_last_axis_of_1(make, pad_id):
    labels, weights = np.array([2, 0, 1]), np.array([1.0, 2.0, 3.0], "float32")
    logits = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    loss = make(pad_id=pad_id)
    expected = float(loss(labels, logits, weights))
    assert float(loss(labels[:, None], logits, weights)) == pytest.approx(expected)
    assert float(loss(labels[:, None], logits, weights[:, None])) == pytest.approx(expected)


@pytest.fixture(params=["smoothed", "r_drop", "one pass"])
def each_loss(request, logits):
    """A function of labels, weights and `pad_id`: the loss, with logits of one or of two passes."""
    make = LabelSmoothedCrossEntropy if request.param == "smoothed" else RDropCrossEntropy
    both = np.stack([logits, logits[::-1]], axis=1)

    def each_loss(labels, weights=None, **arguments):
        return float(make(**arguments)(labels, both if request.param == "r_drop" else logits, weights))

    return each_loss


ROW_WEIGHTS = np.array([1.0, 2.0, 0.0], "float32")
TOKEN_WEIGHTS = np.repeat(ROW_WEIGHTS[:, None], 5, axis=1)


@pytest.mark.parametrize("pad_id", [None, 0])
@pytest.mark.parametrize("weights", [ROW_WEIGHTS, ROW_WEIGHTS[:, None], TOKEN_WEIGHTS[..., None]], ids=np.shape)
def test_weights_of_rows_weigh_sentences(each_loss, weights, pad_id):
    expected = each_loss(LABELS, TOKEN_WEIGHTS, pad_id=pad_id)
    assert each_loss(LABELS, weights, pad_id=pad_id) == pytest.approx(expected)
    assert each_loss(LABELS[..., None], weights, pad_id=pad_id) == pytest.approx(expected)


def test_weights_of_rows_weigh_sentences_if_there_are_as_many_rows_as_positions(logits, reference):
    labels, weights = LABELS[:, :3], ROW_WEIGHTS
    expected = reference.smoothed_cross_entropy(labels, logits[:, :3], 0.1) * weights[:, None]
    assert float(LabelSmoothedCrossEntropy(0.1)(labels, logits[:, :3], weights)) == pytest.approx(expected.mean())


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 4), (3, 5, 2), (2,), (2, 1)])
def test_other_weights_are_refused(each_loss, shape):
    with pytest.raises(ValueError, match=rf"sample weights.*sample_weight.shape={re.escape(str(shape))}.*\(3, 5\)"):
        each_loss(LABELS, np.ones(shape))


@pytest.mark.parametrize("labels", [LABELS[0], LABELS[:, :1], LABELS[:, :4], LABELS[:2], LABELS[:, None]], ids=np.shape)
def test_other_labels_are_refused(each_loss, labels):
    message = rf"one axis more.*labels.shape={re.escape(str(labels.shape))}, logits.shape=\(3, .*5, 7\)"
    with pytest.raises(ValueError, match=message):
        each_loss(labels)


@pytest.mark.parametrize("outside", [-100, -1, 7])
def test_a_label_outside_of_the_vocabulary_is_nan_unless_it_is_ignored(each_loss, outside):
    weights, labels = (LABELS != 0).astype("float32"), np.where(LABELS == 0, outside, LABELS)
    assert np.isnan(each_loss(labels)) and np.isnan(each_loss(labels, pad_id=0))
    assert each_loss(labels, weights) == pytest.approx(each_loss(LABELS, weights))
    assert each_loss(labels, pad_id=outside) == pytest.approx(each_loss(LABELS, pad_id=0))


def test_the_loss_of_no_rows_is_0(each_loss):
    assert to_numpy(LabelSmoothedCrossEntropy(pad_id=0)(LABELS[:0], np.zeros((0, 5, 7), "float32"))) == 0
    assert to_numpy(RDropCrossEntropy()(LABELS[:0], np.zeros((0, 2, 5, 7), "float32"), np.ones(0))) == 0


@pytest.mark.parametrize("weights", [None, np.array([3.0, 1.0], "float32"), np.ones((2, 3), "float32")], ids=np.shape)
def test_weights_in_fit(weights, few_steps):
    """As many rows as classes, in `fit` and with `class_weight`, which Keras turns into weights of rows."""
    model = keras.Sequential([keras.layers.Embedding(3, 3)])
    ids = np.array([[2, 1, 0], [1, 2, 2]])
    tokens = to_numpy(token_cross_entropy(ids, model(ids), 0.1))
    model.compile(keras.optimizers.SGD(0.0), LabelSmoothedCrossEntropy(), **few_steps)
    # Keras takes the position of the largest label for the class of a row.
    given = {"class_weight": {0: 3.0, 1: 1.0}} if weights is None else {"sample_weight": weights}
    expected = tokens if np.ndim(weights) == 2 else tokens * np.array([[3.0], [1.0]])
    found = model.fit(ids, ids[..., None] if np.ndim(weights) else ids, verbose=0, **given).history["loss"]
    assert found == [pytest.approx(expected.mean(), rel=1e-5)]
