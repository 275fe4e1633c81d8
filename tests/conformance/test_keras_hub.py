"""Encoder and decoder layers beside those of keras-hub, with the same weights."""

import keras
import numpy as np
import pytest

from keras_transformer import layers

pytestmark = [
    pytest.mark.slow,  # The import of keras-hub is.
    pytest.mark.filterwarnings("ignore"),
]
keras_hub = pytest.importorskip("keras_hub")

to_numpy = keras.ops.convert_to_numpy
BATCH, TARGET, SOURCE, D_MODEL, HEADS, D_FF, EPSILON = 2, 5, 7, 22, 3, 17, 1e-5
D_HEAD = D_MODEL // HEADS  # keras-hub's, whatever is left over.


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def some(seed, *shape):
    """A mask in which each query may attend to something: keras-hub then attends to all."""
    mask = np.random.default_rng(seed).random(shape) < 0.6
    mask[..., 0] = True
    return mask


X, MEMORY = normal(1, BATCH, TARGET, D_MODEL), normal(2, BATCH, SOURCE, D_MODEL)
MASK, MEMORY_MASK = some(3, BATCH, TARGET), some(4, BATCH, SOURCE)
ATTENTION, MEMORY_ATTENTION = some(5, BATCH, TARGET, TARGET), some(6, BATCH, TARGET, SOURCE)


@pytest.fixture(params=[False, True], ids=["post-norm", "pre-norm"])
def pair(request, randomize, copy_weights):
    """A layer of ours by its name, and keras-hub's, with inputs of these shapes."""

    def pair(name, *shapes):
        sizes = {"d_model": D_MODEL, "num_heads": HEADS, "d_ff": D_FF, "d_k": D_HEAD, "d_v": D_HEAD}
        ours = getattr(layers, name)(**sizes, norm_first=request.param, layer_norm_epsilon=EPSILON)
        kind = keras_hub.layers.TransformerEncoder if name == "EncoderLayer" else keras_hub.layers.TransformerDecoder
        theirs = kind(D_FF, HEADS, normalize_first=request.param, layer_norm_epsilon=EPSILON)
        ours.build(*shapes)
        theirs.build(*shapes)
        copy_layer(randomize(ours, scale=0.3), theirs, copy_weights)
        return ours, theirs

    return pair


def copy_layer(ours, theirs, copy_weights):
    attentions = {"self_attention": "_self_attention_layer", "cross_attention": "_cross_attention_layer"}
    for name, their_name in attentions.items():
        if hasattr(ours, name):
            residual, attention = getattr(ours, name), getattr(theirs, their_name)
            copy_weights(residual.sublayer, attention)
            copy_weights(residual.norm, getattr(theirs, f"{their_name}_norm"))
    feed_forward = ours.feed_forward
    copy_weights(feed_forward.sublayer.inner, theirs._feedforward_intermediate_dense)
    copy_weights(feed_forward.sublayer.outer, theirs._feedforward_output_dense)
    copy_weights(feed_forward.norm, theirs._feedforward_layer_norm)


def assert_equal(ours, theirs):
    np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), atol=1e-5)
    assert np.abs(to_numpy(ours)).max() > 0.5


@pytest.mark.parametrize(("mask", "attention"), [(None, None), (MASK, None), (MASK, ATTENTION)])
def test_the_encoder_equals_that_of_keras_hub(pair, mask, attention):
    ours, theirs = pair("EncoderLayer", X.shape)
    found = ours(X, mask=mask, attention_mask=attention, return_attention_scores=True)
    expected = theirs(X, padding_mask=mask, attention_mask=attention, return_attention_scores=True)
    for one, other in zip(found, expected, strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("masks", [{}, {"target_mask": MASK}, {"target_mask": MASK, "memory_mask": MEMORY_MASK}])
@pytest.mark.parametrize("attention", [{}, {"attention_mask": ATTENTION, "memory_attention_mask": MEMORY_ATTENTION}])
def test_the_decoder_equals_that_of_keras_hub(pair, masks, attention):
    names = {
        "target_mask": "decoder_padding_mask",
        "memory_mask": "encoder_padding_mask",
        "attention_mask": "decoder_attention_mask",
        "memory_attention_mask": "encoder_attention_mask",
    }
    ours, theirs = pair("DecoderLayer", X.shape, MEMORY.shape)
    given = {**masks, **attention}
    assert_equal(ours(X, MEMORY, **given), theirs(X, MEMORY, **{names[name]: mask for name, mask in given.items()}))


@pytest.mark.parametrize("mask", [None, MASK])
def test_the_decoder_without_memory_equals_that_of_keras_hub(pair, mask):
    ours, theirs = pair("CausalDecoderLayer", X.shape)
    assert_equal(ours(X, mask=mask), theirs(X, decoder_padding_mask=mask))
