"""Trains a Transformer with `model.fit` on a prepared corpus, on all GPUs of the machine or on the CPU.

keras-transformer prepare --output tokens/numbers --tokenizer.vocab_size 480
python examples/fit.py tokens/numbers runs/fit.keras
"""

import sys

import keras
import tensorflow as tf

import keras_transformer as kt


def main(prepared: str, output: str, epochs: int = 3, steps: int | None = None, devices=None, **changes) -> None:
    """Trains for a number of epochs, of `steps` batches each or of the whole corpus, and saves the model."""
    keras.utils.set_random_seed(1)
    strategy = tf.distribute.MirroredStrategy(devices)
    batches = {"tokens_per_batch": 2048, "replicas": strategy.num_replicas_in_sync}
    train = kt.training.make_dataset(prepared, "train", epochs=epochs, **batches)
    validation = kt.training.make_dataset(prepared, "validation", **batches)
    bleu = kt.training.ValidationBleu.from_prepared(prepared, sentences=100)
    config = kt.TransformerConfig.preset("tiny", vocab_size=bleu.tokenizers[1].vocab_size, **changes)
    with strategy.scope():
        model = kt.Transformer(config)
        rate = kt.schedules.WarmupInverseSqrt(config.d_model, warmup_steps=400, peak=0.002)
        model.compile(
            kt.optimizers.Adam(rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
            kt.losses.LabelSmoothedCrossEntropy(label_smoothing=0.1),
            weighted_metrics=[kt.metrics.TokenLoss(0.1, name="loss"), kt.metrics.TokenAccuracy()],
        )
    steps = steps or len(train) // epochs
    options = {"steps_per_epoch": steps, "validation_data": validation, "callbacks": [bleu]}
    model.fit(train, epochs=epochs, shuffle=False, verbose=2, **options)
    model.save(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
