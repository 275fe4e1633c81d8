"""What holds for whole models with other parts: shifted positions, long windows and texts, as many groups as heads."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import layers
from keras_transformer.decoding import BeamSearch

pytestmark = pytest.mark.portable

to_numpy = keras.ops.convert_to_numpy
SIZES = {"vocab_size": 23, "num_layers": 1, "d_model": 12, "num_heads": 6, "d_k": 4, "d_v": 4, "d_ff": 13}
SOURCE = np.array([[5, 6, 7, 8, 9, 3], [10, 11, 3, 0, 0, 0]], "int32")
TARGET = np.array([[2, 12, 13, 14, 15], [2, 16, 17, 0, 0]], "int32")
INPUTS = {"source": SOURCE, "target": TARGET}
MODERN = {"positions": "rotary", "norm": "rms", "feed_forward": "gated", "activation": "silu", "norm_first": True}


@pytest.fixture
def make(randomize):
    """Makes a model with these parts. Models of equal sizes have equal weights."""

    def make(kind=kt.Transformer, **parts):
        return randomize(kind(kt.TransformerConfig(**{**SIZES, "dropout": 0.0, **parts})), scale=0.3)

    return make


@keras.saving.register_keras_serializable(package="test_variant_properties")
class ShiftedRotaryPositions(layers.RotaryPositions):
    """Rotary positions that begin at `shift`."""

    def __init__(self, shift, **kwargs):
        super().__init__(**kwargs)
        self.shift = shift

    def process_heads(self, query, key, positions):
        return super().process_heads(query, key, positions + self.shift)

    def get_config(self):
        return {**super().get_config(), "shift": self.shift}


def test_shifted_rotary_positions_give_the_same_logits(randomize):
    def logits(shift, **options):
        attention = layers.MultiHeadAttention(
            12, 6, num_kv_heads=2, d_k=4, positions=ShiftedRotaryPositions(shift, **options)
        )
        block = layers.CausalDecoderLayer(attention=attention, feed_forward=layers.FeedForward(12, 13), dropout=0.0)
        config = kt.TransformerConfig(**SIZES, dropout=0.0, positions="rotary")
        return to_numpy(randomize(kt.LanguageModel(config, block), scale=0.3)(TARGET))

    expected = logits(0)
    np.testing.assert_allclose(logits(1009), expected, atol=1e-4)
    assert np.abs(logits(0, base=10.0) - expected).max() > 1e-3


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({**MODERN, "num_kv_heads": 2, "use_bias": False}, id="modern"),
        *(
            pytest.param({"positions": name, "window": window}, id=name, marks=pytest.mark.slow)
            for name, window in (("rotary", None), ("alibi", 4), ("relative", 4), ("none", 3))
        ),
    ],
)
def test_a_text_after_another_one_in_its_row_has_the_logits_that_it_has_alone(parts, make):
    """All its positions are shifted by the length of the other text."""
    model = make(**parts)
    expected = to_numpy(model({"source": SOURCE[:1], "target": TARGET[:1]}))
    for before in (1, 11):
        texts = {name: np.concatenate([np.full((1, before), 4), ids[:1]], axis=1) for name, ids in INPUTS.items()}
        segments = {f"{name}_segments": 1 + (np.arange(ids.shape[1]) >= before)[None] for name, ids in texts.items()}
        found = to_numpy(model({name: ids.astype("int32") for name, ids in {**texts, **segments}.items()}))
        np.testing.assert_allclose(found[:, before:], expected, atol=1e-4)


SCHEMES = {
    "rotary": layers.RotaryPositions,
    "alibi": layers.ALiBi,
    "relative": lambda: layers.RelativePositionBias(num_buckets=8, max_distance=13),
    "window": lambda: [layers.RotaryPositions(), layers.SlidingWindow(3)],
}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_steps_after_masked_positions_of_a_cache_give_the_same(scheme, randomize):
    """The text begins at another `offset`."""
    layer = layers.MultiHeadAttention(12, 6, num_kv_heads=3, d_k=4, d_v=5, positions=scheme())
    layer.build((None, None, 12))
    randomize(layer, scale=0.5)
    text = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")
    expected, before = to_numpy(layer(text, use_causal_mask=True)), 7
    x = np.concatenate([np.ones((2, before, 12), "float32"), text], axis=1)
    cache = layer.empty_cache(2, x.shape[1])
    _, cache = layer(x[:, :before], use_causal_mask=True, cache=cache, offset=0)
    for offset in range(before, x.shape[1]):
        keys = offset + 1 if kt.cache.GROWS else x.shape[1]
        mask = np.arange(keys)[None] >= before
        output, cache = layer(x[:, offset], attention_mask=mask, use_causal_mask=True, cache=cache, offset=offset)
        np.testing.assert_allclose(to_numpy(output), expected[:, offset - before], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        pytest.param(kt.Transformer, INPUTS, marks=pytest.mark.slow),
        (kt.LanguageModel, SOURCE),
        pytest.param(kt.MaskedLanguageModel, SOURCE, marks=pytest.mark.slow),
    ],
)
def test_a_window_as_long_as_the_text_is_no_window(kind, inputs, make):
    plain, wide, narrow = (to_numpy(make(kind, window=window)(inputs)) for window in (None, 6, 2))
    np.testing.assert_array_equal(wide, plain)
    assert np.abs(narrow - plain).max() > 1e-3


@pytest.mark.slow
def test_a_search_with_a_window_as_long_as_the_text_finds_the_same(make):
    source, strategy = keras.ops.convert_to_tensor(SOURCE), BeamSearch(beam_size=3, extra_length=3)
    plain, wide = (make(window=window, norm_first=True).search(source, strategy) for window in (None, 9))
    np.testing.assert_array_equal(to_numpy(wide.tokens), to_numpy(plain.tokens))
    np.testing.assert_allclose(to_numpy(wide.scores), to_numpy(plain.scores), atol=1e-5)


@pytest.mark.parametrize("parts", [{}, pytest.param({**MODERN, "qk_norm": True}, marks=pytest.mark.slow)], ids=str)
def test_as_many_groups_as_heads_are_plain_attention_bit_for_bit(parts, make):
    plain, grouped = make(**parts), make(**parts, num_kv_heads=SIZES["num_heads"])
    for one, other in zip(plain.weights, grouped.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    np.testing.assert_array_equal(to_numpy(grouped(INPUTS)), to_numpy(plain(INPUTS)))
    fewer = make(**parts, num_kv_heads=2)
    assert fewer.count_params() < plain.count_params()


@pytest.mark.parametrize("dtype", ["float32", pytest.param("mixed_float16", marks=pytest.mark.slow)])
def test_alibi_is_finite_at_four_times_the_length_of_its_training(dtype, few_steps):
    config = kt.TransformerConfig(**SIZES, positions="alibi", norm_first=True)
    model = kt.LanguageModel(config, dtype=dtype)
    model.compile("adam", kt.losses.LabelSmoothedCrossEntropy(), **few_steps)
    rng, length = np.random.default_rng(0), 8
    ids = rng.integers(4, 23, (3, length + 1)).astype("int32")
    for _ in range(2):
        model.train_on_batch(ids[:, :-1], ids[:, 1:])
    longer = rng.integers(4, 23, (3, 4 * length + 1)).astype("int32")
    logits = to_numpy(keras.ops.cast(model(longer[:, :-1]), "float32"))
    assert np.isfinite(logits).all() and logits.std(axis=-1).min() > 0
    assert np.isfinite(model.test_on_batch(longer[:, :-1], longer[:, 1:]))
