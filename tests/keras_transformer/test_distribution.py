"""Layouts for `keras.distribution`: training under a mesh of virtual JAX devices equals training on one device."""

import json

import pytest

from keras_transformer import TransformerConfig
from keras_transformer.distribution import layout_map

#: Trains on one device, then under a mesh of 2 x 4 devices. Each model is loaded in the other place.
PROGRAM = """
import json, sys

import keras
import numpy as np

import keras_transformer as kt

folder, vocab_size, changes = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
config = kt.TransformerConfig(vocab_size=vocab_size, num_layers=1, d_model=24, num_heads=4, d_ff=40, **changes)
rng = np.random.default_rng(3)
source, target = (rng.integers(4, vocab_size, (3 * 6, length)) for length in (7, 5))
labels = np.append(target[:, 1:], np.full((18, 1), 3), 1)
data = {"source": source, "target": target}, labels


def train():
    keras.utils.set_random_seed(1)
    model = kt.Transformer(config)
    model.compile(kt.optimizers.Adam(0.01, epsilon=1e-4), kt.losses.LabelSmoothedCrossEntropy())
    return model, model.fit(*data, batch_size=6, epochs=2, shuffle=False, verbose=0).history["loss"]


def evaluate(model):
    return model.evaluate(*data, batch_size=6, verbose=0)


one, losses_of_one = train()
loss_of_one = evaluate(one)
one.save(f"{folder}/one.keras")

mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "model"])
layouts = kt.distribution.layout_map(config, mesh)
keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch"))
split, losses_of_split = train()
loss_of_split = evaluate(split)
split.save(f"{folder}/split.keras")


def count_parts(variable):
    return len({str(shard.index) for shard in variable.value.addressable_shards})


parts = {weight.path: count_parts(weight) for weight in split.weights}
slots = [count_parts(variable) for variable in split.optimizer.variables if variable.shape == (24, 40)]
one_in_mesh = evaluate(kt.load_model(f"{folder}/one.keras"))
keras.distribution.set_distribution(None)
split_on_one = evaluate(kt.load_model(f"{folder}/split.keras"))
apart = max(float(abs(a - b).max()) for a, b in zip(one.get_weights(), split.get_weights(), strict=True))
print(json.dumps({
    "losses": [losses_of_one, losses_of_split], "apart": apart, "of one": [loss_of_one, one_in_mesh],
    "of split": [loss_of_split, split_on_one], "parts": parts, "slots": slots,
}))
"""


@pytest.mark.parametrize(
    ("vocab_size", "changes", "parts_of_embedding"),
    [
        pytest.param(48, {}, 4, marks=pytest.mark.slow),
        pytest.param(47, {"num_kv_heads": 2, "feed_forward": "gated", "norm": "rms"}, 4, marks=pytest.mark.nightly),
        pytest.param(48, {"share_embeddings": False, "source_vocab_size": 48}, 4, marks=pytest.mark.nightly),
    ],
)
def test_a_mesh_trains_as_one_device(run_python, tmp_path, vocab_size, changes, parts_of_embedding):
    pytest.importorskip("jax")
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    arguments = tmp_path, vocab_size, json.dumps(changes)
    found = json.loads(run_python(PROGRAM, *arguments, KERAS_BACKEND="jax", XLA_FLAGS=flags).splitlines()[-1])
    one, split = found["losses"]
    assert one == pytest.approx(split, abs=1e-5) and one[1] < one[0]
    assert found["apart"] < 1e-4
    for saved in ("of one", "of split"):
        before, after = found[saved]
        assert after == pytest.approx(before, abs=1e-5)
    grouped = "num_kv_heads" in changes
    for path, parts in found["parts"].items():
        is_split = path.endswith(("query/kernel", "inner/kernel", "outer/kernel", "output/kernel", "inner/bias"))
        is_split |= path.endswith(("key/kernel", "value/bias")) and not grouped
        if path.endswith("embeddings"):
            assert parts == parts_of_embedding
        elif is_split or "norm" in path:
            assert parts == (4 if is_split else 1), path
    assert set(found["slots"]) == {4}


@pytest.fixture
def mesh():
    class Mesh:
        """As much of a `DeviceMesh` as `layout_map` reads: this process has one device."""

        shape, axis_names = (2, 4), ["batch", "model"]

    return Mesh()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_heads": 6}, "`num_heads` must be a multiple of the size of the axis model, 4. Received: num_heads=6"),
        ({"d_ff": 42}, "`d_ff` must be a multiple of the size of the axis model, 4. Received: d_ff=42"),
    ],
)
def test_sizes_that_cannot_be_divided_are_refused(mesh, sizes, message):
    config = TransformerConfig(**{"vocab_size": 48, "d_model": 24, "num_heads": 4, "d_ff": 40, **sizes})
    with pytest.raises(ValueError, match=message):
        layout_map(config, mesh)


def test_an_unknown_axis_is_refused(mesh):
    message = r"`model_dim` must be an axis of the mesh, \['batch', 'model'\]. Received: model_dim='tp'"
    with pytest.raises(ValueError, match=message):
        layout_map(TransformerConfig.preset("tiny", vocab_size=48), mesh, model_dim="tp")
