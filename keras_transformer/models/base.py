"""What all models of a `TransformerConfig` have in common."""

import dataclasses
import functools

import keras
import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.decoding import Hypotheses, Sampling
from keras_transformer.layers.adaptation import add_lora, has_lora, is_projection, quantization_configs, quantize_parts
from keras_transformer.models.compiled import Compiled, rounded


class ConfiguredModel(keras.Model):
    """Base of the functional models of this folder.

    Copy a model by `type(model).from_config(model.get_config())`. `keras.models.clone_model` gives a plain functional
    model, without `generate` and with untied embeddings; a model inside another one it copies as it is.

    Args:
        inputs: symbolic.
        outputs: symbolic.
        policy: dtype policy of the layers.
        **kwargs: of `keras.Model`.
    """

    def __init__(self, inputs, outputs, policy, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.dtype_policy = policy
        # One of each function and strategy; behind a function, where Keras does not track them as layers.
        self._compiled = functools.cache(functools.partial(Compiled, self))

    def enable_lora(self, rank, lora_alpha=None, a_initializer="he_uniform", b_initializer="zeros"):
        """Freezes every weight and adds trainable low-rank matrices to the projections and embeddings.

        Saved models and weights hold the matrices' products: they load as models without LoRA, not compiled.
        `compile` again after this call, too.

        Args:
            rank: of the matrices.
            lora_alpha: their product is scaled by `lora_alpha / rank`. Default: `rank`.
            a_initializer: of the first matrix.
            b_initializer: of the second.

        Raises:
            ValueError: if the model has LoRA already, or `rank` is not positive.

        Reference:
            Hu et al. 2021, "LoRA", §4.1.
        """
        add_lora(self, rank, lora_alpha, a_initializer, b_initializer)
        self.train_function = self.test_function = self.predict_function = None
        self._compiled.cache_clear()

    def get_compile_config(self):
        # The optimizer's state is of the matrices, which the loaded model has no more.
        return None if has_lora(self) else super().get_compile_config()

    def quantize(self, mode=None, config=None):
        """Keras's int8 quantization of the projections; embeddings and logits stay as they are.

        The quantized model is saved and loaded as such. It is for use from Python: exports are made from the
        unquantized model, by `keras-transformer export --quantize int8`.

        Args:
            mode: `"int8"`.
            config: `keras.quantizers.Int8QuantizationConfig`, instead of `mode`.

        Raises:
            ValueError: if the mode is another.
        """
        if mode != "int8":
            raise ValueError(
                f"`mode` must be 'int8'; for other formats see keras-transformer export --help. Received: mode={mode!r}"
            )
        super().quantize(mode, config=config, filters=is_projection)
        self._compiled.cache_clear()

    def get_config(self):
        return {
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "config": dataclasses.asdict(self.config),
            "trainable": self.trainable,
            "frozen": [layer.name for layer in self.layers if not layer.trainable],
            "quantization": quantization_configs(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        dtype, trainable, frozen = config.pop("dtype", None), config.pop("trainable", True), config.pop("frozen", [])
        quantization = config.pop("quantization", [])
        if isinstance(dtype, dict):
            dtype = keras.dtype_policies.deserialize(dtype)
        model = cls(TransformerConfig(**config.pop("config")), dtype=dtype, **config)
        quantize_parts(model, quantization)
        model.trainable = trainable
        for layer in model.layers:
            if layer.name in frozen:
                layer.trainable = False
        return model

    def _hypotheses(self, strategy, **arrays):
        """What `search` finds for matrices of ids, compiled."""
        arrays = {name: self._rounded(ids) for name, ids in arrays.items()}
        if isinstance(strategy, Sampling):
            rows = len(next(iter(arrays.values())))
            max_length = sum(ids.shape[1] for ids in arrays.values()) + max(strategy.extra_length, 1)
            arrays["noise"] = strategy.noise(rows, max_length)
            strategy = dataclasses.replace(strategy, seed=None)  # One compiled search for all seeds.
        tokens, scores, token_scores = self._compiled(type(self).search, strategy=strategy).run(**arrays)
        used = (tokens != self.config.pad_id).any(axis=(0, 1)).nonzero()[0].max(initial=-1) + 1
        token_scores = token_scores[:, :, :used] if strategy.token_scores else ()
        return Hypotheses(tokens[:, :, :used], scores, token_scores)

    def _rounded(self, ids):
        return rounded(ids, self.config.pad_id, self.config.max_length)


def checked_policy(config, dtype):
    """The dtype policy of a model.

    Args:
        config: must be a `TransformerConfig`.
        dtype: name of a policy, a policy, or `None` for the global one.

    Returns:
        A `keras.DTypePolicy`.

    Raises:
        ValueError: if `config` is none.
    """
    if not isinstance(config, TransformerConfig):
        raise ValueError(f"`config` must be a TransformerConfig. Received: config={config!r}")
    return keras.dtype_policies.get(dtype or keras.config.dtype_policy())


def nothing_found(rows: int, strategy) -> Hypotheses:
    """The hypotheses of sources without a token.

    Args:
        rows: number of sources.
        strategy: of the search.

    Returns:
        `Hypotheses` of length 0.
    """
    tokens = np.zeros((rows, strategy.n_best, 0), "int32")
    token_scores = tokens.astype("float32") if strategy.token_scores else ()
    return Hypotheses(tokens, np.zeros(tokens.shape[:2], "float32"), token_scores)
