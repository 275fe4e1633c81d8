"""Import of modules that contain a `torch.nn.Transformer`, from safetensors files."""

import re

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.export import import_torch_transformer
from keras_transformer.export.importer.families import MARIAN
from keras_transformer.export.interop.weight_map import assign_weights, foreign_weights

pytestmark = [
    pytest.mark.torch_parity,
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning:torch"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning:torch"),
]
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
from safetensors.numpy import load_file  # noqa: E402
from safetensors.numpy import save_file as save_arrays  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

SIZES = {"num_layers": 2, "d_model": 12, "num_heads": 3, "d_ff": 17, "final_norm": True, "layer_norm_epsilon": 1e-5}
SOURCE = np.array([[4, 5, 6, 7, 8, 9, 3], [10, 11, 3, 0, 0, 0, 0]], "int32")
TARGET = np.array([[2, 12, 13, 14, 15], [2, 16, 17, 0, 0]], "int32")


class Translator(torch.nn.Module):
    """A typical module that contains an `nn.Transformer`."""

    def __init__(self, reference, norm_first, bias):
        super().__init__()
        self.positions = lambda length: torch.from_numpy(reference.positional_encoding(length, 12).astype("float32"))
        self.source_embedding, self.target_embedding = torch.nn.Embedding(23, 12), torch.nn.Embedding(19, 12)
        self.transformer = torch.nn.Transformer(
            12, 3, 2, 2, 17, dropout=0.0, batch_first=True, norm_first=norm_first, bias=bias
        )
        self.generator = torch.nn.Linear(12, 19)

    def forward(self, source, target):
        decoded = self.transformer(
            self.source_embedding(source) * 12**0.5 + self.positions(source.shape[1]),
            self.target_embedding(target) * 12**0.5 + self.positions(target.shape[1]),
            tgt_mask=torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), 1),
            src_key_padding_mask=source == 0,
            tgt_key_padding_mask=target == 0,
            memory_key_padding_mask=source == 0,
        )
        return self.generator(decoded)


@pytest.fixture
def saved(reference, tmp_path):
    """A module with random weights, biases and norms, and the file of its state."""

    def saved(norm_first=False, bias=True):
        torch.manual_seed(3)
        module = Translator(reference, norm_first, bias).eval()
        for parameter in module.parameters():
            parameter.data += 0.2 * torch.randn_like(parameter)
        save_file(module.state_dict(), tmp_path / "model.safetensors")
        return module, tmp_path / "model.safetensors"

    return saved


def config(**options):
    fields = {"vocab_size": 19, "source_vocab_size": 23, "share_embeddings": False, "logits_bias": True}
    return TransformerConfig(**{**SIZES, **fields, **options})


@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no_biases"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post_norm", "pre_norm"])
def test_logits_equal_those_of_pytorch(saved, norm_first, bias):
    module, path = saved(norm_first, bias)
    model = import_torch_transformer(path, config(norm_first=norm_first, use_bias=bias), prefix="transformer.")
    with torch.no_grad():
        expected = module(torch.from_numpy(SOURCE), torch.from_numpy(TARGET)).numpy()
    logits = keras.ops.convert_to_numpy(model({"source": SOURCE, "target": TARGET}))
    is_real = TARGET != 0
    np.testing.assert_allclose(logits[is_real], expected[is_real], atol=1e-5)
    assert np.abs(logits).max() > 1


SHARED = {"source_vocab_size": None, "share_embeddings": True}


@pytest.mark.parametrize("has_copies", [True, False], ids=["copies", "no_copies"])
def test_a_shared_matrix_is_imported_with_or_without_copies(saved, has_copies):
    """The target embedding is also the source embedding and the output matrix; the generator's bias is kept."""
    _, path = saved()
    state = load_file(path)
    for name in ("source_embedding.weight", "generator.weight"):
        state.pop(name)
        if has_copies:
            state[name] = state["target_embedding.weight"].copy()
    save_arrays(state, path)
    model = import_torch_transformer(path, config(**SHARED), "transformer.")
    np.testing.assert_array_equal(model.source_embedding.embeddings.numpy(), state["target_embedding.weight"])
    np.testing.assert_array_equal(model.logits.bias.numpy(), state["generator.bias"])


def test_the_output_may_be_tied_alone(saved):
    _, path = saved()
    state = load_file(path)
    del state["generator.weight"]
    save_arrays(state, path)
    model = import_torch_transformer(path, config(tie_output=True), "transformer.")
    np.testing.assert_array_equal(model.source_embedding.embeddings.numpy(), state["source_embedding.weight"])
    np.testing.assert_array_equal(model.logits.embedding.embeddings.numpy(), state["target_embedding.weight"])


def test_weights_that_the_configuration_would_drop_are_refused(saved):
    _, path = saved()
    save_arrays({**load_file(path), "source_positions.weight": np.ones((40, 12), "float32")}, path)
    with pytest.raises(ValueError, match="configuration") as error:
        import_torch_transformer(path, config(**SHARED, logits_bias=False), "transformer.")
    for fault in (
        "source_embedding.weight .*target_embedding.weight .*shared",
        "generator.weight .*target_embedding.weight .*shared",
        "does not have: generator.bias, source_positions.weight",
    ):
        assert re.search(f"\n- .*{fault}", str(error.value)), fault


def test_unused_weights_are_named(saved):
    _, path = saved()
    save_arrays({**load_file(path), "positions.table": np.ones((40, 12), "float32")}, path)
    with pytest.warns(UserWarning, match="model.safetensors: positions.table$"):
        import_torch_transformer(path, config(), "transformer.")


def test_learned_positions_are_imported(saved):
    _, path = saved()
    learned = config(positions="learned", max_length=11)
    with pytest.raises(ValueError, match="lacks source_positions.weight, target_positions.weight$"):
        import_torch_transformer(path, learned, "transformer.")
    tables = np.random.default_rng(0).normal(size=(2, 11, 12)).astype("float32")
    save_arrays({**load_file(path), "positions.source": tables[0], "positions.target": tables[1]}, path)
    names = {"source_positions": "positions.source", "target_positions": "positions.target"}
    model = import_torch_transformer(path, learned, "transformer.", **names)
    np.testing.assert_array_equal(model.source_positions.embeddings.numpy(), tables[0])
    np.testing.assert_array_equal(model.target_positions.embeddings.numpy(), tables[1])
    names = dict.fromkeys(names, "positions.target")  # One table for both.
    with pytest.warns(UserWarning, match="model.safetensors: positions.source$"):
        model = import_torch_transformer(path, learned, "transformer.", **names)
    np.testing.assert_array_equal(model.source_positions.embeddings.numpy(), tables[1])


def test_missing_weights_have_their_names_in_the_file(saved):
    _, path = saved()
    state = load_file(path)
    del state["transformer.encoder.layers.0.self_attn.in_proj_weight"]
    save_arrays(state, path)
    with pytest.raises(ValueError, match=r"lacks transformer.encoder.layers.0.self_attn.in_proj_weight$"):
        import_torch_transformer(path, config(), "transformer.")
    with pytest.raises(ValueError, match="encoder. or decoder.*Received: prefix=''") as error:
        import_torch_transformer(path, config())
    assert "generator.bias, generator.weight, source_embedding.weight" in str(error.value)


def test_no_variable_is_forgotten():
    model = Transformer(config())
    weights = [x for x in foreign_weights(model, MARIAN.modules({}).items()) if "fc1.bias" not in x.names[0]]
    with pytest.raises(ValueError, match="`weights` .*Missing: .*/inner/bias"):
        assign_weights(model, weights, {})


def test_all_faults_are_reported_at_once(saved):
    _, path = saved()
    with pytest.raises(ValueError, match="configuration") as error:
        import_torch_transformer(
            path, config(num_layers=1, d_ff=13, vocab_size=18), prefix="transformer.", source_embedding="embed.weight"
        )
    for fault in (
        "lacks embed.weight",
        r"target_embedding.weight, .*\(18, 12\).*Received: \(19, 12\)",
        r"transformer.encoder.layers.0.linear1.weight, .*\(13, 12\).*Received: \(17, 12\)",
        "does not have: transformer.decoder.layers.1.linear1.bias",
    ):
        assert re.search(f"\n- .*{fault}", str(error.value)), fault


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        import_torch_transformer(tmp_path / "model.safetensors", config())
