"""The encoder-decoder Transformer as a functional Keras model."""

import dataclasses
import functools

import keras
import numpy as np
from keras import ops

from keras_transformer import masks
from keras_transformer.config import TransformerConfig
from keras_transformer.decoding import BeamSearch, Hypotheses, SpecialIds, run_search
from keras_transformer.layers import (
    Decoder,
    Encoder,
    LearnedPositionalEmbedding,
    PositionalEncoding,
    TiedLogits,
    TokenEmbedding,
)
from keras_transformer.layers.block import SHARED_ARGUMENTS
from keras_transformer.models.generator import Generator


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(keras.Model):
    """logits = E · decoder(target, encoder(source)).

    A functional model of `{"source": (batch, source_length), "target": (batch, target_length)}`, both
    int ids, whose output is `(batch, target_length, vocab_size)` logits. The target is the one shifted
    right: it starts with `bos_id`, and the logits at a position predict the next token.

    Masking: source and target positions that hold `pad_id` are attended by none, and no target
    position attends to a later one. The logits carry no mask.

    Args:
        config: a `TransformerConfig`.
        **kwargs: `name` and `dtype` (a dtype policy such as `"mixed_bfloat16"`).

    Raises:
        ValueError: if `config` is not a `TransformerConfig`.

    Example:

    >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
    >>> source = np.array([[5, 6, 7, 3]])
    >>> model({"source": source, "target": np.array([[2, 8, 9]])}).shape
    TensorShape([1, 3, 100])
    >>> model.generate(source).tokens.shape[:2]
    (1, 1)

    Reference:
        Vaswani et al. 2017, §3 and Figure 1.
    """

    def __init__(self, config, *, name="transformer", dtype=None, **kwargs):
        if not isinstance(config, TransformerConfig):
            raise ValueError(f"`config` must be a TransformerConfig. Received: config={config!r}")
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        # On PyTorch no layer can be an attribute before `super().__init__`, which needs the whole graph.
        vars(self).update(config=config, **_make_layers(config, policy))
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        logits = self.decode(target, self.encode(source))
        super().__init__(inputs={"source": source, "target": target}, outputs=logits, name=name, **kwargs)
        self.dtype_policy = policy
        # One compiled search a strategy; behind a function, where Keras does not track them as layers.
        self._generators = functools.cache(functools.partial(Generator, self))

    def encode(self, source, source_mask=None):
        """The encoder's output.

        Args:
            source: int `(batch, source_length)`.
            source_mask: boolean `(batch, source_length)`. Default: what is not padding.

        Returns:
            Memory `(batch, source_length, d_model)`.
        """
        x = self.source_positions(self.source_embedding(source))
        return self.encoder(self.source_dropout(x), mask=source_mask)

    def decode(self, target, memory, memory_mask=None, cache=None, offset=0):
        """The logits of a target.

        Args:
            target: int `(batch, target_length)`; with a cache also `(batch,)`, one token of each row.
            memory: from `encode`, or from `decoder.project_memory`.
            memory_mask: boolean `(batch, source_length)`. Default: the mask that `memory` carries.
            cache: from `decoder.empty_cache` or the last call.
            offset: position of the first target token; with a cache.

        Returns:
            Logits, the shape of `target` and `vocab_size`; with the grown cache if one was given.
        """
        x = self.target_positions(self.target_embedding(target), offset=offset)
        x = self.decoder(self.target_dropout(x), memory, memory_mask=memory_mask, cache=cache, offset=offset)
        if cache is None:
            return self.logits(x)
        x, cache = x
        return self.logits(x), cache

    def search(self, source, strategy) -> Hypotheses:
        """`generate` without its checks and conversions: for graphs that contain the search.

        Args:
            source: int tensor `(batch, source_length)`.
            strategy: `BeamSearch` or `GreedySearch`.

        Returns:
            `Hypotheses` of tensors.
        """
        mask = masks.padding_mask(source, self.config.pad_id)
        memory = self.decoder.project_memory(self.encode(source, mask))
        batch_size, source_length = ops.shape(source)
        max_length = source_length + max(strategy.extra_length, 1)
        limits = ops.sum(ops.cast(mask, "int32"), axis=-1) + strategy.extra_length
        limits = ops.clip(limits, 1, self.config.max_length or max_length)
        cache = self.decoder.empty_cache(source, batch_size * strategy.beam_size, max_length)

        def next_logits(tokens, cache, memory, offset):
            projected, mask = memory
            return self.decode(tokens, projected, memory_mask=mask, cache=cache, offset=offset)

        ids = SpecialIds(self.config.pad_id, self.config.bos_id, self.config.eos_id)
        return run_search(strategy.searching, next_logits, cache, (memory, mask), limits, max_length, ids)

    def generate(self, source, strategy=None) -> Hypotheses:
        """Searches for the best targets, compiled.

        Args:
            source: int ids `(batch, source_length)`, padded with `pad_id`; an array or nested lists.
            strategy: `BeamSearch` or `GreedySearch`. Default: `BeamSearch()`, the paper's.

        Returns:
            `Hypotheses` of NumPy arrays: tokens int32 `(batch, n_best, length)`, with the end token and
            then padding, and scores float32 `(batch, n_best)`.

        Raises:
            ValueError: if `source` is not a matrix of ids of the source vocabulary.
        """
        source = self._checked_source(source)
        strategy = BeamSearch() if strategy is None else strategy
        if source.size == 0:
            empty = (len(source), strategy.n_best)
            return Hypotheses(np.zeros((*empty, 0), "int32"), np.zeros(empty, "float32"))
        return self._generators(strategy).run(source)

    def _checked_source(self, source):
        try:
            source = np.asarray(source)
        except ValueError as error:
            raise ValueError("`source` must have rows of one length, padded with `pad_id`.") from error
        if source.ndim != 2 or not (np.issubdtype(source.dtype, np.integer) or source.size == 0):
            raise ValueError(
                "`source` must be int ids of shape (batch, source_length). "
                f"Received: shape={source.shape}, dtype={source.dtype}"
            )
        outside = source[(source < 0) | (source >= self.config.source_vocabulary)]
        if outside.size:
            raise ValueError(f"`source` must hold ids in [0, {self.config.source_vocabulary}). Received: {outside[0]}")
        if self.config.max_length and source.shape[1] > self.config.max_length:
            raise ValueError(
                f"`source` must be at most `max_length`={self.config.max_length} long, the number of learned "
                f"positions. Received: source_length={source.shape[1]}"
            )
        return source.astype("int32")

    def get_config(self):
        return {
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "config": dataclasses.asdict(self.config),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        dtype = config.pop("dtype", None)
        if isinstance(dtype, dict):
            dtype = keras.dtype_policies.deserialize(dtype)
        return cls(TransformerConfig(**config.pop("config")), dtype=dtype, **config)


def _make_layers(config, policy):
    """The layers of a `Transformer`, by the names of its attributes."""
    sizes = {name: getattr(config, name) for name in ("num_layers", "final_norm", *SHARED_ARGUMENTS)}

    def embedding(vocab_size, name):
        return TokenEmbedding(vocab_size, config.d_model, config.pad_id, dtype=policy, name=name)

    def positions(name):
        if config.positions == "sinusoidal":
            return PositionalEncoding(dtype=policy, name=name)
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
        "logits": TiedLogits(output_embedding, dtype=policy, name="logits"),
    }
