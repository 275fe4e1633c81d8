"""Files in the layouts of Llama and GPT-2: names, shapes and values, and what is refused, without transformers."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_transformer import LanguageModel, Transformer, TransformerConfig
from keras_transformer.export import export_huggingface
from keras_transformer.export.huggingface.export import settings
from keras_transformer.export.huggingface.layouts import LAYOUTS
from keras_transformer.layers import CausalDecoderLayer

safetensors = pytest.importorskip("safetensors.numpy")
SIZES = {"vocab_size": 23, "num_encoder_layers": 1, "num_decoder_layers": 2, "num_heads": 3, "d_ff": 17}
COMMON = {**SIZES, "norm_first": True, "scale_embedding": False, "pad_id": 1, "bos_id": 5, "eos_id": 7}
LLAMA = TransformerConfig(
    **{**COMMON, "num_heads": 6, "num_kv_heads": 2, "d_model": 18, "d_k": 4, "d_v": 4, "use_bias": False},
    **{"positions": "rotary", "norm": "rms", "feed_forward": "gated", "activation": "silu"},
)
GPT2 = TransformerConfig(**COMMON, d_model=15, positions="learned", max_length=11, activation="gelu_tanh", dropout=0.3)
LLAMA_LAYER = {
    "input_layernorm.weight": (18,),
    "self_attn.q_proj.weight": (24, 18),
    "self_attn.k_proj.weight": (8, 18),
    "self_attn.v_proj.weight": (8, 18),
    "self_attn.o_proj.weight": (18, 24),
    "post_attention_layernorm.weight": (18,),
    "mlp.gate_proj.weight": (17, 18),
    "mlp.up_proj.weight": (17, 18),
    "mlp.down_proj.weight": (18, 17),
}
LLAMA_BIASES = {
    "self_attn.q_proj.bias": (24,),
    "self_attn.k_proj.bias": (8,),
    "self_attn.v_proj.bias": (8,),
    "self_attn.o_proj.bias": (18,),
    "mlp.gate_proj.bias": (17,),
    "mlp.up_proj.bias": (17,),
    "mlp.down_proj.bias": (18,),
}
GPT2_LAYER = {
    "ln_1.weight": (15,),
    "ln_1.bias": (15,),
    "attn.c_attn.weight": (15, 45),
    "attn.c_attn.bias": (45,),
    "attn.c_proj.weight": (15, 15),
    "attn.c_proj.bias": (15,),
    "ln_2.weight": (15,),
    "ln_2.bias": (15,),
    "mlp.c_fc.weight": (15, 17),
    "mlp.c_fc.bias": (17,),
    "mlp.c_proj.weight": (17, 15),
    "mlp.c_proj.bias": (15,),
}


def changed(config, **changes):
    return dataclasses.replace(config, **changes)


def exported(folder, model):
    """The weights in the file."""
    export_huggingface(model, folder / "out")
    return safetensors.load_file(folder / "out" / "model.safetensors")


def read(folder, name):
    return json.loads((folder / "out" / name).read_text())


def in_layers(prefix, shapes):
    return {f"{prefix}.{i}.{name}": shape for i in range(2) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(
            LLAMA,
            {
                "model.embed_tokens.weight": (23, 18),
                "model.norm.weight": (18,),
                **in_layers("model.layers", LLAMA_LAYER),
            },
            id="llama",
        ),
        pytest.param(
            changed(LLAMA, use_bias=True, share_embeddings=False),
            {
                "model.embed_tokens.weight": (23, 18),
                "model.norm.weight": (18,),
                "lm_head.weight": (23, 18),
                **in_layers("model.layers", {**LLAMA_LAYER, **LLAMA_BIASES}),
            },
            id="llama with biases, untied",
        ),
        pytest.param(
            GPT2,
            {
                "transformer.wte.weight": (23, 15),
                "transformer.wpe.weight": (11, 15),
                "transformer.ln_f.weight": (15,),
                "transformer.ln_f.bias": (15,),
                **in_layers("transformer.h", GPT2_LAYER),
            },
            id="gpt2",
        ),
    ],
)
def test_names_and_shapes_are_those_of_transformers(tmp_path, config, expected):
    model = LanguageModel(config)
    found = exported(tmp_path, model)
    assert {name: array.shape for name, array in found.items()} == expected
    assert {array.dtype for array in found.values()} == {np.dtype("float32")}
    assert sum(array.size for array in found.values()) == model.count_params()


def test_the_configuration_of_llama_is_written(tmp_path):
    export_huggingface(LanguageModel(LLAMA), tmp_path / "out")
    assert read(tmp_path, "config.json") == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float32",
        "vocab_size": 23,
        "hidden_size": 18,
        "intermediate_size": 17,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "pad_token_id": 1,
        "bos_token_id": 5,
        "eos_token_id": 7,
    }
    assert read(tmp_path, "generation_config.json") == {
        "pad_token_id": 1,
        "bos_token_id": 5,
        "eos_token_id": 7,
        "suppress_tokens": [1, 5],
    }


def test_the_configuration_of_gpt2_is_written(tmp_path):
    export_huggingface(LanguageModel(changed(GPT2, share_embeddings=False)), tmp_path / "out")
    assert read(tmp_path, "config.json") == {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "torch_dtype": "float32",
        "vocab_size": 23,
        "n_positions": 11,
        "n_embd": 15,
        "n_inner": 17,
        "n_layer": 2,
        "n_head": 3,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "embd_pdrop": 0.3,
        "resid_pdrop": 0.3,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": False,
        "pad_token_id": 1,
        "bos_token_id": 5,
        "eos_token_id": 7,
    }


def test_query_key_and_value_are_joined_in_this_order(tmp_path, randomize):
    model = randomize(LanguageModel(GPT2))
    found = exported(tmp_path, model)
    attention = model.decoder.layers[1].self_attention.sublayer
    parts = (attention.query_projection, attention.key_projection, attention.value_projection)
    for kind, name in (("kernel", "weight"), ("bias", "bias")):
        weights = [keras.ops.convert_to_numpy(getattr(part, kind)) for part in parts]
        np.testing.assert_array_equal(found[f"transformer.h.1.attn.c_attn.{name}"], np.concatenate(weights, axis=-1))


@pytest.mark.parametrize("is_shared", [False, True], ids=["separate", "shared"])
def test_a_scaled_embedding_is_stored_scaled_beside_the_output(tmp_path, randomize, is_shared):
    """The rows of the stored table are bitwise the vectors of the model, and the output keeps its own matrix."""
    model = randomize(LanguageModel(changed(LLAMA, scale_embedding=True, share_embeddings=is_shared)))
    found = exported(tmp_path, model)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is False
    vectors = keras.ops.convert_to_numpy(model.embedding(np.arange(23)))
    np.testing.assert_array_equal(found["model.embed_tokens.weight"], vectors)
    output = keras.ops.convert_to_numpy(model.logits.embedding.embeddings)
    np.testing.assert_array_equal(found["lm_head.weight"], output)
    assert np.abs(vectors).max() > 2 * np.abs(output).max()


def test_lora_is_merged(tmp_path, randomize):
    model = LanguageModel(LLAMA)
    model.enable_lora(2)
    randomize(model)
    found = exported(tmp_path, model)
    query = model.decoder.layers[0].self_attention.sublayer.query_projection
    kernel, a, b = map(keras.ops.convert_to_numpy, (query._kernel, query.lora_kernel_a, query.lora_kernel_b))
    assert np.abs(a @ b).max() > 0.1
    np.testing.assert_allclose(found["model.layers.0.self_attn.q_proj.weight"], (kernel + a @ b).T, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (LLAMA, {"soft_cap": 5.0}, "`soft_cap` must be None. Received: soft_cap=5.0"),
        (LLAMA, {"window": 3}, "`window` must be None. Received: window=3"),
        (LLAMA, {"norm": "layer"}, "`norm` must be 'rms'. Received: norm='layer'"),
        (LLAMA, {"feed_forward": "plain"}, "`feed_forward` must be 'gated'. Received: feed_forward='plain'"),
        (LLAMA, {"d_v": 5}, "`d_v` must equal `d_k`. Received: d_v=5, d_k=4"),
        (LLAMA, {"d_model": 16}, "`d_model % num_heads` must be 0. Received: d_model % num_heads=4"),
        (LLAMA, {"activation": "mish"}, "`activation` must be one of .*Received: activation='mish'"),
        (LLAMA, {"qk_norm": True}, "`qk_norm` must be False. Received: qk_norm=True"),
        (LLAMA, {"embedding_norm": True}, "`embedding_norm` must be False. Received: embedding_norm=True"),
        (LLAMA, {"logits_scale": 0.5}, "`logits_scale` must be 1.0. Received: logits_scale=0.5"),
        (LLAMA, {"logits_bias": True}, "`logits_bias` must be False. Received: logits_bias=True"),
        (LLAMA, {"final_norm": False}, "`final_norm` must be True. Received: final_norm=False"),
        (GPT2, {"use_bias": False}, "`use_bias` must be True. Received: use_bias=False"),
        (GPT2, {"num_kv_heads": 1}, "`num_kv_heads` must equal `num_heads`. Received: num_kv_heads=1, num_heads=3"),
        (GPT2, {"d_k": 4}, "`d_k` must equal `d_model / num_heads`. Received: d_k=4, d_model / num_heads=5"),
        (GPT2, {"d_v": 4}, "`d_v` must equal `d_model / num_heads`. Received: d_v=4, d_model / num_heads=5"),
        (GPT2, {"positions": "alibi", "max_length": None}, "`positions` must be 'learned'. Received: .*'alibi'"),
        (GPT2, {"norm_first": False, "final_norm": True}, "`norm_first` must be True. Received: norm_first=False"),
    ],
)
def test_each_part_that_the_layout_lacks_is_named(tmp_path, config, changes, message):
    name = "LlamaForCausalLM" if config is LLAMA else "GPT2LMHeadModel"
    with pytest.raises(ValueError, match=f"{name} does not support this model:\n- {message}") as error:
        export_huggingface(LanguageModel(changed(config, num_decoder_layers=1, **changes)), tmp_path / "out")
    assert len(str(error.value).splitlines()) == 2
    assert not any(tmp_path.iterdir())


def test_all_problems_are_named_at_once(tmp_path):
    config = changed(LLAMA, qk_norm=True, window=3, num_decoder_layers=1)
    layer = CausalDecoderLayer(18, 6, 17)
    with pytest.raises(ValueError, match="LlamaForCausalLM does not support") as error:
        export_huggingface(LanguageModel(config, layer=layer), tmp_path / "out")
    for problem in ("`qk_norm`", "`window`", "Layers of your own .*Received: layer"):
        assert error.match(f"\n- {problem}")
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_quantized_model_is_refused(tmp_path):
    model = LanguageModel(changed(LLAMA, num_decoder_layers=1))
    model.quantize("int8")
    with pytest.raises(ValueError, match="- A quantized model is not supported"):
        export_huggingface(model, tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_another_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`model` must be a LanguageModel. Received: Transformer"):
        export_huggingface(Transformer(TransformerConfig(**SIZES, d_model=12)), tmp_path / "out")


def test_a_folder_is_not_replaced(tmp_path):
    with pytest.raises(ValueError, match=f"`path` must not exist. Received: path={tmp_path}"):
        export_huggingface(LanguageModel(changed(LLAMA, num_decoder_layers=1)), tmp_path)


def test_an_error_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(tensors, path, metadata):
        path.write_bytes(b"begun")
        raise OSError("no space")

    monkeypatch.setattr(safetensors, "save_file", fail)
    with pytest.raises(OSError, match="no space"):
        export_huggingface(LanguageModel(changed(LLAMA, num_decoder_layers=1)), tmp_path / "out")
    assert not any(tmp_path.iterdir())


#: Fields that no layout needs: those of an encoder or of other positions, rates of dropout, and the scale of the
#: embedding, which the stored table contains.
OTHERS = {
    *("source_vocab_size", "num_layers", "num_encoder_layers", "position_layout", "max_length"),
    *("dropout", "activation_dropout", "scale_embedding", "share_embeddings", "tie_output"),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.architecture)
def test_a_layout_says_what_becomes_of_each_field(layout):
    """A new field must be written, required or known to be without effect. Otherwise the export would ignore it."""
    known = {*layout.fields.values(), *layout.required, *layout.equal, *OTHERS}
    assert {field.name for field in dataclasses.fields(TransformerConfig)} - known == set()
    assert known <= settings(LLAMA).keys()
