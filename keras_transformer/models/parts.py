"""Makes the layers of a model from its `TransformerConfig`."""

import keras

from keras_transformer.layers import (
    Decoder,
    Dropout,
    Encoder,
    LearnedPositionalEmbedding,
    PositionalEncoding,
    TiedLogits,
    TokenEmbedding,
)
from keras_transformer.layers.block import SIZES


def stack_arguments(config, num_layers: int, layer=None) -> dict:
    """The arguments of an `Encoder`, `Decoder` or `CausalDecoder` of `num_layers` copies of `layer`.

    Default: layers with the sizes of the configuration.
    """
    sizes = {name: getattr(config, name) for name in SIZES} if layer is None else {"layer": layer}
    return {"num_layers": num_layers, "final_norm": config.final_norm, **sizes}


def make_embedding(config, policy, vocab_size, name) -> TokenEmbedding:
    """Makes a token embedding."""
    return TokenEmbedding(vocab_size, config.d_model, config.pad_id, config.scale_embedding, dtype=policy, name=name)


def make_positions(config, policy, name) -> keras.layers.Layer:
    """Makes the layer that adds sinusoidal or learned positions."""
    if config.positions == "sinusoidal":
        return PositionalEncoding(layout=config.position_layout, dtype=policy, name=name)
    return LearnedPositionalEmbedding(config.max_length, dtype=policy, name=name)


def make_layers(config, policy, encoder_layer, decoder_layer) -> dict[str, keras.layers.Layer]:
    """Makes the layers of a `Transformer`, not built, by the names of its attributes."""
    encoder_depth, decoder_depth = config.depths
    encoder = stack_arguments(config, encoder_depth, encoder_layer)
    decoder = stack_arguments(config, decoder_depth, decoder_layer)
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
        "source_dropout": Dropout(config.dropout, dtype=policy, name="source_dropout"),
        "target_dropout": Dropout(config.dropout, dtype=policy, name="target_dropout"),
        "encoder": Encoder(**encoder, dtype=policy, name="encoder"),
        "decoder": Decoder(**decoder, dtype=policy, name="decoder"),
        "logits": TiedLogits(output_embedding, config.logits_bias, dtype=policy, name="logits"),
    }
