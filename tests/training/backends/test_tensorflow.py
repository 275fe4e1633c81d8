import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from keras_transformer.training.backends.tensorflow import (  # noqa: E402
    TensorFlowDevices,
    dataset,
    make_strategy,
    signature,
)
from keras_transformer.training.data.batches import make_batches  # noqa: E402
from keras_transformer.training.data_config import BatchConfig  # noqa: E402
from keras_transformer.training.recipe_config import RecipeConfig  # noqa: E402

DEVICES = """
from keras_transformer.training.backends.tensorflow import make_strategy
strategy = make_strategy({!r})
print(type(strategy).__name__, strategy.num_replicas_in_sync, *strategy.extended.worker_devices)
"""


def test_the_default_strategy_is_used_without_gpus():
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there are GPUs")
    assert make_strategy(None) is tf.distribute.get_strategy()


def test_one_device_has_one_replica():
    strategy = make_strategy("cpu:0")
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert strategy.num_replicas_in_sync == 1


@pytest.mark.slow
def test_several_cpus_have_a_replica_each(run_python):
    printed = run_python(DEVICES.format("CPU:0, CPU:1")).split()
    assert printed[:2] == ["MirroredStrategy", "2"]
    assert [name[-5:] for name in printed[2:]] == ["CPU:0", "CPU:1"]


@pytest.mark.parametrize("devices", ["GPU:7", "CPU:0,TPU:3", "CPU:0,CPU:5", "nonsense", "CPU:x,CPU:y", "CPU:0,"])
def test_a_device_that_is_not_there(devices):
    with pytest.raises(ValueError, match="`devices` .*'CPU:0'.*Received: devices="):
        make_strategy(devices)


def test_a_device_named_twice_is_refused():
    with pytest.raises(ValueError, match="`devices` .*repeat.*Received: devices=CPU:0,cpu:0"):
        make_strategy("CPU:0,cpu:0")


def test_a_dataset_makes_batches_by_their_number():
    def make_batch(number):
        return {"ids": np.full((1, 3), number, "int32")}, np.ones(2, "float32")

    signature = {"ids": tf.TensorSpec((1, None), tf.int32)}, tf.TensorSpec((2,), tf.float32)
    three, endless = dataset(make_batch, signature, 3), dataset(make_batch, signature)
    assert three.element_spec == endless.element_spec == signature
    assert len(three) == 3 and endless.cardinality() == tf.data.INFINITE_CARDINALITY
    assert [inputs["ids"].numpy().tolist() for inputs, _ in three] == [[[i] * 3] for i in range(3)]
    assert [int(inputs["ids"][0, 0]) for inputs, _ in endless.take(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("num_buckets", "pairs", "source", "target"),
    [
        (None, 40 * [(8, 4)], (3, 64), (3, 32)),
        (1, 40 * [(8, 4), (6, 3)], (18, 8), (18, 4)),
        (2, 40 * [(8, 4), (6, 4)], (None, None), (None, 4)),
        (3, 40 * [(8, 4), (6, 3)], (None, None), (None, None)),
    ],
)
def test_sizes_that_differ_from_batch_to_batch_are_unknown(sides_of, num_buckets, pairs, source, target):
    config = BatchConfig(tokens_per_batch=128, num_buckets=num_buckets)
    batches = make_batches(*sides_of(pairs), config, multiple=3)
    inputs, labels, weights = signature(batches)
    assert {name: spec.shape.as_list() for name, spec in inputs.items()} == {
        name: list(source if "source" in name else target) for name in batches.inputs
    }
    assert labels == tf.TensorSpec(target, tf.int32) and weights == tf.TensorSpec(target, tf.float32)
    assert {spec.dtype for spec in inputs.values()} == {tf.int32}


def test_no_generator_changes_how_memory_is_freed():
    with tf.Graph().as_default() as graph:
        dataset(lambda i: np.array([i], "int32"), tf.TensorSpec((1,), tf.int32))
    assert "PrefetchDataset" in str(graph.as_graph_def()) and "GeneratorDataset" not in str(graph.as_graph_def())


def test_no_pass_ends_waiting_for_autotuning():
    made = dataset(lambda i: np.array([i], "int32"), tf.TensorSpec((1,), tf.int32), 2)
    assert made.options().autotune.enabled is False


DRAWS = """
import keras
import tensorflow as tf
from keras_transformer.layers import Dropout
from keras_transformer.training.backends import make_devices

devices = make_devices("CPU:0,CPU:1")
with devices.scope():
    model = keras.Sequential([keras.Input((1000,)), Dropout(0.5, seed=1)])
devices.offset_replica_seeds(model)
for _ in range(2):
    dropped = devices.strategy.run(tf.function(lambda: model(tf.ones((1, 1000)), training=True)))
    one, other = (x.numpy() for x in devices.strategy.experimental_local_results(dropped))
    print("unlike", (one != other).mean())
"""


@pytest.mark.slow
def test_replicas_draw_unlike_masks(run_python):
    shares = [float(line.split()[1]) for line in run_python(DRAWS).splitlines() if line.startswith("unlike")]
    assert len(shares) == 2 and all(0.4 < share < 0.6 for share in shares)


SCALED = """
import keras
import numpy as np
from keras_transformer.optimizers import Adam
from keras_transformer.training.backends import make_devices

devices = make_devices("CPU:0,CPU:1")
with devices.scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, dtype="mixed_float16")])
    model.compile(keras.optimizers.LossScaleOptimizer(Adam(0.1), initial_scale=8.0), loss="mse")
    model.optimizer.build(model.trainable_variables)
devices.set_steps(model, 1)
for inputs in ([1, 1], [1, 60000], [60000, 1], [1, 1]):  # A row each.
    before = model.get_weights()
    data = np.array(inputs, "float32")[:, None], np.zeros((2, 1))
    model.fit(*data, batch_size=2, sample_weight=np.ones(2), shuffle=False, verbose=0)
    after = model.get_weights()
    moved = any((a != b).any() for a, b in zip(before, after))
    print(all(np.isfinite(w).all() for w in after), moved, float(model.optimizer.dynamic_scale.numpy()))
"""


@pytest.mark.slow
def test_an_overflow_on_one_replica_is_one_on_all(run_python):
    printed = run_python(SCALED).splitlines()
    assert printed == ["True True 8.0", "True False 4.0", "True False 2.0", "True True 2.0"]


def test_a_single_gpu_is_known_by_its_name(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["the GPU"] if kind == "GPU" else [])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: {"device_name": f"{gpu}'s name"})
    assert TensorFlowDevices(tf.distribute.get_strategy()).kind == "the GPU's name"


def test_xla_is_refused_on_several_cpus():
    devices = TensorFlowDevices(make_strategy(None))
    assert devices.kind == "CPU" and devices.jit_compile(None) and devices.jit_compile(True)
    devices.count = 2
    assert not devices.jit_compile(None)
    with pytest.raises(ValueError, match="`recipe.xla` .*CPU.*Received: xla=True"):
        devices.jit_compile(True)


def test_fused_attention_is_refused_before_any_work():
    devices = TensorFlowDevices(make_strategy(None))
    for attention in ("auto", "plain"):
        devices.check_recipe(RecipeConfig(attention=attention))
    with pytest.raises(ValueError, match="`recipe.attention` .*TensorFlow.*Received: attention='fused'"):
        devices.check_recipe(RecipeConfig(attention="fused"))
