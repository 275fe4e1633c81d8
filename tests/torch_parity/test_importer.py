"""Import of small models of each family of `transformers`: ids, logits and beams equal those of transformers."""

import dataclasses
import io
import json
import shutil

import keras
import num2words
import numpy as np
import pytest

from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.export import ExportConfig, export
from keras_transformer.export.importer import config as importer_config
from keras_transformer.export.importer.importer import import_checkpoint, read_checkpoint
from keras_transformer.export.importer.original import Original
from keras_transformer.export.importer.piece_ids import ADDED
from keras_transformer.export.importer.verification import compare_with_original
from keras_transformer.export.verify.equality import VerificationError
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.translate import load_translator
from keras_transformer.translate.batching import pad
from keras_transformer.translate.keras_translator import KerasTranslator

pytestmark = [pytest.mark.torch_parity, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SENTENCES, LENGTH, EXTRA, SHORTEST = 200, 11, 19, 7
D_MODEL = 48
BART = {
    **{"d_model": D_MODEL, "encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 61},
    **{f"{stack}_attention_heads": 6 for stack in ("encoder", "decoder")},
    **{f"{stack}_ffn_dim": 37 for stack in ("encoder", "decoder")},
    **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "scale_embedding": True},
}
#: The vocabulary of Marian is complete, and its padding is the last piece.
MARIAN = {**BART, "pad_token_id": 95, "decoder_start_token_id": 95, "eos_token_id": 0, "activation_function": "swish"}
T5 = {
    **{"d_model": D_MODEL, "d_kv": 7, "d_ff": 37, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 3},
    **{"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0},
}
V1_1 = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
M2M_LANGUAGES = [
    f"__{code}__" for code in transformers.models.m2m_100.tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]
]
MARIAN_LANGUAGES = [">>deu<<", ">>fra<<", ">>cmn_Hans<<"]
#: Then symbols of MADLAD-400 that are no languages.
MADLAD_LANGUAGES = ["<2de>", "<2ru>", "<2zh_Hant>", "<2RU>", "<2translate>", "<2Latn>", "<2zxx_xx_dtynoise>"]
NLLB_LANGUAGES = [*transformers.models.nllb.tokenization_nllb.FAIRSEQ_LANGUAGE_CODES]
FAIRSEQ = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
#: Name -> class of the model, fields of its configuration, class of the tokenizer, and its languages.
FAMILIES = {
    "Marian": ("Marian", MARIAN, "MarianTokenizer", MARIAN_LANGUAGES),
    "M2M-100": ("M2M100", BART, "M2M100Tokenizer", M2M_LANGUAGES),
    "NLLB": ("M2M100", BART, "NllbTokenizer", NLLB_LANGUAGES),
    "mBART-50": ("MBart", BART, "MBart50Tokenizer", []),
    "T5": ("T5", T5, "T5Tokenizer", []),
    "T5 v1.1": ("T5", V1_1, "T5Tokenizer", []),
    "mT5": ("MT5", V1_1, "T5Tokenizer", []),
    "MADLAD-400": ("T5", V1_1, "T5Tokenizer", MADLAD_LANGUAGES),
}
WORDS = [f"{a}{b}{c}{d}" for a in "bdfg" for b in "aeiou" for c in "klmn" for d in "aio"]
TEXT = [" ".join(WORDS[i : i + 6]) for i in range(len(WORDS) - 6)]


def train_sentencepiece(lines, **options):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=93, minloglevel=2, **options
    )
    return model.getvalue(), sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write_tokenizer(folder, kind, languages, lines=TEXT):
    """Writes the files of a tokenizer of transformers for a text, and loads it."""
    if kind == "T5Tokenizer":
        special = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
        model, _ = train_sentencepiece(lines, user_defined_symbols=languages, **special)
        (folder / "spiece.model").write_bytes(model)
        settings = {"additional_special_tokens": []}  # Otherwise, transformers 5 lists the languages.
    elif kind == "MarianTokenizer":
        model, processor = train_sentencepiece(lines)
        for name in ("source.spm", "target.spm"):
            (folder / name).write_bytes(model)
        pieces = ["</s>", "<unk>", *map(processor.id_to_piece, range(3, processor.vocab_size())), *languages, "<pad>"]
        (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
        settings = {}
    else:
        model, processor = train_sentencepiece(lines, model_type="unigram" if kind == "MBart50Tokenizer" else "bpe")
        (folder / "sentencepiece.bpe.model").write_bytes(model)
        settings = {**FAIRSEQ, "additional_special_tokens": languages} if languages else FAIRSEQ
        if kind == "M2M100Tokenizer":
            pieces = ["<s>", "<pad>", "</s>", "<unk>", *map(processor.id_to_piece, range(3, processor.vocab_size()))]
            (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **settings}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_model(name, tokenizer, **others):
    """A model of transformers with its initial weights. Three rows of most embeddings have no piece."""
    kind, fields, *_ = FAMILIES[name]
    rows = len(tokenizer) + (0 if kind == "Marian" else 3)
    config = getattr(transformers, f"{kind}Config")(vocab_size=rows, **{**fields, **others})
    return getattr(transformers, "MarianMTModel" if kind == "Marian" else f"{kind}ForConditionalGeneration")(config)


def randomize(model, is_sharp):
    """Random weights with which the output depends on the source and on positions.

    With `is_sharp`, hypotheses differ by source and end at different lengths. Such attention amplifies rounding.
    """
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue  # The positions of Marian.
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) * (1.0 if "relative" in name else D_MODEL**-0.5))
        for name, parameter in model.named_parameters() if is_sharp else ():
            if "EncDecAttention." in name:
                parameter.mul_(6.0)
            elif "encoder.layers" in name and "self_attn." in name and model.config.model_type == "marian":
                parameter.mul_(6.0)
            elif "encoder_attn." in name:
                parameter.mul_(10.0)
        output = getattr(model, "lm_head", None) or model.get_output_embeddings()
        output.weight[model.config.eos_token_id] *= 4.0
        output.weight[model.config.pad_token_id] *= 0.1  # CTranslate2 generates padding, which trained models do not.


def make_old(folder):
    """Gives files of T5 what the first checkpoints have: a former name, and a weight that transformers ignores."""
    import safetensors.numpy

    file, name = folder / "model.safetensors", "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    tensors = {**safetensors.numpy.load_file(file), name: np.ones((32, 3), "float32")}
    safetensors.numpy.save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["T5WithLMHeadModel"]}))


class Pair:
    """A model of transformers and its import."""

    def __init__(self, folder, name, is_sharp=True):
        _, fields, tokenizer, languages = FAMILIES[name]
        self.tokenizer = write_tokenizer(folder, tokenizer, languages)
        self.theirs = make_model(name, self.tokenizer).eval()
        config = self.theirs.config
        if fields is V1_1:
            self.theirs.lm_head.weight = torch.nn.Parameter(torch.zeros_like(self.theirs.lm_head.weight))
        randomize(self.theirs, is_sharp)
        self.theirs.save_pretrained(folder)
        if name == "T5 v1.1":
            make_old(folder)
        self.folder, self.config, self.name = folder, config, name
        self.ours, (self.our_tokenizer, _), self.languages, _ = read_checkpoint(folder)
        pieces = {piece: i for i, piece in enumerate(self.our_tokenizer.pieces)}
        names = {i: piece for piece, i in self.tokenizer.get_vocab().items()}
        #: Our id of each id of transformers, and 0 for rows without a piece.
        self.to_ours = np.array(
            [pieces.get(names.get(i), pieces.get(f"<row_{i}>", 0)) for i in range(config.vocab_size)]
        )
        self.to_ours[[config.pad_token_id, config.eos_token_id]] = 0, 3
        self.ordinary = np.flatnonzero(self.to_ours > 3)
        # The tokens that our search never outputs: special and added ones.
        allowed = {*self.to_ours[self.ordinary]} - {*self.our_tokenizer.text_constraints.forbidden}
        self.allowed = [i for i in self.ordinary if self.to_ours[i] in allowed]
        barred = {*range(config.vocab_size)} - {*self.allowed, config.eos_token_id}
        self.barred = [[i] for i in sorted(barred)]
        self.source = np.random.default_rng(5).choice(self.allowed, (SENTENCES, LENGTH))
        self.source[:, -1] = config.eos_token_id

    def generate(self, **options):
        """Tokens of transformers as our ids."""
        source, is_end = torch.from_numpy(self.source), torch.arange(self.config.vocab_size) == self.config.eos_token_id

        # `forced_eos_token_id` would make the end token at the limit cost nothing in beam search.
        def end_at_limit(tokens, scores):
            return scores.masked_fill(~is_end & (tokens.shape[1] >= LENGTH + EXTRA), -torch.inf)

        found = self.theirs.generate(
            source,
            attention_mask=torch.ones_like(source),
            min_new_tokens=SHORTEST,
            max_new_tokens=LENGTH + EXTRA,
            bad_words_ids=self.barred,
            logits_processor=transformers.LogitsProcessorList([end_at_limit]),
            forced_eos_token_id=None,
            forced_bos_token_id=None,
            do_sample=False,
            **options,
        )[:, 1:]
        rows = self.to_ours[found.numpy()].tolist()
        return [np.array(row[: row.index(3) + 1]) for row in rows]

    def search(self, strategy):
        constraints = self.our_tokenizer.text_constraints
        tokens, scores, _ = self.ours.generate(self.to_ours[self.source], strategy, text_constraints=constraints)
        return [np.trim_zeros(row, "b") for row in tokens[:, 0]], scores[:, 0]


#: The others differ from M2M-100 and T5 v1.1 in few lines.
NAMES = [pytest.param(name, marks=[pytest.mark.nightly] * (name not in ("M2M-100", "T5 v1.1"))) for name in FAMILIES]


@pytest.fixture(scope="module", params=NAMES)
def pair(request, tmp_path_factory):
    return Pair(tmp_path_factory.mktemp("family"), request.param)


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_equal(name, tmp_path):
    pair = Pair(tmp_path, name, is_sharp=False)
    target = pair.source[:9, :5].copy()
    target[:, 0] = pair.config.decoder_start_token_id
    source = pair.source[:9].copy()
    source[1, 4], source[1, 5:] = pair.config.eos_token_id, pair.config.pad_token_id
    with torch.no_grad():
        mask = torch.ones(source.shape, dtype=torch.bool)
        mask[1, 5:] = False
        expected = pair.theirs(
            torch.from_numpy(source), attention_mask=mask, decoder_input_ids=torch.from_numpy(target)
        ).logits.numpy()
    ours = pair.to_ours[target]
    ours[:, 0] = 2
    logits = keras.ops.convert_to_numpy(pair.ours({"source": pair.to_ours[source], "target": ours}))
    expected, found = expected[:, :, pair.ordinary], logits[:, :, pair.to_ours[pair.ordinary]]
    print(f"\nlogits up to {np.abs(expected).max():.2f} differ by {np.abs(found - expected).max():.1e} at most")
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_text_has_the_same_ids(pair):
    lines = ["baka dulo gomi", "fino baka, xyz 7", "BAKA  dulo"]
    for line, ids in zip(lines, pair.our_tokenizer.encode(lines), strict=True):
        theirs = [i for i in pair.tokenizer(line)["input_ids"]]
        languages = len(theirs) - len(ids)
        assert languages == int(hasattr(pair.tokenizer, "src_lang"))
        assert [pair.our_tokenizer.pieces[i] for i in ids] == pair.tokenizer.convert_ids_to_tokens(theirs[languages:])


def test_each_language_has_its_tokens(pair, tmp_path):
    """Text translated to any language is what transformers writes. Text cannot produce the tokens of languages."""
    directory = import_checkpoint(pair.folder, tmp_path / "run")
    translator = KerasTranslator(directory.path, GreedySearch(extra_length=0), protect="off")
    known = pair.languages.target_tokens
    forces_target = hasattr(pair.tokenizer, "src_lang")
    assert translator.languages == pair.languages and pair.languages.forces_target == forces_target
    assert bool(pair.languages.source_start) == (pair.name == "MADLAD-400")
    if not known:
        assert translator.translate(["baka dulo"])[0].tokens
        return
    line, codes = "baka dulo gomi", [*known]
    targets = codes[::-1]
    given = {"source_language": codes if forces_target else None, "target_language": targets}
    found = translator.translate([line] * len(codes), **given)
    assert [one.target_language for one in found] == targets
    assert [one.source_language for one in found] == (codes if forces_target else [None] * len(codes))
    ids = pair.our_tokenizer.encode([line, *(f"{pair.our_tokenizer.pieces[known[code]]} {line}" for code in codes)])
    assert not {*known.values()} & {i for row in ids for i in row}
    for code, target, one in zip(codes, targets, found, strict=True):
        name = pair.our_tokenizer.pieces[known[target]]
        if forces_target:
            pair.tokenizer.src_lang, written = code, line
            forced = {"forced_bos_token_id": pair.tokenizer.convert_tokens_to_ids(name)}
            direction = pair.languages.direction(code, target)
        else:
            written, forced, direction = f"{name} {line}", {}, pair.languages.direction(None, target)
        source = pair.tokenizer([written], return_tensors="pt")
        assert pair.to_ours[source["input_ids"][0]].tolist() == direction.source_ids(ids[0])
        theirs = pair.theirs.generate(
            **source,
            **forced,
            max_new_tokens=4,
            bad_words_ids=pair.barred,
            forced_eos_token_id=None,
            do_sample=False,
            num_beams=1,
        )[0, 1:]
        expected = pair.to_ours[theirs.numpy()].tolist()
        assert one.tokens[:4] == tuple(expected[: expected.index(3) + 1 if 3 in expected else None])


@pytest.mark.nightly
def test_exports_hold_the_beam_search(pair, tmp_path):
    """SavedModel and ONNX also translate to each language as Keras does."""
    directory = import_checkpoint(pair.folder, tmp_path / "run")
    formats = "saved_model,onnx,ctranslate2"
    export(str(directory.path), ExportConfig(format=formats, beam_size=2, extra_length=5))
    found = json.loads(directory.verification_file.read_text())
    names = ["saved_model", "onnx", *(["saved_model prefix", "onnx prefix"] if pair.languages.forces_target else [])]
    assert {name: (found[name]["equal"], found[name]["ties"]) for name in names} == dict.fromkeys(names, (224, 0))
    assert found["saved_model text"]["equal"] == 226
    assert [found[f"ctranslate2 {search}"]["sound"] for search in ("greedy", "beam")] == [224, 224]
    codes = [*pair.languages.target_tokens]
    if not codes:
        return
    given = {"target_language": codes}
    if pair.languages.forces_target:
        given["source_language"] = codes[::-1]
    lines = [" ".join(WORDS[i % len(WORDS) :][:3]) for i in range(len(codes))]
    strategy = BeamSearch(beam_size=2, extra_length=5)
    ours, saved_model, onnx = (
        load_translator(directory.path, runtime, protect="off", **options).translate(lines, **given)
        for runtime, options in (("keras", {"strategy": strategy}), ("saved_model", {}), ("onnx", {}))
    )
    assert [one.tokens for one in onnx] == [one.tokens for one in ours]
    assert [one.text for one in saved_model] == [one.text for one in ours]
    assert len({one.tokens[pair.languages.forces_target :] for one in ours}) >= min(len(codes), 20)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_hypotheses_are_equal(pair, beam_size):
    """With other sources the hypotheses are others, so equal ones prove something."""
    options = {"extra_length": EXTRA, "min_length": SHORTEST}
    if beam_size == 1:
        theirs, strategy = pair.generate(num_beams=1), GreedySearch(**options)
    else:
        theirs = pair.generate(num_beams=beam_size, length_penalty=0.0, early_stopping="never")
        strategy = BeamSearch(beam_size=beam_size, length_penalty=0.0, **options)
    ours, scores = pair.search(strategy)
    found = KerasSearch(pair.ours, strategy)
    same = np.array([np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)])
    tie = np.abs(found.forced_scores(pair.to_ours[pair.source], pad(theirs)) - scores) < 1e-3
    if beam_size == 1:  # After a tie of two tokens, greedy hypotheses are unlike.
        source = pair.to_ours[pair.source]
        for i in np.flatnonzero(~same):
            one, other = (found.log_probs(source[i : i + 1], pad([tokens[i]]))[0] for tokens in (ours, theirs))
            first = np.flatnonzero(pad([ours[i], theirs[i]])[0] != pad([ours[i], theirs[i]])[1])[0]
            tie[i] = abs(one[first] - other[first]) < 1e-3
    unlike, lengths = len({tuple(row) for row in theirs}), sorted({len(row) for row in theirs})
    print(f"\n{same.sum()} equal, {(tie & ~same).sum()} ties, {unlike} unlike")
    assert unlike >= 190 and len(lengths) > 5
    assert (same | tie).all() and (tie & ~same).sum() <= 1


#: One is enough, because the comparison knows nothing of families.
of_one = pytest.mark.parametrize("pair", ["M2M-100"], indirect=True)
VERIFIED = [pytest.param(name, marks=[pytest.mark.nightly] * (name != "M2M-100")) for name in FAMILIES]


@pytest.mark.parametrize("pair", VERIFIED, indirect=True)
def test_an_import_is_compared_with_its_original(pair, tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("\n".join([" ".join(WORDS[i : i + 1 + i % 7]) for i in range(60)] + ["", "xyz 7"]))
    assert main(["import", str(pair.folder), f"--output={tmp_path / 'run'}", "--verify", f"--source={text}"]) == 0
    found = ModelDirectory(tmp_path / "run").record()["verified_against"]
    assert (found["transformers"], found["lines"], found["lines_with_other_ids"]) == (transformers.__version__, 62, 0)
    assert found["sentences"] == 32 and found["equal"] + found["ties"] == 64 and found["ties"] <= 1
    assert 0 < found["logits_difference"] <= 1e-4 and found["different_hypotheses"] > 1
    message = capsys.readouterr().err
    assert "Token ids: 62 of 62 lines equal\nThe imported model agrees with that of transformers" in message
    assert f"different hypotheses: {found['different_hypotheses']}" in message


@of_one
def test_a_wrong_import_is_refused(pair, tmp_path, monkeypatch, capsys):
    """A norm with scales that are too large by a thousandth. What was in the output folder stays."""
    (family,) = [family for family in importer_config.FAMILIES if "m2m_100" in family.model_types]
    wrong = dataclasses.replace(family, factors={"encoder.layer_norm.weight": lambda config: 1.001})
    monkeypatch.setattr(importer_config, "FAMILIES", (wrong,))
    arguments = ["import", str(pair.folder), "--verify", "--overwrite", "--output"]
    assert main([*arguments, str(tmp_path / "run")]) == 1 and not [*tmp_path.iterdir()]
    assert "error" not in (message := capsys.readouterr().err)
    assert "import: The imported model does not agree with that of transformers: the logits differ by " in message
    old = import_checkpoint(pair.folder, tmp_path / "run", source_language="en")
    before = {path: path.read_bytes() for path in old.path.iterdir()}
    assert main([*arguments, str(old.path)]) == 1
    assert {path: path.read_bytes() for path in old.path.iterdir()} == before


SETTINGS = "tokenizer_config.json"
#: File, its contents, and the problem. The contents of a dict replace fields.
OTHERS = {
    "another tokenizer": (SETTINGS, {"tokenizer_class": "OtherTokenizer"}, "`tokenizer_class` must be 'M2M100"),
    "languages at the end": (SETTINGS, {"legacy_behaviour": True}, "`legacy_behaviour` must be False; other"),
    "no sizes": ("config.json", {"d_model": 0, "encoder_layers": -1}, "`d_model` must be int, at least 1. Received: 0"),
    "another start": ("config.json", {"decoder_start_token_id": 5}, "`decoder_start_token_id` must be `eos_token_id`"),
    "experts": ("config.json", {"model_type": "nllb-moe"}, "mixtures of experts are not supported"),
    "ids of a map": (SETTINGS, {"added_tokens_decoder": {"4": "__en__"}}, f"{SETTINGS} cannot be read: unknown"),
    "ids of text": ("added_tokens.json", {"__en__": "4"}, "added_tokens.json cannot be read: an id is not an integer"),
    "a number": (SETTINGS, {"added_tokens_decoder": {"4": {"content": 3}}}, f"{SETTINGS} cannot be read: a piece is"),
    "a tokenizer in Python": ("tokenization_own.py", "", "a tokenizer in Python is not supported. Received: tokeniz"),
    "an added piece": ("added_tokens.json", {"<hl>": 190}, "Added pieces are not supported. The tokenizer has"),
    "no list": ("tokenizer.json", {"added_tokens": 3}, "tokenizer.json cannot be read: unknown contents"),
    "not JSON": ("special_tokens_map.json", "{", "special_tokens_map.json cannot be read: "),
    "deep JSON": ("added_tokens.json", '{"x":' * 99_999, "added_tokens.json cannot be read: unknown contents (Recurs"),
}


@of_one
@pytest.mark.parametrize("other", OTHERS)
def test_files_that_mean_something_else_are_refused(pair, other, tmp_path, capsys):
    name, content, problem = OTHERS[other]
    folder = shutil.copytree(pair.folder, tmp_path / "model")
    if isinstance(content, dict):
        old = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        content = json.dumps({**old, **content})
    (folder / name).write_text(content)
    assert main(["import", str(folder), f"--output={tmp_path / 'run'}"]) == 2
    message = capsys.readouterr().err
    assert message.count(f"\n- {problem}") == 1 and not (tmp_path / "run").exists()


@pytest.mark.parametrize("pair", ["MADLAD-400"], indirect=True)
def test_the_word_boundary_marker_precedes_a_language(pair, tmp_path):
    """That is how SentencePiece divides the line. transformers does not if a file lists the language as added."""
    marker, language = pair.languages.direction(None, "de").source_prefix
    assert [pair.our_tokenizer.pieces[i] for i in (marker, language)] == ["▁", "<2de>"]
    assert [*pair.languages.target_tokens] == ["de", "ru", "zh_Hant"]
    ids = {pair.our_tokenizer.pieces.index(piece) for piece in MADLAD_LANGUAGES}
    assert ids <= {*pair.our_tokenizer.text_constraints.forbidden}
    assert not ids & {i for row in pair.our_tokenizer.encode(MADLAD_LANGUAGES) for i in row}
    folder = shutil.copytree(pair.folder, tmp_path / "model")
    (folder / "added_tokens.json").write_text(json.dumps({"<2de>": pair.tokenizer.convert_tokens_to_ids("<2de>")}))
    assert read_checkpoint(folder)[2].direction(None, "de").source_prefix == (language,)


#: Family -> fields of tokenizer_config.json as published, and files that were not.
PUBLISHED = {
    "M2M-100": ({"tokenizer_class": "M2M100Tokenizer", "language_codes": "m2m100"}, ["added_tokens.json"]),
    "NLLB": ({"tokenizer_class": "NllbTokenizer", "additional_special_tokens": None}, ["tokenizer.json"]),
    "mBART-50": ({"language_codes": "ML50"}, ["tokenizer.json"]),
}


@pytest.mark.parametrize(
    "pair", [pytest.param(name, marks=[pytest.mark.nightly] * (name != "M2M-100")) for name in PUBLISHED], indirect=True
)
def test_files_are_read_as_they_were_published(pair, tmp_path):
    """special_tokens_map.json lists the languages. tokenizer_config.json has no ids and no default languages."""
    folder = shutil.copytree(pair.folder, tmp_path / "model")
    fields, others = PUBLISHED[pair.name]
    for name in others:
        (folder / name).unlink()
    added = {pair.our_tokenizer.pieces[i] for i in pair.languages.target_tokens.values()} | {"<mask>"}
    listed = ["<s>", *(piece for piece in pair.our_tokenizer.pieces if piece in added)]
    (folder / "special_tokens_map.json").write_text(json.dumps({**FAIRSEQ, "additional_special_tokens": listed}))
    (folder / SETTINGS).write_text(json.dumps({**FAIRSEQ, **fields, "src_lang": None, "tgt_lang": None}))
    _, (tokenizer, _), languages, _ = read_checkpoint(folder)
    assert tokenizer.sha256 == pair.our_tokenizer.sha256
    assert languages == dataclasses.replace(pair.languages, source=None)


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(name, marks=[pytest.mark.nightly] * (name != "T5 v1.1"))
        for name in ("T5 v1.1", "NLLB", "mBART-50", "MADLAD-400")
    ],
    indirect=True,
)
def test_a_model_saved_by_transformers_5_has_no_sentencepiece_file(pair, tmp_path):
    folder = shutil.copytree(pair.folder, tmp_path / "model")
    for file in folder.glob("s*.model"):
        file.unlink()
    _, (tokenizer, _), languages, _ = read_checkpoint(folder)
    assert (tokenizer.pieces, languages) == (pair.our_tokenizer.pieces, pair.languages)
    lines = [*TEXT, "baka  dulo", "ﬁno baka, xyz 7", "BAKA__de__ <2de>", "<extra_id_0>"]
    assert tokenizer.encode(lines) == pair.our_tokenizer.encode(lines)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="\n- tokenizer.json cannot be read: unknown contents"):
        read_checkpoint(folder)


@of_one
def test_languages_must_be_listed(pair, tmp_path, capsys):
    folder = shutil.copytree(pair.folder, tmp_path / "model")
    for name in ADDED:
        (folder / name).unlink(missing_ok=True)
    assert main(["import", str(folder), f"--output={tmp_path / 'run'}"]) == 2
    assert "\n- The pieces of languages must be listed in one of special_tokens_map.json, " in capsys.readouterr().err


def test_the_only_target_language_is_the_default(pair, tmp_path):
    if not (tokens := pair.languages.target_tokens):
        pytest.skip("a family without tokens of languages")
    folder = shutil.copytree(pair.folder, tmp_path / "model")
    code, token = [*tokens.items()][1]
    (forced,) = np.flatnonzero(pair.to_ours == token).tolist()
    for name, id_of_another in (("config.json", forced), ("generation_config.json", pair.config.pad_token_id)):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, "forced_bos_token_id": id_of_another}))
    assert read_checkpoint(folder)[2].target is None
    (folder / "generation_config.json").write_text(json.dumps({"forced_bos_token_id": None}))
    assert read_checkpoint(folder)[2].target is None
    (folder / "generation_config.json").write_text(json.dumps({"forced_bos_token_id": [forced]}))
    assert read_checkpoint(folder)[2].target is None
    (folder / "generation_config.json").unlink()
    assert read_checkpoint(folder)[2].target == code
    assert import_checkpoint(folder, tmp_path / "run", target_language=[*tokens][0]).languages[1] == [*tokens][0]


@pytest.mark.parametrize("pair", ["T5 v1.1"], indirect=True)
def test_an_activation_of_its_own_and_a_missing_embedding(pair, tmp_path, capsys):
    """transformers ignores the activation of `feed_forward_proj` if `dense_act_fn` has another one."""
    import safetensors.numpy

    folder = shutil.copytree(pair.folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert (config["feed_forward_proj"], config["dense_act_fn"]) == ("gated-gelu", "gelu_new")
    (folder / "config.json").write_text(json.dumps({**config, "dense_act_fn": "silu"}))
    model, *_ = read_checkpoint(folder)
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(folder)
    assert (model.config.activation, theirs.config.dense_act_fn) == ("silu", "silu")
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    safetensors.numpy.save_file(
        {name: x for name, x in tensors.items() if name != "shared.weight"}, folder / "model.safetensors"
    )
    assert main(["import", str(folder), f"--output={tmp_path / 'run'}"]) == 2
    assert "\n- model.safetensors lacks shared.weight\n" in capsys.readouterr().err


@of_one
def test_null_is_no_value(pair, tmp_path):
    folder = shutil.copytree(pair.folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": None, "dropout": None}))
    model, *_ = read_checkpoint(folder)
    assert (model.config.max_length, model.config.dropout) == (1024, 0.1)


@of_one
def test_other_hypotheses_are_refused_and_other_ids_are_counted(pair, monkeypatch, capsys):
    search, encode = Original.search, Original.encode
    monkeypatch.setattr(Original, "encode", lambda *given: [*encode(*given), -1])
    checkpoint, lines = read_checkpoint(pair.folder), ["baka dulo", "fino gomi", "dulo"]
    found = compare_with_original(pair.folder, checkpoint, lines)
    assert (found.lines_with_other_ids, found.sentences, found.hypotheses) == (3, 3, 6)
    assert "Token ids: 0 of 3 lines equal\n'baka dulo' becomes __" in capsys.readouterr().err
    monkeypatch.setattr(Original, "search", lambda *given: search(*given)[::-1])
    with pytest.raises(VerificationError, match=r"does not agree .*; [0-3] of 6 hypotheses of 3 sentences equal"):
        compare_with_original(pair.folder, checkpoint, lines)
    monkeypatch.setattr(Original, "unknown_ids", {5: "x", 7: None})
    with pytest.raises(
        VerificationError, match="the pieces of 2 ids differ. In transformers, id 5 has 'x', id 7 has no p"
    ):
        compare_with_original(pair.folder, checkpoint, lines)


#: Sizes, and English and German, of the models that are trained.
TRAINED = {
    **{"d_model": 96, "encoder_ffn_dim": 192, "decoder_ffn_dim": 192, "d_ff": 192, "d_kv": 16},
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "dropout_rate"), 0.0),
}
CODES = {"M2M-100": ("en", "de"), "NLLB": ("eng_Latn", "deu_Latn"), "mBART-50": ("en_XX", "de_DE")}
TARGETS = {"Marian": ">>deu<< ", "MADLAD-400": "<2de> "}


def train(model, tokenizer, pairs, steps=1500, rows=64, rate=3e-3):
    """Trains a model of transformers with pairs of lines."""
    torch.manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    random = np.random.default_rng(4)
    for _ in range(steps):
        source, target = zip(*(pairs[i] for i in random.integers(0, len(pairs), rows)), strict=True)
        batch = tokenizer([*source], text_target=[*target], padding=True, return_tensors="pt")
        batch["labels"][batch["labels"] == model.config.pad_token_id] = -100
        optimizer.zero_grad()
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@pytest.mark.nightly
@pytest.mark.parametrize("name", FAMILIES)
def test_int8_translates_as_well_as_the_original(name, tmp_path):
    """A model that has learned to spell the numbers below 10,000 in German. Random weights round otherwise."""
    numbers = np.random.default_rng(0).permutation(10_000).tolist()
    pairs = [tuple(num2words.num2words(number, lang=code) for code in ("en", "de")) for number in numbers]
    _, fields, tokenizer_class, languages = FAMILIES[name]
    tokenizer = write_tokenizer(tmp_path, tokenizer_class, languages, [line for pair in pairs[:2000] for line in pair])
    model = make_model(name, tokenizer, **{key: TRAINED[key] for key in TRAINED if key in fields or TRAINED[key] == 0})
    given = {}
    if name in CODES:
        tokenizer.src_lang, tokenizer.tgt_lang = CODES[name]
        given = {"source_language": "en", "target_language": "de"}
    if name in TARGETS:
        given = {"target_language": "de"}
    train(model, tokenizer, [(TARGETS.get(name, "") + source, target) for source, target in pairs[200:]])
    model.save_pretrained(tmp_path)
    directory = import_checkpoint(tmp_path, tmp_path / "run", **given)
    texts = dict(zip(("source", "reference"), zip(*pairs[:200], strict=True), strict=True))
    for side, lines in texts.items():
        (tmp_path / side).write_text("\n".join(lines) + "\n")
    options = {**{side: str(tmp_path / side) for side in texts}, "beam_size": 4, "extra_length": 40}
    export(str(directory.path), ExportConfig(format="onnx", quantize="int8", **options))
    translator = load_translator(directory.path, "onnx_int8")
    found = [translation.text for translation in translator.translate(texts["source"])]
    right = sum(text == expected for text, expected in zip(found, texts["reference"], strict=True))
    record = json.loads(directory.verification_file.read_text())["onnx_int8"]
    print(f"\n{name}: {right} of 200 right, {record}")
    assert right >= 180
