"""Gated feed-forward and grouped attention beside those of Llama in `transformers`, with the same weights."""

import keras
import numpy as np
import pytest

from keras_transformer.layers import FeedForward, MultiHeadAttention

pytestmark = pytest.mark.torch_parity
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

BATCH, LENGTH, D_MODEL, D_FF, HEADS, D_HEAD = 2, 5, 12, 17, 6, 4
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, D_MODEL)).astype("float32")


def llama_config(**changes):
    sizes = {"hidden_size": D_MODEL, "intermediate_size": D_FF, "num_attention_heads": HEADS, "head_dim": D_HEAD}
    return transformers.LlamaConfig(**sizes, **changes)


def copy_dense(dense, linear):
    linear.weight.data = torch.tensor(keras.ops.convert_to_numpy(dense.kernel).T)
    assert (linear.bias is None) == (not dense.use_bias)
    if linear.bias is not None:
        linear.bias.data = torch.tensor(keras.ops.convert_to_numpy(dense.bias))


def gradients(layer, x):
    """The gradients of the sum of squared outputs, by the path of the weight, from one step of gradient descent."""
    inputs = keras.Input(x.shape[1:])
    model = keras.Model(inputs, layer(inputs))
    before = {weight.path: keras.ops.convert_to_numpy(weight).copy() for weight in layer.weights}
    model.compile(keras.optimizers.SGD(1.0), loss=lambda _, output: keras.ops.sum(output**2))
    model.train_on_batch(x, x)
    return {weight.path: before[weight.path] - keras.ops.convert_to_numpy(weight) for weight in layer.weights}


def assert_equal(layer, pairs, theirs):
    """Compares outputs, and the gradients of pairs of dense and linear layers. `theirs` gives the torch output."""
    output = theirs(torch.tensor(X))
    ours = keras.ops.convert_to_numpy(layer(X))
    np.testing.assert_allclose(ours, output.detach().numpy(), atol=1e-5)
    assert np.abs(ours).max() > 0.1
    (output**2).sum().backward()
    found = gradients(layer, X)
    for dense, linear in pairs:
        np.testing.assert_allclose(found[dense.kernel.path], linear.weight.grad.numpy().T, atol=1e-4)


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu", "gelu_pytorch_tanh"])
def test_the_gated_feed_forward_layer_is_that_of_llama(activation, use_bias, randomize):
    name = {"gelu_pytorch_tanh": "gelu_tanh"}.get(activation, activation)
    ours = FeedForward(D_MODEL, D_FF, name, gated=True, use_bias=use_bias)
    ours.build(X.shape)
    randomize(ours, scale=0.3)
    theirs = transformers.models.llama.modeling_llama.LlamaMLP(llama_config(hidden_act=activation, mlp_bias=use_bias))
    pairs = [(ours.gate, theirs.gate_proj), (ours.inner, theirs.up_proj), (ours.outer, theirs.down_proj)]
    for dense, linear in pairs:
        copy_dense(dense, linear)
    assert_equal(ours, pairs, theirs)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_grouped_attention_is_that_of_llama(num_kv_heads, randomize):
    """Without a mask, at position 0 for each token: the rotation by angle 0 changes nothing."""
    ours = MultiHeadAttention(D_MODEL, HEADS, D_HEAD, D_HEAD, use_bias=False, num_kv_heads=num_kv_heads)
    ours.build(X.shape)
    randomize(ours, scale=0.3)
    config = llama_config(num_key_value_heads=num_kv_heads, attn_implementation="eager")
    theirs = transformers.models.llama.modeling_llama.LlamaAttention(config, layer_idx=0)
    pairs = [
        (ours.query_projection, theirs.q_proj),
        (ours.key_projection, theirs.k_proj),
        (ours.value_projection, theirs.v_proj),
        (ours.output_projection, theirs.o_proj),
    ]
    for dense, linear in pairs:
        copy_dense(dense, linear)
    rotation = torch.ones(BATCH, LENGTH, D_HEAD), torch.zeros(BATCH, LENGTH, D_HEAD)
    assert_equal(ours, pairs, lambda x: theirs(x, position_embeddings=rotation, attention_mask=None)[0])
