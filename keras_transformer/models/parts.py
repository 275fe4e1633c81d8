"""The layers of a `Transformer`."""

import keras

from keras_transformer.layers import (
    Decoder,
    Encoder,
    LearnedPositionalEmbedding,
    PositionalEncoding,
    TiedLogits,
    TokenEmbedding,
)
from keras_transformer.layers.block import SHARED_ARGUMENTS


def make_layers(config, policy) -> dict[str, keras.layers.Layer]:
    """The layers of a `Transformer`, by the names of its attributes.

    Args:
        config: a `TransformerConfig`.
        policy: dtype policy of all of them.

    Returns:
        Unbuilt layers.
    """
    sizes = {name: getattr(config, name) for name in ("num_layers", "final_norm", *SHARED_ARGUMENTS)}

    def embedding(vocab_size, name):
        return TokenEmbedding(
            vocab_size, config.d_model, config.pad_id, config.scale_embedding, dtype=policy, name=name
        )

    def positions(name):
        if config.positions == "sinusoidal":
            return PositionalEncoding(layout=config.position_layout, dtype=policy, name=name)
        return LearnedPositionalEmbedding(config.max_length, dtype=policy, name=name)

    if config.share_embeddings:
        source_embedding = target_embedding = output_embedding = embedding(config.vocab_size, "embedding")
    else:
        source_embedding = embedding(config.source_vocabulary, "source_embedding")
        target_embedding = embedding(config.vocab_size, "target_embedding")
        output_embedding = embedding(config.vocab_size, "output_embedding")
    return {
        "source_embedding": source_embedding,
        "target_embedding": target_embedding,
        "source_positions": positions("source_positions"),
        "target_positions": positions("target_positions"),
        "source_dropout": keras.layers.Dropout(config.dropout, dtype=policy, name="source_dropout"),
        "target_dropout": keras.layers.Dropout(config.dropout, dtype=policy, name="target_dropout"),
        "encoder": Encoder(**sizes, dtype=policy, name="encoder"),
        "decoder": Decoder(**sizes, dtype=policy, name="decoder"),
        "logits": TiedLogits(output_embedding, config.logits_bias, dtype=policy, name="logits"),
    }
