import json
import pickle
import re
import shutil
import sys

import keras
import numpy as np
import pytest
import sentencepiece

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.export import import_checkpoint
from keras_transformer.export.config import ExportConfig
from keras_transformer.export.importer.importer import read_checkpoint
from keras_transformer.export.importer.vocabulary import parse
from keras_transformer.export.pipeline import export
from keras_transformer.storage.languages import languages_of
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.tokenization import SPECIAL_PIECES, TokenizerConfig, train_sentencepiece
from keras_transformer.translate.finished_model import load_finished
from keras_transformer.translate.keras_translator import KerasTranslator

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Pieces of source.spm become <unk>:UserWarning"),
]
to_numpy = keras.ops.convert_to_numpy


@pytest.fixture
def imported(marian, tmp_path):
    return import_checkpoint(marian.folder, tmp_path / "run")


def rewrite(file, **changes):
    content = json.loads(file.read_text())
    file.write_text(json.dumps({name: x for name, x in {**content, **changes}.items() if x is not None}))


def test_the_command_makes_a_finished_directory(marian, tmp_path):
    assert main(["import", str(marian.folder), "--output", str(tmp_path / "run")]) == 0
    model, tokenizers = load_finished(ModelDirectory(tmp_path / "run"))
    config = model.config
    assert (config.vocab_size, config.d_model, config.num_heads) == (len(marian.vocab) + 3, 12, 3)
    assert (config.activation, config.position_layout, config.logits_bias) == ("silu", "halves", True)
    assert tokenizers[0].pieces == tokenizers[1].pieces
    assert tuple(tokenizers[0].pieces[:4]) == SPECIAL_PIECES
    assert {file.name for file in (tmp_path / "run").iterdir()} == {
        *("config.yaml", "model.keras", "source_tokenizer.model", "target_tokenizer.model")
    }


def test_the_languages_are_recorded(marian, tmp_path):
    shutil.copytree(marian.folder, tmp_path / "other-marian")
    recorded = {"source_lang": "eng", "target_lang": "two words"}
    (tmp_path / "other-marian/tokenizer_config.json").write_text(json.dumps(recorded))
    assert import_checkpoint(tmp_path / "other-marian", tmp_path / "run").languages == ("eng", None)
    arguments = ["import", str(tmp_path / "other-marian"), f"--output={tmp_path / 'other'}"]
    assert main([*arguments, "--source_language=EN", "--target_language=fr"]) == 0
    assert ModelDirectory(tmp_path / "other").languages == ("en", "fra")
    assert main([*arguments, "--overwrite", "--target_language=de"]) == 2
    assert main([*arguments, "--overwrite", "--source_language=no language"]) == 2


def test_the_ids_are_those_of_the_pieces(imported, marian):
    """Each piece has the embedding row of its id in vocab.json, or of the piece that it duplicates."""
    import safetensors.numpy

    model, (source, target) = load_finished(imported)
    tensors = safetensors.numpy.load_file(marian.folder / "model.safetensors")
    rows, biases = tensors["model.shared.weight"], tensors["final_logits_bias"][0]
    table, bias = to_numpy(model.target_embedding.embeddings), to_numpy(model.logits.bias)
    of_start = marian.vocab["<pad>"]
    for i, piece in enumerate(source.pieces):
        theirs = of_start if piece == "<s>" else marian.vocab.get(piece, marian.vocab["<unk>"])
        np.testing.assert_array_equal(table[i], rows[theirs])
        is_copy = piece == "<s>" or piece not in marian.vocab
        assert bias[i] == (-100 if is_copy else biases[theirs])


def test_lines_are_cut_as_by_the_models_of_the_files(imported, marian):
    _, (source, target) = load_finished(imported)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=(marian.folder / "source.spm").read_bytes())
    unlike = 0
    for line, ids in zip(marian.lines, source.encode(marian.lines), strict=True):
        cut = theirs.encode(line, out_type=str)
        assert [source.pieces[i] for i in ids] == [*cut, "</s>"]
        unlike += any(piece not in marian.vocab for piece in cut)
    assert unlike > 0
    # Characters that only the target vocabulary has become one unknown piece.
    assert "o" in marian.vocab and "u" in marian.vocab
    for line in ("ou ba", "boooba"):
        cut = [piece if piece in marian.vocab else "<unk>" for piece in theirs.encode(line, out_type=str)]
        assert "<unk>" in cut and [source.pieces[i] for i in source.encode([line])[0]] == [*cut, "</s>"]
    assert source.decode(source.encode(marian.lines)) == marian.lines


def test_the_token_of_a_language_starts_the_source_and_text_cannot_produce_it(imported):
    _, (source, target) = load_finished(imported)
    fra = source.pieces.index(">>fra<<")
    languages = languages_of(imported.path)
    assert languages.direction(target="fr") == (None, "fra", (fra,), ()) == languages.direction()
    assert fra not in source.encode([">>fra<< ba"])[0]
    assert "fra" not in target.decode([range(4, target.vocab_size)])[0]


def test_padding_of_a_row_of_zeros_is_no_live_logit(marian):
    """OPUS-MT models have a row of zeros for padding."""
    import safetensors.numpy

    tensors = safetensors.numpy.load_file(marian.folder / "model.safetensors")
    tensors["model.shared.weight"][-1] = tensors["final_logits_bias"][0, -1] = 0
    safetensors.numpy.save_file(tensors, marian.folder / "model.safetensors")
    model, *_ = read_checkpoint(marian.folder)
    inputs = {"source": np.array([[5, 6, 3]]), "target": np.array([[2, 7, 8]])}
    assert to_numpy(model(inputs)[..., 0]) == pytest.approx(-100)


def test_pieces_that_become_unknown_are_warned_about(marian):
    with pytest.warns(UserWarning, match="vocab.json .*2 of 127 pieces.*'.*', '.*'") as caught:
        read_checkpoint(marian.folder)
    assert len(caught) == 1


def test_a_code_that_the_sentencepiece_model_knows_is_one_piece(marian):
    model = parse((marian.folder / "source.spm").read_bytes())
    model.pieces.add(piece=">>fra<<", score=0.0, type=model.SentencePiece.USER_DEFINED)
    (marian.folder / "source.spm").write_bytes(model.SerializeToString())
    _, tokenizers, *_ = read_checkpoint(marian.folder)
    tokenizer = tokenizers[0]
    assert [piece for piece in tokenizer.pieces if "fra" in piece] == [">>fra<<"]
    assert tokenizer.pieces.index(">>fra<<") not in tokenizer.encode([">>fra<< ba"])[0]


@pytest.mark.nightly
def test_forbidden_tokens_are_never_generated(imported):
    model, _ = load_finished(imported)
    source = np.random.default_rng(0).integers(4, model.config.vocab_size, (5, 7)).astype("int32")
    tokens = model.generate(source, GreedySearch(extra_length=5)).tokens
    assert not np.isin(tokens, [2, *range(model.config.vocab_size - 2, model.config.vocab_size)]).any()


@pytest.mark.nightly
def test_an_export_read_back_is_equal(imported, tmp_path):
    export(str(imported.path), ExportConfig(format="huggingface", extra_length=5))
    model, _ = load_finished(imported)
    again, tokenizers, *_ = read_checkpoint(imported.export / "huggingface")
    assert again.config == model.config
    for ours, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))
    assert tuple(x.model for x in tokenizers) == imported.tokenizer_models()
    assert ">>fra<<" in json.loads((imported.export / "huggingface" / "vocab.json").read_text())
    entries = json.loads(imported.verification_file.read_text())
    assert entries["huggingface"]["equal"] == 224
    assert entries["huggingface"]["search"] == {"beam_size": 4, "min_length": 0, "no_repeat_ngram_size": 0}


def test_no_format_is_written_where_one_cannot_express_the_model(tmp_path):
    model = Transformer(
        TransformerConfig(vocab_size=270, num_layers=1, d_model=12, num_heads=3, d_ff=17, norm_first=True)
    )
    directory = ModelDirectory(tmp_path)
    directory.write_tokenizers((train_sentencepiece(["abc abd xyz"], TokenizerConfig(vocab_size=270)),))
    model.save(directory.model_file)
    directory.write_record({}, finished=True)
    with pytest.raises(ValueError, match="MarianMTModel .*model:\n- `"):
        export(str(tmp_path), ExportConfig(format="saved_model,huggingface"))
    assert not directory.export.exists()


@pytest.mark.nightly
def test_an_import_translates_and_exports_like_any_other(imported, marian):
    export(str(imported.path), ExportConfig(format="saved_model,onnx,ctranslate2", extra_length=3, beam_size=2))
    found = KerasTranslator(imported.path, BeamSearch(extra_length=3)).translate(marian.lines[:3])
    assert all(translation.tokens[-1] == 3 for translation in found)
    entries = json.loads(imported.verification_file.read_text())
    programs = {"saved_model", "saved_model text", "onnx", "onnx alignment", "onnx encoder and decoder"}
    assert {*programs, "ctranslate2 greedy", "ctranslate2 beam"} == set(entries)


@pytest.mark.nightly
def test_an_import_is_trained_further(imported, marian, tmp_path):
    for name, lines in (("source", marian.lines), ("target", marian.target_lines)):
        (tmp_path / name).write_text("\n".join(lines))
    options = {
        "output": tmp_path / "further",
        "init_from": imported.path,
        "source": tmp_path / "source",
        "target": tmp_path / "target",
        "max_length": 60,
        "tokens_per_batch": 600,
        "recipe.max_steps": 8,
        "recipe.peak_learning_rate": 0.001,
        "recipe.warmup_steps": 2,
        "recipe.xla": "false",
    }
    assert main(["train", *(f"--{name}={value}" for name, value in options.items())]) == 0
    before, _ = load_finished(imported)
    after, tokenizers = load_finished(ModelDirectory(tmp_path / "further"))
    assert after.config == before.config
    assert [tokenizer.model for tokenizer in tokenizers] == [*imported.tokenizer_models()]
    changes = [np.abs(to_numpy(a) - to_numpy(b)).max() for a, b in zip(after.weights, before.weights, strict=True)]
    assert 0 < max(changes) < 0.1


def test_another_start_token_gets_a_separate_row(marian):
    rewrite(marian.folder / "config.json", decoder_start_token_id=marian.vocab[">>fra<<"])
    model, tokenizers, *_ = read_checkpoint(marian.folder)
    assert model.config.vocab_size == len(marian.vocab) + 2
    assert to_numpy(model.logits.bias)[2] > -10
    assert tokenizers[0].pieces[2] == "<s>"


def test_a_start_that_text_is_cut_into_stays_a_piece(marian):
    start = next(i for piece, i in marian.vocab.items() if piece in marian.lines[0].split()[0] and i > 1)
    rewrite(marian.folder / "config.json", decoder_start_token_id=start)
    model, tokenizers, *_ = read_checkpoint(marian.folder)
    pieces, names = tokenizers[0].pieces, [*marian.vocab]
    table, bias = to_numpy(model.target_embedding.embeddings), to_numpy(model.logits.bias)
    np.testing.assert_array_equal(table[2], table[pieces.index(names[start])])
    assert bias[2] == -100 and bias[pieces.index(names[start])] > -10


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_and_other_names_of_the_embedding(marian, dtype):
    import ml_dtypes
    import safetensors.numpy

    expected, *_ = read_checkpoint(marian.folder)
    tensors = safetensors.numpy.load_file(marian.folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("model.shared.weight")
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    tensors = {name: tensor.astype(kind) for name, tensor in tensors.items()}
    safetensors.numpy.save_file(tensors, marian.folder / "model.safetensors")
    model, *_ = read_checkpoint(marian.folder)
    assert model.target_embedding.embeddings.dtype == "float32"
    for ours, theirs in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), rtol=0.01, atol=0.01)


def refused(marian, tmp_path, capsys):
    assert main(["import", str(marian.folder), "--output", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()
    return capsys.readouterr().err


def test_all_faults_are_reported_at_once(marian, tmp_path, capsys):
    import safetensors.numpy

    tensors = safetensors.numpy.load_file(marian.folder / "model.safetensors")
    tensors["model.encoder.layers.1.fc1.weight"] = np.zeros((5, 12), "float32")
    tensors["model.shared.weight"] = tensors["model.shared.weight"][1:]
    tensors["lm_head.weight"] = tensors["model.shared.weight"] + 1
    tensors["model.encoder.layer_norm.weight"] = np.ones(12, "float32")
    del tensors["model.decoder.layers.0.self_attn.k_proj.bias"]
    safetensors.numpy.save_file(tensors, marian.folder / "model.safetensors")
    size = len(marian.vocab)
    rewrite(marian.folder / "vocab.json", **{"</s>": 3, "<unk>": None})
    rewrite(marian.folder / "config.json", add_final_layer_norm=True, pad_token_id=-1)
    (marian.folder / "target.spm").unlink()
    (marian.folder / "source.spm").write_bytes(b"no model")
    message = refused(marian, tmp_path, capsys)
    for fault in (
        "target.spm .*missing",
        "source.spm .*SentencePiece",
        rf"vocab.json .*\[0, {size}\).*Received: ",
        "vocab.json .*<unk>",
        "`add_final_layer_norm` .*Received: True",
        rf"`pad_token_id` .*\[0, {size}\).*Received: -1",
        f"`pad_token_id` .*<pad> .*{size - 1}.*Received: -1",
        "`eos_token_id` .*</s> .*3.*Received: 0",
        r"model.encoder.layers.1.fc1.weight .*\(17, 12\).*Received: \(5, 12\)",
        rf"model.shared.weight .*\({size}, 12\).*Received: \({size - 1}, 12\)",
        "lm_head.weight .*model.shared.weight",
        "lacks model.decoder.layers.0.self_attn.k_proj.bias",
        "does not have: model.encoder.layer_norm.weight",
    ):
        assert re.search(f"\n- .*{fault}", message), fault
    assert message.count("\n- ") == 13


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({"model_type": "bart"}, ["`model_type` must be one of marian, .*Received: model_type='bart'"]),
        ({"architectures": ["MarianModel"]}, ["`architectures` .*MarianMTModel.*Received: .*MarianModel"]),
        ({"normalize_before": True}, ["`normalize_before` .*Received: True"]),
        ({"decoder_ffn_dim": 3, "d_model": None}, ["`decoder_ffn_dim` .*Received: 3", "`d_model` .*Received: None"]),
        ({"activation_function": "mish"}, ["`activation_function` .*Received: activation_function='mish'"]),
        (
            {"activation_function": ["relu"]},
            [r"Received: activation_function=\['relu'\]"],
        ),
        ({"decoder_start_token_id": 100_000}, ["`decoder_start_token_id` .*Received: 100000"]),
        ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, ["`d_model` .*multiple"]),
        ({"vocab_size": "many"}, ["`vocab_size` .*Received: 'many'"]),
        ({"vocab_size": 10**15}, [r"vocab.json .*\[0, 1000000000000000\)", r"\(1000000000000000, 12\)"]),
    ],
)
def test_an_unknown_architecture_is_refused(marian, tmp_path, capsys, changes, faults):
    rewrite(marian.folder / "config.json", **changes)
    message = refused(marian, tmp_path, capsys)
    assert [fault for fault in faults if not re.search(f"\n- .*{fault}", message)] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("added_tokens.json", {"__nnh__": 300}),
        ("special_tokens_map.json", {"additional_special_tokens": ["</s>", {"content": "__nnh__"}]}),
        ("tokenizer.json", {"added_tokens": [{"id": 300, "content": "__nnh__"}, {"id": 0, "content": "</s>"}]}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"300": {"content": "__nnh__"}}}),
        ("tokenizer_config.json", {"extra_special_tokens": {"language": "__nnh__"}}),
    ],
)
def test_added_pieces_are_refused(marian, tmp_path, capsys, name, content):
    """transformers divides a line at these pieces first, and a model may be trained to output them."""
    (marian.folder / name).write_text(json.dumps(content))
    message = refused(marian, tmp_path, capsys)
    assert message.endswith("\n- Added pieces are not supported. The tokenizer has 1: '__nnh__'\n")
    assert message.count("\n- ") == 1


def test_added_pieces_have_the_ids_of_the_vocabulary(marian, tmp_path, capsys):
    (marian.folder / "added_tokens.json").write_text('{"<unk>": 5}')
    message = refused(marian, tmp_path, capsys)
    assert (
        "\n- added_tokens.json cannot be read: the id of '<unk>' must be 1, as in the vocabulary. Received: 5\n"
        in message
    )


def test_problems_of_many_layers_are_one(marian, tmp_path, capsys):
    rewrite(marian.folder / "config.json", encoder_layers=1, encoder_ffn_dim=9, decoder_layers=12, decoder_ffn_dim=9)
    message = refused(marian, tmp_path, capsys)
    assert message.count("\n- ") == 5 and ".1.fc1.weight, model.encoder.layers.1.fc2.bias, " in message
    assert re.search(r"lacks .*, model.decoder.layers.\{1-11\}.fc1.bias, ", message)
    of_both = "model.encoder.layers.0.fc1.weight, model.decoder.layers.0.fc1.weight"
    assert f"\n- {of_both} must have shape (9, 12). Received: (17, 12) in model.safetensors" in message


def test_more_layers_than_weights_are_refused_before_they_are_built(marian, tmp_path, capsys):
    rewrite(marian.folder / "config.json", encoder_layers=10**12, decoder_layers=10**12)
    message = refused(marian, tmp_path, capsys)
    assert "\n- model.safetensors must contain the weights of 2000000000000 layers. It contains " in message


MARIAN_OPTIONS = {
    "transformer-decoder-autoreg: rnn\ndec-cell: ssru": "- a decoder of kind rnn with the cell ssru is not supported",
    "transformer-decoder-autoreg: average-attention\ndec-cell: gru": "- a decoder of kind average-attention is not",
    "transformer-decoder-autoreg: self-attention\n": "- model.npz is a model of Marian: first convert it",
    None: "- config.json is missing",
}


@pytest.mark.parametrize("options", MARIAN_OPTIONS)
def test_files_of_marian_itself_are_named(options, tmp_path, capsys):
    (tmp_path / "marian").mkdir()
    text = np.frombuffer(f"dim-emb: 512\n{options}\0".encode(), "int8")
    np.savez(tmp_path / "marian/model.npz", **{"special:model.yml" if options else "x": text})
    assert main(["import", str(tmp_path / "marian"), f"--output={tmp_path / 'run'}"]) == 2
    assert f"\n{MARIAN_OPTIONS[options]}" in capsys.readouterr().err
    (tmp_path / "marian/model.npz").write_bytes(b"")
    assert main(["import", str(tmp_path / "marian"), f"--output={tmp_path / 'run'}"]) == 2
    assert "\n- config.json is missing" in capsys.readouterr().err


def test_a_pytorch_file_needs_pytorch(marian, tmp_path, capsys, monkeypatch):
    (marian.folder / "model.safetensors").rename(marian.folder / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    message = refused(marian, tmp_path, capsys)
    assert "\n- pytorch_model.bin cannot be read: torch is not installed: pip install " in message


class Code:
    """An object that a pickle would run."""

    def __reduce__(self):
        return print, ("run",)


@pytest.mark.torch_parity
def test_a_pickle_with_more_than_tensors_is_refused(marian, tmp_path, capsys):
    torch = pytest.importorskip("torch")
    (marian.folder / "model.safetensors").unlink()
    pickled = {"model.shared.weight": Code()}
    for write in (pickle.dump, torch.save):
        with (marian.folder / "pytorch_model.bin").open("wb") as file:
            write(pickled, file)
        assert main(["import", str(marian.folder), f"--output={tmp_path / 'run'}"]) == 2
        output, message = capsys.readouterr()
        assert "- pytorch_model.bin cannot be read: pytorch_model.bin must contain tensors only" in message
        assert output == "" and not (tmp_path / "run").exists()


def test_missing_files_are_named(marian, tmp_path, capsys):
    for file in marian.folder.iterdir():
        file.unlink()
    assert refused(marian, tmp_path, capsys).count(" is missing") == 2
    marian.folder.rmdir()
    assert "`directory` must be a folder, or hf://owner/name" in refused(marian, tmp_path, capsys)


@pytest.mark.parametrize("kind", ["safetensors", pytest.param("PyTorch", marks=pytest.mark.torch_parity)])
@pytest.mark.parametrize("num_files", [1, 2])
def test_other_files_of_weights_are_read(marian, kind, num_files):
    import safetensors.numpy

    expected, *_ = read_checkpoint(marian.folder)
    file = marian.folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    file.unlink()
    if kind == "PyTorch":
        torch, only = pytest.importorskip("torch"), "pytorch_model.bin"
        tensors = {name: torch.from_numpy(x) for name, x in tensors.items()}
        save = torch.save
    else:
        only, save = "model.safetensors", safetensors.numpy.save_file
    names = {name: only if num_files == 1 else f"part-{i % 2}" for i, name in enumerate(tensors)}
    for part in {*names.values()}:
        save({name: x for name, x in tensors.items() if names[name] == part}, marian.folder / part)
    if num_files > 1:
        (marian.folder / f"{only}.index.json").write_text(json.dumps({"weight_map": names}))
    model, *_ = read_checkpoint(marian.folder)
    for ours, theirs in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))


def test_the_vocabulary_of_another_model_is_refused(marian, tmp_path, capsys):
    names = [name if name.startswith("<") else f"{name}x" for name in marian.vocab]
    (marian.folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    message = refused(marian, tmp_path, capsys)
    assert re.search("vocab.json .*source.spm.*127 of 127 pieces", message)
    assert re.search("vocab.json .*target.spm", message)


def test_broken_files_are_refused(marian, tmp_path, capsys):
    weights = (marian.folder / "model.safetensors").read_bytes()
    (marian.folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    (marian.folder / "vocab.json").write_text("[1, 2]")
    message = refused(marian, tmp_path, capsys)
    for name in ("model.safetensors", "vocab.json"):
        assert f"\n- {name} cannot be read: " in message
    (marian.folder / "config.json").write_text("{")
    assert "\n- config.json cannot be read: " in refused(marian, tmp_path, capsys)
    (marian.folder / "config.json").write_text('{"d_model": 12}')
    assert "\n- config.json must have `model_type`" in refused(marian, tmp_path, capsys)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors.index.json", '{"weight_map": []}'),
        ("model.safetensors.index.json", '{"weight_map": {"model.shared.weight": 3}}'),
        ("model.safetensors.index.json", "{}"),
        ("tokenizer_config.json", "[]"),
        ("vocab.json", '{"</s>": "0"}'),
        ("vocab.json", '{"</s>": null}'),
    ],
)
def test_files_with_other_contents_are_refused(marian, tmp_path, capsys, file, content):
    if "index" in file:
        (marian.folder / "model.safetensors").unlink()
    (marian.folder / file).write_text(content)
    assert f"cannot be imported as a Marian model:\n- {file} cannot be read: " in refused(marian, tmp_path, capsys)


@pytest.mark.slow
def test_a_finished_model_is_not_replaced_unasked(imported, marian, capsys):
    arguments = ["import", str(marian.folder), "--output", str(imported.path)]
    assert main(arguments) == 2
    assert re.search(f"{imported.path} .*finished.*--overwrite", capsys.readouterr().err)
    imported.write_record({"recipe": {}}, finished=False)
    imported.tokens.mkdir()
    assert main([*arguments, "--overwrite"]) == 0
    assert imported.require_finished()["imported_from"] == "marian"
    assert not imported.tokens.exists()


def test_another_backend_is_refused(imported, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    message = "tensorflow .*Received: KERAS_BACKEND=jax"
    with pytest.raises(ValueError, match=message):
        export(str(imported.path), ExportConfig())
    assert not [*imported.path.rglob("*.onnx"), *imported.path.rglob("saved_model.pb")]


def test_a_comparison_that_is_not_possible_is_refused_first(tmp_path, monkeypatch, capsys):
    """Before the files of the model are read: the folder does not exist."""
    arguments = ["import", str(tmp_path / "none"), f"--output={tmp_path / 'run'}"]
    (tmp_path / "empty").write_text(" \n\n")
    for source, fault in (("missing", "missing: No such file"), ("empty", "`source` must have text")):
        assert main([*arguments, "--verify", f"--source={tmp_path / source}"]) == 2
        assert fault in capsys.readouterr().err
    assert main([*arguments, f"--source={tmp_path / 'empty'}"]) == 2
    assert "`source` must be given with `verify` only" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main([*arguments, "--verify"]) == 2
    assert re.search(r"torch is not installed: pip install '.*\[transformers\]'", capsys.readouterr().err)
