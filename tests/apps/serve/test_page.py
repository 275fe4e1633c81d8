"""The files of the page, and what it asks the server for."""

import re

import numpy as np
import pytest
from starlette.testclient import TestClient

from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.apps.serve.proxies import BehindProxies
from keras_transformer.storage.recorded_folder import ModelDirectoryError
from keras_transformer.translate.token_translator import TokenTranslator
from keras_transformer.translate.translation import Translation

GOOD = {"q": "a dog", "source": "en", "target": "de"}


class WithAttention(TokenTranslator):
    """A translator whose search gives no tokens. It attends to one subword more in each step."""

    max_n_best = 1

    def attention(self, line, translation):
        """The attention to two subwords."""
        return np.array([[0.12346, 0.5]]), ["▁a", "</s>"], [translation.text]


@pytest.fixture
def attentive(make_client, make_pair, upper):
    """A client of a server whose translator knows its attention."""

    class Both(upper, WithAttention):
        pass

    return make_client([make_pair(translator=Both())])


def test_each_file_that_the_page_names_is_there(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    waiting, found = [""], {}
    while waiting:
        name = waiting.pop()
        found[name] = answer = client.get(f"/{name}")
        assert answer.status_code == 200, name
        names = re.findall(r'(?:href|src|from)[ =]"(?:\./)?([\w-]+\.\w+)"', answer.text)
        waiting += {*names} - {*found, *waiting}
    assert {"page.js", "page.css", "translator.js", "sentences.js"} < {*found}
    assert not re.search("https?://", "".join(answer.text for answer in found.values()))


def test_the_policy_forbids_other_hosts_and_frames(client):
    policy = client.get("/").headers["content-security-policy"]
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= {*policy.split("; ")}
    assert client.head("/").headers["content-security-policy"] == policy


def test_a_server_without_a_page_answers_404(make_client):
    client = make_client(page=False)
    assert client.get("/").status_code == client.get("/page.js").status_code == 404


def test_scores_are_those_of_the_hypotheses(client):
    answer = client.post("/translate", json={**GOOD, "alternatives": 2, "scores": True}).json()
    assert answer == {"translatedText": "A DOG", "alternatives": ["1", "2"], "scores": [0.0, -1.0, -2.0]}
    assert "scores" not in client.post("/translate", json=GOOD).json()
    assert "scores" not in client.post("/translate", data={**GOOD, "scores": "false"}).json()
    assert "scores" in client.post("/translate", data={**GOOD, "scores": "true"}).json()
    assert client.get("/frontend/settings").json()["maxAlternatives"] == 2


def test_the_score_of_a_text_is_the_mean_of_its_sentences(client):
    answer = client.post("/translate", json={**GOOD, "q": ["A dog. A cat.", ""], "alternatives": 1, "scores": True})
    assert answer.json()["scores"] == [[0.0, -1.0], [0.0]]


def test_attention_has_subwords_and_weights(attentive):
    answer = attentive.post("/attention", json=GOOD)
    assert (answer.status_code, answer.json()) == (
        200,
        {"source": ["▁a", "</s>"], "target": ["A DOG"], "weights": [[0.1235, 0.5]]},
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"q": ["a", "b"]}, "attention needs one text"),
        ({"source": "de"}, "attention needs one text, and two languages"),
        ({"target": "xx"}, "xx is not supported"),
        ({"q": " "}, "There is no attention"),
    ],
)
def test_attention_of_what_is_not_translated(attentive, changes, reason):
    answer = attentive.post("/attention", json={**GOOD, **changes})
    assert answer.status_code == 400 and reason in answer.json()["error"]


def test_the_attention_of_a_long_sentence_is_refused_before_it_is_translated(attentive, upper, monkeypatch):
    monkeypatch.setattr("keras_transformer.apps.serve.pairs.MAX_ATTENTION", 2)
    monkeypatch.setattr(upper, "_translate_batch", lambda *args: pytest.fail("was translated"))
    answer = attentive.post("/attention", json={**GOOD, "q": "a big dog"})
    assert (answer.status_code, answer.json()["error"].partition(". ")[2]) == (400, "Received: 3 subwords")


def test_the_attention_of_a_long_translation_is_refused(attentive, upper, monkeypatch):
    monkeypatch.setattr(WithAttention, "attention", lambda *args: pytest.fail("was computed"))
    long = [[Translation("A DOG", 0.0, tuple(range(201)))]]
    monkeypatch.setattr(upper, "_translate_batch", lambda *args: long)
    answer = attentive.post("/attention", json=GOOD)
    assert (answer.status_code, answer.json()["error"].partition(". ")[2]) == (400, "Received: 201 subwords")


def test_the_error_of_an_export_without_attention_names_no_path(attentive, monkeypatch):
    def attention(self, line, translation):
        raise ModelDirectoryError("/models/en-de/export/onnx/alignment.onnx does not exist")

    monkeypatch.setattr(WithAttention, "attention", attention)
    answer = attentive.post("/attention", json=GOOD)
    assert (answer.status_code, answer.json()) == (400, {"error": "There is no attention with keras"})


def test_a_runtime_without_attention_is_refused(client):
    answer = client.post("/attention", json=GOOD)
    assert (answer.status_code, answer.json()) == (400, {"error": "There is no attention with keras"})


@pytest.mark.parametrize(
    ("address", "prefix", "expected"),
    [
        ("127.0.0.1", "/de/api", "/de/api/openapi.json"),
        ("127.0.0.1", "/docs", "/docs/openapi.json"),
        ("127.0.0.1", "//other.example", "/openapi.json"),
        ("127.0.0.1", "/a'onload=x", "/openapi.json"),
        ("127.0.0.1", "http://other.example/", "/openapi.json"),
        ("10.0.0.7", "/de", "/openapi.json"),
    ],
)
def test_only_a_trusted_proxy_names_the_path_of_the_server(client, monkeypatch, address, prefix, expected):
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    behind = TestClient(BehindProxies(client.app), client=(address, 1))
    page = behind.get("/docs", headers={"X-Forwarded-Prefix": prefix})
    assert page.status_code == 200 and f"url: '{expected}'" in page.text
    assert behind.get("/", headers={"X-Forwarded-Prefix": prefix}).text == client.get("/").text


def test_the_header_of_a_proxy_replaces_the_configured_path(client):
    behind = TestClient(BehindProxies(client.app), client=("127.0.0.1", 1), root_path="/a")
    assert "url: '/b/openapi.json'" in behind.get("/a/docs", headers={"X-Forwarded-Prefix": "/b"}).text


def test_no_answer_contains_an_address_of_the_server(client):
    assert client.get("/translate/", follow_redirects=False).status_code == 404
    assert "testserver" not in "".join(client.get(path).text for path in ("/", "/docs", "/openapi.json"))


@pytest.mark.parametrize("path", ["translation", "/translation/", "//x", "/a b", "http://x"])
def test_an_invalid_root_path_is_refused(path):
    with pytest.raises(ValueError, match="`root_path`.*Received: root_path="):
        ServeConfig(root_path=path)
