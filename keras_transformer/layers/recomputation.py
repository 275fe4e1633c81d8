"""Recomputation of activations: with `keras.RematScope`, layers with dropout, masks and flags save memory."""

import keras
from keras import ops


class Recomputable(keras.layers.Layer):
    """Base class of layers that `keras.RematScope` may recompute.

    `keras.remat` alone takes nothing but tensors. The second run of a layer would not know that it is training, and it
    would advance the seeds of dropout and drop other entries.
    """

    _is_recomputing = False

    def rematerialized_call(self, layer_call, *args, **kwargs):
        # Keras returns the method itself if the scope does not concern the layer.
        is_concerned = super().rematerialized_call(layer_call, *args, **kwargs) is not layer_call
        return self._recomputed if is_concerned and self._training() and not self._is_recomputing else layer_call

    def _training(self):
        # No property: Keras reads all attributes of a layer that it saves, and this would begin a call.
        return self._get_call_context().get_value("training")  # Keras has no public name for it.

    def _recomputed(self, *args, **kwargs):
        """Calls the layer so that its activations are not kept for the gradient, but computed again."""
        inputs, structure = keras.tree.flatten((args, kwargs)), None
        training = self._training()
        # Integers, such as the state of seeds, are those of now in both runs. Weights are read in each, for their
        # gradients.
        state = [variable for variable in self.non_trainable_variables if not _is_float(variable)]
        start = [(variable, ops.copy(variable)) for variable in state]

        def run(*tensors):
            nonlocal structure
            given = iter(tensors)
            values = [next(given) if _is_float_tensor(x) else x for x in inputs]
            own_args, own_kwargs = keras.tree.pack_sequence_as((args, kwargs), values)
            with _NestedScope(start) as scope:
                structure = self._call_plainly(*own_args, **own_kwargs, training=training)
            return (*keras.tree.flatten(structure), *map(scope.get_current_value, state))

        found = keras.remat(run)(*filter(_is_float_tensor, inputs))
        count = len(found) - len(state)
        for variable, value in zip(state, found[count:], strict=True):
            variable.assign(value)
        return keras.tree.pack_sequence_as(structure, found[:count])

    def _call_plainly(self, *args, **kwargs):
        """Calls the layer without recomputation. Not only its `call`: the second run is outside of all scopes."""
        self._is_recomputing = True
        try:
            return self(*args, **kwargs)
        finally:
            self._is_recomputing = False


class _NestedScope(keras.StatelessScope):
    """A scope for some variables. The others have the values of the scope around it."""

    def get_current_value(self, variable):
        value = super().get_current_value(variable)
        outer = self.original_scope
        return value if value is not None or outer is None else outer.get_current_value(variable)


def _is_float_tensor(x):
    return ops.is_tensor(x) and _is_float(x)


def _is_float(x):
    return keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype))
