"""Position schemes beside those of transformers and of keras-hub."""

import importlib

import keras
import numpy as np
import pytest

from keras_transformer.layers import ALiBi, RelativePositionBias, RotaryPositions

pytestmark = [pytest.mark.torch_parity, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")

to_numpy = keras.ops.convert_to_numpy
BATCH, HEADS, KV_HEADS, LENGTH, D_K = 2, 6, 2, 23, 10
POSITIONS = np.arange(LENGTH) + 41


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


QUERY, KEY = normal(BATCH, HEADS, LENGTH, D_K), normal(BATCH, KV_HEADS, LENGTH, D_K, seed=1)


def assert_equal(ours, theirs, atol=1e-5):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(to_numpy(one), np.asarray(other), rtol=1e-5, atol=atol)


@pytest.fixture(scope="module")
def llama():
    pytest.importorskip("transformers")
    return importlib.import_module("transformers.models.llama.modeling_llama")


@pytest.mark.parametrize(
    ("options", "rope"),
    [
        ({}, {}),
        ({"base": 500_000.0}, {"rope_theta": 500_000.0}),
        ({"scaling": "linear", "scaling_factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        # Their base depends on the length: with factor 1, it is NTK's for length / `max_position_embeddings`.
        ({"scaling": "ntk", "scaling_factor": 4.0}, {"rope_type": "dynamic", "factor": 1.0}),
    ],
    ids=str,
)
def test_rotary_positions_equal_those_of_llama(llama, options, rope):
    rope = {"rope_type": "default", "rope_theta": 10_000.0, **rope}
    config = llama.LlamaConfig(
        hidden_size=HEADS * D_K, num_attention_heads=HEADS, max_position_embeddings=16, rope_parameters=rope
    )
    query, key = torch.from_numpy(QUERY), torch.from_numpy(KEY)
    # The longest position decides the base of the dynamic type: 63 + 1 = 4 · 16.
    cos, sin = llama.LlamaRotaryEmbedding(config)(query, torch.from_numpy(POSITIONS)[None])
    theirs = llama.apply_rotary_pos_emb(query, key, cos, sin)
    assert_equal(RotaryPositions(**options).process_heads(QUERY, KEY, POSITIONS), theirs)


def test_a_part_of_the_width_equals_that_of_gpt_neox():
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    config = neox.GPTNeoXConfig(
        hidden_size=HEADS * D_K,
        num_attention_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.4},
    )
    query, key = torch.from_numpy(QUERY), torch.from_numpy(KEY)
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(query, torch.from_numpy(POSITIONS)[None])
    theirs = neox.apply_rotary_pos_emb(query, key, cos, sin)
    assert_equal(RotaryPositions(fraction=0.4).process_heads(QUERY, KEY, POSITIONS), theirs)


def test_interleaved_rotary_positions_equal_those_of_gptj():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    sin, cos = torch.split(gptj.create_sinusoidal_positions(100, D_K)[POSITIONS][None], D_K // 2, dim=-1)
    theirs = [
        gptj.apply_rotary_pos_emb(torch.from_numpy(x).transpose(1, 2), sin, cos).transpose(1, 2) for x in (QUERY, KEY)
    ]
    assert_equal(RotaryPositions(layout="interleaved").process_heads(QUERY, KEY, POSITIONS), theirs)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (32, 256), (16, 100), (8, 13), (64, 1000)])
def test_the_relative_position_bias_equals_that_of_t5(num_buckets, max_distance, bidirectional):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = t5.T5Config(
        num_heads=HEADS,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=not bidirectional,
    )
    theirs = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = RelativePositionBias(num_buckets, max_distance, bidirectional)
    ours.build((None, HEADS, None, D_K))
    table = normal(num_buckets, HEADS)
    ours.embeddings.assign(table)
    theirs.relative_attention_bias.weight.data = torch.from_numpy(table)
    length = 2 * max_distance
    expected = theirs.compute_bias(length, length).detach().numpy()
    positions = np.arange(length) + 5
    np.testing.assert_array_equal(to_numpy(ours.attention_bias(positions, positions)), expected)


@pytest.fixture(scope="module")
def keras_hub():
    return pytest.importorskip("keras_hub")


@pytest.mark.slow  # The import of keras-hub is.
@pytest.mark.parametrize(
    ("options", "theirs"),
    [({}, {}), ({"base": 100.0, "scaling": "linear", "scaling_factor": 3.0}, {"max_wavelength": 100, "factor": 3.0})],
    ids=str,
)
def test_rotary_positions_equal_those_of_keras_hub(keras_hub, options, theirs):
    theirs = dict(theirs)
    layer = keras_hub.layers.RotaryEmbedding(scaling_factor=theirs.pop("factor", 1.0), sequence_axis=2, **theirs)
    expected = [to_numpy(layer(x, start_index=int(POSITIONS[0]))) for x in (QUERY, KEY)]
    assert_equal(RotaryPositions(**options).process_heads(QUERY, KEY, POSITIONS), expected)


@pytest.mark.slow
@pytest.mark.parametrize("num_heads", [1, 4, 6, 12])
def test_alibi_equals_that_of_keras_hub_after_a_causal_softmax(keras_hub, num_heads):
    """Their bias depends on the key alone. It differs by a constant for each query, to which softmax is invariant."""
    scores = normal(BATCH, num_heads, LENGTH, LENGTH)
    causal = np.where(np.tri(LENGTH, dtype=bool), 0, -1e9).astype("float32")
    scheme = ALiBi()
    scheme.build((None, num_heads, None, D_K))
    ours = keras.ops.softmax(scores + causal + scheme.attention_bias(POSITIONS, POSITIONS))
    theirs = keras.ops.softmax(keras.ops.add(keras_hub.layers.AlibiBias()(scores), causal))
    np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), rtol=1e-4, atol=1e-6)
