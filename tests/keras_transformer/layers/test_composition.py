"""Layers, stacks and models of parts that a user gives."""

import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
from keras_transformer import layers

pytestmark = pytest.mark.portable

D_MODEL = 15
X = np.random.default_rng(0).normal(size=(2, 5, D_MODEL)).astype("float32")
MASK = np.array([[True] * 5, [True] * 3 + [False] * 2])
IDS = np.array([[5, 6, 7, 8, 3], [9, 6, 3, 0, 0]], "int32")
SIZES = {"d_model": D_MODEL, "num_heads": 3, "d_ff": 7}
CONFIG = kt.TransformerConfig(vocab_size=11, num_layers=2, **{**SIZES, "d_model": 12}, dropout=0.0)
to_numpy = ops.convert_to_numpy


@keras.saving.register_keras_serializable(package="test_composition")
class TemperatureAttention(layers.MultiHeadAttention):
    """An attention with a learned factor of its queries."""

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.temperature = self.add_weight((), "ones", name="temperature")

    # Keras refuses `**kwargs` that mix tensors and other values, so the arguments have names.
    def call(self, query, value_mask=None, attention_mask=None, use_causal_mask=False, cache=None, offset=0):
        return super().call(
            query * ops.cast(self.temperature, query.dtype),
            value_mask=value_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            cache=cache,
            offset=offset,
        )


@keras.saving.register_keras_serializable(package="test_composition")
class Narrow(keras.layers.Layer):
    """A part of the wrong width."""

    def call(self, query, value_mask=None):
        return query[..., :8]


@keras.saving.register_keras_serializable(package="test_composition")
class Gate(keras.layers.Layer):
    """A feed-forward layer without `build`: its sub-layer is built when it is called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.gate = keras.layers.Dense(D_MODEL, "sigmoid", dtype=self.dtype_policy)

    def call(self, inputs):
        return inputs * self.gate(inputs)

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable(package="test_composition")
class ParallelBlock(keras.layers.Layer):
    """A user's own block: attention and feed-forward in parallel."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.norm = keras.layers.RMSNormalization(dtype=self.dtype_policy)
        self.norm.supports_masking = True  # Keras would warn about the mask of the inputs.
        self.attention = layers.MultiHeadAttention(D_MODEL, 3, dtype=self.dtype_policy)
        self.feed_forward = layers.FeedForward(D_MODEL, 7, dtype=self.dtype_policy)

    def build(self, inputs_shape):
        for layer in (self.norm, self.attention, self.feed_forward):
            layer.build(inputs_shape)

    def call(self, inputs, mask=None):
        x = self.norm(inputs)
        return inputs + self.attention(x, value_mask=mask) + self.feed_forward(x)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape


def of_keras():
    """An encoder layer with Keras's own layers as its parts."""
    return layers.EncoderLayer(
        attention=keras.layers.MultiHeadAttention(3, 5),
        feed_forward=keras.Sequential([keras.layers.Dense(7, "silu"), keras.layers.Dense(D_MODEL)]),
        norm=keras.layers.RMSNormalization(),
        norm_first=True,
    )


BLOCKS = {
    "Keras's parts": of_keras,
    "built when called": lambda: layers.EncoderLayer(D_MODEL, 3, feed_forward=Gate()),
    "own attention": lambda: layers.EncoderLayer(attention=TemperatureAttention(D_MODEL, 3), feed_forward=Gate()),
    "own block": ParallelBlock,
}


@pytest.fixture(params=BLOCKS)
def make_block(request):
    """Makes an encoder layer with parts of a user."""
    return BLOCKS[request.param]


@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_stack_of_own_parts_is_saved_and_loaded(make_block, num_layers, tmp_path, randomize):
    inputs = keras.Input((None, D_MODEL))
    model = keras.Model(inputs, layers.Encoder(make_block(), num_layers=num_layers)(inputs))
    randomize(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(loaded(X)), to_numpy(model(X)))
    # Keras numbers the names of layers that a user did not name.
    names = [[re.sub(r"_\d+", "", weight.path) for weight in one.weights] for one in (model, loaded)]
    assert names[0] == names[1]


def test_padding_is_not_attended_to_by_own_parts(make_block):
    encoder = layers.Encoder(make_block(), num_layers=2)
    changed = np.where(MASK[:, :, None], X, X + 3)
    assert np.abs(to_numpy(encoder(changed, mask=MASK)) - to_numpy(encoder(X, mask=MASK)))[MASK].max() < 1e-5
    assert np.abs(to_numpy(encoder(changed)) - to_numpy(encoder(X)))[MASK].max() > 1e-3


def test_own_parts_train(make_block, few_steps):
    model = keras.Sequential([layers.Encoder(make_block(), num_layers=2)])
    model.compile("sgd", "mse", **few_steps)
    model.build(X.shape)
    before = [to_numpy(weight).copy() for weight in model.trainable_weights]
    model.fit(X, X + 1, epochs=1, verbose=0)
    unchanged = [w.path for w, old in zip(model.trainable_weights, before, strict=True) if (to_numpy(w) == old).all()]
    # The bias of the keys changes no attention weight.
    assert all("key/bias" in path or "key_projection/bias" in path for path in unchanged)


def test_copies_of_a_layer_equal_layers_of_the_same_sizes():
    copied = layers.Encoder(layers.EncoderLayer(**SIZES, norm_first=True), num_layers=2)
    stack = layers.Encoder(num_layers=2, **SIZES, norm_first=True)
    for encoder in (copied, stack):
        encoder.build(X.shape)
    copied.set_weights(stack.get_weights())
    np.testing.assert_array_equal(to_numpy(copied(X)), to_numpy(stack(X)))
    assert [w.path.partition("/")[2] for w in copied.weights] == [w.path.partition("/")[2] for w in stack.weights]


SEEDED = {**SIZES, "dropout": 0.5, "attention_dropout": 0.5, "seed": 3, "kernel_initializer": "he_normal"}
STACKS = {
    "copies": lambda: layers.Encoder(layers.EncoderLayer(**SEEDED), num_layers=2),
    "new layers": lambda: layers.Encoder(num_layers=2, **SEEDED),
    "two attentions": lambda: layers.Decoder(num_layers=2, **SEEDED),
    "initializer with a seed": lambda: layers.Decoder(
        num_layers=2, **{**SEEDED, "kernel_initializer": keras.initializers.HeNormal(seed=5)}
    ),
    "initializer with a seed, copies": lambda: layers.Decoder(
        layers.DecoderLayer(**{**SEEDED, "kernel_initializer": keras.initializers.HeNormal(seed=5)}), num_layers=2
    ),
}


@pytest.mark.parametrize("make", STACKS.values(), ids=STACKS)
def test_layers_with_one_seed_start_and_drop_unlike_each_other_and_alike_in_each_run(make):
    shapes = (
        {"inputs_shape": X.shape}
        if isinstance(make(), layers.Encoder)
        else {"target_shape": X.shape, "memory_shape": X.shape}
    )
    stacks = [make(), make()]
    for stack in stacks:
        stack.build(**shapes)
    for one, other in zip(*(stack.weights for stack in stacks), strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    kernels = [to_numpy(weight) for weight in stacks[0].weights if weight.name == "kernel"]
    assert len({kernel[0, 0] for kernel in kernels}) == len(kernels)
    seeds = [layer.seed for layer in stacks[0]._flatten_layers() if isinstance(layer, keras.layers.Dropout)]
    assert len({*seeds}) == len(seeds) and None not in seeds


def test_initializers_and_regularizers_reach_the_parts():
    block = layers.DecoderLayer(**SIZES, kernel_initializer="ones", bias_initializer="ones", kernel_regularizer="l2")
    block.build(X.shape, X.shape)
    assert all((to_numpy(weight) == 1).all() for weight in block.weights if weight.name in ("kernel", "bias"))
    kernels = [weight for weight in block.weights if weight.name == "kernel"]
    assert float(to_numpy(sum(block.losses))) == pytest.approx(
        0.01 * sum(to_numpy(kernel).size for kernel in kernels), rel=1e-4
    )
    assert layers.DecoderLayer.from_config(block.get_config()).get_config() == block.get_config()


def test_a_part_of_two_blocks_is_refused():
    attention = layers.MultiHeadAttention(D_MODEL, 3)
    layers.EncoderLayer(D_MODEL, 3, 7, attention=attention, name="first")
    with pytest.raises(ValueError, match="part of one block only.* first and second"):
        layers.EncoderLayer(D_MODEL, 3, 7, attention=attention, name="second")


def test_parts_with_seeds_in_lists_start_unlike():
    def dense():
        return keras.layers.Dense(D_MODEL, kernel_initializer=keras.initializers.HeNormal(seed=5))

    encoder = layers.Encoder(num_layers=2, d_model=D_MODEL, num_heads=3, feed_forward=keras.Sequential([dense()]))
    encoder.build(X.shape)
    kernels = [layer.feed_forward.sublayer.layers[0].kernel for layer in encoder.layers]
    assert np.abs(to_numpy(kernels[0]) - to_numpy(kernels[1])).min() > 0


def test_one_part_in_two_places_of_a_block_is_refused():
    attention = layers.MultiHeadAttention(D_MODEL, 3)
    with pytest.raises(ValueError, match="part of one block only"):
        layers.DecoderLayer(D_MODEL, 3, 7, self_attention=attention, cross_attention=attention)


def test_copies_of_own_layers_have_the_dtype_of_the_model():
    """A copy with another dtype, such as that of an export, has it in all parts that were made without `dtype`."""
    block = layers.EncoderLayer(12, 3, feed_forward=keras.Sequential([keras.layers.Dense(12)]))
    model = kt.Transformer(CONFIG, encoder_layer=block, dtype="mixed_bfloat16")
    for policy in ("mixed_bfloat16", "float16"):
        copy = kt.Transformer.from_config({**model.get_config(), "dtype": policy})
        layer = copy.encoder.layers[1]
        parts = (layer.self_attention.sublayer.key_projection, layer.feed_forward.sublayer.layers[0])
        assert {part.dtype_policy.name for part in parts} == {policy}
    assert block.feed_forward.sublayer.dtype_policy is keras.config.dtype_policy()


def test_a_sequential_feed_forward_decodes_step_by_step():
    feed_forward = keras.Sequential([keras.layers.Dense(7, "relu"), keras.layers.Dense(12)])
    model = kt.LanguageModel(CONFIG, layers.CausalDecoderLayer(12, 3, feed_forward=feed_forward))
    found = model.generate(IDS[:, :2], kt.decoding.GreedySearch(extra_length=3))
    tokens = found.tokens[:, 0]
    np.testing.assert_allclose(model.token_log_probs(tokens).sum(1), found.scores[:, 0], atol=1e-4)


@keras.saving.register_keras_serializable(package="test_composition")
class MeanAttention(keras.layers.Layer):
    """The mean of the inputs so far. Its cache is their sum, not keys and values."""

    def call(self, query, value_mask=None, use_causal_mask=False, cache=None, offset=0):
        if cache is None:
            count = ops.arange(1, ops.shape(query)[1] + 1)
            return ops.cumsum(query, axis=1) / ops.cast(count[:, None], query.dtype)
        total = cache + query
        return total / ops.cast(offset + 1, query.dtype), total

    def empty_cache(self, batch_size, max_length):
        return ops.zeros((batch_size, 12), self.compute_dtype)


@pytest.mark.slow
def test_a_cache_may_be_any_tensor(randomize):
    block = layers.CausalDecoderLayer(12, d_ff=7, attention=MeanAttention())
    model = randomize(kt.LanguageModel(CONFIG, block))
    strategy = kt.decoding.BeamSearch(beam_size=3, extra_length=5, length_penalty=0.0, n_best=2)
    found = model.generate(IDS[:, :2], strategy)
    for rank in range(2):
        log_probs = model.token_log_probs(found.tokens[:, rank])
        np.testing.assert_allclose(log_probs.sum(axis=1), found.scores[:, rank], atol=1e-4)


@keras.saving.register_keras_serializable(package="test_composition")
class OwnDecoderBlock(ParallelBlock):
    """A block without cache in a decoder."""


def test_a_block_without_cache_trains_in_a_language_model(few_steps):
    config = kt.TransformerConfig(vocab_size=11, num_layers=1, d_model=D_MODEL, num_heads=3, d_ff=7, positions="none")
    model = kt.LanguageModel(config, OwnDecoderBlock())
    model.compile("adam", kt.losses.LabelSmoothedCrossEntropy(), **few_steps)
    assert np.isfinite(model.fit(IDS, IDS, verbose=0).history["loss"]).all()
    with pytest.raises(ValueError, match="must have the method `empty_cache`"):
        model.generate(IDS[:, :2])


def test_an_activation_that_is_not_registered_is_allowed():
    assert layers.Encoder(num_layers=1, **SIZES, activation=lambda x: x * 2)(X).shape == X.shape


def test_the_copied_layer_stays_as_it_is():
    block = of_keras()
    config = block.get_config()
    layers.Encoder(block, num_layers=2)(X)
    assert not block.built and block.get_config() == config


def test_models_have_own_layers(tmp_path):
    def block(kind, **parts):
        return kind(12, 3, 7, norm=keras.layers.RMSNormalization(), norm_first=True, **parts)

    attention = TemperatureAttention(12, 3)
    decoder_layer = block(layers.DecoderLayer, self_attention=attention)
    model = kt.Transformer(CONFIG, block(layers.EncoderLayer), decoder_layer)
    model.save(tmp_path / "model.keras")
    loaded = kt.load_model(tmp_path / "model.keras")
    inputs = {"source": IDS, "target": IDS[:, :3]}
    np.testing.assert_array_equal(to_numpy(loaded(inputs)), to_numpy(model(inputs)))
    assert isinstance(loaded.decoder.layers[1].self_attention.sublayer, TemperatureAttention)
    copy = kt.Transformer.from_config(model.get_config())
    assert [w.path for w in copy.weights] == [w.path for w in model.weights]
    found = model.generate(IDS, kt.decoding.GreedySearch(extra_length=2))
    np.testing.assert_array_equal(loaded.generate(IDS, kt.decoding.GreedySearch(extra_length=2)).tokens, found.tokens)


@pytest.mark.parametrize("kind", [kt.LanguageModel, kt.MaskedLanguageModel, kt.SentenceClassifier])
def test_models_of_one_stack_have_an_own_layer(kind, tmp_path):
    make = layers.CausalDecoderLayer if kind is kt.LanguageModel else layers.EncoderLayer
    classes = {"num_classes": 3} if kind is kt.SentenceClassifier else {}
    model = kind(
        CONFIG, **classes, layer=make(attention=TemperatureAttention(12, 3), feed_forward=layers.FeedForward(12, 5))
    )
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(kt.load_model(tmp_path / "model.keras")(IDS)), to_numpy(model(IDS)))
    assert sum(weight.name == "temperature" for weight in model.weights) == 2


def test_an_attention_without_a_cache_trains_and_is_refused_in_a_search():
    block = layers.DecoderLayer(12, 3, 7, self_attention=keras.layers.MultiHeadAttention(3, 4))
    model = kt.Transformer(CONFIG, decoder_layer=block)
    assert model({"source": IDS, "target": IDS}).shape == (2, 5, 11)
    changed = np.where(np.arange(5) < 3, IDS, 4)
    logits = [to_numpy(model({"source": IDS, "target": target})) for target in (IDS, changed)]
    np.testing.assert_allclose(*(one[:, :3] for one in logits), atol=1e-5)
    with pytest.raises(ValueError, match="`empty_cache`. Received: .* of type MultiHeadAttention"):
        model.generate(IDS)


def test_a_part_without_dtype_has_that_of_its_layer():
    norm, attention = keras.layers.RMSNormalization(), layers.MultiHeadAttention(D_MODEL, 3)
    block = layers.EncoderLayer(
        attention=attention, feed_forward=keras.layers.Dense(D_MODEL, dtype="float32"), norm=norm, dtype="bfloat16"
    )
    assert block.self_attention.sublayer.query_projection.compute_dtype == "bfloat16"
    assert block.self_attention.norm.compute_dtype == "bfloat16"
    assert block.feed_forward.sublayer.compute_dtype == "float32"
    encoder = layers.Encoder(layers.EncoderLayer(**SIZES, norm=keras.layers.RMSNormalization()), 2, dtype="bfloat16")
    assert keras.backend.standardize_dtype(encoder(X).dtype) == "bfloat16"
    assert {weight.dtype for weight in encoder.weights if weight.trainable} == {"bfloat16"}


def test_the_final_norm_is_a_copy_of_that_of_the_layer_or_given():
    encoder = layers.Encoder(of_keras(), num_layers=2)
    assert isinstance(encoder.norm, keras.layers.RMSNormalization)
    assert encoder.norm is not encoder.layers[1].feed_forward.norm
    norm = keras.layers.UnitNormalization()
    assert layers.Encoder(num_layers=1, **SIZES, final_norm=norm).norm is norm
    stack = layers.Encoder(of_keras(), num_layers=1, final_norm=keras.layers.UnitNormalization())
    copy = layers.Encoder.from_config(stack.get_config())
    assert isinstance(copy.norm, keras.layers.UnitNormalization)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.Encoder(6, 2), "`layer` must be a Keras layer. Received: layer=6"),
        (lambda: layers.Encoder(of_keras(), d_ff=7), "must not be given beside `layer`. Received: d_ff"),
        (
            lambda: layers.EncoderLayer(d_model=4),
            "`attention` or `d_model` and `num_heads` must be given.*num_heads=None",
        ),
        (
            lambda: layers.EncoderLayer(4, 2),
            "`feed_forward` or `d_model` and `d_ff` must be given. Received: .*d_ff=None",
        ),
        (lambda: layers.DecoderLayer(d_ff=2), "`self_attention` or `d_model` and `num_heads`"),
        (lambda: layers.EncoderLayer(4, 2, 7, rate=0.1), "rate"),
        (lambda: layers.EncoderLayer(4, 2, 7, norm="rms"), "`norm` must be a Keras layer. Received: norm='rms'"),
        (
            lambda: layers.EncoderLayer(**SIZES, attention=Narrow())(keras.Input((5, D_MODEL))),
            "`sublayer` must not change the width of its input. Received: input width=15, output width=8",
        ),
        (
            lambda: layers.EncoderLayer(**SIZES, feed_forward=keras.Sequential([keras.layers.Dense(8)]))(
                keras.Input((5, D_MODEL))
            ),
            "must not change the width .*output width=8",
        ),
        (
            lambda: layers.CausalDecoderLayer(**SIZES, attention=Narrow())(X),
            "`call` of narrow.*, of type Narrow, must take use_causal_mask, which its block gives.*query, value_mask",
        ),
        (
            lambda: layers.Encoder(
                layers.EncoderLayer(attention=Narrow(), feed_forward=Gate()),
                num_layers=1,
                shared_positions=layers.RelativePositionBias(),
            )(X),
            "With `shared_positions`, an attention must have the attribute `num_heads`.*type Narrow",
        ),
        (
            lambda: layers.Encoder(ParallelBlock(), 1, shared_positions=layers.RelativePositionBias()),
            "`shared_positions` requires layers of this package.*type ParallelBlock",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
