"""transformers loads the exported files of a `LanguageModel`: its logits and greedy tokens equal those of Keras."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.decoding import GreedySearch
from keras_transformer.export import export_huggingface

pytestmark = [pytest.mark.torch_parity, pytest.mark.slow]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCAB, LENGTH, PROMPTS, EXTRA = 41, 13, 20, 17
SIZES = {"vocab_size": VOCAB, "num_decoder_layers": 2, "num_heads": 6, "d_ff": 29, "norm_first": True}
LLAMA = {
    **{**SIZES, "d_model": 18, "d_k": 4, "d_v": 4, "num_kv_heads": 2, "positions": "rotary", "norm": "rms"},
    **{"feed_forward": "gated", "activation": "silu", "use_bias": False},
}
GPT2 = {**SIZES, "d_model": 24, "positions": "learned", "max_length": 31, "activation": "gelu_tanh"}
TIED = {"scale_embedding": False}
UNTIED = {"share_embeddings": False}
IDS = {"pad_id": 3, "bos_id": 1, "eos_id": 0}
nightly = pytest.mark.nightly
MODELS = [
    pytest.param("LlamaForCausalLM", LLAMA, id="llama scaled"),
    pytest.param("LlamaForCausalLM", {**LLAMA, **TIED}, id="llama", marks=nightly),
    pytest.param("LlamaForCausalLM", {**LLAMA, **UNTIED, **IDS}, id="llama untied", marks=nightly),
    pytest.param(
        "LlamaForCausalLM",
        {**LLAMA, **UNTIED, "num_kv_heads": 1, "use_bias": True, "activation": "gelu", "layer_norm_epsilon": 0.1},
        id="llama biased",
        marks=nightly,
    ),
    pytest.param("GPT2LMHeadModel", {**GPT2, **UNTIED, **IDS}, id="gpt2 untied"),
    pytest.param("GPT2LMHeadModel", {**GPT2, **TIED}, id="gpt2", marks=nightly),
    pytest.param(
        "GPT2LMHeadModel",
        {**GPT2, **UNTIED, "activation": "relu", "layer_norm_epsilon": 0.1},
        id="gpt2 relu",
        marks=nightly,
    ),
]


def random_rows(config, rows, longest):
    """Ids without special ids, and padding at the end."""
    rng = np.random.default_rng(5)
    ordinary = [i for i in range(config.vocab_size) if i not in (config.pad_id, config.bos_id, config.eos_id)]
    lengths = rng.integers(1, longest + 1, (rows, 1))
    return np.where(np.arange(longest) < lengths, rng.choice(ordinary, (rows, longest)), config.pad_id)


def assert_same_logits(ours, theirs):
    config = ours.config
    ids = random_rows(config, 7, LENGTH)
    is_real = ids != config.pad_id
    with torch.no_grad():
        found = theirs(torch.from_numpy(ids), attention_mask=torch.from_numpy(is_real)).logits.numpy()[is_real]
    expected = keras.ops.convert_to_numpy(ours(ids))[is_real]
    assert expected.std() > 0.5
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def assert_same_tokens(ours, theirs):
    """The ids in the files are used: the options are only the length and, as here, an end token at the limit."""
    pad, bos, eos = ours.config.pad_id, ours.config.bos_id, ours.config.eos_id
    prompts = random_rows(ours.config, PROMPTS, 7)
    tokens = ours.generate(prompts, GreedySearch(extra_length=EXTRA)).tokens[:, 0]
    expected = [row[row != pad].tolist() for row in tokens]
    inputs = np.full((PROMPTS, 8), pad)  # With padding at the start, as transformers needs it.
    for row, prompt in zip(inputs, prompts, strict=True):
        real = prompt[prompt != pad]
        row[-len(real) - 1 :] = [bos, *real]
    mask = torch.from_numpy(inputs != pad)
    options = {"max_new_tokens": EXTRA, "forced_eos_token_id": eos}
    found = theirs.generate(torch.from_numpy(inputs), attention_mask=mask, **options).numpy()
    assert [row[~np.isin(row, (pad, bos))].tolist() for row in found] == expected
    made = [tuple(row[8:].tolist()) for row in found]
    print(f"\n{len({*made})} continuations of {PROMPTS} prompts, of {len({*sum(made, ())})} tokens")
    assert len({*made}) > PROMPTS / 2 and len({*sum(made, ())}) > 7


@pytest.mark.parametrize(("architecture", "fields"), MODELS)
def test_transformers_computes_the_same(tmp_path, randomize, architecture, fields):
    model = randomize(kt.LanguageModel(kt.TransformerConfig(**fields)), scale=0.4)
    for weight in model.trainable_weights:
        if weight.name == "scale":  # Of an RMS normalization.
            weight.assign(1 + weight)
    export_huggingface(model, tmp_path / "out")
    theirs, loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert type(theirs).__name__ == architecture and theirs.dtype == torch.float32
    assert not any(loaded[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_same_logits(model, theirs)
    assert_same_tokens(model, theirs)
