"""Keras layers of the Transformer, each usable alone in any Keras model."""

from keras_transformer.cache import KeyValue
from keras_transformer.layers.attention import MultiHeadAttention, scaled_dot_product_attention
from keras_transformer.layers.causal import CausalDecoder, CausalDecoderLayer
from keras_transformer.layers.decoder import Decoder, DecoderLayer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.embedding import TiedLogits, TokenEmbedding
from keras_transformer.layers.encoder import Encoder, EncoderLayer
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.fused_attention import attention_implementation, set_attention_implementation
from keras_transformer.layers.patches import PatchEmbedding
from keras_transformer.layers.pooling import SequencePooling
from keras_transformer.layers.position_bias import ALiBi, RelativePositionBias, SlidingWindow
from keras_transformer.layers.position_schemes import PositionScheme
from keras_transformer.layers.positional_encoding import LearnedPositionalEmbedding, PositionalEncoding
from keras_transformer.layers.qk_norm import QKNorm
from keras_transformer.layers.residual import ResidualConnection
from keras_transformer.layers.rotary import RotaryPositions

__all__ = [
    "ALiBi",
    "CausalDecoder",
    "CausalDecoderLayer",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "KeyValue",
    "LearnedPositionalEmbedding",
    "MultiHeadAttention",
    "PatchEmbedding",
    "PositionScheme",
    "PositionalEncoding",
    "QKNorm",
    "RelativePositionBias",
    "ResidualConnection",
    "RotaryPositions",
    "SequencePooling",
    "SlidingWindow",
    "TiedLogits",
    "TokenEmbedding",
    "attention_implementation",
    "scaled_dot_product_attention",
    "set_attention_implementation",
]
