"""Writes a model of transformers with random weights: `python -m benchmarks.random_checkpoint SIZE FOLDER`."""

import itertools
import json
import math
import string
import sys
from pathlib import Path

import numpy as np

_FAIRSEQ = {
    **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "scale_embedding": True},
    **{"activation_function": "relu", "max_position_embeddings": 1024},
}
_MARIAN = {
    **{"pad_token_id": 58_100, "eos_token_id": 0, "decoder_start_token_id": 58_100, "scale_embedding": True},
    **{"activation_function": "swish", "max_position_embeddings": 512, "static_position_embeddings": True},
}
_T5 = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}


def _bart(vocab_size, d_model=1024, layers=12, heads=16, d_ff=4096):
    sizes = {"encoder_layers": layers, "decoder_layers": layers}
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), heads)
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), d_ff)
    return {"model_type": "m2m_100", "vocab_size": vocab_size, "d_model": d_model, **sizes, **_FAIRSEQ}


def _t5(kind, vocab_size, d_model, d_ff, layers, heads, **others):
    sizes = {"d_model": d_model, "d_kv": 64, "d_ff": d_ff, "num_layers": layers, "num_heads": heads}
    return {"model_type": kind, "vocab_size": vocab_size, **sizes, **_T5, **others}


#: Name -> fields of config.json, and the number of pieces of the SentencePiece model.
SIZES = {
    "nllb-1.3b": (_bart(256_206, layers=24, d_ff=8192), 256_000),
    "m2m-100-1.2b": (_bart(128_112, layers=24, d_ff=8192), 128_000),
    "nllb-600m": (_bart(256_206), 256_000),
    "m2m-100-418m": (_bart(128_112), 128_000),
    "t5-base": (_t5("t5", 32_128, 768, 3072, 12, 12), 32_000),
    "mt5-small": (_t5("mt5", 250_112, 512, 1024, 8, 6, feed_forward_proj="gated-gelu"), 250_100),
    "opus-mt": ({**_bart(58_101, 512, 6, 8, 2048), "model_type": "marian", **_MARIAN}, 58_000),
    "tiny": (_bart(320, d_model=16, layers=1, heads=2, d_ff=32), 100),
}


def main():
    size, folder = sys.argv[1:]
    write(size, Path(folder))


def write(size: str, folder: Path) -> None:
    """Writes config.json, model.safetensors in float32, and the files of the tokenizer."""
    config, num_pieces = SIZES[size]
    (folder / "config.json").write_text(json.dumps(config))
    kind = "t5" if "d_kv" in config else config["model_type"]
    pieces = _pieces(num_pieces, ("<pad>", "</s>", "<unk>") if kind == "t5" else ("<unk>", "<s>", "</s>"))
    files = {"t5": ["spiece.model"], "m2m_100": ["sentencepiece.bpe.model"], "marian": ["source.spm", "target.spm"]}
    for name in files[kind]:
        _write_sentencepiece(pieces, kind == "t5", folder / name)
    if kind == "m2m_100":
        _write_languages(size, pieces, folder)
    if kind == "marian":
        _write_vocab([*_padded(["</s>", "<unk>", *pieces[3:]], config["vocab_size"] - 1), "<pad>"], folder)
    _write_weights(config, folder)


def _pieces(count, special):
    """The special pieces, a space, and words of letters, of which every prefix is a piece."""
    words = (letters for n in itertools.count(1) for letters in itertools.product(string.ascii_lowercase, repeat=n))
    return [*special, "▁", *map("".join, itertools.islice(words, count - len(special) - 1))]


def _write_sentencepiece(pieces, is_unigram, file):
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    proto = ModelProto()
    for i, piece in enumerate(pieces):
        kind = {"<unk>": ModelProto.SentencePiece.UNKNOWN}.get(piece, ModelProto.SentencePiece.CONTROL)
        score = 0.0 if i < 3 else -math.log(i) if is_unigram else -float(i)
        proto.pieces.add(piece=piece, score=score, type=kind if i < 3 else ModelProto.SentencePiece.NORMAL)
    spec = proto.trainer_spec
    spec.model_type = spec.UNIGRAM if is_unigram else spec.BPE
    places = {piece: i for i, piece in enumerate(pieces[:3])}
    spec.unk_id, spec.eos_id = places["<unk>"], places["</s>"]
    spec.bos_id, spec.pad_id = places.get("<s>", -1), places.get("<pad>", -1)
    proto.normalizer_spec.name = "identity"
    file.write_bytes(proto.SerializeToString())


def _write_languages(size, pieces, folder):
    """The languages of NLLB-200, or those of M2M-100 and the file of its pieces."""
    from transformers.models.m2m_100 import tokenization_m2m_100
    from transformers.models.nllb import tokenization_nllb

    if size.startswith("m2m"):
        _write_vocab(["<s>", "<pad>", "</s>", "<unk>", *pieces[3:]], folder)
        codes = [f"__{code}__" for code in tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]]
        settings = {"tokenizer_class": "M2M100Tokenizer", "src_lang": "en", "tgt_lang": "de"}
    else:
        codes = ["<mask>", *tokenization_nllb.FAIRSEQ_LANGUAGE_CODES]
        settings = {"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
    settings["additional_special_tokens"] = codes
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _padded(pieces, count):
    return [*pieces, *(f"<unused_{i}>" for i in range(count - len(pieces)))]


def _write_vocab(pieces, folder):
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))


def _write_weights(config, folder):
    """Normal random weights, one at a time, with which the logits depend on the source."""
    draw = np.random.default_rng(0)
    shapes = {name: shape for name, shape in _shapes(config) if name != "final_logits_bias"}
    ends = np.cumsum([4 * math.prod(shape) for shape in shapes.values()]).tolist()
    header = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [end - 4 * math.prod(shape), end]}
        for (name, shape), end in zip(shapes.items(), ends, strict=True)
    }
    encoded = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name, shape in shapes.items():
            file.write(_values(name, draw.standard_normal(shape, "float32"), config))


def _values(name, values, config):
    """Scales normal random numbers. Cross-attention has large queries, so that hypotheses depend on the source.

    T5 does not multiply its embeddings by √d_model, so they are larger. It does not divide the products of queries and
    keys by √d_kv either, so its queries are smaller.
    """
    if values.ndim == 1:
        is_scale = name.endswith("norm.weight")
        return values * np.float32(0.1) + np.float32(is_scale)
    if name == "shared.weight":
        return values
    scale = config["d_model"] ** -0.5
    if name.endswith(("encoder_attn.q_proj.weight", "EncDecAttention.q.weight")):
        scale *= 3
    if name.endswith("Attention.q.weight"):  # Of T5.
        scale *= config["d_kv"] ** -0.5
    return values * np.float32(scale)


def _shapes(config):
    """The names and shapes of the weights, by the tables of the importer."""
    import keras

    import keras_transformer as kt
    from keras_transformer.export.importer.config import find_family, read_config
    from keras_transformer.export.interop.weight_map import foreign_weights

    family, _ = find_family(config)
    fields, _ = read_config(config, family)
    fields |= {"vocab_size": config["vocab_size"], "tie_output": not config["model_type"] == "mt5"}
    with keras.StatelessScope(initialize_variables=False):  # Shapes without values.
        model = kt.Transformer(kt.TransformerConfig(**fields))
        for weight in foreign_weights(model, family.modules(fields).items()):
            shape = [*weight.variable.shape][:: -1 if weight.is_transposed else 1]
            if weight.names[0] not in family.computed:
                yield weight.names[0], shape


if __name__ == "__main__":
    main()
