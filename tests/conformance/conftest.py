"""The tables of every exported layer and of every model, on which the contracts of this folder are tried."""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import pytest

from keras_transformer import TransformerConfig, layers, models

BATCH, TARGET, SOURCE, D_MODEL, VOCAB = 2, 5, 7, 22, 19
BLOCK = {"d_model": D_MODEL, "num_heads": 3, "d_ff": 17, "d_k": 13, "d_v": 11}


class Case(NamedTuple):
    """How to make a layer of some dtype, the shapes of its inputs, and that of its output.

    `None` as width of an input means ids. `is_pooled` layers return one vector per row.
    """

    make: Callable
    inputs: tuple = ((TARGET, D_MODEL),)
    width: int = D_MODEL
    is_pooled: bool = False

    def shape(self, rows=BATCH, length=TARGET):
        """The shape of the output."""
        return (rows, self.width) if self.is_pooled else (rows, length, self.width)

    def arrays(self, lengths=None, rows=BATCH):
        """Example inputs, of the case's lengths or of others."""
        rng = np.random.default_rng(0)
        shapes = [(length, width) for length, width in self.inputs]
        for i, length in enumerate(lengths or ()):
            shapes[i : i + 1] = [(length, shapes[i][1])] if i < len(shapes) else []
        return [
            rng.integers(0, VOCAB, (rows, length)).astype("int32")
            if width is None
            else rng.normal(size=(rows, length, width)).astype("float32")
            for length, width in shapes
        ]

    def symbolic(self):
        """The same of symbolic tensors of any length."""
        return [
            keras.Input((None,), dtype="int32") if width is None else keras.Input((None, width))
            for _, width in self.inputs
        ]

    def functional(self, layer):
        """The layer alone as a functional model."""
        inputs = self.symbolic()
        return keras.Model(inputs, layer(*inputs))


def simple(name, inputs=((TARGET, D_MODEL),), width=D_MODEL, is_pooled=False, **arguments):
    return Case(lambda dtype: getattr(layers, name)(**arguments, dtype=dtype), inputs, width, is_pooled)


def residual(dtype):
    return layers.ResidualConnection(layers.FeedForward(D_MODEL, 17, dtype=dtype), dropout=0.1, dtype=dtype)


def tied_logits(dtype):
    return layers.TiedLogits(layers.TokenEmbedding(VOCAB, D_MODEL, dtype=dtype), use_bias=True, dtype=dtype)


def encoder_of_copies(dtype):
    block = layers.EncoderLayer(
        attention=layers.MultiHeadAttention(D_MODEL, 3, d_k=12, d_v=11, positions=[layers.RotaryPositions()]),
        feed_forward=layers.FeedForward(D_MODEL, 17, activation="silu", gated=True),
        norm=keras.layers.RMSNormalization(),
        norm_first=True,
    )
    return layers.Encoder(block, num_layers=2, dtype=dtype)


def scheme(name, **arguments):
    """An attention with a position scheme, which is a layer that is not called itself."""

    def make(dtype):
        positions = [getattr(layers, name)(**arguments, dtype=dtype)]
        return layers.MultiHeadAttention(D_MODEL, num_heads=3, d_k=12, d_v=11, positions=positions, dtype=dtype)

    return Case(make)


def scaled_logits(dtype):
    embedding = layers.TokenEmbedding(VOCAB, D_MODEL, scale=False, embeddings_initializer="he_normal", dtype=dtype)
    return layers.TiedLogits(embedding, use_bias=True, scale=D_MODEL**-0.5, dtype=dtype)


WITH_MEMORY = ((TARGET, D_MODEL), (SOURCE, D_MODEL))
#: Class name, and for a variant what it is -> case.
LAYERS = {
    "ALiBi": scheme("ALiBi"),
    "CausalDecoder": simple("CausalDecoder", num_layers=1, **BLOCK, norm_first=True, attention_dropout=0.1),
    "CausalDecoderLayer": simple("CausalDecoderLayer", **BLOCK),
    "Decoder": simple("Decoder", WITH_MEMORY, num_layers=1, **BLOCK, norm_first=True, attention_dropout=0.1),
    "DecoderLayer": simple("DecoderLayer", WITH_MEMORY, **BLOCK),
    "Dropout": simple("Dropout", rate=0.3, seed=5),
    "Dropout of features": simple("Dropout", rate=0.3, noise_shape=(None, 1, None)),
    "Encoder": simple("Encoder", num_layers=1, **BLOCK, final_norm=True),
    "Encoder of copies": Case(encoder_of_copies),
    "EncoderLayer": simple("EncoderLayer", **BLOCK, norm_first=True, activation_dropout=0.2),
    "FeedForward": simple("FeedForward", width=19, d_model=19, d_ff=17, activation="silu", dropout=0.1),
    "FeedForward with a gate": simple(
        *("FeedForward", ((TARGET, D_MODEL),), 19),
        **{"d_model": 19, "d_ff": 17, "activation": "gelu_tanh", "dropout": 0.1, "gated": True, "seed": 3},
        **{"kernel_initializer": "he_normal", "kernel_regularizer": "l2"},
    ),
    "LearnedPositionalEmbedding": simple("LearnedPositionalEmbedding", max_length=11, first_position=2),
    "MultiHeadAttention": simple(
        "MultiHeadAttention", WITH_MEMORY, 19, d_model=19, num_heads=3, d_k=13, d_v=11, dropout=0.1
    ),
    "MultiHeadAttention in groups": simple(
        *("MultiHeadAttention", WITH_MEMORY, 19),
        **{"d_model": 19, "num_heads": 6, "d_k": 13, "d_v": 11, "num_kv_heads": 2, "dropout": 0.1},
        **{"use_bias": ["query", "key", "value"], "scale": 0.3, "soft_cap": 5.0, "seed": 3},
    ),
    "PositionScheme": scheme("PositionScheme"),
    "PositionalEncoding": simple("PositionalEncoding", max_wavelength=100.0, layout="halves", first_position=2),
    "QKNorm": scheme("QKNorm"),
    "RelativePositionBias": scheme("RelativePositionBias", num_buckets=8, max_distance=5),
    "ResidualConnection": Case(residual),
    "RotaryPositions": scheme("RotaryPositions", fraction=0.5, layout="interleaved", scaling="ntk", scaling_factor=2.0),
    "SequencePooling": simple("SequencePooling", is_pooled=True, pooling="max"),
    "SlidingWindow": scheme("SlidingWindow", size=3),
    "TiedLogits": Case(tied_logits, width=VOCAB),
    "TiedLogits with a scale": Case(scaled_logits, width=VOCAB),
    "TokenEmbedding": simple(
        "TokenEmbedding", ((TARGET, None),), vocab_size=VOCAB, d_model=D_MODEL, pad_id=1, scale=False
    ),
}


CONFIG = TransformerConfig(vocab_size=VOCAB, num_layers=1, **BLOCK)


class ModelCase(NamedTuple):
    """How to make a model, and whether its ids have two sides."""

    make: Callable
    sides: tuple = ()

    def inputs(self, length=TARGET):
        """Two rows of ids, the second padded."""
        ids = np.random.default_rng(0).integers(4, VOCAB, (BATCH, length)).astype("int32")
        ids[1, max(1, length - 2) :] = 0
        return {side: ids for side in self.sides} if self.sides else ids

    def symbolic(self):
        """The same of symbolic ids."""
        sides = {side: keras.Input((None,), dtype="int32", name=side) for side in self.sides}
        return sides or keras.Input((None,), dtype="int32")


#: The parts of current language models, and others beside them.
OTHER_PARTS = TransformerConfig(
    **{"vocab_size": VOCAB, "num_layers": 1, "d_model": 12, "num_heads": 6, "d_k": 4, "d_v": 3, "d_ff": 17},
    **{"positions": "rotary", "norm": "rms", "norm_first": True, "feed_forward": "gated", "activation": "silu"},
    **{"num_kv_heads": 2, "qk_norm": True, "soft_cap": 5.0, "window": 4, "embedding_norm": True, "logits_scale": 0.5},
    use_bias=False,
)
MODELS = {
    "LanguageModel": ModelCase(functools.partial(models.LanguageModel, CONFIG)),
    "LanguageModel of other parts": ModelCase(functools.partial(models.LanguageModel, OTHER_PARTS)),
    "MaskedLanguageModel": ModelCase(functools.partial(models.MaskedLanguageModel, CONFIG)),
    "SentenceClassifier": ModelCase(functools.partial(models.SentenceClassifier, CONFIG, 3)),
    "Transformer": ModelCase(functools.partial(models.Transformer, CONFIG), ("source", "target")),
    "Transformer of other parts": ModelCase(functools.partial(models.Transformer, OTHER_PARTS), ("source", "target")),
    "Transformer with relative positions": ModelCase(
        functools.partial(models.Transformer, dataclasses.replace(CONFIG, positions="relative", window=3)),
        ("source", "target"),
    ),
}


#: Rows in the slow tier: layers without weights and variants whose code other rows run as well.
SLOW = (
    *("ALiBi", "Dropout of features", "PositionScheme", "QKNorm", "RotaryPositions", "SlidingWindow"),
    *("MaskedLanguageModel", "TiedLogits with a scale"),
)


#: Rows that repeat other rows with other parts.
NIGHTLY = ("LanguageModel of other parts", "Transformer of other parts", "Transformer with relative positions")


def rows(table):
    """The rows of a table as parameters."""
    marks = {**dict.fromkeys(SLOW, pytest.mark.slow), **dict.fromkeys(NIGHTLY, pytest.mark.nightly)}
    return [pytest.param(name, marks=marks.get(name, ())) for name in table]


@pytest.fixture(params=rows(MODELS))
def model_case(request):
    """Each row of the table of models."""
    return MODELS[request.param]


@pytest.fixture
def model_table():
    """The whole table of models, by name."""
    return MODELS


@pytest.fixture(params=rows(LAYERS))
def case(request):
    """Each row of the table."""
    return LAYERS[request.param]


@pytest.fixture
def table():
    """The whole table, by name."""
    return LAYERS


@pytest.fixture(scope="session")
def tables():
    """Both tables in one, by name."""
    return {**LAYERS, **MODELS}


@pytest.fixture(scope="session")
def copy_weights():
    """Gives a layer of Keras, or its attention, the weights of ours."""

    def copy_weights(ours, theirs):
        parts = [(ours, theirs)]
        if isinstance(theirs, keras.layers.MultiHeadAttention):
            parts = [
                (ours.query_projection, theirs.query_dense),
                (ours.key_projection, theirs.key_dense),
                (ours.value_projection, theirs.value_dense),
                (ours.output_projection, theirs.output_dense),
            ]
        for one, other in parts:
            for weight, target in zip(one.weights, other.weights, strict=True):
                target.assign(keras.ops.reshape(weight, target.shape))

    return copy_weights


#: Compiled models, stacks and decoder layers. On PyTorch each takes up to minutes of compilation.
COMPILED = re.compile(
    r"test_compilation_gives_the_same\[.*-True\]|test_jit_compilation_gives_the_same\[((Causal)?Decoder(Layer)?|Encoder)\]"
)


def pytest_itemcollected(item):
    """Notes the row that a contract is tried on, for the summary in `tests/conftest.py`, and what runs at night."""
    if keras.backend.backend() == "torch" and COMPILED.fullmatch(item.name):
        item.add_marker("nightly")
    ids = item.callspec.id.split("-") if hasattr(item, "callspec") else ()
    tables = {"layers": LAYERS, "models": MODELS}
    item.user_properties += [(kind, row) for kind, table in tables.items() for row in table if row in ids]
