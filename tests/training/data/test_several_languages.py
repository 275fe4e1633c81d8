"""Corpora in several languages: each source starts with a symbol of its target language."""

import json

import numpy as np
import pytest

from keras_transformer.storage.languages import Languages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.text import Tokenizer, TokenizerConfig
from keras_transformer.training.data import prepare as module
from keras_transformer.training.data.prepare import prepare
from keras_transformer.training.data_config import PrepareConfig
from keras_transformer.training.mixture_config import CorpusConfig
from keras_transformer.training.validation_bleu import ValidationBleu

NUMBERS = {"en": "one two three", "de": "eins zwei drei", "fr": "un deux trois"}
DIRECTIONS = [("en", "de"), ("de", "en"), ("en", "fr")]


@pytest.fixture
def corpora(tmp_path):
    """Corpora with 200 pairs of one direction each, of which two are held out."""
    for code, words in NUMBERS.items():
        lines = [" ".join(words.split()[int(digit) % 3] for digit in str(i)) for i in range(1000, 1200)]
        (tmp_path / code).write_text("\n".join(lines) + "\n")
    return {
        f"{source}-{target}": CorpusConfig(
            source=str(tmp_path / source),
            target=str(tmp_path / target),
            source_language=source,
            target_language=target,
        )
        for source, target in DIRECTIONS
    }


def write(tmp_path, corpora, **options):
    options = {"tokenizer": TokenizerConfig(vocab_size=300), **options}
    return prepare(PrepareConfig(output=str(tmp_path / "tokens"), corpora=corpora, **options))


def test_each_source_starts_with_the_symbol_of_its_target_language(corpora, tmp_path):
    tokens = write(tmp_path, {**corpora, "en-de": CorpusConfig(**{**vars(corpora["en-de"]), "tag": "<bt>"})})
    tokenizer = Tokenizer(tokens.tokenizer_files[0])
    ids = {code: tokenizer.pieces.index(f"<2{code}>") for code in ("de", "en", "fr")}
    assert Languages.from_record(tokens.record()) == Languages(
        source_tokens={"en": None, "de": None}, target_tokens={"de": ids["de"], "en": ids["en"], "fr": ids["fr"]}
    )
    tag = tokenizer.pieces.index("<bt>")
    for (source, target), split in zip(DIRECTIONS, tokens.train_splits, strict=True):
        assert split == f"train.{source}-{target}"
        prefix = [ids[target], *([tag] if split == "train.en-de" else [])]
        assert tokens.prefixes[split] == (tuple(prefix), ())
        sources, targets = (side.lists() for side in tokens.sides(split))
        assert len(sources) == 198 and all(row[: len(prefix)] == prefix for row in sources)
        known = {*(tmp_path / target).read_text().splitlines()}
        assert not {*tokenizer.decode(targets)} - known and not {*ids.values(), tag} & {
            i for row in targets for i in row
        }
    assert not {*ids.values()} & {*tokenizer.encode(["<2de> one"])[0]}


def test_each_corpus_is_validated_on(corpora, tmp_path):
    tokens = write(tmp_path, corpora)
    ids = [tokens.prefixes[split][0] for split in tokens.train_splits]
    sources = tokens.sides("validation")[0].lists()
    assert [tuple(row[:1]) for row in sources] == [one for one in ids for _ in range(2)]
    with pytest.raises(ValueError, match="BLEU requires validation text in one pair of languages"):
        ValidationBleu.from_prepared(tokens.path, 2)


def test_validation_files_have_one_pair_of_languages(corpora, tmp_path):
    files = {"validation_source": str(tmp_path / "en"), "validation_target": str(tmp_path / "fr")}
    with pytest.raises(ValueError, match="`validation_source` requires `source_language` and `target_language`"):
        write(tmp_path, corpora, **files)
    tokens = write(tmp_path, corpora, **files, source_language="en", target_language="fr")
    french = tokens.prefixes["train.en-fr"][0][0]
    assert {row[0] for row in tokens.sides("validation")[0].lists()} == {french}
    languages = ValidationBleu.from_prepared(tokens.path, 2).languages
    assert languages.direction().source_prefix == (french,)


def test_corpora_without_languages_beside_others_are_refused(corpora, tmp_path):
    plain = CorpusConfig(source=str(tmp_path / "en"), target=str(tmp_path / "de"))
    with pytest.raises(ValueError, match="corpora.plain must have both languages"):
        write(tmp_path, {**corpora, "plain": plain})
    with pytest.raises(ValueError, match="corpora.en-de.source_language must be the code of a language.*'none of'"):
        write(tmp_path, {"en-de": CorpusConfig(**{**vars(corpora["en-de"]), "source_language": "none of"})})
    deu = CorpusConfig(**{**vars(corpora["en-fr"]), "target_language": "deu"})
    with pytest.raises(ValueError, match="each language must have one code, not both de and deu"):
        write(tmp_path, {"en-de": corpora["en-de"], "deu": deu})
    assert not (tmp_path / "tokens").exists()
    one = write(tmp_path, {"plain": plain, "en-de": corpora["en-de"]})  # One direction, as far as is known.
    assert Languages.from_record(one.record()) == Languages("en", "de") and not one.prefixes


@pytest.mark.parametrize("forces_target", [False, True])
def test_a_model_of_several_languages_is_tuned_with_its_own_tokens(corpora, tmp_path, monkeypatch, forces_target):
    first = write(tmp_path, corpora)
    pieces = Tokenizer(first.tokenizer_files[0]).pieces
    tokens = {code: pieces.index(f"<2{code}>") for code in NUMBERS}
    languages = Languages(
        source_tokens=tokens if forces_target else dict.fromkeys(tokens),
        target_tokens=tokens,
        forces_target=forces_target,
    )
    directory = ModelDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.write_record(languages.to_record(), finished=True)
    monkeypatch.setattr(module, "finished_tokenizers", lambda path: first.tokenizer_models())
    files = {"source": str(tmp_path / "fr"), "target": str(tmp_path / "de"), "init_from": str(directory.path)}
    config = {"output": str(tmp_path / "tuning"), **files}
    tuning = prepare(PrepareConfig(**config, source_language="fr", target_language="de"))
    fr, de = tokens["fr"], tokens["de"]
    expected = ((fr,), (de,)) if forces_target else ((de,), ())
    assert tuning.prefixes == {"train": expected}
    for split in ("train", "validation"):
        for side, prefix in zip(tuning.sides(split), expected, strict=True):
            assert all(tuple(row[: len(prefix)]) == prefix for row in side.lists())
    assert Languages.from_record(tuning.record()) == languages.with_default("fr", "de")
    with pytest.raises(ValueError, match="`target_language` must be a language of the model: en, de, fr"):
        prepare(PrepareConfig(**{**config, "output": str(tmp_path / "x")}, source_language="fr", target_language="nl"))
    assert not (tmp_path / "x" / "tokens.json").exists()


def test_tags_of_older_tokens_are_prefixes(corpora, tmp_path):
    tokens = write(tmp_path, corpora)
    record = json.loads(tokens.record_file.read_text())
    record.pop("prefixes")
    tokens.record_file.write_text(json.dumps({**record, "tags": {"train.en-de": 7}}))
    assert TokenDirectory(tokens.path).prefixes == {"train.en-de": ((7,), ())}
    assert np.array_equal(
        TokenDirectory(tokens.path).sides("train.en-de")[0].lengths, tokens.sides("train.en-de")[0].lengths
    )
