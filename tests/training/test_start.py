"""Checks before a training starts."""

import contextlib
import re

import pytest

from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data_config import AugmentationConfig
from keras_transformer.training.start import check_run

LINES = ["ein hund läuft", "zwei hunde laufen", "a dog runs", "two dogs run"] * 30


@pytest.mark.parametrize("origin", ["init_from", "prepared"])
@pytest.mark.parametrize(
    ("kinds", "refused"),
    [
        (("bpe", "bpe"), ()),
        (("bpe", "unigram"), ("target_sampling",)),
        (("unigram", "bpe"), ("source_sampling",)),
        (("unigram",), ("source_sampling", "target_sampling")),
    ],
)
def test_only_subwords_of_bpe_tokenizers_are_sampled(
    sentencepiece_model, tmp_path, monkeypatch, origin, kinds, refused
):
    monkeypatch.setattr(ModelDirectory, "require_finished", lambda self: {})
    monkeypatch.setattr(TokenDirectory, "train_splits", ["train"])
    (tmp_path / origin).mkdir()
    models = tuple(sentencepiece_model(LINES, kind, vocab_size=280) for kind in kinds)
    ModelDirectory(tmp_path / origin).write_tokenizers(models)
    (tmp_path / "text").write_text("\n".join(LINES))
    text = {} if origin == "prepared" else {side: str(tmp_path / "text") for side in ("source", "target")}
    message = re.escape(f"requires a BPE tokenizer. Received: the tokenizer of {tmp_path / origin}")
    for option in ("source_sampling", "target_sampling"):
        augmentation = AugmentationConfig(**{option: 0.1})
        options = {"output": str(tmp_path / "run"), origin: str(tmp_path / origin), **text}
        with pytest.raises(ValueError, match=message) if option in refused else contextlib.nullcontext():
            check_run(TrainConfig(augmentation=augmentation, **options))
