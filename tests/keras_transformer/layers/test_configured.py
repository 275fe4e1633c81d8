import inspect

import keras
import pytest

from keras_transformer import layers
from keras_transformer.layers.configured import Configured

SIZES = {"d_model": 6, "num_heads": 2, "d_ff": 7}


@keras.saving.register_keras_serializable(package="test_configured")
class Scaled(layers.FeedForward):
    """A user's subclass that keeps its argument and has no `get_config`."""

    def __init__(self, *args, factor=2.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.factor = factor


@keras.saving.register_keras_serializable(package="test_configured")
class Learned(layers.SlidingWindow):
    """A user's subclass whose attribute is a weight, with a `get_config` as Keras recommends."""

    def __init__(self, slope, **kwargs):
        super().__init__(**kwargs)
        self.initial_slope = slope
        self.slope = self.add_weight((), keras.initializers.Constant(slope))

    def get_config(self):
        return {**super().get_config(), "slope": self.initial_slope}


@pytest.mark.parametrize("layer", [Scaled(6, 7, factor=3.0), Learned(0.5, size=3)])
def test_a_users_subclass_keeps_its_arguments(layer):
    config = layer.get_config()
    copy = type(layer).from_config(config)
    assert copy.get_config() == config
    assert getattr(copy, "factor", None) == getattr(layer, "factor", None)
    assert getattr(copy, "initial_slope", None) == getattr(layer, "initial_slope", None)


def test_a_configuration_has_each_argument():
    layer = layers.MultiHeadAttention(6, 2, use_bias=["output", "query"], positions=layers.SlidingWindow(3), seed=5)
    config = layer.get_config()
    assert {"d_model", "num_kv_heads", "soft_cap", "positions", "kernel_initializer", "seed", "dtype"} <= config.keys()
    copy = layers.MultiHeadAttention.from_config(config)
    assert copy.use_bias == ("query", "output") and copy.positions[0].size == 3 and copy.seed == 5


@pytest.mark.parametrize("kind", [layers.EncoderLayer, layers.CausalDecoderLayer, layers.DecoderLayer])
def test_the_signature_of_a_block_shows_each_argument(kind):
    parameters = inspect.signature(kind).parameters
    parts = {"self_attention", "cross_attention"} if kind is layers.DecoderLayer else {"attention"}
    assert {"d_model", "num_heads", "activation", "seed", "norm", "feed_forward", *parts} <= parameters.keys()
    assert "sizes" not in parameters
    assert kind(6, 2, 7).d_ff == 7


def test_a_users_argument_without_an_attribute_is_refused():
    class Hidden(layers.PositionScheme):
        def __init__(self, slope=1.0, **kwargs):
            super().__init__(**kwargs)
            self._slope = slope

    with pytest.raises(NotImplementedError, match="Hidden must keep its arguments.* Received: no attribute slope"):
        Hidden().get_config()


def test_keras_names_win_over_arguments():
    class Named(Configured):
        def __init__(self, name="mine", dtype=None):
            super().__init__(name=name, dtype=dtype)

    assert Named(dtype="bfloat16").get_config()["dtype"]["config"] == {"name": "bfloat16"}
