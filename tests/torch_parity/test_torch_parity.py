"""A forward pass compared with `torch.nn.Transformer`, with the same weights."""

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig

pytestmark = pytest.mark.torch_parity
torch = pytest.importorskip("torch")

VOCAB, D_MODEL, HEADS, D_FF, LAYERS = 19, 12, 3, 17, 2
SOURCE = np.array([[4, 5, 6, 7, 8, 9, 3], [10, 11, 3, 0, 0, 0, 0]], "int32")
TARGET = np.array([[2, 12, 13, 14, 15], [2, 16, 17, 0, 0]], "int32")


def tensor(array):
    return torch.from_numpy(np.array(array, copy=True))


def copy_dense(dense, linear):
    linear.weight.data = tensor(dense.kernel.numpy().T)
    linear.bias.data = tensor(dense.bias.numpy())


def copy_norm(norm, torch_norm):
    torch_norm.weight.data, torch_norm.bias.data = tensor(norm.gamma.numpy()), tensor(norm.beta.numpy())


def copy_attention(attention, torch_attention):
    """PyTorch concatenates the three projections."""
    projections = [attention.query_projection, attention.key_projection, attention.value_projection]
    torch_attention.in_proj_weight.data = tensor(np.concatenate([p.kernel.numpy().T for p in projections]))
    torch_attention.in_proj_bias.data = tensor(np.concatenate([p.bias.numpy() for p in projections]))
    copy_dense(attention.output_projection, torch_attention.out_proj)


def copy_layer(layer, torch_layer):
    """The sub-layers of an encoder or decoder layer, with their norms in order."""
    parts = [(layer.self_attention, torch_layer.self_attn)]
    if hasattr(layer, "cross_attention"):
        parts.append((layer.cross_attention, torch_layer.multihead_attn))
    norms = [torch_layer.norm1, torch_layer.norm2, getattr(torch_layer, "norm3", None)]
    for (ours, theirs), norm in zip(parts, norms, strict=False):
        copy_attention(ours.sublayer, theirs)
        copy_norm(ours.norm, norm)
    copy_norm(layer.feed_forward.norm, norms[len(parts)])
    copy_dense(layer.feed_forward.sublayer.inner, torch_layer.linear1)
    copy_dense(layer.feed_forward.sublayer.outer, torch_layer.linear2)


def torch_twin(model):
    config = model.config
    twin = torch.nn.Transformer(
        D_MODEL, HEADS, LAYERS, LAYERS, D_FF, dropout=0.0, batch_first=True, norm_first=config.norm_first
    ).eval()
    for stack, torch_stack in ((model.encoder, twin.encoder), (model.decoder, twin.decoder)):
        copy_norm(stack.norm, torch_stack.norm)
        for layer, torch_layer in zip(stack.layers, torch_stack.layers, strict=True):
            copy_layer(layer, torch_layer)
    return twin


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning:torch")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning:torch")
@pytest.mark.parametrize("norm_first", [False, True], ids=["post_norm", "pre_norm"])
def test_logits_equal_those_of_pytorch(norm_first, randomize, reference):
    sizes = {"num_layers": LAYERS, "d_model": D_MODEL, "num_heads": HEADS, "d_ff": D_FF, "dropout": 0.0}
    model = Transformer(TransformerConfig(vocab_size=VOCAB, norm_first=norm_first, final_norm=True, **sizes))
    randomize(model, scale=0.3)
    table = model.target_embedding.embeddings.numpy()

    def embed(ids):
        vectors = table[ids] * np.sqrt(D_MODEL) + reference.positional_encoding(ids.shape[1], D_MODEL)
        return tensor(vectors.astype("float32"))

    with torch.no_grad():
        decoded = torch_twin(model)(
            embed(SOURCE),
            embed(TARGET),
            tgt_mask=tensor(~np.tri(TARGET.shape[1], dtype=bool)),
            src_key_padding_mask=tensor(SOURCE == 0),
            tgt_key_padding_mask=tensor(TARGET == 0),
            memory_key_padding_mask=tensor(SOURCE == 0),
        )
    logits = keras.ops.convert_to_numpy(model({"source": SOURCE, "target": TARGET}))
    np.testing.assert_allclose(logits, decoded.numpy() @ table.T, atol=1e-5)
    assert np.abs(logits).max() > 1
