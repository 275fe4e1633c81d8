import dataclasses

import pytest

from keras_transformer.config import TransformerConfig
from keras_transformer.text.tokenization import TokenizerConfig
from keras_transformer.training.config import ModelConfig, RecipeConfig, TrainConfig
from keras_transformer.training.data.prepare import data_options
from keras_transformer.training.data_config import BatchConfig, DataConfig, PrepareConfig
from keras_transformer.training.mixture_config import CorpusConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": ["a", "b"], "target": "c"}, "`source` and `target` .* files.*Received: 2 and 1"),
        ({"source": "a"}, "`source` and `target` .* files.*Received: 1 and 0"),
        ({"source": "a", "target": "b", "validation_target": "c"}, "`validation_source` and .*: 0 and 1"),
        ({"validation_source": "a", "validation_target": "b"}, "`validation_source` .*Received: validation_source="),
        ({"source": "a", "target": "b", "reverse": True}, "`reverse` must not be given with `source`"),
        ({"source": "a", "target": "b", "dataset": "ted"}, "`dataset` must not be given with `source`"),
        ({"max_length": 1}, "`max_length` .*Received: max_length=1"),
        ({"encoding": "cp1252"}, "`encoding` .*Received: encoding='cp1252'"),
        ({"source": "a", "target": "b", "encoding": "klingon"}, "Received: encoding='klingon'"),
        ({"max_length_ratio": 0.5}, "`max_length_ratio` .*Received: max_length_ratio=0.5"),
        ({"source_language": "English"}, "`source_language` .*Received: source_language='English'"),
        ({"target_language": "d"}, "`target_language` .*Received: target_language='d'"),
    ],
)
def test_data_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**options)


def test_codes_of_languages_are_normalized():
    config = DataConfig(source_language="EN", target_language="pt_br")
    assert (config.source_language, config.target_language) == ("en", "pt-BR")
    with pytest.raises(ValueError, match="Received: source_language='jp'.* is, it, iu, ja, jv, "):
        DataConfig(source_language="jp")


@pytest.mark.parametrize(
    ("options", "holds_out"),
    [
        ({}, False),
        ({"validation_split": "train[:1%]", "train_split": "train[1%:]"}, True),
        ({"source": "a", "target": "b"}, True),
        ({"source": "a", "target": "b", "validation_source": "c", "validation_target": "d"}, False),
        ({"corpora": {"a": {"source": "a", "target": "b"}, "b": {"dataset": "x"}}}, True),
        ({"corpora": {"b": {"dataset": "x"}, "a": {"source": "a", "target": "b"}}}, False),
    ],
)
def test_text_that_is_held_out(options, holds_out):
    corpora = {name: CorpusConfig(**corpus) for name, corpus in options.get("corpora", {}).items()}
    assert DataConfig(**{**options, "corpora": corpora or None}).holds_out is holds_out


@pytest.mark.parametrize(
    "name",
    ["epochs", "max_steps", "warmup_steps", "validate_every", "checkpoint_every", "patience", "steps_per_execution"],
)
def test_recipe_counts(name):
    with pytest.raises(ValueError, match=f"`{name}` .*Received: {name}=0"):
        RecipeConfig(**{name: 0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peak_learning_rate": 0.0}, "`peak_learning_rate` .*Received: peak_learning_rate=0.0"),
        ({"max_time": -1.0}, "`max_time` .*Received: max_time=-1.0"),
        ({"clip_norm": float("nan")}, "`clip_norm` .*Received: clip_norm=nan"),
        ({"r_drop": float("nan")}, "`r_drop` .*Received: r_drop=nan"),
        ({"r_drop": -1.0}, "`r_drop` .*Received: r_drop=-1.0"),
        ({"weight_decay": float("inf")}, "`weight_decay` .*Received: weight_decay=inf"),
        ({"keep_checkpoints": 1}, "`keep_checkpoints` .*Received: keep_checkpoints=1"),
        ({"best_by": "bleu"}, "`best_by` bleu requires `bleu_sentences`.*Received: bleu_sentences=0"),
        ({"moving_average": 1.0}, "`moving_average` .*Received: moving_average=1.0"),
        ({"moving_average": 0.9, "weights": "average"}, "`weights` .*`moving_average`.*Received: weights='average'"),
        ({"label_smoothing": 1.0}, "`label_smoothing` .*Received: label_smoothing=1.0"),
    ],
)
def test_recipe_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RecipeConfig(**options)


def test_steps_round_up_to_executions():
    recipe = RecipeConfig(steps_per_execution=4)
    assert [recipe.round_to_execution(steps) for steps in (1, 4, 5)] == [4, 4, 8]


def test_one_file_is_a_list_of_one():
    config = DataConfig(source="a", target=("b",))
    assert (config.source, config.target, config.validation_source) == (["a"], ["b"], [])


def test_a_model_is_a_preset_with_changes():
    built = ModelConfig(preset="base", d_ff=64, norm_first=True, dropout=0.0).transformer(vocab_size=500)
    assert built == TransformerConfig.preset("base", vocab_size=500, d_ff=64, norm_first=True, dropout=0.0)


def test_model_fields_are_those_of_the_library():
    theirs = {field.name for field in dataclasses.fields(TransformerConfig)}
    decided = {"vocab_size", "source_vocab_size", "share_embeddings", "pad_id", "bos_id", "eos_id"}
    assert {field.name for field in dataclasses.fields(ModelConfig)} == (theirs - decided) | {"preset"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "huge"}, "`model.preset` .*tiny.*Received: model.preset='huge'"),
        ({"d_model": 511, "num_heads": 7}, "`d_model` .*even.*Received: d_model=511"),
        ({"positions": "learned"}, "`max_length` .*learned positions.*Received: "),
        ({"num_heads": 3}, "`d_model` .*`num_heads`.*Received: "),
    ],
)
def test_a_model_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**options)


@pytest.mark.parametrize("options", [{"model": ModelConfig(d_ff=8)}, {"tokenizer": TokenizerConfig(vocab_size=300)}])
def test_fine_tuning_brings_its_own_model(options):
    with pytest.raises(ValueError, match="`init_from`.*Received: init_from='other'"):
        TrainConfig(output="run", init_from="other", **options)


def test_the_record_leaves_out_where_it_runs():
    one = TrainConfig(output="a", overwrite=True, devices="CPU:0", tokens_per_device=300)
    assert one.record() == TrainConfig(output="b").record()
    assert one.record() != TrainConfig(output="a", reverse=True).record()
    assert one.record()["recipe"]["seed"] == 1


@pytest.mark.parametrize(
    ("tokens_per_device", "replicas", "parts"),
    [(None, 1, 1), (None, 4, 1), (1000, 1, 1), (999, 1, 2), (300, 1, 4), (300, 2, 2), (300, 4, 1)],
)
def test_passes_over_a_batch(tokens_per_device, replicas, parts):
    config = TrainConfig(output="a", tokens_per_batch=1000, tokens_per_device=tokens_per_device)
    assert config.accumulation_steps(replicas) == parts


@pytest.mark.parametrize("name", ["tokens_per_batch", "tokens_per_device"])
def test_the_longest_pair_needs_room(name):
    with pytest.raises(ValueError, match=f"`{name}` .*256.*Received: {name}=255"):
        TrainConfig(output="a", **{name: 255})
    config = TrainConfig(output="a", prepared="b", **{name: 255})  # The maximum length is in the folder's record.
    with pytest.raises(ValueError, match=f"`{name}` .*300.*Received: {name}=255"):
        config.require_room(300)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match=f"`seed` .*Received: seed={seed}"):
        RecipeConfig(seed=seed)


def test_a_number_of_buckets_out_of_range_is_refused():
    with pytest.raises(ValueError, match="`num_buckets` .*Received: num_buckets=0"):
        BatchConfig(num_buckets=0)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"source": "a", "target": "b"}, "`source`, `target`"),
        ({"dataset": "wmt14_translate/de-en", "max_length": 99}, "`dataset`, `max_length`"),
        ({"tokenizer": TokenizerConfig(vocab_size=300)}, "`tokenizer`"),
    ],
)
def test_tokens_bring_their_own_data(options, names):
    with pytest.raises(ValueError, match=f"{names} .*`prepared`.*Received: prepared='b'"):
        TrainConfig(output="a", prepared="b", **options)


def test_the_record_of_a_run_on_tokens_has_no_data():
    record = TrainConfig(output="a", prepared="b", num_buckets=2).record()
    assert record["prepared"] == "b" and record["num_buckets"] == 2
    assert not {"dataset", "source", "max_length", "tokenizer"} & set(record)


def test_records_without_an_encoding_are_of_utf_8():
    """Records of earlier versions have no encoding. Their runs and tokens must still match."""
    files = {"source": "a", "target": "b"}
    for config in (TrainConfig(output="c", **files), TrainConfig(output="c", encoding="UTF8", **files)):
        assert "encoding" not in config.record() and "encoding" not in data_options(config)
    other = TrainConfig(output="c", encoding="latin-1", **files)
    assert other.record()["encoding"] == data_options(other)["encoding"] == "iso8859-1"


def test_tokens_for_fine_tuning_bring_their_own_subwords():
    with pytest.raises(ValueError, match="`tokenizer` .*Received: init_from='b'"):
        PrepareConfig(output="a", init_from="b", tokenizer=TokenizerConfig(vocab_size=300))
