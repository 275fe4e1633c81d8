"""The models of `benchmarks.train`: the same Transformer from several libraries, with a training loop for each.

The trainers take the batches, the `TransformerConfig`, the Keras dtype policy of the training, and the options of
`PEERS`. They return a function that trains one pass and returns its mean loss.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

LONGEST, POSITIONS, SMOOTHING, LEARNING_RATE = 512, 2048, 0.1, 1e-4


class Peer(NamedTuple):
    """A row of the tables: required module, function of this module, its options, and Keras backend.

    The default backend is that of KERAS_BACKEND.
    """

    module: str
    trainer: str
    options: dict
    backend: str | None = None


PEERS = {
    "this package, XLA": Peer("keras", "ours", {}),
    "this package, no XLA": Peer("tensorflow", "ours", {"xla": False}),
    "this package, XLA, PyTorch's dropout": Peer("keras", "ours", {"dropout_everywhere": True}),
    "torch nn.Transformer": Peer("torch", "torch_transformer", {"compiled": False}),
    "torch nn.Transformer, compiled": Peer("torch", "torch_transformer", {"compiled": True}),
    "keras-hub layers, XLA": Peer("keras_hub", "keras_hub_layers", {}),
    "keras MultiHeadAttention, XLA": Peer("keras", "keras_attention", {}),
}

#: This package with fused and with plain attention, for `--attention`. As by default, Keras compiles on JAX only.
ATTENTION_PEERS = {
    f"this package, {name}, {attention}": Peer(backend, "ours", {"attention": attention, "xla": xla}, backend)
    for name, backend, xla in (("JAX", "jax", True), ("PyTorch", "torch", False))
    for attention in ("fused", "plain")
}


def ours(batches, config, precision, xla=True, dropout_everywhere=False, attention="auto"):
    """The model, optimizer and metrics of `keras-transformer train`.

    With `dropout_everywhere`, dropout is also applied to the attention weights and inside the feed-forward layers, as
    in `torch.nn.Transformer`.
    """
    import keras_transformer as kt

    kt.layers.set_attention_implementation(attention)
    if dropout_everywhere:
        config = dataclasses.replace(config, attention_dropout=config.dropout, activation_dropout=config.dropout)
    model = kt.Transformer(config, dtype=precision)
    metrics = [kt.metrics.TokenLoss(SMOOTHING), kt.metrics.TokenAccuracy(), kt.metrics.Perplexity()]
    return _fitted(model, kt.optimizers.Adam(LEARNING_RATE), batches, xla, metrics)


def keras_hub_layers(batches, config, precision):
    """The layers of keras-hub, combined as in its documentation."""
    import keras
    import keras_hub

    keras.config.set_dtype_policy(precision)
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    embedding = keras_hub.layers.ReversibleEmbedding(config.vocab_size, config.d_model)

    def embedded(ids):
        x = embedding(ids) * math.sqrt(config.d_model)
        return keras.layers.Dropout(config.dropout)(x + keras_hub.layers.SinePositionEncoding()(x))

    memory, x = embedded(source), embedded(target)
    sizes = {"intermediate_dim": config.d_ff, "num_heads": config.num_heads, "dropout": config.dropout}
    for _ in range(config.num_layers):
        memory = keras_hub.layers.TransformerEncoder(**sizes)(memory)
    for _ in range(config.num_layers):
        x = keras_hub.layers.TransformerDecoder(**sizes)(x, memory)
    model = keras.Model({"source": source, "target": target}, embedding(x, reverse=True))
    return _fitted(model, keras.optimizers.Adam(LEARNING_RATE), batches)


def keras_attention(batches, config, precision):
    """A Transformer built from `keras.layers.MultiHeadAttention`."""
    import keras
    from keras import layers

    keras.config.set_dtype_policy(precision)
    positions = _positions(config.d_model)

    class Positions(layers.Layer):
        def call(self, x):
            return x + keras.ops.cast(positions, x.dtype)[: keras.ops.shape(x)[1]]

        def compute_output_shape(self, shape):
            return shape

    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    embedding = layers.ReversibleEmbedding(config.vocab_size, config.d_model)

    def embedded(ids):
        return layers.Dropout(config.dropout)(Positions()(embedding(ids) * math.sqrt(config.d_model)))

    def attended(x, memory, **options):
        attention = layers.MultiHeadAttention(config.num_heads, config.d_model // config.num_heads)
        return layers.LayerNormalization()(x + layers.Dropout(config.dropout)(attention(x, memory, **options)))

    def fed_forward(x):
        inner = layers.Dense(config.d_model)(layers.Dense(config.d_ff, "relu")(x))
        return layers.LayerNormalization()(x + layers.Dropout(config.dropout)(inner))

    memory, x = embedded(source), embedded(target)
    for _ in range(config.num_layers):
        memory = fed_forward(attended(memory, memory))
    for _ in range(config.num_layers):
        x = fed_forward(attended(attended(x, x, use_causal_mask=True), memory))
    model = keras.Model({"source": source, "target": target}, embedding(x, reverse=True))
    return _fitted(model, keras.optimizers.Adam(LEARNING_RATE), batches)


def _fitted(model, optimizer, batches, xla=True, metrics=()):
    """Trains with `fit`. All use this package's loss, since Keras has no sparse loss with label smoothing."""
    import keras

    from keras_transformer.losses import LabelSmoothedCrossEntropy

    model.compile(optimizer, LabelSmoothedCrossEntropy(SMOOTHING), weighted_metrics=[*metrics], jit_compile=xla)
    data = _tensorflow_data(batches) if keras.backend.backend() == "tensorflow" else _keras_data(batches)
    return lambda: model.fit(data, verbose=0, shuffle=False).history["loss"][0]


def _tensorflow_data(batches):
    import tensorflow as tf

    from keras_transformer.training.backends.tensorflow import dataset

    signature = tf.nest.map_structure(lambda array: tf.TensorSpec([None] * array.ndim, array.dtype), batches[0])
    return dataset(batches.__getitem__, signature, len(batches))


def _keras_data(batches):
    import keras

    class Data(keras.utils.PyDataset):
        def __len__(self):
            return len(batches)

        def __getitem__(self, index):
            return batches[index]

    return Data()


def torch_transformer(batches, config, precision, compiled):
    """A training loop for `torch.nn.Transformer`, with padding masks if a batch has padding."""
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TensorFloat-32, as XLA.
    autocast = torch.autocast(device, torch.bfloat16, enabled=precision == "mixed_bfloat16")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(config.vocab_size, config.d_model)
            nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
            self.register_buffer("positions", torch.from_numpy(_positions(config.d_model)))
            self.dropout = nn.Dropout(config.dropout)
            depths = (config.num_layers, config.num_layers)
            self.transformer = nn.Transformer(
                config.d_model, config.num_heads, *depths, config.d_ff, config.dropout, batch_first=True
            )

        def forward(self, source, target, source_padding, target_padding):
            length = target.shape[1]
            causal = nn.Transformer.generate_square_subsequent_mask(length, device=device, dtype=torch.bool)
            x = self.transformer(
                self.embedded(source),
                self.embedded(target),
                tgt_mask=causal,
                src_key_padding_mask=source_padding,
                tgt_key_padding_mask=target_padding,
                memory_key_padding_mask=source_padding,
                tgt_is_causal=target_padding is None,
            )
            return x @ self.embedding.weight.T

        def embedded(self, ids):
            return self.dropout(self.embedding(ids) * math.sqrt(config.d_model) + self.positions[: ids.shape[1]])

    def padding(ids):
        return (ids == 0) if (ids == 0).any() else None

    model = Model().train().to(device)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, fused=True)
    cross_entropy = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=SMOOTHING)

    def loss_of(source, target, labels, *paddings):
        with autocast:
            return cross_entropy(model(source, target, *paddings).flatten(0, 1), labels.flatten())

    run = torch.compile(loss_of) if compiled else loss_of
    tensors = [[torch.from_numpy(x).long() for x in (b["source"], b["target"], labels)] for b, labels, _ in batches]
    data = [(*ids, padding(ids[0]), padding(ids[1])) for ids in tensors]

    def one_pass():
        losses = []
        for batch in data:
            loss = run(*(x if x is None else x.to(device, non_blocking=True) for x in batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return float(torch.stack(losses).mean())

    return one_pass


def _positions(d_model):
    angles = np.arange(POSITIONS)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(POSITIONS, d_model).astype("float32")
