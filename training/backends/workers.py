"""Training with several machines on TensorFlow, one worker each, described by TF_CONFIG.

This module replaces a private method of Keras. With a multi-worker strategy, `fit` of Keras 3 cannot build
the model from a distributed batch, and reduces scalar logs along an axis that they do not have. The model must
therefore be built before `fit`, and this module makes its training and test functions.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.training.backends.tensorflow import TensorFlowDevices, dataset, signature
from keras_transformer.training.data.batches import Batches
from keras_transformer.training.stopping import WorkerLost


class Workers(TensorFlowDevices):
    """All GPUs, or the CPU, of every worker. The constructor waits until all workers are connected.

    Raises:
        ValueError: if this worker cannot join the others.
    """

    def __init__(self):
        print("waiting for all workers of TF_CONFIG", file=sys.stderr)
        try:
            super().__init__(tf.distribute.MultiWorkerMirroredStrategy())
        except tf.errors.OpError as error:
            raise ValueError(
                f"This worker cannot join the others: {error.message}. Its entry in TF_CONFIG must have the address of "
                f"this machine, a free port and its own index. Received: TF_CONFIG={os.environ['TF_CONFIG']}"
            ) from error
        resolver = self.strategy.cluster_resolver
        self.worker, self.workers = resolver.task_id, len(resolver.cluster_spec().as_dict()["worker"])
        self._mean_on_all = tf.function(self._mean_on_all)

    def training_data(self, batches: Batches, seed: int, first_step: int):
        """Gives every replica its rows of each batch."""
        return self._split(lambda i: batches.training_batch(seed, first_step + i), batches)

    def validation_data(self, batches: Batches) -> dict:
        """Repeats the validation batches without end, and lets Keras stop after one pass."""
        data = self._split(lambda i: batches.validation_batch(i % batches.steps), batches)
        return {"validation_data": data, "validation_steps": batches.steps}

    def set_steps(self, model: keras.Model, accumulation_steps: int) -> None:
        """Also makes the functions of `fit` run on all workers."""
        super().set_steps(model, accumulation_steps)
        model._maybe_symbolic_build = lambda **_: None

        def make_train_function(force=False):
            if model.train_function is None or force:
                model.train_function = self._distributed(model.train_step)

        def make_test_function(force=False):
            if model.test_function is None or force:
                model.test_function = self._distributed(model.test_step)

        model.make_train_function, model.make_test_function = make_train_function, make_test_function

    def check_recipe(self, recipe) -> None:
        """Also requires one step per execution."""
        super().check_recipe(recipe)
        if recipe.steps_per_execution > 1:
            raise ValueError(
                "`recipe.steps_per_execution` must be 1 with several workers. "
                f"Received: steps_per_execution={recipe.steps_per_execution}"
            )

    def jit_compile(self, xla: bool | None) -> bool:
        """Always false: XLA is not supported."""
        if xla:
            raise ValueError(f"`recipe.xla` must not be true with several workers. Received: xla={xla}")
        return False

    def any_worker(self, flag: bool) -> bool:
        return self._mean(flag) > 0

    def all_equal(self, number: int) -> bool:
        return not self.any_worker(self._mean(number) != number)

    @contextlib.contextmanager
    def detect_worker_failure(self) -> Iterator[None]:
        try:
            yield
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
            raise WorkerLost(self.worker) from error

    def _split(self, make_batch, batches):
        local = self.count // self.workers
        full_batch = functools.lru_cache(maxsize=1)(make_batch)

        def share(number):
            batch, replica = divmod(number, local)
            split = functools.partial(np.split, indices_or_sections=self.count)
            return tf.nest.map_structure(lambda x: split(x)[self.worker * local + replica], full_batch(batch))

        def of_share(spec):
            rows, length = spec.shape
            return tf.TensorSpec((rows and rows // self.count, length), spec.dtype)

        specs = tf.nest.map_structure(of_share, signature(batches))
        return self.strategy.distribute_datasets_from_function(lambda context: dataset(share, specs))

    def _distributed(self, step):
        """Runs a step on all replicas. Its logs are the means over the replicas."""

        @tf.function(reduce_retracing=True)
        def run(iterator):
            logs = self.strategy.run(step, args=(next(iterator),))
            return {name: self.strategy.reduce("MEAN", value, axis=None) for name, value in logs.items()}

        return run

    def _mean(self, number):
        return float(self._mean_on_all(tf.constant(number, tf.float64)))

    def _mean_on_all(self, number):
        return self.strategy.reduce("MEAN", self.strategy.run(lambda: tf.identity(number)), axis=None)
