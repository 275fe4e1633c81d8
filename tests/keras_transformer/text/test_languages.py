import pytest

from keras_transformer.text.languages import KNOWN_CODES, checked_language, find_language, is_language


@pytest.mark.parametrize(
    ("code", "known", "found"),
    [
        ("EN", ["en"], "en"),
        (" en\n", ["en"], "en"),
        ("pt_BR", ["pt-PT", "pt-BR"], "pt-BR"),
        ("pt-br", ["pt_BR"], "pt_BR"),
        ("pt-BR", ["pt", "pt-PT"], "pt"),
        ("pt", ["pt-BR", "pt-PT"], None),
        ("pt", ["pt-BR", "en"], "pt-BR"),
        ("pt-PT", ["pt-BR"], "pt-BR"),
        ("es-MX", ["es-ES", "es-419"], None),
        ("zh-CN", ["zh-Hant", "zh-Hans", "zh"], "zh-Hans"),
        ("zh-CN", ["zh-Hant", "zh"], "zh"),
        ("zh-CN", ["zh-Hant"], None),
        ("zh_hans", ["zh-CN"], "zh-CN"),
        ("zh-Hant-HK", ["zh-TW", "zh-CN"], "zh-TW"),
        ("zh-TW", ["zh-Hans", "zh-Hant"], "zh-Hant"),
        ("zh", ["zh-Hans"], "zh-Hans"),
        ("zh", ["zh-Hans", "zh-Hant"], None),
        ("cmn", ["zh"], "zh"),
        ("zho_Hans", ["zh"], "zh"),
        ("zt", ["zh-Hans", "zh-Hant"], "zh-Hant"),
        ("pb", ["pt-PT", "pt-BR"], "pt-BR"),
        ("iw", ["he"], "he"),
        ("he", ["iw"], "iw"),
        ("in", ["id"], "id"),
        ("fil", ["tl"], "tl"),
        ("tl", ["fil"], "fil"),
        ("deu", ["de"], "de"),
        ("ger", ["de"], "de"),
        ("de", ["deu"], "deu"),
        ("eng_Latn", ["en"], "en"),
        ("sr-Latn", ["sr"], "sr"),
        ("sr-Latn", ["sr-Cyrl"], None),
        ("sh", ["sr-Latn", "sr-Cyrl"], "sr-Latn"),
        ("no", ["nb"], "nb"),
        ("no", ["nb", "nn"], None),
        ("nn", ["no"], "no"),
        ("nb", ["nn"], None),
        ("ca", ["ca-valencia", "ca"], "ca"),
        ("tlh", ["tlh"], "tlh"),
        ("ns", ["nso"], "nso"),
        ("nso", ["ns"], "ns"),
        ("pt_br", ["pt", "pt_br", "pt_BR"], "pt_br"),
        ("ru", ["ru", "RU"], "ru"),
        ("", ["en"], None),
        ("-", ["en"], None),
        ("zz", ["en"], None),
        ("auto", ["en"], None),
    ],
)
def test_a_code_is_found(code, known, found):
    assert find_language(code, known) == found


@pytest.mark.parametrize(
    ("code", "normal"), [("pt_br", "pt-BR"), (" EN", "en"), ("ns", "ns"), ("qaa", "qaa"), (None, None)]
)
def test_a_code_is_written_in_the_usual_way(code, normal):
    assert checked_language("source_language", code) == normal


@pytest.mark.parametrize("code", ["xx", "jp", "English", "d", "", "e n", "de-", "../de", "de\x00"])
def test_an_unknown_code_is_answered_with_the_known_ones(code):
    assert not is_language(code)
    with pytest.raises(ValueError, match=r"`target_language` .* Received: target_language=.*ar, as, av, .* zh, zu"):
        checked_language("target_language", code)


def test_there_are_184_known_codes():
    assert len(KNOWN_CODES.split(", ")) == 184
