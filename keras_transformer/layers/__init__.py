"""Keras layers of the Transformer, each usable alone in any Keras model."""

from keras_transformer.layers.attention import MultiHeadAttention, scaled_dot_product_attention
from keras_transformer.layers.decoder import CausalDecoder, CausalDecoderLayer, Decoder, DecoderLayer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.embedding import TiedLogits, TokenEmbedding
from keras_transformer.layers.encoder import Encoder, EncoderLayer
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.pooling import SequencePooling
from keras_transformer.layers.positional_encoding import LearnedPositionalEmbedding, PositionalEncoding
from keras_transformer.layers.residual import ResidualConnection

__all__ = [
    "CausalDecoder",
    "CausalDecoderLayer",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LearnedPositionalEmbedding",
    "MultiHeadAttention",
    "PositionalEncoding",
    "ResidualConnection",
    "SequencePooling",
    "TiedLogits",
    "TokenEmbedding",
    "scaled_dot_product_attention",
]
