"""Checks before a training starts."""

import io

import pytest
import sentencepiece

from keras_transformer.model_directory import ModelDirectory
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data_config import AugmentationConfig
from keras_transformer.training.start import check_run

LINES = ["ein hund läuft", "zwei hunde laufen", "a dog runs", "two dogs run"] * 30


def tokenizer(model_type):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type=model_type,
        vocab_size=26,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.mark.parametrize(
    ("source", "target", "sampled"),
    [("bpe", "unigram", "target_sampling"), ("unigram", "bpe", "source_sampling"), ("bpe", "bpe", "source_sampling")],
)
def test_subwords_of_other_tokenizers_than_bpe_are_not_sampled(tmp_path, monkeypatch, source, target, sampled):
    monkeypatch.setattr(ModelDirectory, "require_finished", lambda self: {})
    path = tmp_path / "initial"
    path.mkdir()
    ModelDirectory(path).write_tokenizers((tokenizer(source), tokenizer(target)))
    (tmp_path / "text").write_text("\n".join(LINES))
    text = {name: str(tmp_path / "text") for name in ("source", "target")}

    def check(**augmentation):
        options = AugmentationConfig(**augmentation)
        check_run(TrainConfig(output=str(tmp_path / "run"), init_from=str(path), augmentation=options, **text))

    other = {"source_sampling": "target_sampling", "target_sampling": "source_sampling"}[sampled]
    check(**{other: 0.1})
    if source == target:
        check(**{sampled: 0.1})
    else:
        with pytest.raises(ValueError, match=f"requires a BPE tokenizer. Received: the tokenizer of {path}"):
            check(**{sampled: 0.1})
