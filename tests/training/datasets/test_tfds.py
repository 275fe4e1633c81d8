import pytest
import tensorflow_datasets as tfds

from keras_transformer.training.data_config import DataConfig
from keras_transformer.training.datasets import by_name, load_corpus
from keras_transformer.training.mixture_config import CorpusConfig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # From TensorFlow Datasets.


@pytest.fixture
def mock_data():
    with tfds.testing.mock_data(num_examples=6, policy=tfds.testing.MockPolicy.USE_CODE):
        yield


def raw(name, first, second):
    """The contents of the dataset in two languages."""
    dataset = tfds.load(name, split="train", shuffle_files=False)
    return [tuple(example[name].numpy().decode() for name in (first, second)) for example in dataset]


@pytest.mark.parametrize(
    ("name", "first", "second"), [("wmt14_translate/de-en", "de", "en"), ("ted_hrlr_translate/pt_to_en", "pt", "en")]
)
def test_pairs_in_the_order_of_the_name(mock_data, name, first, second):
    expected = raw(name, first, second)
    assert len(expected) == 6 and all(one != other for one, other in expected)
    corpus = load_corpus(DataConfig(dataset=name))
    assert list(corpus.train) == expected and corpus.languages == (first, second)
    reverse = load_corpus(DataConfig(dataset=name, reverse=True))
    assert list(reverse.train) == [pair[::-1] for pair in expected] and reverse.languages == (second, first)


def test_splits_are_options(mock_data):
    config = DataConfig(dataset="wmt14_translate/de-en", train_split="test", validation_split="train")
    assert len(list(load_corpus(config).validation)) == 6


@pytest.mark.parametrize("has_files", [False, True])
def test_only_the_first_corpus_needs_a_split_for_validation(monkeypatch, tmp_path, has_files):
    splits = []

    def load(config):
        splits.append((config.train_split, config.validation_split))
        return load_by_name(DataConfig())

    load_by_name = by_name.load_by_name
    monkeypatch.setattr(by_name, "load_by_name", load)
    (tmp_path / "text").write_text("a\n")
    corpora = {"a": CorpusConfig(dataset="a"), "b": CorpusConfig(dataset="b", train_split="train[:10%]")}
    files = {f"validation_{side}": str(tmp_path / "text") for side in ("source", "target") if has_files}
    corpus = load_corpus(DataConfig(corpora=corpora, **files))
    assert splits == [("train", "train" if has_files else "validation"), ("train[:10%]", "train[:10%]")]
    assert (list(corpus.validation) == [("a", "a")]) is has_files


def test_a_dataset_without_translations_is_refused(mock_data):
    with pytest.raises(ValueError, match="`dataset` .*translation.*Received: dataset='mnist'"):
        load_corpus(DataConfig(dataset="mnist"))


@pytest.mark.parametrize("name", ["no_such_dataset", "wmt14_translate/de-xx"])
def test_unknown_name(name, tmp_path):
    with pytest.raises(ValueError, match=f"`dataset` .*name.*Received: dataset='{name}'"):
        load_corpus(DataConfig(dataset=name, data_dir=str(tmp_path)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", [None, "of_another_process"])
@pytest.mark.parametrize("error", [ConnectionError("no route to host\nmore"), KeyError()])
def test_a_missing_network_is_explained(monkeypatch, tmp_path, error, file):
    def download_and_prepare(self, **kwargs):
        (tmp_path / "data" / "downloads").mkdir(parents=True)
        if file:
            (tmp_path / "data" / file).touch()
        raise error

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", download_and_prepare)
    text = "no route to host" if str(error) else "KeyError"
    with pytest.raises(ValueError, match=f"'wmt14_translate/de-en' [^:]*: {text}$"):
        load_corpus(DataConfig(dataset="wmt14_translate/de-en", data_dir=str(tmp_path / "data")))
    assert [path.name for path in tmp_path.rglob("*")] == (["data", file] if file else [])
