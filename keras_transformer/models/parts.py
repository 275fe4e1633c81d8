"""Makes the layers of a model from its `TransformerConfig`: its names of parts -> layers."""

import zlib

import keras

from keras_transformer.config import TransformerConfig
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
from keras_transformer.layers.parts import adopt, serialized_part
from keras_transformer.layers.seeds import mix_seed, part_initializer, seeded_initializer
from keras_transformer.models.front_end import checked_front_end

#: Positions that are added to the embeddings -> how to make the layer.
EMBEDDED_POSITIONS = {
    "sinusoidal": lambda config, table, **kwargs: PositionalEncoding(layout=config.position_layout, **kwargs),
    "learned": lambda config, table, **kwargs: LearnedPositionalEmbedding(config.max_length, **table, **kwargs),
}
#: Positions that each self-attention applies -> how to make the scheme.
ATTENTION_POSITIONS = {"rotary": RotaryPositions, "alibi": ALiBi}
#: Positions that the self-attentions of a stack share -> how to make the scheme.
SHARED_POSITIONS = {
    "relative": lambda stack, seed, **kwargs: RelativePositionBias(
        bidirectional=stack is Encoder,
        embeddings_initializer=seeded_initializer("random_normal", seed),
        **kwargs,
        name="positions",
    )
}
NORMS = {"layer": LayerNormalization, "rms": keras.layers.RMSNormalization}
#: Keyword arguments of a model that are for its layers.
_KERNEL_ARGUMENTS = ("kernel_initializer", "bias_initializer", "kernel_regularizer")
_LAYER_ARGUMENTS = (*_KERNEL_ARGUMENTS, "embeddings_initializer", "seed")


class Parts:
    """Makes the layers of a model. They are not built.

    Args:
        config: a `TransformerConfig`.
        dtype: dtype policy. Default: the global policy.
        arguments: keyword arguments of the model. Those for its layers, such as `kernel_initializer`, are removed.
        source: the model that a user gives in place of the embedding of source ids, or `None`.
        **blocks: the layers that a user gives in place of those of the configuration, by the names of the arguments
            of the model; or `None`.

    Attributes:
        blocks: the layers that a user gives, serialized, by the names of the arguments.

    Raises:
        ValueError: if `config` is not a `TransformerConfig`, or `source` is not a functional model with an output
            `(batch, length, d_model)`.
    """

    def __init__(self, config, dtype, arguments, source=None, **blocks):
        if not isinstance(config, TransformerConfig):
            raise ValueError(f"`config` must be a TransformerConfig. Received: config={config!r}")
        self.config = config
        self.policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        self.source = checked_front_end(source, config)
        blocks = {"source": source, **blocks}
        self.blocks = {name: serialized_part(layer) for name, layer in blocks.items() if layer is not None}
        self.arguments = {name: arguments.pop(name) for name in _LAYER_ARGUMENTS if name in arguments}

    def get_config(self):
        """The given layers and the keyword arguments for layers, serialized."""
        return {**self.blocks, **keras.saving.serialize_keras_object(self.arguments)}

    def two_stacks(self, encoder_layer, decoder_layer) -> dict[str, keras.layers.Layer]:
        """Makes the layers of a `Transformer`, by the names of its attributes."""
        config = self.config
        encoder_depth, decoder_depth = config.depths
        shared = self.embedding(config.vocab_size, "embedding") if config.share_embeddings else None
        source_embedding = self.source or shared or self.embedding(config.source_vocabulary, "source_embedding")
        target_embedding = shared or self.embedding(config.vocab_size, "target_embedding")
        output_embedding = self.output_embedding(target_embedding)
        return {
            "source_embedding": source_embedding,
            "target_embedding": target_embedding,
            "source_positions": self.positions("source_positions"),
            "target_positions": self.positions("target_positions"),
            "source_norm": self.embedding_norm("source_norm"),
            "target_norm": self.embedding_norm("target_norm"),
            "source_dropout": self.dropout("source_dropout"),
            "target_dropout": self.dropout("target_dropout"),
            "encoder": self.stack(Encoder, encoder_layer, encoder_depth, "encoder"),
            "decoder": self.stack(Decoder, decoder_layer, decoder_depth, "decoder"),
            "logits": self.logits(output_embedding),
        }

    def one_stack(self, stack, layer, *, vocab_size, depth, name) -> dict:
        """Makes the layers of a model with one stack, from ids to the output of the stack, by attribute.

        Args:
            stack: `Encoder` or `CausalDecoder`.
            layer: the layer to copy. Default: that of the configuration.
            vocab_size: size of the vocabulary.
            depth: number of layers.
            name: name of the stack.
        """
        return {
            "embedding": self.source or self.embedding(vocab_size, "embedding"),
            "positions": self.positions("positions"),
            "embedding_norm": self.embedding_norm("embedding_norm"),
            "dropout": self.dropout("dropout"),
            name: self.stack(stack, layer, depth, name),
        }

    def tied_logits(self, embedding) -> TiedLogits:
        """Makes the logits of a model with one embedding."""
        return self.logits(self.output_embedding(embedding))

    def output_embedding(self, embedding) -> TokenEmbedding:
        """The embedding whose matrix the logits have: that of the target, or another one without `tie_output`."""
        is_tied = self.config.has_tied_output
        return embedding if is_tied else self.embedding(embedding.vocab_size, "output_embedding")

    def logits(self, embedding) -> TiedLogits:
        """Makes the layer of the logits."""
        config = self.config
        return TiedLogits(embedding, config.logits_bias, config.logits_scale, dtype=self.policy, name="logits")

    def embedding(self, vocab_size, name) -> TokenEmbedding:
        """Makes a token embedding."""
        config = self.config
        return TokenEmbedding(
            vocab_size,
            config.d_model,
            config.pad_id,
            config.scale_embedding,
            **self._table_options(name),
            dtype=self.policy,
            name=name,
        )

    def positions(self, name):
        """Makes the layer that adds positions to embeddings, or a function that adds none."""
        make = EMBEDDED_POSITIONS.get(self.config.positions)
        return make(self.config, self._table_options(name), dtype=self.policy, name=name) if make else _unchanged

    def embedding_norm(self, name):
        """Makes the normalization of the embeddings, or a function that changes nothing."""
        return adopt(self._norm(name), self.policy) if self.config.embedding_norm else _unchanged

    def dropout(self, name) -> Dropout:
        """Makes the dropout of embeddings."""
        return Dropout(self.config.dropout, seed=self._seed(name), dtype=self.policy, name=name)

    def dense(self, units, name):
        """Makes a projection in float32."""
        options = self._kernel_options(name)
        initializer = seeded_initializer(options.pop("kernel_initializer", "glorot_uniform"), options.pop("seed"))
        return keras.layers.Dense(units, kernel_initializer=initializer, **options, dtype="float32", name=name)

    def stack(self, stack, layer, depth, name):
        """Makes an `Encoder`, `Decoder` or `CausalDecoder`.

        Args:
            stack: the class.
            layer: the layer to copy. Default: that of the configuration.
            depth: number of copies.
            name: name of the stack.
        """
        config = self.config
        if layer is None and config.variants():
            layer = self._layer(stack.layer_class, name)
        # Without a layer to copy, the layers are made from the sizes: the random seeds are then those of earlier
        # versions.
        sizes = {size: getattr(config, size) for size in SIZES}
        make_shared = SHARED_POSITIONS.get(config.positions)
        return stack(
            **({**sizes, **self._kernel_options(name)} if layer is None else {"layer": layer}),
            num_layers=depth,
            final_norm=config.final_norm,
            shared_positions=make_shared and make_shared(stack, self._seed(f"{name}/positions"), dtype=self.policy),
            dtype=self.policy,
            name=name,
        )

    def _layer(self, kind, name):
        """Makes the layer of which the stack `name` has copies."""
        config = self.config
        attention = {"attention": self._attention(f"{name}/attention", _schemes(config))}
        if kind is DecoderLayer:
            cross_attention = self._attention(f"{name}/cross_attention")
            attention = {"self_attention": attention["attention"], "cross_attention": cross_attention}
        return kind(
            **attention,
            feed_forward=FeedForward(
                config.d_model,
                config.d_ff,
                config.activation,
                config.activation_dropout,
                config.use_bias,
                gated=config.feed_forward == "gated",
                **self._kernel_options(f"{name}/feed_forward"),
                name="feed_forward",
            ),
            norm=self._norm("norm"),
            d_model=config.d_model,
            dropout=config.dropout,
            norm_first=config.norm_first,
            seed=self._seed(name),
        )

    def _attention(self, path, positions=None) -> MultiHeadAttention:
        config = self.config
        return MultiHeadAttention(
            config.d_model,
            config.num_heads,
            config.d_k,
            config.d_v,
            config.attention_dropout,
            config.use_bias,
            num_kv_heads=config.num_kv_heads,
            soft_cap=config.soft_cap,
            positions=positions,
            **self._kernel_options(path),
            name="attention",
        )

    def _norm(self, name):
        return NORMS[self.config.norm](epsilon=self.config.layer_norm_epsilon, name=name)

    def _table_options(self, path):
        """The arguments for the table of embeddings at this path."""
        initializer = part_initializer(self.arguments.get("embeddings_initializer"), _index(path), None)
        return {"embeddings_initializer": initializer, "seed": self._seed(path)}

    def _kernel_options(self, path):
        """The arguments for the weights of the part at this path. Parts get different seeds."""
        given = {name: self.arguments[name] for name in _KERNEL_ARGUMENTS if name in self.arguments}
        initializers = {
            name: part_initializer(value, _index(path), None) if name.endswith("initializer") else value
            for name, value in given.items()
        }
        return {**initializers, "seed": self._seed(path)}

    def _seed(self, path):
        return mix_seed(self.arguments.get("seed"), _index(path))


def _index(path):
    return zlib.crc32(path.encode())


def _schemes(config) -> list:
    """Makes the position schemes of a self-attention."""
    norm = [QKNorm(name="qk_norm")] if config.qk_norm else []
    positions = (
        [ATTENTION_POSITIONS[config.positions](name="positions")] if config.positions in ATTENTION_POSITIONS else []
    )
    return norm + positions + ([SlidingWindow(config.window, name="window")] if config.window else [])


def _unchanged(x, **positions):
    return x
