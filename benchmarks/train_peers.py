"""The models of `benchmarks.train`: the same Transformer from several libraries, with a training loop for each."""

import math

import numpy as np

D_MODEL, D_FF, NUM_HEADS = 256, 1024, 4
LONGEST, VOCAB_SIZE, DROPOUT, SMOOTHING, LEARNING_RATE = 512, 8000, 0.1, 0.1, 1e-4

#: Required module, function of this module and its options, for each row of the tables.
PEERS = {
    "this package, XLA": ("tensorflow", "ours", {"xla": True}),
    "this package, no XLA": ("tensorflow", "ours", {"xla": False}),
    "torch nn.Transformer": ("torch", "torch_transformer", {"compiled": False}),
    "torch nn.Transformer, compiled": ("torch", "torch_transformer", {"compiled": True}),
    "keras-hub layers, XLA": ("keras_hub", "keras_hub_layers", {}),
    "keras MultiHeadAttention, XLA": ("keras", "keras_attention", {}),
}


def ours(batches, num_layers, xla):
    """The model, optimizer and metrics of `keras-transformer train`."""
    import keras_transformer as kt

    sizes = {"d_model": D_MODEL, "d_ff": D_FF, "num_heads": NUM_HEADS, "num_layers": num_layers, "dropout": DROPOUT}
    model = kt.Transformer(kt.TransformerConfig(vocab_size=VOCAB_SIZE, **sizes))
    metrics = [kt.metrics.TokenLoss(SMOOTHING), kt.metrics.TokenAccuracy(), kt.metrics.Perplexity()]
    return _fitted(model, kt.optimizers.Adam(LEARNING_RATE), batches, xla, metrics)


def keras_hub_layers(batches, num_layers):
    """The layers of keras-hub, combined as in its documentation."""
    import keras
    import keras_hub

    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    embedding = keras_hub.layers.ReversibleEmbedding(VOCAB_SIZE, D_MODEL)

    def embedded(ids):
        x = embedding(ids) * math.sqrt(D_MODEL)
        return keras.layers.Dropout(DROPOUT)(x + keras_hub.layers.SinePositionEncoding()(x))

    memory, x = embedded(source), embedded(target)
    for _ in range(num_layers):
        memory = keras_hub.layers.TransformerEncoder(D_FF, NUM_HEADS, dropout=DROPOUT)(memory)
    for _ in range(num_layers):
        x = keras_hub.layers.TransformerDecoder(D_FF, NUM_HEADS, dropout=DROPOUT)(x, memory)
    model = keras.Model({"source": source, "target": target}, embedding(x, reverse=True))
    return _fitted(model, keras.optimizers.Adam(LEARNING_RATE), batches)


def keras_attention(batches, num_layers):
    """A Transformer built from `keras.layers.MultiHeadAttention`."""
    import keras
    from keras import layers

    class Positions(layers.Layer):
        def call(self, x):
            return x + keras.ops.convert_to_tensor(_positions(LONGEST))[: keras.ops.shape(x)[1]]

        def compute_output_shape(self, shape):
            return shape

    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    embedding = layers.ReversibleEmbedding(VOCAB_SIZE, D_MODEL)

    def embedded(ids):
        return layers.Dropout(DROPOUT)(Positions()(embedding(ids) * math.sqrt(D_MODEL)))

    def attended(x, memory, **options):
        attention = layers.MultiHeadAttention(NUM_HEADS, D_MODEL // NUM_HEADS)
        return layers.LayerNormalization()(x + layers.Dropout(DROPOUT)(attention(x, memory, **options)))

    def fed_forward(x):
        inner = layers.Dense(D_MODEL)(layers.Dense(D_FF, "relu")(x))
        return layers.LayerNormalization()(x + layers.Dropout(DROPOUT)(inner))

    memory, x = embedded(source), embedded(target)
    for _ in range(num_layers):
        memory = fed_forward(attended(memory, memory))
    for _ in range(num_layers):
        x = fed_forward(attended(attended(x, x, use_causal_mask=True), memory))
    model = keras.Model({"source": source, "target": target}, embedding(x, reverse=True))
    return _fitted(model, keras.optimizers.Adam(LEARNING_RATE), batches)


def _fitted(model, optimizer, batches, xla=True, metrics=()):
    """Trains with `fit`. All use this package's loss, since Keras has no sparse loss with label smoothing."""
    import tensorflow as tf

    from keras_transformer.losses import LabelSmoothedCrossEntropy
    from keras_transformer.training.backends.tensorflow import dataset

    def spec(array):
        return tf.TensorSpec([None] * array.ndim, array.dtype)

    model.compile(optimizer, LabelSmoothedCrossEntropy(SMOOTHING), weighted_metrics=[*metrics], jit_compile=xla)
    signature = tf.nest.map_structure(spec, batches[0])
    data = dataset(batches.__getitem__, signature, len(batches))
    return lambda: model.fit(data, verbose=0).history["loss"][0]


def torch_transformer(batches, num_layers, compiled):
    """A training loop for `torch.nn.Transformer`, with padding masks if a batch has padding."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCAB_SIZE, D_MODEL)
            nn.init.normal_(self.embedding.weight, std=D_MODEL**-0.5)
            self.register_buffer("positions", torch.from_numpy(_positions(LONGEST)))
            self.dropout = nn.Dropout(DROPOUT)
            sizes = (D_MODEL, NUM_HEADS, num_layers, num_layers, D_FF, DROPOUT)
            self.transformer = nn.Transformer(*sizes, batch_first=True)

        def forward(self, source, target, padding):
            source_padding, target_padding = padding
            causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool)
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
            return self.dropout(self.embedding(ids) * math.sqrt(D_MODEL) + self.positions[: ids.shape[1]])

    def padding(ids):
        return (ids == 0) if (ids == 0).any() else None

    model = Model().train()
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, fused=True)
    loss_of = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=SMOOTHING)
    data = [[torch.from_numpy(x).long() for x in (b["source"], b["target"], labels)] for b, labels, _ in batches]

    def one_pass():
        losses = []
        for source, target, labels in data:
            logits = run(source, target, (padding(source), padding(target)))
            loss = loss_of(logits.flatten(0, 1), labels.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    return one_pass


def _positions(length):
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, D_MODEL, 2) / D_MODEL)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, D_MODEL).astype("float32")
