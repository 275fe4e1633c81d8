"""Several machines on TensorFlow: one worker each, by TF_CONFIG. The only place that leans on a private part of Keras.

`fit` of Keras 3 builds a model from a batch that it takes to be one value, and reduces scalars along an axis that they
lack. So a model of workers is built beforehand, and its training and test functions are made here.
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
    """All GPUs, or the CPU, of every machine; made when all are there.

    Raises:
        ValueError: if this one cannot join the others.
    """

    def __init__(self):
        print("waiting until all workers of TF_CONFIG are there", file=sys.stderr)
        try:
            super().__init__(tf.distribute.MultiWorkerMirroredStrategy())
        except tf.errors.OpError as error:
            raise ValueError(
                f"This worker cannot join the others: {error.message}. Is its address this machine's, its port free "
                f"and its index its own? Received: TF_CONFIG={os.environ['TF_CONFIG']}"
            ) from error
        resolver = self.strategy.cluster_resolver
        self.worker, self.workers = resolver.task_id, len(resolver.cluster_spec().as_dict()["worker"])
        self._mean_on_all = tf.function(self._mean_on_all)

    def training_data(self, batches: Batches, seed: int, first_step: int):
        """Of each batch every replica is given its rows."""
        return self._divided(lambda i: batches.training_batch(seed, first_step + i), batches)

    def validation_data(self, batches: Batches) -> dict:
        """Pass after pass: Keras counts the batches of one."""
        data = self._divided(lambda i: batches.validation_batch(i % batches.steps), batches)
        return {"validation_data": data, "validation_steps": batches.steps}

    def set_steps(self, model: keras.Model, accumulation_steps: int) -> None:
        """Besides, on all workers at once."""
        super().set_steps(model, accumulation_steps)
        model._maybe_symbolic_build = lambda **_: None

        def make_train_function(force=False):
            if model.train_function is None or force:
                model.train_function = self._on_all(model.train_step)

        def make_test_function(force=False):
            if model.test_function is None or force:
                model.test_function = self._on_all(model.test_step)

        model.make_train_function, model.make_test_function = make_train_function, make_test_function

    def require_possible(self, recipe) -> None:
        """One step at a time."""
        super().require_possible(recipe)
        if recipe.steps_per_execution > 1:
            raise ValueError(
                "`recipe.steps_per_execution` must be 1 for several workers. "
                f"Received: steps_per_execution={recipe.steps_per_execution}"
            )

    def jit_compile(self, xla: bool | None) -> bool:
        """No XLA."""
        if xla:
            raise ValueError(f"`recipe.xla` must not be true for several workers. Received: xla={xla}")
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

    def _divided(self, make_batch, batches):
        local = self.count // self.workers
        whole = functools.lru_cache(maxsize=1)(make_batch)

        def share(number):
            batch, replica = divmod(number, local)
            return tf.nest.map_structure(lambda x: np.split(x, self.count)[self.worker * local + replica], whole(batch))

        def of_share(spec):
            rows, length = spec.shape
            return tf.TensorSpec((rows and rows // self.count, length), spec.dtype)

        specs = tf.nest.map_structure(of_share, signature(batches))
        return self.strategy.distribute_datasets_from_function(lambda context: dataset(share, specs))

    def _on_all(self, step):
        """The logs of a step are the means of the replicas'."""

        @tf.function(reduce_retracing=True)
        def on_all(iterator):
            logs = self.strategy.run(step, args=(next(iterator),))
            return {name: self.strategy.reduce("MEAN", value, axis=None) for name, value in logs.items()}

        return on_all

    def _mean(self, number):
        return float(self._mean_on_all(tf.constant(number, tf.float64)))

    def _mean_on_all(self, number):
        return self.strategy.reduce("MEAN", self.strategy.run(lambda: tf.identity(number)), axis=None)
