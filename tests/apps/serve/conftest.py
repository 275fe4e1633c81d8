import dataclasses

import pytest
from starlette.testclient import TestClient

from keras_transformer.apps.serve.app import make_app
from keras_transformer.apps.serve.batcher import Batcher
from keras_transformer.apps.serve.config import ServeConfig
from keras_transformer.apps.serve.metrics import Metrics
from keras_transformer.apps.serve.pairs import LanguagePair
from keras_transformer.text.sentences import SentenceSplitter
from keras_transformer.translate.batching import BatchLimits
from keras_transformer.translate.translation import Translation
from keras_transformer.translate.translator import Translator


@dataclasses.dataclass
class Upper(Translator):
    """Translates to capitals. Fails on sentences with "fail", and counts its batches."""

    mark: str = ""
    parallel_batches: int = 1
    max_source_length: int = 20
    batches: list = dataclasses.field(default_factory=list)
    max_n_best = 3

    def count_tokens(self, lines):
        return [len(line.split()) for line in lines]

    def _sentences(self, lines, numbers, directions):
        return lines, self.count_tokens(lines)

    def _translate_batch(self, sentences, n_best):
        self.batches.append(list(sentences))
        if any("fail" in sentence for sentence in sentences):
            raise RuntimeError("no memory")
        others = [Translation(f"{self.mark}{rank}", -float(rank)) for rank in range(1, n_best)]
        return [[Translation(s.upper() + self.mark, 0.0), *others] for s in sentences]


@pytest.fixture
def upper():
    """The class of the translator."""
    return Upper


@pytest.fixture
def make_pair():
    """Makes a pair of languages with a translator that needs no model."""

    def make_pair(source="en", target="de", translator=None, **options):
        config = ServeConfig(**options)
        translator = translator or Upper()
        limits = BatchLimits(config.batch_size, config.batch_tokens)
        batcher = Batcher(translator, limits, 1, config.max_wait / 1000, config.max_queue, Metrics())
        sizes = translator.count_tokens, translator.max_source_length, config.split_sentences
        return LanguagePair(source, target, "keras", translator, batcher, SentenceSplitter(source, *sizes))

    return make_pair


@pytest.fixture
def make_client(make_pair):
    """Makes a client of an application, by default from English to German."""

    def make_client(pairs=None, **options):
        app = make_app(pairs or [make_pair(**options)], ServeConfig(**options), Metrics())
        return TestClient(app, raise_server_exceptions=False)

    return make_client


@pytest.fixture
def client(make_client):
    """A client of an application with the default options."""
    return make_client()
