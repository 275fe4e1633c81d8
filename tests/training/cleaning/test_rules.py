import pytest

from keras_transformer.training.cleaning.config import CleaningConfig
from keras_transformer.training.cleaning.rules import (
    Typical,
    common_script,
    has_equal_addresses,
    is_in_script,
    near,
    rules,
    within_ratio,
)

GOOD = ("He paid 1,250.50 dollars at www.shop.com in 2019.", "Er zahlte 2019 bei www.shop.com 1.250,50 Dollar.")


def reason_for(source, target, **options):
    found = rules(CleaningConfig(**options), Typical(("LATIN", "LATIN"), 1.0))
    return next((name for name, rule in found if not rule(source, target)), None)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (GOOD, None),
        (("Hello!", "Guten Tag!"), None),
        (("A dog. " * 800, "Ein Hund. " * 500), "length"),
        (("A dog. " * 500, "Ein Hund. " * 500), None),
        (("A dog.", "Ein Hund, der sehr lange durch den großen Wald läuft."), "length_ratio"),
        (("| 12 | 13 | 14 |", "| 12 | 13 | 14 |"), "letters"),
        (("Click <b>here</b>.", "Hier klicken."), "markup"),
        (("function open() {", "öffnen"), "markup"),
        (("<!-- the menu -->", "das Menü"), "markup"),
        (("<br />Two <o:p></o:p> men", "Zwei Männer"), "markup"),
        (("John <john@example.org> and <http://a.org>", "Hans <john@example.org> und <http://a.org>"), None),
        (("a <b and c> d, <<No>>, <John Smith>, <3", "a <b und c> d, <<Nein>>, <Hans Schmidt>, <3"), None),
        (("Yes!!!", "Ja!!!"), None),
        (("“No.” He… left?!", "„Nein.“ Er… ging?!"), None),
        (("At ten o'clock on May 1, 2024.", "2024年5月1日10時。"), "script"),
        (("Part 1 ................ 12", "Teil 1 ................ 12"), "letters"),
        (("*** Text ***", "Text"), "letters"),
        (("It costs 1.5 euro.", "It costs 1,5 Euro."), "copy"),
        (("It costs 1.5 euro.", "It costs 15 Euro."), "numbers"),
        (("Hello, World", "hello world"), "copy"),
        (("It is 12 o'clock.", "Es ist 21 Uhr."), "numbers"),
        (("We have the rooms 101, 102 and 103.", "Wir haben einige Zimmer."), "numbers"),
        (("Two men and 2 dogs.", "Zwei Männer und zwei Hunde."), None),
        (("Visit www.here.com today.", "Heute www.there.com besuchen."), "urls"),
        (("A red house.", "Красный дом."), "script"),
    ],
)
def test_each_pair_has_its_reason(pair, reason):
    assert reason_for(*pair) == reason


@pytest.mark.parametrize(
    ("pair", "option"),
    [
        (("A dog. " * 800, "Ein Hund. " * 500), {"max_characters": 0}),
        (("A dog.", "Ein Hund, der sehr lange durch den großen Wald läuft."), {"max_length_ratio": 0}),
        (("| one | 13 | 14 | 15 |", "| eins | 13 | 14 | 15 |"), {"min_letters": 0}),
        (("Click <b>here</b>.", "Hier klicken."), {"markup": False}),
        (("Hello", "hello"), {"copies": False}),
        (("It is 12 o'clock.", "Es ist 21 Uhr."), {"numbers": False}),
        (("See www.here.com today.", "Siehe www.there.com heute."), {"urls": False}),
        (("A red house.", "Красный дом."), {"scripts": False}),
    ],
)
def test_each_rule_can_be_off(pair, option):
    assert reason_for(*pair) and reason_for(*pair, **option) is None


@pytest.mark.parametrize(
    ("source", "target", "equal"),
    [
        ("see “http://a.org/b”", "siehe „http://a.org/b“", True),
        ("see http://a.org/", "siehe http://a.org", True),
        ("see www.a.org today", "請看www.a.org今天", True),
        ("Write to me@a.org today.", "今天请写信给me@a.org。", True),
        ("see [http://a.org]", "siehe (http://a.org)", True),
        ("see **www.a.org**, [b](http://b.org/c)", "siehe `www.a.org`, http://b.org/c", True),
        ("see http://www.a.org/", "siehe https://a.org", True),
        ("see a.org", "siehe WWW.A.ORG", True),
        ("mailto:me@a.org", "me@a.org;", True),
        ("see http://a.org/b", "siehe http://a.org/c", False),
        ("see http://a.org/b", "siehe http://a.org", False),
        ("see www.a.org", "siehe www.a.org.uk", False),
        ("to me@a.org", "an", False),
        ("to me@a.org", "an dich@a.org", False),
    ],
)
def test_equal_addresses_are_recognized(source, target, equal):
    assert has_equal_addresses(source, target) is has_equal_addresses(target, source) is equal


def test_lengths_are_relative_to_the_usual_ratio():
    """As from English to Chinese, which has a quarter of the characters."""
    english, chinese = "two men are outside in the rain", "两个男人在雨中"
    typical = Typical.of([(english, chinese), ("a dog runs in the park", "狗在公园里跑"), ("", "狗")])
    assert typical.scripts == ("LATIN", "CJK") and 0.2 < typical.length_ratio < 0.3
    assert not within_ratio(english, chinese, 2.0) and within_ratio(english, chinese, 2.0, typical.length_ratio)
    assert not within_ratio(english, 4 * chinese, 2.0, typical.length_ratio)
    (rule,) = [rule for name, rule in rules(CleaningConfig(), typical) if name == "length_ratio"]
    assert rule(english, chinese) and not rule(english, 4 * chinese)


@pytest.mark.parametrize("typical", [0.25, 1.0, 4.0])
def test_the_limit_of_lengths_does_not_depend_on_the_direction(typical):
    for length in range(0, 40):
        source, target = "a" * round(30 / min(typical, 1)), "b" * length
        assert within_ratio(source, target, 2.0, typical) is within_ratio(target, source, 2.0, 1 / typical)
    assert not within_ratio("a" * 80, "b", 2.0, typical)


def test_a_target_may_be_twice_as_long_as_usual():
    assert reason_for("A dog in the park.", "Ein Hund spielt im Park, ja.") is None
    assert reason_for(30 * "a dog. ", 59 * "Hunde. ") is None
    assert reason_for(30 * "a dog. ", 61 * "Hunde. ") == "length_ratio"


def test_a_corpus_of_empty_lines_has_a_usual_ratio():
    assert Typical.of([("", "a"), ("b", "")]).length_ratio == 1.0


def test_scripts_are_recognized():
    assert is_in_script("コーヒー", "CJK") and is_in_script("Ｈｅｌｌｏ", "LATIN") and common_script(["人々"]) == "CJK"
    assert common_script(["Hello", "Да", "World", "12"]) == "LATIN"
    assert common_script(["12", ""]) is None
    assert (
        is_in_script("これは本です", "CJK") and is_in_script("這是書", "HIRAGANA") and not is_in_script("book", "CJK")
    )
    assert is_in_script("12 + 13", "LATIN")
    assert is_in_script("Пишите на info@example.org.", "CYRILLIC") and not is_in_script("Write to я@a.org", "CYRILLIC")


def test_near_ignores_case_punctuation_and_width():
    assert near("Ｈello,  WORLD!") == near("hello world") != near("hello word")


@pytest.mark.parametrize(
    ("one", "other"),
    [("1.5", "15"), ("1-2", "12"), ("10:30", "1030"), ("1/2", "12"), ("3, 4", "34"), ("٣٫٥", "٣٥")]
    + [("at -5", "at 5"), ("$5", "€5"), ("5%", "5")],
)
def test_near_keeps_amounts(one, other):
    assert near(one) != near(other)


def test_near_ignores_the_notation_of_numbers():
    assert near("1,200") == near("1.200") == near("1’200") == near("1200") != near("1,20")
    assert near("from 1.5 %") == near("From 1,5%.") and near("5, 6 and 7") == near("5,6 and 7")


def test_near_keeps_vowel_signs():
    """They are marks, not letters: of the, do (in Hindi)."""
    assert near("की") != near("का") != near("क") and near("की।") == near("की")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_characters": -1}, "max_characters.*-1"),
        ({"max_length_ratio": 0.5}, "max_length_ratio.*0.5"),
        ({"max_length_ratio": float("nan")}, "max_length_ratio.*nan"),
        ({"min_letters": 1.5}, "min_letters.*1.5"),
        ({"min_score": 0.5}, "min_score.*model"),
        ({"min_score": float("inf"), "model": "runs/x"}, "min_score.*inf"),
        ({"reverse_model": "runs/x", "min_letters": -1}, "(?s)min_letters.*-1.*reverse_model"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        CleaningConfig(**options)
