"""A decoder-only causal language model."""

from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from keras_transformer import cache as kv_cache
from keras_transformer import masks
from keras_transformer.config import TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Hypotheses, Sampling
from keras_transformer.layers import CausalDecoder
from keras_transformer.models import teacher_forcing
from keras_transformer.models.base import ConfiguredModel, empty_hypotheses
from keras_transformer.models.checks import checked_beginnings, checked_ids, checked_strategy
from keras_transformer.models.compiled import LENGTH_STEP
from keras_transformer.models.model_search import search
from keras_transformer.models.packed import packed_positions, same_segment
from keras_transformer.models.parts import Parts
from keras_transformer.models.streaming import checked_stream_strategy, stream_tokens


@keras.saving.register_keras_serializable(package="keras_transformer")
class LanguageModel(ConfiguredModel):
    """logits = E · decoder(tokens).

    This is a functional model. Its input is int ids `(batch, length)`, its output is logits
    `(batch, length, vocab_size)`. The input is the text shifted right: it starts with `bos_id`, and the logits at a
    position predict the next token.

    Masking: positions with `pad_id` are not attended to, and no position attends to a later one. The logits carry no
    Keras mask.

    Packing: a row may contain several texts. Then the input is a dict `{"tokens": ids, "segments": ids}`, both `(batch,
    length)`; `"segments"` contains the number of the text of each token, and 0 at padding. Attention is masked
    between texts and positions restart in each text, so the logits equal those of unpacked texts.

    Args:
        config: a `TransformerConfig`. Options of the encoder and the source are ignored. With
            `tie_output=False` the output has a separate embedding matrix.
        layer: the layer of which the decoder has copies. Default: a `CausalDecoderLayer` of the configuration.
        **kwargs: `name`, `dtype` (a dtype policy such as `"mixed_bfloat16"`), and for the layers that the model makes
            `kernel_initializer`, `bias_initializer`, `embeddings_initializer`, `kernel_regularizer` and `seed` (int,
            for equal initial weights and dropout in each run).

    Raises:
        ValueError: if `config` is not a `TransformerConfig`.

    Example:

    >>> model = LanguageModel(TransformerConfig.preset("tiny", vocab_size=100))
    >>> model(np.array([[2, 8, 9]])).shape
    TensorShape([1, 3, 100])
    >>> model.generate([[8, 9]]).tokens[0, 0, :2]
    array([8, 9], dtype=int32)

    Reference:
        Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", §4.2.3.
    """

    source_name = "prompt"

    def __init__(self, config: TransformerConfig, layer=None, *, name="language_model", dtype=None, **kwargs):
        parts = Parts(config, dtype, kwargs, layer=layer)
        layers = parts.one_stack(
            CausalDecoder, layer, vocab_size=config.vocab_size, depth=config.depths[1], name="decoder"
        )
        # `super().__init__` needs the graph of these layers. Before that call, PyTorch rejects `self.name = layer`.
        self.__dict__.update(config=config, **layers, logits=parts.tied_logits(layers["embedding"]))
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        super().__init__(tokens, self.decode(tokens), parts, name=name, **kwargs)

    def _forward(self, inputs, training=None, mask=None):
        if not isinstance(inputs, dict):
            return super()._forward(inputs, training=training, mask=mask)
        # On JAX, Keras runs `call` outside of `__call__`, so that layers get `training` only as an argument.
        return self.decode(inputs["tokens"], segments=inputs.get("segments"), training=training)

    @property
    def source_spec(self):
        """The prompt as a symbolic tensor."""
        return self.input

    @property
    def source_vocabulary(self) -> int:
        """Size of the vocabulary."""
        return self.config.vocab_size

    def encode(self, prompt):
        """Returns an empty memory and the mask of a prompt, for `search`.

        Args:
            prompt: int `(batch, prompt_length)`, padded with `pad_id`.

        Returns:
            `()` and a boolean mask `(batch, prompt_length)`.
        """
        return (), masks.padding_mask(prompt, self.config.pad_id)

    def decode(
        self,
        tokens,
        memory=(),
        memory_mask=None,
        cache=None,
        offset=0,
        output_weights=None,
        segments=None,
        training=None,
    ):
        """Computes the logits for the token after each input token.

        Args:
            tokens: int `(batch, length)`; with a cache also `(batch,)`, one token per row.
            memory: the empty memory of `encode`.
            memory_mask: ignored, because nothing attends to the memory.
            cache: result of `decoder.empty_cache` or of the previous call.
            offset: position of the first token, if a cache is given.
            output_weights: result of `logits.output_weights`, to compute it once for many decoding steps.
            segments: int `(batch, length)`, for packed rows, without a cache.
            training: whether to apply dropout. Default: as in the call that runs this method, or `False`.

        Returns:
            Logits `(*tokens.shape, vocab_size)`. If a cache is given, a tuple of the logits and the updated cache.
        """
        if cache is None:
            x = self._embedded(tokens, positions=packed_positions(segments), training=training)
            mask = self._target_mask(tokens, segments)
            x = self.decoder(x, mask=mask, attention_mask=same_segment(segments, segments), training=training)
            return self.logits(x, weights=output_weights)
        x, cache = self.hidden_states(tokens, cache, offset)
        return self.logits(x, weights=output_weights), cache

    def hidden_states(self, tokens, cache, offset=0):
        """Computes the inputs of the logits, with a cache.

        Args:
            tokens: int `(batch, length)` or `(batch,)`, one token per row.
            cache: result of `empty_cache` or of the previous call.
            offset: position of the first token.

        Returns:
            A tuple of the states `(*tokens.shape, d_model)` and the updated cache.
        """
        return self.decoder(self._embedded(tokens, offset=offset), cache=cache, offset=offset)

    def _embedded(self, tokens, training=None, **where):
        return self.dropout(self.embedding_norm(self.positions(self.embedding(tokens), **where)), training=training)

    def project_memory(self, memory):
        """Returns the memory."""
        return memory

    def empty_cache(self, batch_size, max_length):
        """See `Seq2Seq.empty_cache`."""
        return self.decoder.empty_cache(batch_size, max_length)

    @property
    def takes_several_tokens(self) -> bool:
        """Whether `decode` takes several tokens of each row with a cache. Layers of users take one."""
        return not self.parts.blocks

    def first_cache(self, tokens, max_length):
        """The cache of the start token and of all given tokens but the last, which the next step feeds.

        Args:
            tokens: int `(batch, length)` without padding, at least one column.
            max_length: maximum number of tokens of a text.

        Returns:
            The cache, with one row per text.
        """
        rows = ops.shape(tokens)[0]
        start = ops.full((rows, 1), self.config.bos_id, "int32")
        fed = ops.concatenate([start, ops.cast(tokens, "int32")[:, :-1]], axis=1)
        return self.hidden_states(fed, self.empty_cache(rows, max_length))[1]

    def step_options(self, candidates=None) -> dict:
        """See `Seq2Seq.step_options`."""
        return {"output_weights": self.logits.output_weights(candidates)}

    def search(self, prompt, strategy, noise=None) -> Hypotheses:
        """Runs a search on tensors, without checks and compilation, for use inside a graph; see `generate`.

        Args:
            prompt: int tensor `(batch, prompt_length)`.
            strategy: `BeamSearch`, `GreedySearch` or `Sampling`.
            noise: required by `Sampling`: result of `Sampling.noise`, float32 tensor
                `(batch, n_samples, max_length)` with `max_length = prompt_length + 1 + max(extra_length, 1)`.

        Returns:
            `Hypotheses` of tensors.
        """
        # Appends a column, because the search needs at least one and prompts may be empty.
        column = ops.full((ops.shape(prompt)[0], 1), self.config.pad_id, "int32")
        return search(self, prompt, strategy, ops.concatenate([prompt, column], axis=1), noise)

    def generate(self, prompt, strategy: BeamSearch | GreedySearch | Sampling | None = None) -> Hypotheses:
        """Generates continuations of prompts by a compiled search or by sampling.

        Args:
            prompt: int ids `(batch, prompt_length)`, an array or nested lists, padded with `pad_id` and without the
                start token. Rows may be empty.
            strategy: `BeamSearch`, `GreedySearch` or `Sampling`. Its `extra_length` is relative to the length of the
                prompt. Default: `GreedySearch()`.

        Returns:
            `Hypotheses` of NumPy arrays. `tokens` are int32 `(batch, n_best, length)` and contain the prompt, the
            continuation, the end token and padding. `scores` are float32 `(batch, n_best)` and include the prompt.
            `token_scores` are returned if the strategy requests them.

        Raises:
            ValueError: if `prompt` is not an int matrix of ids, or contains `bos_id`, `eos_id` or padding before other
                ids, or `strategy` has another type.

        Example:

        >>> model = LanguageModel(TransformerConfig.preset("tiny", vocab_size=100))
        >>> model.generate([[8, 9], [7, 0]], Sampling(top_k=5, seed=1, n_samples=3)).tokens.shape[:2]
        (2, 3)
        """
        prompt = checked_beginnings("prompt", prompt, self)
        strategy = GreedySearch() if strategy is None else checked_strategy(strategy)
        if not len(prompt):
            return empty_hypotheses(0, strategy)
        prompt = self._rounded(prompt)
        return self._hypotheses(strategy, {"prompt": prompt}, prompt.shape[1] + 1)

    def stream(self, prompt, strategy: GreedySearch | Sampling | None = None) -> Iterator[np.ndarray]:
        """Generates continuations of prompts and yields each token as soon as it is decided.

        The positions at which all prompts have a token are computed in one pass; on JAX, the largest multiple of 16 of
        them; in a model with layers of your own, none. Each further step is one call of a compiled function.

        Args:
            prompt: see `generate`.
            strategy: `GreedySearch` or `Sampling`. Default: `GreedySearch()`.

        Yields:
            The tokens at one position, int32 `(batch, n_best)`: up to rounding those of
            `generate(prompt, strategy).tokens`, from the length of the shortest prompt to the end of the longest
            hypothesis.

        Raises:
            ValueError: as `generate`, and if `strategy` is a `BeamSearch` of several beams.

        Example:

        >>> model = LanguageModel(TransformerConfig.preset("tiny", vocab_size=100))
        >>> next(model.stream([[8, 9]])).shape
        (1, 1)
        """
        prompt = checked_beginnings("prompt", prompt, self)
        strategy = checked_stream_strategy(GreedySearch() if strategy is None else strategy)
        if not len(prompt):
            return iter(())
        shortest = int((prompt != self.config.pad_id).sum(axis=1).min())
        # Static lengths are compiled separately. Layers of users take one position at a time with a cache.
        common = shortest if kv_cache.GROWS else shortest - shortest % LENGTH_STEP
        common = common if self.takes_several_tokens else 0
        arrays = {"first_tokens": prompt[:, :common]} if common else {}
        prompt = self._rounded(prompt)
        arrays |= {"source": prompt, "prefix": np.pad(prompt, ((0, 0), (0, 1)), constant_values=self.config.pad_id)}
        return stream_tokens(self, strategy, arrays, arrays["prefix"].shape[1], shortest)

    def token_log_probs(self, tokens) -> np.ndarray:
        """Computes the log probability of each token of texts, given the tokens before it. The function is compiled.

        Args:
            tokens: int ids `(batch, length)`, padded with `pad_id` and without the start token, such as tokens from
                `generate`.

        Returns:
            Float32 array `(batch, length)`; 0 at padding.

        Raises:
            ValueError: if `tokens` is not an int matrix of ids.

        Example:

        >>> model = LanguageModel(TransformerConfig.preset("tiny", vocab_size=100))
        >>> model.token_log_probs([[8, 9, 3], [7, 3, 0]]).shape
        (2, 3)
        """
        tokens = checked_ids("tokens", tokens, self.config.vocab_size, self.config.max_length)
        if tokens.size == 0:
            return np.zeros(tokens.shape, "float32")
        found = self._compiled(teacher_forcing.text_log_probs).run(tokens=self._rounded(tokens))
        return found[:, : tokens.shape[1]]
