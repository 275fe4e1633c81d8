"""Which language each text of a request has, and which pair translates it."""

import signal

import pytest
import uvicorn

from keras_transformer.apps.serve import server
from keras_transformer.apps.serve.config import ServeConfig

GERMAN = "Zwei Männer stehen auf der Straße."
ENGLISH = "Two men are standing on the street."
SHORT_ENGLISH = "Two men are outside."
FRENCH = "Deux hommes sont dans la rue."


@pytest.fixture
def make_server(make_client, make_pair, upper):
    """Makes a client of pairs such as `"en-de"`, whose translators append the pair."""

    def make_server(*pairs):
        codes = [pair.split(">") for pair in pairs]
        return make_client([make_pair(*pair, upper(f" {pair[0]}-{pair[1]}")) for pair in codes])

    return make_server


@pytest.fixture
def both(make_server):
    """A server of English to German and German to English."""
    return make_server("en>de", "de>en")


def translate(client, q, target, source="auto", **others):
    answer = client.post("/translate", json={"q": q, "source": source, "target": target, **others})
    assert answer.status_code == 200, answer.json()
    return answer.json()


def texts(client, q, target, source="auto", **others):
    return translate(client, q, target, source, **others)["translatedText"]


def languages(client, q, target, **others):
    found = translate(client, q, target, **others)["detectedLanguage"]
    return [one["language"] for one in found] if isinstance(q, list) else found["language"]


def test_each_text_of_a_list_is_detected(make_server):
    client = make_server("en>fr", "de>fr")
    answer = translate(client, [GERMAN, ENGLISH, f"{GERMAN} Ja.", ""], "fr", alternatives=1)
    german, english = "ZWEI MÄNNER STEHEN AUF DER STRASSE. de-fr", "TWO MEN ARE STANDING ON THE STREET. en-fr"
    assert answer["translatedText"] == [german, english, f"{german} JA. de-fr", ""]
    assert [one["language"] for one in answer["detectedLanguage"]] == ["de", "en", "de", "de"]
    assert answer["alternatives"] == [[" de-fr1"], [" en-fr1"], [" de-fr1  de-fr1"], []]
    html = texts(client, [f"<p>{GERMAN}</p>", f"<b>{ENGLISH}</b>"], "fr", format="html")
    assert html == [f"<p>{german}</p>", f"<b>{english}</b>"]


def test_warnings_and_metrics_cover_several_pairs(make_server):
    client = make_server("en>fr", "de>fr")
    long_text = "Die Männer stehen auf der Straße und " * 5
    answer = translate(client, [ENGLISH, long_text], "fr")
    assert [text.split()[-1] for text in answer["translatedText"]] == ["en-fr", "de-fr"]
    assert "35 subwords, more than 20" in answer["warnings"][0]
    total = len(ENGLISH) + len(long_text)
    assert f"keras_transformer_characters_total {total}.0" in client.get("/metrics").text


def test_text_in_the_target_language_stays_as_it_is(both):
    assert texts(both, [GERMAN, ENGLISH, SHORT_ENGLISH], "de") == [
        *(GERMAN, "TWO MEN ARE STANDING ON THE STREET. en-de", "TWO MEN ARE OUTSIDE. en-de"),
    ]
    assert texts(both, [GERMAN, ENGLISH, SHORT_ENGLISH], "en")[1:] == [ENGLISH, SHORT_ENGLISH]
    answer = translate(both, f"<p>{GERMAN}<br></p>", "de", format="html", alternatives=2)
    assert answer["translatedText"] == f"<p>{GERMAN}<br></p>" and answer["alternatives"] == []
    assert answer["detectedLanguage"]["language"] == "de" and answer["detectedLanguage"]["confidence"] > 75


@pytest.mark.parametrize("word", ["Hotel", "Taxi", "Winter", "Computer"])
def test_a_word_of_both_languages_is_translated(both, word):
    assert texts(both, word, "de") == f"{word.upper()} en-de"
    assert texts(both, word, "en") == f"{word.upper()} de-en"


def test_short_texts_take_the_language_of_the_others(both):
    assert languages(both, ["Hotel", GERMAN, "Taxi", "12"], "en") == ["de"] * 4
    assert languages(both, ["Hotel", ENGLISH, "Taxi", ""], "de") == ["en"] * 4
    assert languages(both, ["Grüße", ENGLISH], "de") == ["de", "en"]  # Short, but certain.
    assert texts(both, ["Hotel", GERMAN, ENGLISH], "de")[0] == "HOTEL en-de"  # The others disagree.


@pytest.mark.parametrize("text", ["😀😀", "...", " ", "♪ -"])
@pytest.mark.parametrize("q", [lambda text: text, lambda text: [text], lambda text: ["", text]])
def test_text_without_letters_stays_as_it_is(both, text, q):
    assert texts(both, q(text), "de") == texts(both, q(text), "en") == q(text)


@pytest.mark.parametrize(
    ("source", "target"), [("en", "en"), ("de", "DE"), ("en-US", "en-GB"), ("eng", "en_AU"), ("deu-CH", "ger")]
)
def test_a_pair_of_one_language_returns_the_text(make_server, source, target):
    client = make_server("en>de")
    assert translate(client, ["two dogs", "zwei"], target, source) == {"translatedText": ["two dogs", "zwei"]}


def test_regions_are_one_language_and_scripts_are_several(make_server):
    client = make_server("en-US>zh-Hant", "zh-Hans>en-GB", "nb>pt-BR", "nn>pt-PT")
    assert texts(client, "colour", "en-GB", "en-US") == "colour"
    assert texts(client, "ação", "pt-PT", "pt-BR") == "ação"
    for source, target in (("zh-CN", "zh-TW"), ("nb", "nn")):
        answer = client.post("/translate", json={"q": "a", "source": source, "target": target})
        assert answer.status_code == 400 and "is not available as a target language from" in answer.json()["error"]


def test_a_pair_of_one_language_translates(make_server):
    assert texts(make_server("en-US>en-GB"), "color", "en-GB", "en-US") == "COLOR en-US-en-GB"


def test_a_text_that_cannot_be_translated_does_not_stop_the_others(make_server):
    client = make_server("en>it", "de>fr")
    reason = "Italian (it) is not available as a target language from German (de)"
    answer = translate(client, [GERMAN, ENGLISH], "it")
    assert answer["translatedText"] == [GERMAN, "TWO MEN ARE STANDING ON THE STREET. en-it"]
    assert answer["warnings"] == [reason]
    for q in (GERMAN, [GERMAN, GERMAN]):
        answer = client.post("/translate", json={"q": q, "source": "auto", "target": "it"})
        assert (answer.status_code, answer.json()) == (400, {"error": reason})
    assert texts(client, "Guten Tag", "it") == "GUTEN TAG en-it"  # Too short to refuse it.
    assert texts(client, "12 %", "de") == "12 %"


def test_a_single_source_language_is_compared_with_the_target(make_server):
    client = make_server("en>de")
    assert texts(client, [GERMAN, ENGLISH, "Hotel"], "de")[0] == GERMAN
    assert languages(client, [GERMAN, ENGLISH, "two dogs"], "de") == ["de", "en", "en"]
    assert client.post("/detect", json={"q": GERMAN}).json()[0]["language"] == "de"


@pytest.mark.parametrize("auto", ["AUTO", "Auto", " auto "])
def test_auto_is_known_in_any_case(both, auto):
    assert texts(both, ENGLISH, "de", auto) == "TWO MEN ARE STANDING ON THE STREET. en-de"


@pytest.mark.parametrize(
    ("html", "language"),
    [
        ("<p>Gr&uuml;&szlig;e</p>", "de"),
        ("<p>G<b>r&uuml;</b>&#223;e</p><script>let of = the(and, this)</script>", "de"),
        (f'<div class="this is the title of the page" data-x="with the and">{GERMAN}</div>', "de"),
        (f"<p>{ENGLISH}</p><!-- {GERMAN * 3} --><style>.straße {{}}</style>", "en"),
        (f'<p>{ENGLISH} <span translate="no">{GERMAN * 3}</span></p>', "en"),
    ],
)
def test_html_is_detected_by_its_text(both, html, language):
    assert languages(both, html, "en", format="html") == language
    assert languages(both, [html], "en", format="html") == [language]


@pytest.mark.parametrize("html", ["<br>", "<p></p>", "<script>let the = of</script>", '<p translate="no">Straße</p>'])
def test_html_without_text_stays_as_it_is(both, html):
    assert texts(both, html, "de", format="html") == html


def test_detect_answers_a_list_with_the_languages_of_all(both):
    def detect(q):
        return both.post("/detect", json={"q": q}).json()

    together = detect([GERMAN, ENGLISH, "Hotel"])
    assert {one["language"] for one in together} == {"de", "en"}
    assert all(30 < one["confidence"] < 70 for one in together)
    assert detect([GERMAN, "Hotel"])[0]["language"] == detect([GERMAN, GERMAN, ENGLISH])[0]["language"] == "de"
    assert detect(["", "12"]) == [{"language": "en", "confidence": 0.0}, {"language": "de", "confidence": 0.0}]


def test_detect_finds_a_target_language(make_server):
    client = make_server("en>fr", "de>fr")
    assert client.post("/detect", json={"q": FRENCH}).json()[0]["language"] == "fr"
    assert texts(client, FRENCH, "fr") == FRENCH


def test_a_language_that_lingua_does_not_know(make_server):
    client = make_server("gl>fr", "en>fr", "de>fr")
    assert languages(client, [GERMAN, ENGLISH], "fr") == ["de", "en"]
    assert texts(client, "dous homes", "fr", "gl") == "DOUS HOMES gl-fr"
    assert client.app.state.router.notes == ["lingua does not know gl"]


def test_a_language_that_lingua_does_not_know_is_not_taken_for_its_neighbour(make_server):
    assert languages(make_server("gl>pt"), "Este é um bom dia para caminhar pela cidade.", "pt") == "gl"


def test_norwegian_is_found_in_both_standards(make_server):
    client = make_server("no>fr", "en>fr")
    for text in ("Jeg vet ikke hva hun heter.", "Eg veit ikkje kva ho heiter."):
        assert languages(client, text, "fr") == "no"
    assert texts(client, "hva", "fr", "nb") == texts(client, "hva", "fr", "nn") == "HVA no-fr"


def test_languages_that_lingua_cannot_tell_apart(make_server):
    client = make_server("zh-Hans>en", "zh-Hant>fr", "de>en")
    chinese = "两个男人站在街上。"
    assert languages(client, chinese, "en") == "zh-Hans" and languages(client, chinese, "fr") == "zh-Hant"
    assert languages(client, GERMAN, "en") == "de"
    assert client.app.state.router.notes == ["lingua cannot tell zh-Hans and zh-Hant apart"]


def test_languages_that_cannot_be_detected_are_printed_at_the_start(make_server, make_pair, monkeypatch, capsys):
    app = make_server("gl>fr", "zh-CN>fr", "zh-TW>fr").app
    monkeypatch.setattr(server, "load_app", lambda *_: (app, [make_pair("gl", "fr")]))
    monkeypatch.setattr(uvicorn, "Config", lambda *_, **__: None)
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    server.serve(["run"], ServeConfig(port=0, page=False))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "gl-fr: keras"
    assert lines[1:] == [
        *("source=auto: lingua does not know gl", "source=auto: lingua cannot tell zh-CN and zh-TW apart"),
    ]


def test_source_languages_of_which_none_is_known_to_lingua(make_server):
    client = make_server("gl>fr", "ast>fr")
    for path in ("/translate", "/detect"):
        answer = client.post(path, json={"q": "a", "source": "auto", "target": "fr"})
        assert (answer.status_code, answer.json()) == (400, {"error": "auto is not supported"})


def test_many_texts_are_detected_at_once(both):
    assert texts(both, ["a"] * 3000, "de") == ["A en-de"] * 3000
