import pytest

from keras_transformer.training.data_config import DataConfig
from keras_transformer.training.datasets import load_corpus, number_words

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # From TensorFlow Datasets.


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The dataset, reduced in size and generated once."""
    folder = tmp_path_factory.mktemp("tfds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_words, "_SIZES", {"train": 60, "validation": 20, "test": 20})
        number_words.NumberWords(data_dir=folder).download_and_prepare()
    return folder


@pytest.fixture(scope="module")
def corpus(data_dir):
    return load_corpus(DataConfig(data_dir=str(data_dir)))


def test_sizes_and_disjoint_splits(data_dir, corpus):
    test = load_corpus(DataConfig(data_dir=str(data_dir), validation_split="test")).validation
    splits = [list(part) for part in (corpus.train, corpus.validation, test)]
    assert [len(split) for split in splits] == [60, 20, 20]
    assert len(set().union(*splits)) == 100


def test_both_sides_are_one_number(data_dir):
    builder = number_words.NumberWords(data_dir=data_dir)
    assert builder.info.supervised_keys == ("en", "de")
    examples = dict(builder._generate_examples([21, 700, 999_999]))
    assert examples[21] == {"en": "twenty-one", "de": "einundzwanzig"}
    assert examples[700] == {"en": "seven hundred", "de": "siebenhundert"}
    assert examples[999_999]["de"] == "neunhundertneunundneunzigtausendneunhundertneunundneunzig"


def test_the_pairs_are_spelled_by_num2words(corpus):
    from num2words import num2words

    rng = number_words.random.Random(0)
    numbers = rng.sample(range(number_words._LIMIT), 100)
    expected = {(num2words(i, lang="en"), num2words(i, lang="de")) for i in numbers[:60]}
    assert set(list(corpus.train)) == expected


def test_reverse_begins_with_german(data_dir, corpus):
    reversed_corpus = load_corpus(DataConfig(data_dir=str(data_dir), reverse=True))
    assert list(reversed_corpus.train) == [pair[::-1] for pair in list(corpus.train)]


def test_missing_split(data_dir):
    config = DataConfig(data_dir=str(data_dir), validation_split="dev")
    with pytest.raises(ValueError, match=r"splits \['train', 'dev'\].*Received: .*'validation'"):
        load_corpus(config)


def test_the_text_is_described_to_the_user(data_dir, capsys):
    load_corpus(DataConfig(data_dir=str(data_dir)))
    assert "number_words/en_de: the text is spelled numbers; --source and --target give" in capsys.readouterr().err


def test_generating_keeps_standard_output_clean(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(number_words, "_SIZES", {"train": 6, "validation": 2, "test": 2})
    load_corpus(DataConfig(data_dir=str(tmp_path)))
    assert capfd.readouterr().out == ""
