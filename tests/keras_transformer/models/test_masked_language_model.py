import keras
import numpy as np
import pytest

import keras_transformer as kt

pytestmark = pytest.mark.portable

to_numpy = keras.ops.convert_to_numpy
CONFIG = kt.TransformerConfig(vocab_size=29, num_layers=1, d_model=8, num_heads=2, d_ff=7, dropout=0.0)
IDS = np.array([[2, 5, 6, 7, 8, 3], [2, 9, 10, 3, 0, 0]], "int32")
MASK_ID = 4


def many_ids():
    """Ids of text with a start token, an end token and padding in each row."""
    ids = np.random.default_rng(0).integers(5, 29, (500, 23)).astype("int32")
    ids[:, 0], ids[:, -2], ids[:, -1] = 2, 3, 0
    return ids


def test_a_position_sees_both_sides_and_no_padding():
    model = kt.MaskedLanguageModel(CONFIG)
    logits = to_numpy(model(IDS))
    assert logits.shape == (2, 6, 29)
    changed = IDS.copy()
    changed[0, 4] = 11
    assert np.abs(to_numpy(model(changed)) - logits)[0, 1].max() > 1e-4
    np.testing.assert_allclose(to_numpy(model(np.pad(IDS, ((0, 0), (0, 3)))))[:, :6], logits, atol=1e-5)


def test_tokens_are_hidden_at_the_rates_of_the_paper():
    tokens = many_ids()
    hidden, labels, weights = map(to_numpy, kt.mask_tokens(tokens, 1, CONFIG, MASK_ID))
    np.testing.assert_array_equal(labels, tokens)
    is_chosen, is_text = weights > 0, tokens > 3
    assert not is_chosen[~is_text].any()
    assert is_chosen[is_text].mean() == pytest.approx(0.15, abs=0.01)
    np.testing.assert_array_equal(hidden[~is_chosen], tokens[~is_chosen])
    assert (hidden == MASK_ID)[is_chosen].mean() == pytest.approx(0.8, abs=0.02)
    assert (hidden == tokens)[is_chosen].mean() == pytest.approx(0.1 + 0.1 / 29, abs=0.02)
    assert weights.mean() == pytest.approx(1, abs=1e-5)
    random = hidden[is_chosen & (hidden != MASK_ID) & (hidden != tokens)]
    assert {*random.tolist()} == {*range(29)} - {MASK_ID}


def test_seeds_hide_other_tokens():
    tokens = many_ids()
    first, again, second = (to_numpy(kt.mask_tokens(tokens, seed, CONFIG, MASK_ID)[2]) > 0 for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first & second).sum() / first.sum() == pytest.approx(0.15, abs=0.03)


def test_nothing_is_hidden_in_padding_alone():
    hidden, _, weights = kt.mask_tokens(np.zeros((2, 3), "int32"), 1, CONFIG, MASK_ID)
    assert not to_numpy(hidden).any() and not to_numpy(weights).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask_id": 29}, r"`mask_id` must be in \[0, 29\). Received: mask_id=29"),
        ({"mask_id": 4, "rate": 1.5}, r"`rate`.*Received: rate=1.5"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        kt.mask_tokens(IDS, 1, CONFIG, **arguments)


def test_batches_of_tf_data_train_the_model(tensorflow):
    """The second token always equals the first, so hidden tokens can be known."""
    words = np.random.default_rng(1).integers(5, 29, (64, 1))
    tokens = np.concatenate([np.full((64, 1), 2), words, words, words, np.full((64, 1), 3)], axis=1).astype("int32")
    dataset = tensorflow.data.Dataset.from_tensor_slices(tokens).repeat(40).batch(64).enumerate()
    dataset = dataset.map(lambda seed, ids: kt.mask_tokens(ids, seed, CONFIG, MASK_ID, rate=0.3))
    model = kt.MaskedLanguageModel(CONFIG)
    model.compile(keras.optimizers.Adam(0.02), kt.losses.LabelSmoothedCrossEntropy())
    losses = model.fit(dataset, epochs=2, verbose=0, shuffle=False).history["loss"]
    assert losses[1] < 0.7 * losses[0]


def test_a_classifier_starts_from_the_encoder():
    config = kt.TransformerConfig(**{"vocab_size": 29, "num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 7})
    block = kt.layers.EncoderLayer(8, 2, 5, norm=keras.layers.RMSNormalization())
    for layer in (None, block):
        model = kt.MaskedLanguageModel(config, layer)
        classifier = kt.SentenceClassifier.from_encoder(model, num_classes=3, name="classifier")
        for one, other in zip(classifier.encoder.weights, model.encoder.weights, strict=True):
            np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
        assert classifier(IDS).shape == (2, 3) and classifier.name == "classifier"
        np.testing.assert_array_equal(to_numpy(classifier.embedding.embeddings), to_numpy(model.embedding.embeddings))
    with pytest.raises(ValueError, match="`model` must be a MaskedLanguageModel or .*type LanguageModel"):
        kt.SentenceClassifier.from_encoder(kt.LanguageModel(config), num_classes=3)
