"""Import and export of `transformers.MarianMTModel`: logits, greedy tokens and beams equal those of transformers."""

import io
import json

import keras
import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.export import import_checkpoint
from keras_transformer.export.config import ExportConfig
from keras_transformer.export.pipeline import export
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.translate.batching import pad
from keras_transformer.translate.finished_model import load_finished

pytestmark = [
    pytest.mark.torch_parity,
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore"),
]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

#: The second sizes are those of the OPUS-MT models.
SIZES = {
    "small": {"d_model": 24, "layers": 2, "decoder_layers": 1, "ffn_dim": 40, "attention_heads": 3, "vocab_size": 211},
    "opus": {"d_model": 512, "layers": 6, "ffn_dim": 2048, "attention_heads": 8, "vocab_size": 58_101},
}
SENTENCES, LONGEST, EXTRA = 200, 10, 10
TIE = 1e-4


def sentencepiece_model(vocab_size):
    import sentencepiece

    model = io.BytesIO()
    words = [f"{a}{b}{c}" for a in "bdfg" for b in "aeiou" for c in "klmn"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words[i : i + 5]) for i in range(len(words) - 5)]),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue(), sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def random_ids(vocab_size, rows=SENTENCES):
    """Random sources in Marian's ids: at least four pieces, then padding (the last id), without the end token (0)."""
    rng = np.random.default_rng(5)
    ids = rng.integers(2, vocab_size - 1, (rows, LONGEST)).astype("int64")
    return np.where(np.arange(LONGEST) >= rng.integers(4, LONGEST + 1, rows)[:, None], vocab_size - 1, ids)


def end_by_position(model, pad, slope=1.0, middle=8):
    """Increases the logit of the end token with the position, so that hypotheses end at different lengths.

    The row of the end token becomes the direction that best predicts the position from the decoder's output, by least
    squares over greedy hypotheses that do not end.
    """
    source = torch.from_numpy(random_ids(pad + 1, 32))
    inputs = {"input_ids": source, "attention_mask": source != pad}
    length = 2 * LONGEST
    unending = {"max_new_tokens": length, "num_beams": 1, "do_sample": False, "bad_words_ids": [[0], [pad]]}
    tokens = model.generate(**inputs, **unending)[:, :length]
    made = model.model(**inputs, decoder_input_ids=tokens).last_hidden_state
    best = (model.lm_head(made) + model.final_logits_bias).amax(-1).mean()
    states, positions = made.flatten(0, 1), torch.arange(float(length)).repeat(len(source))
    states, away = states - states.mean(0), positions - positions.mean()
    direction = torch.linalg.solve(states.T @ states + len(states) * torch.eye(states.shape[1]), states.T @ away)
    direction *= slope * (away @ away) / (away @ states @ direction)
    model.model.shared.weight[0] = direction
    model.final_logits_bias[0, 0] = best - slope * (middle - positions.mean()) - direction @ made.mean((0, 1))


def make_marian(folder, vocab_size, d_model, decoder_layers=None, **sizes):
    """Saves a model with random weights. Its SentencePiece models have the first pieces of its vocabulary."""
    config = transformers.MarianConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        **{f"{stack}_{name}": size for name, size in sizes.items() for stack in ("encoder", "decoder")},
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=vocab_size - 1,
        decoder_start_token_id=vocab_size - 1,
        eos_token_id=0,
        init_std=d_model**-0.5,
    )
    config.decoder_layers = decoder_layers or config.decoder_layers
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.1 * torch.randn_like(parameter)
        model.model.decoder.layers[-1].final_layer_norm.weight *= 2  # Logits with a standard deviation of about 2.
        model.final_logits_bias.copy_(0.25 * torch.randn(1, vocab_size))
        end_by_position(model, vocab_size - 1)
    model.save_pretrained(folder)
    spm, processor = sentencepiece_model(90)
    names = ["</s>", "<unk>", *(processor.id_to_piece(i) for i in range(3, processor.vocab_size()))]
    names += [f"piece{i}" for i in range(vocab_size - len(names) - 1)] + ["<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(spm)
    return model


class Pair:
    """A model of transformers and its import."""

    def __init__(self, folder, name):
        sizes = SIZES[name]
        (folder / "marian").mkdir()
        self.theirs = make_marian(folder / "marian", **sizes)
        self.directory = import_checkpoint(folder / "marian", folder / "run")
        self.ours, self.tokenizers = load_finished(self.directory)
        self.vocab_size = sizes["vocab_size"]
        vocab = json.loads((folder / "marian" / "vocab.json").read_text())
        our_id = {piece: i for i, piece in enumerate(self.tokenizers[0].pieces)}
        self.to_ours = np.array([our_id[piece] for piece, _ in sorted(vocab.items(), key=lambda item: item[1])])
        self.source = random_ids(self.vocab_size)

    def generate(self, count, **options):
        """Tokens (as imported ids) and scores of transformers, in one call per length limit."""
        tokens, scores = [[] for _ in range(count)], np.zeros(count)
        lengths = (self.source[:count] != self.vocab_size - 1).sum(axis=1)
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            source = torch.from_numpy(self.source[rows, :length])
            found = self.theirs.generate(
                source,
                attention_mask=torch.ones_like(source),
                max_new_tokens=int(length) + EXTRA,
                bad_words_ids=[[self.vocab_size - 1]],
                forced_eos_token_id=0,
                do_sample=False,
                return_dict_in_generate=True,
                output_scores=True,
                **options,
            )
            for i, row in zip(rows, found.sequences[:, 1:].tolist(), strict=True):
                tokens[i] = self.to_ours[row[: row.index(0) + 1]]
            if "sequences_scores" in found:
                scores[rows] = found.sequences_scores.numpy()
        return tokens, scores

    def search(self, count, strategy):
        constraints = self.tokenizers[1].text_constraints
        source = self.to_ours[self.source[:count]]
        tokens, scores, _ = self.ours.generate(source, strategy, text_constraints=constraints)
        return [np.trim_zeros(row, "b") for row in tokens[:, 0]], scores[:, 0]


@pytest.fixture(scope="module", params=["small", pytest.param("opus", marks=pytest.mark.nightly)])
def pair(request, tmp_path_factory):
    return Pair(tmp_path_factory.mktemp(request.param), request.param)


#: With the second sizes these tests take many minutes.
small = pytest.mark.parametrize("pair", ["small"], indirect=True)


def equal(ours, theirs):
    return np.array([np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)])


def logits_of(model, source, target, pad_id):
    with torch.no_grad():
        source, target = torch.from_numpy(source), torch.from_numpy(target)
        return model(source, attention_mask=source != pad_id, decoder_input_ids=target).logits.numpy()


def assert_close(found, expected):
    difference = np.abs(found - expected).max()
    print(f"\nlogits with a deviation of {expected.std():.2f} differ by {difference:.1e} at most")
    assert difference < 1e-4 and expected.std() > 1


def test_logits_are_equal(pair):
    source, pad_id = pair.source[:24], pair.vocab_size - 1
    target = np.concatenate([np.full((24, 1), pad_id), pair.source[24:48, :7]], axis=1)
    expected = logits_of(pair.theirs, source, target, pad_id)
    shifted = np.concatenate([np.full((24, 1), 2), pair.to_ours[target[:, 1:]]], axis=1)
    ours = pair.ours({"source": pair.to_ours[source], "target": shifted})
    logits = keras.ops.convert_to_numpy(ours)[..., pair.to_ours]
    assert_close(logits[shifted != 0], expected[shifted != 0])


def test_greedy_tokens_are_equal(pair):
    theirs, _ = pair.generate(SENTENCES, num_beams=1)
    ours, _ = pair.search(SENTENCES, GreedySearch(extra_length=EXTRA))
    print(f"\n{equal(ours, theirs).sum()} of {SENTENCES} equal, lengths {sorted({len(row) for row in ours})}")
    assert equal(ours, theirs).all() and len({len(row) for row in ours}) > 5


@small
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_beams_are_equal(pair, alpha):
    """In transformers finished hypotheses leave the beam, and the end token at the limit costs nothing.

    Without a length penalty this does not change the best hypothesis that ends before the limit. With a penalty it
    does: in this package finished hypotheses occupy the beam, so at equal beam sizes transformers more often finds
    better hypotheses.
    """
    count = SENTENCES
    theirs, their_scores = pair.generate(count, num_beams=4, length_penalty=alpha, early_stopping="never")
    strategy = BeamSearch(length_penalty=alpha, length_penalty_kind="length", extra_length=EXTRA)
    ours, our_scores = pair.search(count, strategy)
    source = pair.to_ours[pair.source[:count]]
    lengths = (source != 0).sum(axis=1) + EXTRA
    ends = np.array([len(a) < n > len(b) for a, b, n in zip(ours, theirs, lengths, strict=True)])
    parts = np.array_split(np.arange(count), 5)
    rescored = np.concatenate(
        [KerasSearch(pair.ours, strategy).forced_scores(source[i], pad([theirs[j] for j in i])) for i in parts]
    )
    same, tie = equal(ours, theirs), np.abs(rescored - our_scores) < TIE
    better = our_scores > rescored
    counts = f"{same.sum()} equal, {(~same & tie).sum()} ties, {(~same & ~tie & better).sum()} better, "
    counts += f"{(~same & ~tie & ~better).sum()} worse, of {count}; {(~ends).sum()} at the limit"
    own, gain = np.abs(rescored - their_scores)[ends].max(), (our_scores - rescored)[ends].mean()
    print(f"\nalpha {alpha}: {counts}; our scores are higher by {gain:.1e}; theirs as we see them differ by {own:.1e}")
    np.testing.assert_allclose(rescored[ends], their_scores[ends], atol=5e-4)  # A sum over all tokens.
    assert ends.mean() > 0.7 and (same | tie)[ends].mean() > (0.7 if alpha else 0.999)
    assert abs(gain) < 0.05


@small
def test_the_import_is_compared_with_its_original(pair, tmp_path):
    found = import_checkpoint(pair.directory.path.parent / "marian", tmp_path, verify=True).record()["verified_against"]
    assert (found["lines_with_other_ids"], found["equal"] + found["ties"]) == (0, 64)
    assert found["logits_difference"] < 1e-5 and found["different_hypotheses"] >= 10


@small
def test_transformers_loads_what_we_write(pair):
    export(str(pair.directory.path), ExportConfig(format="huggingface", extra_length=3, beam_size=2))
    written = pair.directory.export / "huggingface"
    again = transformers.MarianMTModel.from_pretrained(written).eval()
    source = pair.to_ours[pair.source[:24]]
    target = np.concatenate([np.full((24, 1), 2), source[:, :5]], axis=1)
    expected = keras.ops.convert_to_numpy(pair.ours({"source": source, "target": target}))
    assert_close(logits_of(again, source, target, 0)[target != 0], expected[target != 0])
    tokenizer = transformers.MarianTokenizer.from_pretrained(written)
    lines = ["bak dul gom", "fin"]
    assert tokenizer(lines).input_ids == pair.tokenizers[0].encode(lines)
    assert tokenizer.decode(tokenizer("bak dul gom").input_ids, skip_special_tokens=True) == "bak dul gom"
