import keras
import numpy as np
import pytest

from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy, TokenLoss

METRICS = [TokenAccuracy(), TokenLoss(label_smoothing=0.1, pad_id=8), Perplexity(pad_id=0)]


@pytest.fixture
def batches():
    """Two batches of unlike size and padding: the mean of their means is not the corpus's."""
    rng = np.random.default_rng(0)
    made = []
    for rows, length in ((2, 5), (3, 2)):
        labels = rng.integers(1, 7, (rows, length))
        weights = (rng.random((rows, length)) < 0.6).astype("float32")
        logits = rng.normal(size=(rows, length, 7)) + 2 * np.eye(7)[labels] * (rng.random((rows, length, 1)) < 0.5)
        made.append((labels, logits.astype("float32"), weights))
    return made


def over_corpus(metric, batches, of_token):
    metric.reset_state()
    for batch in batches:
        metric.update_state(*batch)
    values = np.concatenate([of_token(labels, logits).ravel() for labels, logits, _ in batches])
    weights = np.concatenate([weights.ravel() for *_, weights in batches])
    return float(metric.result()), np.average(values, weights=weights)


def test_accuracy_is_that_of_the_corpus(batches):
    result, expected = over_corpus(TokenAccuracy(), batches, lambda y, z: (z.argmax(-1) == y).astype(float))
    assert 0 < expected < 1
    assert result == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_that_of_the_corpus(batches, smoothing, reference):
    result, expected = over_corpus(
        TokenLoss(smoothing), batches, lambda y, z: reference.smoothed_cross_entropy(y, z, smoothing)
    )
    assert result == pytest.approx(expected, rel=1e-5)


def test_perplexity_is_the_exponential_of_the_corpus_mean(batches, reference):
    result, mean = over_corpus(Perplexity(), batches, lambda y, z: reference.smoothed_cross_entropy(y, z, 0.0))
    assert result == pytest.approx(np.exp(mean), rel=1e-5)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_real_token_counts_alike(metric, batches):
    """Whatever the scale of a batch's weights."""
    results = []
    for scale in (1.0, 0.25):
        metric.reset_state()
        for (labels, logits, weights), factor in zip(batches, (1.0, scale), strict=True):
            metric.update_state(labels, logits, factor * weights)
        results.append(float(metric.result()))
    assert results[0] == results[1]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_reset_forgets(metric, batches):
    metric.reset_state()
    metric.update_state(*batches[1])
    alone = float(metric.result())
    metric.update_state(*batches[0])
    assert float(metric.result()) != pytest.approx(alone, rel=1e-6)
    metric.reset_state()
    metric.update_state(*batches[1])
    assert float(metric.result()) == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_configuration_round_trip(metric):
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert type(copy) is type(metric)
    assert copy.get_config() == metric.get_config()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_half_precision_logits_are_counted_in_float32(metric, batches):
    labels, logits, weights = batches[0]
    half = keras.ops.cast(logits, "bfloat16")
    metric.reset_state()
    metric.update_state(labels, half, weights)
    result = float(metric.result())
    metric.reset_state()
    metric.update_state(labels, keras.ops.cast(half, "float32"), weights)
    assert result == pytest.approx(float(metric.result()), rel=1e-6)


def test_a_mask_on_the_logits_is_a_weight(batches):
    labels, logits, weights = batches[0]
    masked = keras.layers.Masking()(np.where(weights[..., None] > 0, logits, 0.0).astype("float32"))
    metric = TokenLoss()
    metric.update_state(labels, masked)
    by_mask = float(metric.result())
    metric.reset_state()
    metric.update_state(labels, logits, weights)
    assert by_mask == pytest.approx(float(metric.result()), rel=1e-6)


@pytest.fixture(params=METRICS, ids=lambda metric: metric.name)
def result_of(request):
    """A function of a batch: the result of each metric."""

    def result_of(*batch):
        request.param.reset_state()
        request.param.update_state(*batch)
        return float(request.param.result())

    return result_of


@pytest.mark.portable
def test_weights_of_rows_choose_sentences(result_of, batches):
    for labels, logits, _ in batches:
        rows = np.arange(len(labels)) % 2  # One batch has as many rows as the other has positions.
        expected = result_of(labels, logits, np.repeat(rows[:, None], labels.shape[1], axis=1))
        assert result_of(labels, logits, rows) == result_of(labels, logits, rows[:, None]) == expected
        assert result_of(labels[..., None], logits, rows) == expected != result_of(labels, logits)
    square = slice(2)
    labels, logits, _ = batches[1]
    assert result_of(labels[square], logits[square], np.array([0, 1])) == result_of(labels[1:2], logits[1:2])


@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 4), (2, 5, 2)])
def test_other_shapes_are_refused(result_of, shape, batches):
    labels, logits, _ = batches[0]
    with pytest.raises(ValueError, match="sample weights must have the shape of the labels"):
        result_of(labels, logits, np.ones(shape))
    with pytest.raises(ValueError, match="one axis more than the labels"):
        result_of(np.ones(shape), logits)


@pytest.mark.parametrize("outside", [-100, 7])
def test_a_label_outside_of_the_vocabulary_is_nan_unless_it_is_ignored(result_of, outside, batches):
    labels, logits, weights = batches[0]
    assert 0 < weights.sum() < weights.size
    assert np.isnan(result_of(np.where(weights, labels, outside), logits))
    assert result_of(np.where(weights, labels, outside), logits, weights) == result_of(labels, logits, weights)


def test_a_batch_without_rows_counts_for_nothing(result_of, batches):
    labels, logits, weights = batches[0]
    assert result_of(labels[:0], logits[:0], weights[:0]) == result_of(labels, logits, 0 * weights)


@pytest.mark.parametrize("kind", ["metrics", "weighted_metrics"])
def test_padding_counts_for_nothing_in_compile(kind, few_steps):
    """Perplexity is exp(loss): on two batches of unlike padding, with `pad_id` alone and with weights beside it."""
    model = keras.Sequential([keras.layers.Embedding(7, 7, embeddings_initializer="normal")])
    metrics = [kind(pad_id=0) for kind in (TokenLoss, Perplexity, TokenAccuracy)]
    model.compile(loss=LabelSmoothedCrossEntropy(label_smoothing=0.0, pad_id=0), **{kind: metrics}, **few_steps)
    ids = np.array([[5, 3, 0, 0], [2, 0, 0, 0], [6, 1, 4, 3], [1, 2, 3, 0]])
    inputs, is_real = np.where(ids, ids % 6 + 1, 0), ids != 0
    logits = keras.ops.convert_to_numpy(model(inputs))[is_real]
    expected = np.mean([np.log(np.exp(row).sum()) - row[i] for row, i in zip(logits, ids[is_real], strict=True)])
    for weights in (None, is_real.astype("float32")):
        found = model.evaluate(inputs, ids, sample_weight=weights, batch_size=2, verbose=0, return_dict=True)
        assert found["token_loss"] == pytest.approx(expected, rel=1e-5)
        assert found["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)
        assert found["token_accuracy"] == pytest.approx(np.mean(logits.argmax(-1) == ids[is_real]))
    whole = model.evaluate(inputs, ids, batch_size=4, verbose=0, return_dict=True)
    assert whole["perplexity"] == pytest.approx(np.exp(whole["loss"]), rel=1e-5)


@pytest.mark.parametrize(
    "loss", ["sparse_categorical_crossentropy", keras.losses.SparseCategoricalCrossentropy(reduction="sum"), "own"]
)
def test_the_mean_of_any_loss(loss, batches):
    loss = keras.losses.sparse_categorical_crossentropy if loss == "own" else loss
    serialized = keras.saving.serialize_keras_object(TokenLoss(name="loss", loss=loss))
    metric, values = keras.saving.deserialize_keras_object(serialized), []
    for labels, logits, weights in batches:
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        metric.update_state(labels, probabilities, weights)
        values += [-np.log(np.take_along_axis(probabilities, labels[..., None], -1)[..., 0][weights > 0])]
    assert metric.name == "loss"
    assert float(metric.result()) == pytest.approx(np.concatenate(values).mean(), rel=1e-5)
