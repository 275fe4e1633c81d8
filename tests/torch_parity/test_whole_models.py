"""Small models beside Llama, T5 and BERT in `transformers`, with the same weights: logits and all gradients."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import layers

pytestmark = [pytest.mark.torch_parity, pytest.mark.slow]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

to_numpy = keras.ops.convert_to_numpy
VOCAB, D_MODEL, D_FF, LAYERS = 23, 18, 13, 2
#: Long enough for the buckets of T5 that hold several distances.
SOURCE_LENGTH, TARGET_LENGTH = 19, 17
RNG = np.random.default_rng(0)


def padded_ids(length):
    """Two rows of ids, the second with padding."""
    ids = RNG.integers(1, VOCAB, (2, length)).astype("int32")
    ids[1, length - 5 :] = 0
    return ids


SOURCE, TARGET = padded_ids(SOURCE_LENGTH), padded_ids(TARGET_LENGTH)


def tensor(array):
    return torch.from_numpy(np.array(array))


class Twins:
    """A model of ours and one of transformers.

    Attributes:
        ours: a Keras model with random weights.
        theirs: a PyTorch module, which gets these weights by `copy`.
    """

    def __init__(self, ours, theirs):
        self.ours, self.theirs = ours, theirs.eval()
        for weight in ours.trainable_weights:
            if weight.name == "scale":  # Of an RMS normalization.
                weight.assign(1 + weight)
        self.pairs = []  # Variable, parameter, whether one is the transpose of the other.

    def copy(self, variable, parameter, transpose=False):
        value = to_numpy(variable)
        assert parameter.shape == (value.T if transpose else value).shape
        parameter.data = tensor(value.T if transpose else value)
        self.pairs.append((variable, parameter, transpose))

    def copy_dense(self, dense, linear):
        assert dense.use_bias == (linear.bias is not None)
        self.copy(dense.kernel, linear.weight, transpose=True)
        if dense.use_bias:
            self.copy(dense.bias, linear.bias)

    def copy_norm(self, norm, their_norm):
        """The scale, and the bias unless it is an RMS normalization."""
        parameters = [their_norm.weight, getattr(their_norm, "bias", None)]
        for weight, parameter in zip(norm.trainable_weights, parameters, strict=False):
            self.copy(weight, parameter)

    def copy_attention(self, attention, **linears):
        for name, linear in linears.items():
            self.copy_dense(getattr(attention, f"{name}_projection"), linear)

    def assert_equal(self, inputs, is_real, run, constant=()):
        """Compares outputs, and the gradients of a random linear function of them, at positions without padding.

        Args:
            inputs: those of our model.
            is_real: bool `(batch, length)`.
            run: gives the output of theirs.
            constant: names of their parameters that are no variables of ours.
        """
        copied = [(id(variable), id(parameter)) for variable, parameter, _ in self.pairs]
        assert {one for one, _ in copied} == {id(weight) for weight in self.ours.trainable_weights}
        parameters = {name: parameter for name, parameter in self.theirs.named_parameters() if name not in constant}
        assert {id(parameter) for parameter in parameters.values()} == {other for _, other in copied}
        output, expected = to_numpy(self.ours(inputs)), run()
        assert 0.5 < expected[is_real].std() < 5
        np.testing.assert_allclose(output[is_real], expected.detach().numpy()[is_real], atol=1e-5)
        factors = np.random.default_rng(1).normal(size=output.shape).astype("float32") * is_real[..., None]
        (expected * tensor(factors)).sum().backward()
        before = [to_numpy(variable).copy() for variable, _, _ in self.pairs]
        steps = {"run_eagerly": True} if keras.backend.backend() == "tensorflow" else {"jit_compile": False}
        self.ours.compile(keras.optimizers.SGD(1.0), lambda y, output: keras.ops.sum(y * output), **steps)
        self.ours.train_on_batch(inputs, factors)
        for (variable, parameter, transpose), old in zip(self.pairs, before, strict=True):
            gradient = parameter.grad.numpy()
            np.testing.assert_allclose(
                old - to_numpy(variable),
                gradient.T if transpose else gradient,
                rtol=1e-4,
                atol=1e-4,
                err_msg=variable.path,
            )


@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
def test_the_language_model_is_llama(is_tied, randomize):
    """Rotary positions, RMS normalization before each part, SwiGLU, grouped queries, no biases."""
    config = kt.TransformerConfig(
        **{"vocab_size": VOCAB, "num_layers": LAYERS, "d_model": D_MODEL, "num_heads": 6, "d_k": 4, "d_v": 4},
        **{"num_kv_heads": 2, "d_ff": D_FF, "dropout": 0.0, "positions": "rotary", "norm": "rms", "norm_first": True},
        **{"feed_forward": "gated", "activation": "silu", "use_bias": False, "scale_embedding": False},
        share_embeddings=is_tied,
    )
    their_config = transformers.LlamaConfig(
        **{"vocab_size": VOCAB, "hidden_size": D_MODEL, "intermediate_size": D_FF, "num_hidden_layers": LAYERS},
        **{"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4, "rms_norm_eps": 1e-5},
        **{"tie_word_embeddings": is_tied, "attn_implementation": "eager", "pad_token_id": 0},
    )
    ours = randomize(kt.LanguageModel(config), scale=0.25)
    theirs = transformers.LlamaForCausalLM(their_config)
    twins = Twins(ours, theirs)
    twins.copy(ours.embedding.embeddings, theirs.model.embed_tokens.weight)
    twins.copy(ours.logits.embedding.embeddings, theirs.lm_head.weight)
    twins.copy_norm(ours.decoder.norm, theirs.model.norm)
    for layer, other in zip(ours.decoder.layers, theirs.model.layers, strict=True):
        names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
        linears = {name: getattr(other.self_attn, their_name) for name, their_name in names.items()}
        twins.copy_attention(layer.self_attention.sublayer, **linears)
        twins.copy_norm(layer.self_attention.norm, other.input_layernorm)
        feed_forward = layer.feed_forward.sublayer
        twins.copy_dense(feed_forward.gate, other.mlp.gate_proj)
        twins.copy_dense(feed_forward.inner, other.mlp.up_proj)
        twins.copy_dense(feed_forward.outer, other.mlp.down_proj)
        twins.copy_norm(layer.feed_forward.norm, other.post_attention_layernorm)
    is_real = TARGET != 0
    twins.assert_equal(
        TARGET, is_real, lambda: theirs(tensor(TARGET).long(), attention_mask=tensor(is_real).long()).logits
    )


def t5_layer(kind, gated):
    """A layer of T5: the scores of attention are not scaled."""

    def attention():
        return layers.MultiHeadAttention(D_MODEL, 3, d_k=5, d_v=5, use_bias=False, scale=1.0)

    names = ("self_attention", "cross_attention") if kind is layers.DecoderLayer else ("attention",)
    activation = "gelu_tanh" if gated else "relu"
    return kind(
        **{name: attention() for name in names},
        feed_forward=layers.FeedForward(D_MODEL, D_FF, activation, use_bias=False, gated=gated),
        norm=keras.layers.RMSNormalization(epsilon=1e-6),
        norm_first=True,
        dropout=0.0,
    )


@pytest.mark.parametrize("gated", [pytest.param(False, marks=pytest.mark.nightly), True], ids=["relu", "gated gelu"])
def test_the_transformer_is_t5(gated, randomize):
    """One table of relative positions for each stack, RMS normalization, scaled logits, no biases."""
    config = kt.TransformerConfig(
        **{"vocab_size": VOCAB, "num_encoder_layers": 3, "num_decoder_layers": LAYERS, "d_model": D_MODEL},
        **{"num_heads": 3, "d_ff": D_FF, "positions": "relative", "dropout": 0.0, "scale_embedding": False},
        logits_scale=D_MODEL**-0.5,
    )
    ours = kt.Transformer(config, t5_layer(layers.EncoderLayer, gated), t5_layer(layers.DecoderLayer, gated))
    randomize(ours, scale=0.25)
    ours.target_embedding.embeddings.assign(4 * to_numpy(ours.target_embedding.embeddings))
    their_config = transformers.T5Config(
        **{"vocab_size": VOCAB, "d_model": D_MODEL, "d_kv": 5, "d_ff": D_FF, "num_heads": 3, "num_layers": 3},
        **{"num_decoder_layers": LAYERS, "feed_forward_proj": "gated-gelu" if gated else "relu"},
    )
    theirs = transformers.T5ForConditionalGeneration(their_config)
    twins = Twins(ours, theirs)
    twins.copy(ours.target_embedding.embeddings, theirs.shared.weight)
    for stack, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        copy_t5_stack(twins, stack, other)
    assert theirs.lm_head.weight is theirs.shared.weight
    is_real = TARGET != 0
    twins.assert_equal(
        {"source": SOURCE, "target": TARGET},
        is_real,
        lambda: (
            theirs(
                input_ids=tensor(SOURCE).long(),
                attention_mask=tensor(SOURCE != 0).long(),
                decoder_input_ids=tensor(TARGET).long(),
                decoder_attention_mask=tensor(is_real).long(),
            ).logits
        ),
    )


def copy_t5_stack(twins, stack, other):
    first = other.block[0].layer[0].SelfAttention
    twins.copy(stack.shared_positions.embeddings, first.relative_attention_bias.weight)
    twins.copy_norm(stack.norm, other.final_layer_norm)
    for layer, block in zip(stack.layers, other.block, strict=True):
        parts = [(layer.self_attention, block.layer[0], block.layer[0].SelfAttention)]
        if hasattr(layer, "cross_attention"):
            parts.append((layer.cross_attention, block.layer[1], block.layer[1].EncDecAttention))
        for residual, their_layer, attention in parts:
            twins.copy_attention(
                residual.sublayer, query=attention.q, key=attention.k, value=attention.v, output=attention.o
            )
            twins.copy_norm(residual.norm, their_layer.layer_norm)
        feed_forward, their_layer = layer.feed_forward.sublayer, block.layer[-1]
        dense = their_layer.DenseReluDense
        if feed_forward.gated:
            twins.copy_dense(feed_forward.gate, dense.wi_0)
        twins.copy_dense(feed_forward.inner, dense.wi_1 if feed_forward.gated else dense.wi)
        twins.copy_dense(feed_forward.outer, dense.wo)
        twins.copy_norm(layer.feed_forward.norm, their_layer.layer_norm)


def test_the_masked_language_model_is_bert(randomize):
    """Learned positions, a norm of the embeddings and after each part, GELU.

    The embedding of token type 0 is a part of our positions. BERT has a dense layer and a norm before its tied logits,
    which our model does not have, so they are left out of BERT.
    """
    config = kt.TransformerConfig(
        **{"vocab_size": VOCAB, "num_layers": LAYERS, "d_model": D_MODEL, "num_heads": 3, "d_ff": D_FF, "dropout": 0.0},
        **{"positions": "learned", "max_length": 29, "activation": "gelu", "embedding_norm": True},
        **{"scale_embedding": False, "layer_norm_epsilon": 1e-12, "logits_bias": True},
    )
    their_config = transformers.BertConfig(
        **{"vocab_size": VOCAB, "hidden_size": D_MODEL, "num_hidden_layers": LAYERS, "num_attention_heads": 3},
        **{"intermediate_size": D_FF, "max_position_embeddings": 29, "attn_implementation": "eager"},
    )
    ours = randomize(kt.MaskedLanguageModel(config), scale=0.3)
    theirs = transformers.BertForMaskedLM(their_config)
    theirs.cls.predictions.transform = torch.nn.Identity()
    twins, bert, embeddings = Twins(ours, theirs), theirs.bert, theirs.bert.embeddings
    twins.copy(ours.embedding.embeddings, embeddings.word_embeddings.weight)
    twins.copy(ours.positions.embeddings, embeddings.position_embeddings.weight)
    types = embeddings.token_type_embeddings.weight
    types.data = torch.randn_like(types)
    embeddings.position_embeddings.weight.data -= types.data[0]
    twins.copy_norm(ours.embedding_norm, embeddings.LayerNorm)
    twins.copy(ours.logits.bias, theirs.cls.predictions.decoder.bias)
    for layer, other in zip(ours.encoder.layers, bert.encoder.layer, strict=True):
        attention = other.attention
        twins.copy_attention(
            layer.self_attention.sublayer,
            query=attention.self.query,
            key=attention.self.key,
            value=attention.self.value,
            output=attention.output.dense,
        )
        twins.copy_norm(layer.self_attention.norm, attention.output.LayerNorm)
        twins.copy_dense(layer.feed_forward.sublayer.inner, other.intermediate.dense)
        twins.copy_dense(layer.feed_forward.sublayer.outer, other.output.dense)
        twins.copy_norm(layer.feed_forward.norm, other.output.LayerNorm)
    is_real = SOURCE != 0
    arguments = {"input_ids": tensor(SOURCE).long(), "attention_mask": tensor(is_real).long()}
    hidden = bert(**arguments).last_hidden_state.detach().numpy()
    np.testing.assert_allclose(to_numpy(ours.encode(SOURCE))[is_real], hidden[is_real], atol=1e-5)
    twins.assert_equal(
        SOURCE, is_real, lambda: theirs(**arguments).logits, constant=["bert.embeddings.token_type_embeddings.weight"]
    )
