"""Files of a `MarianMTModel` with random weights and random words, written without transformers."""

import io
import json
import random
from typing import NamedTuple

import numpy as np
import pytest
import sentencepiece

SIZES = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17}


class Marian(NamedTuple):
    folder: object
    vocab: dict
    lines: list
    target_lines: list


def random_lines(vowels, seed):
    draw = random.Random(seed)
    words = ["".join(draw.choice("bcdfgklmnprst") + draw.choice(vowels) for _ in range(3)) for _ in range(90)]
    return [" ".join(draw.choices(words, k=7)) for _ in range(150)]


def sentencepiece_model(lines, vocab_size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=vocab_size, model_type="unigram", minloglevel=2
    )
    return model.getvalue()


def pieces_of(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(3, processor.vocab_size())]


def marian_config(vocab, **changes):
    pad = vocab["<pad>"]
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        **SIZES,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "activation_function": "swish",
        "scale_embedding": True,
        "vocab_size": len(vocab),
        "pad_token_id": pad,
        "eos_token_id": 0,
        "decoder_start_token_id": pad,
        "bad_words_ids": [[pad]],
        **changes,
    }


def marian_tensors(vocab_size, seed=1):
    rng = np.random.default_rng(seed)
    d, f = SIZES["d_model"], SIZES["encoder_ffn_dim"]
    shapes = {"model.shared.weight": (vocab_size, d), "final_logits_bias": (1, vocab_size)}
    for stack, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for i in range(SIZES[f"{stack}_layers"]):
            prefix = f"model.{stack}.layers.{i}."
            for attention in attentions:
                for part in "qkv":
                    shapes[f"{prefix}{attention}.{part}_proj.weight"] = (d, d)
                    shapes[f"{prefix}{attention}.{part}_proj.bias"] = (d,)
                shapes |= {f"{prefix}{attention}.out_proj.weight": (d, d), f"{prefix}{attention}.out_proj.bias": (d,)}
            shapes |= {f"{prefix}fc1.weight": (f, d), f"{prefix}fc1.bias": (f,)}
            shapes |= {f"{prefix}fc2.weight": (d, f), f"{prefix}fc2.bias": (d,)}
            for norm in (*(f"{a}_layer_norm" for a in attentions), "final_layer_norm"):
                shapes |= {f"{prefix}{norm}.weight": (d,), f"{prefix}{norm}.bias": (d,)}
    tensors = {name: rng.normal(scale=0.3, size=shape).astype("float32") for name, shape in shapes.items()}
    return {name: x + 1 if "norm.weight" in name else x for name, x in tensors.items()}


@pytest.fixture
def marian(tmp_path):
    """The files of a small Marian model. Its vocabulary has a language code and lacks two source pieces."""
    numpy = pytest.importorskip("safetensors.numpy")
    lines = [random_lines("aei", 1), random_lines("aou", 2)]
    models = [sentencepiece_model(lines[0], 130), sentencepiece_model(lines[1], 110)]
    pieces = [*dict.fromkeys(piece for model in models for piece in pieces_of(model))]
    dropped = [piece for piece in pieces_of(models[0]) if len(piece) > 2][:2]
    names = ["</s>", "<unk>", *(piece for piece in pieces if piece not in dropped), ">>fra<<", "<pad>"]
    vocab = {piece: i for i, piece in enumerate(names)}
    folder = tmp_path / "marian"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(marian_config(vocab)))
    (folder / "vocab.json").write_text(json.dumps(vocab))
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    numpy.save_file(marian_tensors(len(vocab)), folder / "model.safetensors")
    return Marian(folder, vocab, *lines)
