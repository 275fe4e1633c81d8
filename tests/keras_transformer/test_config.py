import dataclasses
import re

import keras
import pytest

from keras_transformer import PRESETS, Transformer, TransformerConfig
from keras_transformer.config import ACTIVATIONS

# Table 3's last column, in millions. Rows of A, D and E are printed without a count: they are the base model's.
PAPER_MILLIONS = {
    "table3-base": 65,
    "table3-A-h1": 65,
    "table3-A-h4": 65,
    "table3-A-h16": 65,
    "table3-A-h32": 65,
    "table3-B-dk16": 58,
    "table3-B-dk32": 60,
    "table3-C-N2": 36,
    "table3-C-N4": 50,
    "table3-C-N8": 80,
    "table3-C-d256": 28,
    "table3-C-d1024": 168,
    "table3-C-dff1024": 53,
    "table3-C-dff4096": 90,
    "table3-D-dropout0.0": 65,
    "table3-D-dropout0.2": 65,
    "table3-D-smoothing0.0": 65,
    "table3-D-smoothing0.2": 65,
    "table3-E-learned": 65,
    "table3-big": 213,
}
#: Checked by every run; the others are marked slow.
QUICK = ("table3-base", "table3-B-dk16", "table3-C-N2", "table3-D-dropout0.2")
WIDE = ("table3-C-d1024", "table3-big")


@pytest.fixture(scope="module")
def millions():
    """Parameters of the model that a preset really builds; its variables stay without values."""
    counts = {}

    def millions(name):
        config = TransformerConfig.preset(name, vocab_size=37_000)
        key = dataclasses.replace(config, dropout=0.0)
        if key not in counts:
            with keras.StatelessScope(initialize_variables=False):
                counts[key] = Transformer(config).count_params() / 1e6
            keras.utils.clear_session()
        return counts[key]

    return millions


def test_every_row_of_table_3_is_checked():
    assert set(PAPER_MILLIONS) == {name for name in PRESETS if name.startswith("table3-")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly) for name in PAPER_MILLIONS]
)
@pytest.mark.portable
def test_presets_have_the_parameters_of_table_3(name, millions):
    paper = PAPER_MILLIONS[name]
    assert millions(name) == pytest.approx(paper, rel=0.07)
    difference = millions(name) - millions("table3-base")
    assert difference == pytest.approx(paper - 65, abs=3.5 if name in WIDE else 1.5)


def test_base_big_and_tiny_have_their_sizes():
    base = TransformerConfig.preset("base", vocab_size=37_000)
    assert base == TransformerConfig.preset("table3-base", vocab_size=37_000) == TransformerConfig(vocab_size=37_000)
    assert (base.num_layers, base.d_model, base.num_heads, base.d_ff, base.dropout) == (6, 512, 8, 2048, 0.1)
    big = TransformerConfig.preset("big", vocab_size=37_000)
    assert (big.num_layers, big.d_model, big.num_heads, big.d_ff, big.dropout) == (6, 1024, 16, 4096, 0.3)
    assert TransformerConfig.preset("tiny", vocab_size=10).num_layers == 2


def test_the_stacks_may_have_different_depths():
    assert TransformerConfig(vocab_size=10, num_layers=3).depths == (3, 3)
    assert TransformerConfig(vocab_size=10, num_layers=3, num_decoder_layers=1).depths == (3, 1)
    student = TransformerConfig.preset("student-tiny", vocab_size=10)
    assert (student.depths, student.d_model, student.d_ff, student.num_heads) == ((6, 2), 256, 1536, 8)
    assert TransformerConfig.preset("student-base", vocab_size=10).depths == (6, 2)
    assert TransformerConfig.preset("student-tiny", vocab_size=10, num_decoder_layers=1).depths == (6, 1)
    assert TransformerConfig.preset("student-tiny", vocab_size=10, num_layers=4).depths == (4, 4)


def test_overrides_replace_fields_of_the_preset():
    config = TransformerConfig.preset("big", vocab_size=11, dropout=0.2, num_heads=8)
    assert (config.dropout, config.num_heads, config.d_ff, config.vocab_size) == (0.2, 8, 4096, 11)


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(ValueError, match=r"`name` .*base, big.*Received: name='huge'"):
        TransformerConfig.preset("huge", vocab_size=11)


def test_unknown_override_is_named():
    with pytest.raises(ValueError, match=r"`overrides`.*Received: \['layers'\]"):
        TransformerConfig.preset("base", vocab_size=11, layers=3)


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"vocab_size": 0}, ["`vocab_size`.*Received: vocab_size=0"]),
        ({"num_layers": -1}, ["`num_layers`.*Received: num_layers=-1"]),
        ({"num_decoder_layers": 0}, ["`num_decoder_layers`.*Received: num_decoder_layers=0"]),
        ({"num_heads": 0}, ["`num_heads`.*Received: num_heads=0"]),
        ({"d_k": 0}, ["`d_k`.*Received: d_k=0"]),
        ({"dropout": 1.0}, ["`dropout`.*Received: dropout=1.0"]),
        ({"attention_dropout": float("nan")}, ["`attention_dropout`.*Received: attention_dropout=nan"]),
        ({"layer_norm_epsilon": 0}, ["`layer_norm_epsilon`.*Received: layer_norm_epsilon=0"]),
        ({"layer_norm_epsilon": float("nan")}, ["`layer_norm_epsilon`.*Received: layer_norm_epsilon=nan"]),
        ({"d_model": 10, "num_heads": 4}, ["`d_model`.*`num_heads`.*Received: d_model=10, num_heads=4"]),
        ({"d_model": 9, "num_heads": 3}, ["`d_model`.*even.*Received: d_model=9"]),
        ({"eos_id": 0}, ["`eos_id` must differ.*Received: pad_id=0, bos_id=2, eos_id=0"]),
        ({"eos_id": 11}, [r"`eos_id`.*\[0, 11\).*eos_id=11"]),
        ({"activation": "rellu"}, ["`activation`.*celu, elu,.*Received: activation='rellu'"]),
        ({"positions": "spiral"}, ["`positions`.*learned, rotary.*Received: positions='spiral'"]),
        ({"positions": "rotary", "d_k": 3}, ["`d_k`.*even with rotary positions.*Received: d_k=3"]),
        ({"positions": "alibi", "max_length": 7}, ["`max_length`.*alibi.*Received: max_length=7"]),
        ({"num_kv_heads": 3}, ["`num_heads`.*multiple of `num_kv_heads`.*Received: num_heads=2, num_kv_heads=3"]),
        ({"window": 0, "num_kv_heads": -1}, ["`window`.*Received: window=0", "`num_kv_heads`.*num_kv_heads=-1"]),
        ({"soft_cap": 0.0, "logits_scale": -1}, ["`soft_cap`.*soft_cap=0.0", "`logits_scale`.*logits_scale=-1"]),
        ({"norm": "batch", "feed_forward": "deep"}, ["`norm`.*layer, rms.*'batch'", "`feed_forward`.*gated.*'deep'"]),
        ({"qk_norm": 1, "soft_cap": "5"}, ["`qk_norm`.*bool.*qk_norm=1", "`soft_cap`.*float or.*None.*soft_cap='5'"]),
        ({"positions": "learned"}, ["`max_length`.*learned.*Received: max_length=None"]),
        ({"max_length": 7}, ["`max_length`.*sinusoidal.*Received: max_length=7"]),
        ({"position_layout": "thirds"}, ["`position_layout`.*Received: position_layout='thirds'"]),
        (
            {"positions": "learned", "max_length": 7, "position_layout": "halves"},
            ["`position_layout`.*learned.*Received: position_layout='halves'"],
        ),
        (
            {"scale_embedding": 0, "logits_bias": None},
            ["`scale_embedding`.*bool.*scale_embedding=0", "`logits_bias`.*bool.*logits_bias=None"],
        ),
        (
            {"source_vocab_size": 13},
            ["`source_vocab_size`.*`vocab_size`.*Received: source_vocab_size=13, vocab_size=11"],
        ),
        ({"d_model": 8.0}, ["`d_model`.*int.*Received: d_model=8.0"]),
        ({"num_layers": True}, ["`num_layers`.*int.*Received: num_layers=True"]),
        ({"norm_first": 1}, ["`norm_first`.*bool.*Received: norm_first=1"]),
        ({"d_v": "4"}, ["`d_v`.*int or None.*Received: d_v='4'"]),
        (
            {"vocab_size": 2, "num_layers": 0, "d_ff": -2, "dropout": 2.0, "positions": "x", "d_model": 7},
            [r"\[0, 2\)", "`num_layers`", "`d_ff`", "`dropout`", "`positions`", "`d_model`.*`num_heads`"],
        ),
        ({"vocab_size": None, "activation": 3, "use_bias": None}, ["`vocab_size`", "`activation`", "`use_bias`"]),
    ],
)
def test_all_faults_stand_in_one_error(fields, messages):
    with pytest.raises(ValueError, match="Invalid TransformerConfig") as error:
        TransformerConfig(**{"vocab_size": 11, "d_model": 8, "num_heads": 2, **fields})
    for message in messages:
        assert re.search(message, str(error.value))
    assert str(error.value).count("\n- ") >= len(messages)


def test_one_fault_is_reported_once():
    with pytest.raises(ValueError) as error:
        TransformerConfig(vocab_size=11, dropout=1.5)
    assert str(error.value).count("\n- ") == 1


def test_defaults_are_filled_in():
    config = TransformerConfig(vocab_size=11, d_model=12, num_heads=3)
    assert config.head_dims == (4, 4)
    assert config.source_vocabulary == 11
    config = TransformerConfig(vocab_size=11, source_vocab_size=13, share_embeddings=False, d_k=5, d_v=7)
    assert config.head_dims == (5, 7)
    assert config.source_vocabulary == 13


def test_free_head_widths_need_no_divisible_width():
    assert TransformerConfig(vocab_size=11, d_model=10, num_heads=3, d_k=5, d_v=7).head_dims == (5, 7)


def test_what_the_paper_does_not_have_is_named():
    assert TransformerConfig(vocab_size=11, positions="learned", max_length=7).variants() == {}
    config = TransformerConfig.preset("modern", vocab_size=11)
    assert config.variants() == {"num_kv_heads": 2, "norm": "rms", "feed_forward": "gated", "positions": "rotary"}
    assert "`num_kv_heads` must be None. Received: num_kv_heads=2" in config.variant_problems()


def test_is_frozen():
    config = TransformerConfig(vocab_size=11)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 8


def test_the_activations_are_gelu_tanh_and_those_of_keras_that_keep_the_shape():
    functions = {name for name in dir(keras.activations) if not name.startswith("_")}
    needs_arguments = {"glu", "threshold"}
    assert functions - {"get", "serialize", "deserialize"} - needs_arguments | {"gelu_tanh"} == {*ACTIVATIONS}
    assert TransformerConfig(vocab_size=11, activation="mine>function").activation == "mine>function"
