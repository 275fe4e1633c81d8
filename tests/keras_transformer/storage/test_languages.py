import dataclasses
import json

import pytest

from keras_transformer.storage.languages import Direction, Languages, languages_of
from keras_transformer.storage.model_directory import ORIGIN, ModelDirectory

FORCED = Languages(
    "eng_Latn",
    source_tokens={"eng_Latn": 10, "deu_Latn": 11, "zho_Hans": 12, "zho_Hant": 13},
    target_tokens={"eng_Latn": 10, "deu_Latn": 11, "zho_Hans": 12, "zho_Hant": 13},
    forces_target=True,
)
#: A model that was trained on pairs from two languages, which have no tokens.
OWN = Languages(source_tokens={"en": None, "fr": None}, target_tokens={"de": 20, "nl": 21})
PAIR = Languages("en", "de")


def test_a_model_of_one_pair_has_no_prefixes():
    assert PAIR.direction() == PAIR.direction("en-GB", "deu") == Direction("en", "de")
    assert Languages().direction("en") == Direction("en")
    assert not PAIR.are_several and PAIR.has_default and PAIR.max_source_prefix == 0


def test_forced_languages_are_tokens_of_both_sides():
    assert FORCED.direction("de", "en") == Direction("deu_Latn", "eng_Latn", (11,), (10,))
    assert FORCED.direction(target="zh-TW") == Direction("eng_Latn", "zho_Hant", (10,), (13,))
    assert FORCED.are_several and not FORCED.has_default and FORCED.max_source_prefix == 1


def test_target_languages_are_tokens_of_the_source():
    assert OWN.direction("en", "nl") == Direction("en", "nl", (21,), ())
    assert OWN.direction(target="nl") == Direction(None, "nl", (21,), ())  # Sources without tokens need no name.
    group = Languages("gem", target_tokens={"de": 20})
    assert group.direction("XY") == Direction("xy", "de", (20,), ()) and group.has_default
    both = Languages(source_tokens={"en": 5}, target_tokens={"de": 20})
    assert both.direction() == Direction("en", "de", (5, 20), ()) and both.max_source_prefix == 2
    marked = dataclasses.replace(both, source_start=(7,))
    assert marked.direction() == Direction("en", "de", (7, 5, 20), ()) and marked.max_source_prefix == 3


@pytest.mark.parametrize(
    ("languages", "given", "message"),
    [
        (PAIR, ("fr", None), "`source_language` must be a language of the model: en. Received: source_language='fr'"),
        (PAIR, (None, "fr"), "`target_language` must be a language of the model: de"),
        (OWN, ("en", None), "`target_language` must be given, one of the languages of the model: de, nl"),
        (OWN, ("de", "de"), "`source_language` must be a language of the model: en, fr. Received"),
        (FORCED, (None, "zh"), "must be a language of the model: eng_Latn, deu_Latn, zho_Hans, zho_Hant.*'zh'"),
    ],
)
def test_an_unknown_language_lists_the_known_ones(languages, given, message):
    with pytest.raises(ValueError, match=message):
        languages.direction(*given)


def test_some_source_languages_with_tokens_are_refused():
    with pytest.raises(ValueError, match="Either all source languages must have a token, or none.*'fr': None"):
        Languages(source_tokens={"en": 5, "fr": None}, target_tokens={"de": 6})


def test_a_start_without_tokens_is_refused():
    with pytest.raises(ValueError, match=r"`source_start` needs `target_tokens`. Received: source_start=\(7,\)"):
        Languages("en", "de", source_start=(7,))


def test_a_record_of_before_the_start_has_none():
    record = OWN.to_record()
    del record["language_tokens"]["source_start"]
    assert Languages.from_record(record) == OWN


def test_directions_are_between_different_languages():
    assert [each[:2] for each in OWN.directions()] == [("en", "de"), ("en", "nl"), ("fr", "de"), ("fr", "nl")]
    assert len([*FORCED.directions()]) == 4 * 3
    assert [*PAIR.directions()] == [Direction("en", "de")]


def test_the_default_is_one_of_the_languages():
    chosen = OWN.with_default("eng", "nl")
    assert (chosen.source, chosen.target) == ("en", "nl") and chosen.has_default
    assert chosen.direction() == Direction("en", "nl", (21,))
    assert OWN.with_default(None, None) == OWN
    with pytest.raises(ValueError, match="`source_language` must be a language of the model: en, fr"):
        OWN.with_default("de", None)


def test_a_model_of_one_pair_has_the_default_that_is_given():
    assert Languages("roa", "en").with_default("fr", None) == Languages("fr", "en")
    assert Languages().with_default("fr", "zh-Hans") == Languages("fr", "zh-Hans")


@pytest.mark.parametrize("languages", [Languages(), PAIR, FORCED, OWN, dataclasses.replace(OWN, source_start=(7,))])
def test_a_record_and_an_export_have_the_languages(languages, tmp_path):
    assert Languages.from_record(languages.to_record()) == languages
    directory = ModelDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.write_record(languages.to_record(), finished=True)
    assert languages_of(tmp_path / "run") == languages
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / ORIGIN).write_text(json.dumps(languages.to_record()))
    assert languages_of(tmp_path / "export") == languages


def test_a_folder_without_a_record_has_unknown_languages(tmp_path):
    assert languages_of(tmp_path) == Languages()
