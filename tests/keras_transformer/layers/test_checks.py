"""What the layers refuse: inputs of another rank or width, additive masks, rates and sizes out of range."""

import keras
import numpy as np
import pytest

from keras_transformer import layers
from keras_transformer.layers import FeedForward, MultiHeadAttention, ResidualConnection, TokenEmbedding

SIZES = {"d_model": 6, "num_heads": 2, "d_ff": 7}
BLOCKS = {
    "EncoderLayer": ("inputs", {}),
    "Encoder": ("inputs", {"num_layers": 1}),
    "CausalDecoderLayer": ("inputs", {}),
    "CausalDecoder": ("inputs", {"num_layers": 1}),
    "DecoderLayer": ("target", {}),
    "Decoder": ("target", {"num_layers": 1}),
}
ADDITIVE = np.triu(np.full((5, 5), -1e9, "float32"), 1)


def zeros(*shape):
    return np.zeros(shape, "float32")


@pytest.fixture(params=BLOCKS)
def block(request):
    """A layer or a stack, the name of its first input, and what it takes beside."""
    name, sizes = BLOCKS[request.param]
    memory = (zeros(2, 3, 6),) if name == "target" else ()
    return getattr(layers, request.param)(**SIZES, **sizes), name, memory


@pytest.mark.parametrize("symbolic", [False, True])
def test_one_position_without_a_cache_is_refused(block, symbolic):
    """Each row would attend to itself alone."""
    layer, name, memory = block
    given = (keras.Input((6,)), *(keras.Input(x.shape[1:]) for x in memory)) if symbolic else (zeros(2, 6), *memory)
    with pytest.raises(ValueError, match=rf"`{name}`.*\(batch, length, width\).*Received: shape="):
        layer(*given)


def test_another_width_is_refused_and_leaves_the_layer_as_it_was(block):
    layer, name, memory = block
    message = rf"`{name}` .*`d_model`=6.* Received: width=4, shape=\(2, 5, 4\)"
    for _ in range(2):  # Before the layer is built, and after.
        with pytest.raises(ValueError, match=message):
            layer(zeros(2, 5, 4), *memory)
        assert layer(zeros(2, 5, 6), *memory).shape == (2, 5, 6)


@pytest.mark.parametrize("argument", ["attention_mask", "mask"])
def test_float_masks_are_refused(block, argument):
    layer, name, memory = block
    argument = {"mask": "target_mask"}.get(argument, argument) if memory else argument
    if type(layer).__name__.startswith("Causal") and argument == "attention_mask":
        pytest.skip("the layer takes no such mask")
    mask = ADDITIVE if argument == "attention_mask" else np.ones((2, 5), "float32")
    with pytest.raises(ValueError, match="boolean.*Received: dtype=float32"):
        layer(zeros(2, 5, 6), *memory, **{argument: mask})
    assert layer(zeros(2, 5, 6), *memory, **{argument: (mask == 0).astype("int32")}).shape == (2, 5, 6)


@pytest.mark.parametrize("name", ["memory_mask", "memory_attention_mask"])
def test_float_masks_of_the_memory_are_refused(name):
    mask = zeros(2, 3) if name == "memory_mask" else zeros(2, 5, 3)
    with pytest.raises(ValueError, match="boolean.*Received: dtype=float32"):
        layers.DecoderLayer(**SIZES)(zeros(2, 5, 6), zeros(2, 3, 6), **{name: mask})


@pytest.mark.parametrize("symbolic", [False, True])
def test_attention_refuses_other_ranks_and_float_masks(symbolic):
    def given(*shape):
        return keras.Input(shape) if symbolic else zeros(2, *shape)

    attention = MultiHeadAttention(6, 2)
    for name, inputs in {"query": [(6,), (5, 6)], "value": [(5, 6), (6,)], "key": [(5, 6), (5, 6), (6,)]}.items():
        with pytest.raises(ValueError, match=rf"`{name}`.*\(batch, length, width\).*Received: shape="):
            attention(*(given(*shape) for shape in inputs))
    with pytest.raises(ValueError, match=r"`query`.*\(batch, length, width\).*Received: shape="):
        attention(given(3, 5, 6))
    with pytest.raises(ValueError, match="`attention_mask`.*boolean.*Received: dtype=float32"):
        attention(given(5, 6), attention_mask=given(5, 5))


def test_the_attention_function_refuses_float_masks():
    heads = zeros(1, 1, 5, 2)
    with pytest.raises(ValueError, match="`mask`.*boolean.*Received: dtype=float32"):
        layers.scaled_dot_product_attention(heads, heads, heads, ADDITIVE)


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout"])
def test_rates_are_named_as_the_argument(block, name):
    layer, _, _ = block
    with pytest.raises(ValueError, match=rf"`{name}`.*Received: {name}=1.5"):
        type(layer)(**{**layer.get_config(), name: 1.5})


@pytest.mark.parametrize(
    "make", [lambda **rate: FeedForward(6, 7, **rate), lambda **rate: MultiHeadAttention(6, 2, **rate)]
)
def test_rates_of_sub_layers_are_checked(make):
    for layer in (make, lambda **rate: ResidualConnection(make(), **rate)):
        with pytest.raises(ValueError, match=r"`dropout`.*Received: dropout=-0.1"):
            layer(dropout=-0.1)


def test_a_sub_layer_that_changes_the_width_is_refused():
    with pytest.raises(ValueError, match="`sublayer`.*Received: .*width=1.*width=6"):
        ResidualConnection(FeedForward(6, 7))(zeros(2, 5, 1))  # It would be broadcast.


@pytest.mark.parametrize("symbolic", [False, True])
def test_logits_of_another_width_are_refused(symbolic):
    with pytest.raises(ValueError, match="`inputs` .*`d_model`=6.* Received: width=4"):
        layers.TiedLogits(TokenEmbedding(9, 6))(keras.Input((5, 4)) if symbolic else zeros(2, 5, 4))


@pytest.mark.parametrize("make", [layers.PositionalEncoding, lambda: layers.LearnedPositionalEmbedding(7)])
def test_positions_of_another_rank_are_refused(make):
    for given in (zeros(6), zeros(1, 2, 5, 6), keras.Input((2, 5, 6))):
        with pytest.raises(ValueError, match=r"`inputs`.*\(batch, length, width\).*Received: shape="):
            make()(given)
    layer = make()
    layer(zeros(2, 5, 6))
    with pytest.raises(ValueError, match="`inputs`.*Received: shape="):
        layer(zeros(1, 2, 5, 6))
    assert layer(zeros(2, 6)).shape == (2, 6)


def test_learned_positions_have_one_width():
    layer = layers.LearnedPositionalEmbedding(7)
    layer(zeros(2, 5, 6))
    with pytest.raises(ValueError, match="`d_model`=6.* Received: width=1"):
        layer(zeros(2, 5, 1))


def test_a_memory_of_another_rank_is_refused():
    with pytest.raises(ValueError, match=r"`memory`.*\(batch, length, width\).*Received: shape=\(2, 6\)"):
        layers.DecoderLayer(**SIZES)(zeros(2, 5, 6), zeros(2, 6))


def test_the_embedding_has_pad_id_instead_of_mask_zero():
    with pytest.raises(ValueError, match="`pad_id`.*`mask_zero`. Received: mask_zero=True"):
        layers.TokenEmbedding(11, 4, mask_zero=True)


def test_a_residual_connection_builds_the_attention_of_keras(tmp_path):
    inputs = [keras.Input((5, 6)), keras.Input((3, 6))]
    attention = keras.layers.MultiHeadAttention(2, 3)
    model = keras.Model(inputs, layers.ResidualConnection(attention, norm_first=True)(*inputs))
    model.save(tmp_path / "model.keras")
    draw = np.random.default_rng(0)
    x, memory = (draw.normal(size=(2, length, 6)).astype("float32") for length in (5, 3))
    residual = model.layers[-1]
    np.testing.assert_allclose(model([x, memory]), attention(residual.norm(x), memory) + x, atol=1e-6)
    with_wider_memory = layers.ResidualConnection(keras.layers.MultiHeadAttention(2, 3))
    with_wider_memory.build((2, 5, 6), value_shape=(2, 3, 8))
    assert with_wider_memory(x, zeros(2, 3, 8)).shape == (2, 5, 6)
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded([x, memory]), model([x, memory]))
