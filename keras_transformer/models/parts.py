"""Makes the layers of a model from its `TransformerConfig`: its names of parts -> layers."""

import keras

from keras_transformer.layers import (
    ALiBi,
    Decoder,
    DecoderLayer,
    Dropout,
    Encoder,
    FeedForward,
    LearnedPositionalEmbedding,
    MultiHeadAttention,
    PositionalEncoding,
    QKNorm,
    RelativePositionBias,
    RotaryPositions,
    SlidingWindow,
    TiedLogits,
    TokenEmbedding,
)
from keras_transformer.layers.block import SIZES
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.layers.parts import adopt

#: Positions that are added to the embeddings -> how to make the layer.
EMBEDDED_POSITIONS = {
    "sinusoidal": lambda config, **kwargs: PositionalEncoding(layout=config.position_layout, **kwargs),
    "learned": lambda config, **kwargs: LearnedPositionalEmbedding(config.max_length, **kwargs),
}
#: Positions that each self-attention applies -> how to make the scheme.
ATTENTION_POSITIONS = {"rotary": RotaryPositions, "alibi": ALiBi}
#: Positions that the self-attentions of a stack share -> how to make the scheme.
SHARED_POSITIONS = {
    "relative": lambda stack, policy: RelativePositionBias(
        bidirectional=stack is Encoder, dtype=policy, name="positions"
    )
}
NORMS = {"layer": LayerNormalization, "rms": keras.layers.RMSNormalization}


def make_stack(stack, config, policy, layer=None, **kwargs):
    """Makes an `Encoder`, `Decoder` or `CausalDecoder`.

    Args:
        stack: the class.
        config: a `TransformerConfig`.
        policy: dtype policy.
        layer: the layer to copy. Default: that of the configuration.
        **kwargs: `name`, and `num_layers`.
    """
    layer = make_layer(stack.layer_class, config) if layer is None else layer
    # Without a layer to copy, the layers are made from the sizes: the random seeds are then those of earlier versions.
    sizes = {name: getattr(config, name) for name in SIZES} if layer is None else {"layer": layer}
    make_shared = SHARED_POSITIONS.get(config.positions)
    shared = make_shared and make_shared(stack, policy)
    return stack(**sizes, final_norm=config.final_norm, shared_positions=shared, dtype=policy, **kwargs)


def make_layer(kind, config):
    """Makes the layer that the stacks copy, or `None` if the sizes say all."""
    if not config.variants():
        return None
    attention = {"attention": make_attention(config, self_schemes(config))}
    if kind is DecoderLayer:
        attention = {"self_attention": attention["attention"], "cross_attention": make_attention(config)}
    return kind(
        **attention,
        feed_forward=FeedForward(
            config.d_model,
            config.d_ff,
            config.activation,
            config.activation_dropout,
            config.use_bias,
            gated=config.feed_forward == "gated",
            name="feed_forward",
        ),
        norm=NORMS[config.norm](epsilon=config.layer_norm_epsilon, name="norm"),
        d_model=config.d_model,
        dropout=config.dropout,
        norm_first=config.norm_first,
    )


def make_attention(config, positions=()) -> MultiHeadAttention:
    """Makes the attention of a layer, with these position schemes."""
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        config.d_k,
        config.d_v,
        config.attention_dropout,
        config.use_bias,
        num_kv_heads=config.num_kv_heads,
        soft_cap=config.soft_cap,
        positions=[*positions] or None,
        name="attention",
    )


def self_schemes(config) -> list:
    """Makes the position schemes of a self-attention."""
    norm = [QKNorm(name="qk_norm")] if config.qk_norm else []
    positions = (
        [ATTENTION_POSITIONS[config.positions](name="positions")] if config.positions in ATTENTION_POSITIONS else []
    )
    return norm + positions + ([SlidingWindow(config.window, name="window")] if config.window else [])


def make_embedding(config, policy, vocab_size, name) -> TokenEmbedding:
    """Makes a token embedding."""
    return TokenEmbedding(vocab_size, config.d_model, config.pad_id, config.scale_embedding, dtype=policy, name=name)


def make_positions(config, policy, name):
    """Makes the layer that adds positions to embeddings, or a function that adds none."""
    make = EMBEDDED_POSITIONS.get(config.positions)
    return make(config, dtype=policy, name=name) if make else _unchanged


def make_embedding_norm(config, policy, name):
    """Makes the normalization of the embeddings, or a function that changes nothing."""
    if not config.embedding_norm:
        return _unchanged
    return adopt(NORMS[config.norm](epsilon=config.layer_norm_epsilon, dtype=policy, name=name), policy)


def make_logits(config, policy, embedding) -> TiedLogits:
    """Makes the layer of the logits."""
    return TiedLogits(embedding, config.logits_bias, config.logits_scale, dtype=policy, name="logits")


def make_embedded_stack(stack, config, policy, layer, *, vocab_size, depth, name) -> dict:
    """Makes the layers of a model with one stack, from ids to the output of the stack, by the names of its attributes.

    Args:
        stack: `Encoder` or `CausalDecoder`.
        config: a `TransformerConfig`.
        policy: dtype policy.
        layer: the layer to copy. Default: that of the configuration.
        vocab_size: size of the vocabulary.
        depth: number of layers.
        name: name of the stack.
    """
    return {
        "embedding": make_embedding(config, policy, vocab_size, "embedding"),
        "positions": make_positions(config, policy, "positions"),
        "embedding_norm": make_embedding_norm(config, policy, "embedding_norm"),
        "dropout": Dropout(config.dropout, dtype=policy, name="dropout"),
        name: make_stack(stack, config, policy, layer, num_layers=depth, name=name),
    }


def make_tied_logits(config, policy, embedding) -> TiedLogits:
    """Makes the logits of a model with one embedding, or with another matrix without `share_embeddings`."""
    if not config.share_embeddings:
        embedding = make_embedding(config, policy, embedding.vocab_size, "output_embedding")
    return make_logits(config, policy, embedding)


def _unchanged(x, **positions):
    return x


def make_layers(config, policy, encoder_layer, decoder_layer) -> dict[str, keras.layers.Layer]:
    """Makes the layers of a `Transformer`, not built, by the names of its attributes."""
    encoder_depth, decoder_depth = config.depths
    if config.share_embeddings:
        shared = make_embedding(config, policy, config.vocab_size, "embedding")
        source_embedding = target_embedding = output_embedding = shared
    else:
        source_embedding = make_embedding(config, policy, config.source_vocabulary, "source_embedding")
        target_embedding = make_embedding(config, policy, config.vocab_size, "target_embedding")
        output_embedding = make_embedding(config, policy, config.vocab_size, "output_embedding")
    return {
        "source_embedding": source_embedding,
        "target_embedding": target_embedding,
        "source_positions": make_positions(config, policy, "source_positions"),
        "target_positions": make_positions(config, policy, "target_positions"),
        "source_norm": make_embedding_norm(config, policy, "source_norm"),
        "target_norm": make_embedding_norm(config, policy, "target_norm"),
        "source_dropout": Dropout(config.dropout, dtype=policy, name="source_dropout"),
        "target_dropout": Dropout(config.dropout, dtype=policy, name="target_dropout"),
        "encoder": make_stack(Encoder, config, policy, encoder_layer, num_layers=encoder_depth, name="encoder"),
        "decoder": make_stack(Decoder, config, policy, decoder_layer, num_layers=decoder_depth, name="decoder"),
        "logits": make_logits(config, policy, output_embedding),
    }
