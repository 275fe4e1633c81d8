"""Writes `tests/golden/VERSION/` with the installed version: files, and what this version computes from them.

    python tests/golden/make.py

`written.tar.xz` contains what the version has written: a model directory with exports, a classifier, a language model,
a prepared corpus, an unfinished run, and files with the defaults of all options. `expected.json` contains inputs and
outputs. Each release adds a folder; no folder is ever changed.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import random
import re
import signal
import sys
import tarfile
import tempfile
import threading
import time
import unicodedata
from importlib import metadata

import keras
import numpy as np

import keras_transformer as kt
from keras_transformer.cli import main as run_command
from keras_transformer.cli.commands import COMMANDS
from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translate import load_translator

FOLDER = pathlib.Path(__file__).parent
SUMS = FOLDER / "SHA256SUMS"
LARGEST = 1_500_000
#: Whether the version has several corpora, and the options of the languages: since 0.2.0.
HAS_CORPORA = hasattr(kt.training.TrainConfig, "corpora")
RUNTIMES = ("keras", "saved_model", "onnx", "onnx_int8", "ctranslate2")
PACKAGES = ("tensorflow", "keras", "numpy", "onnxruntime", "ctranslate2", "sentencepiece")

ENGLISH = "zero one two three four five six seven eight nine ten eleven twelve".split()
GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()
#: Text with characters that normalization rules treat differently.
CHARACTERS = {
    "plain": "One, two and twelve.",
    "German": "Fünf und zwölf Füße",
    "full width": "Ｏｎｅ，ｔｗｏ！（１２）",
    "ligatures": "ﬁve ﬂies",
    "decomposed": unicodedata.normalize("NFD", "fünf und zwölf"),
    "soft hyphen": "t\u00adwo wo\u00admen",
    "invisible": "one\u2060two\u200bthree\ufeff",
    "joiners": "می\u200cخواهم 👩\u200d💻",
    "Thai": "ทำงาน",
    "folded": "m² … ½ ™ nº",
    "spaces": "  one \t two\u00a0\u3000three  ",
}

TEXT = {"source": "train.en", "target": "train.de"}
#: Options of the training runs. An epoch has a few steps.
OPTIONS = {
    **TEXT,
    "max_length": 40,
    "tokens_per_batch": 600,
    "tokenizer.vocab_size": 320,
    "model.num_layers": 1,
    "model.d_model": 16,
    "model.num_heads": 2,
    "model.d_ff": 32,
    "model.dropout": 0,
    "recipe.validate_every": 1000,
    "recipe.checkpoint_every": 1000,
    "recipe.keep_checkpoints": 2,
    "recipe.warmup_steps": 40,
    "recipe.peak_learning_rate": 0.02,
    "recipe.xla": "false",
}
#: Options of the classifier and of the language model.
SMALL = {"vocab_size": 20, "num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 32, "dropout": 0.0}


def main() -> None:
    """Writes the folder of the installed version."""
    target = FOLDER / kt.__version__
    if target.exists():
        sys.exit(f"{target} exists. The files of a version are never changed")
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        expected = {"version": kt.__version__, "packages": {name: metadata.version(name) for name in PACKAGES}}
        expected |= write_all()
        target.mkdir()
        archive(pathlib.Path(), target / "written.tar.xz")
    (target / "expected.json").write_text(to_json(expected), encoding="utf-8")
    files = sorted(target.iterdir())
    size = sum(file.stat().st_size for file in files)
    print(f"{target}: {size:,} bytes", file=sys.stderr)
    if size > LARGEST:
        sys.exit(f"{target} must have at most {LARGEST:,} bytes")
    with open(SUMS, "a", encoding="utf-8") as sums:
        sums.writelines(f"{sha256(file)}  {file.relative_to(FOLDER).as_posix()}\n" for file in files)


def to_json(value):
    """JSON with each list of plain values on one line. Only invisible characters are escaped."""
    text = re.sub(r"\[\n[^][{}]*\]", _on_one_line, json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    return re.sub(r"[^\n]", lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


def _on_one_line(found):
    return re.sub(r"\n *", " ", found[0]).replace("[ ", "[").replace(" ]", "]")


def sha256(file):
    """The SHA-256 hash of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write_all():
    """Writes all files to the current folder. Returns what is expected of each."""
    tests = write_text()
    write_defaults()
    prepare()
    expected = {
        "corpus": {"text": "<bt> two", "ids": Tokenizer("corpus/tokenizer.model").encode(["<bt> two"])[0]},
        "classifier": make_classifier(),
        "language_model": make_language_model(),
        "unfinished": interrupt(),
    }
    run("train", "--output=model", *options(**{"recipe.max_steps": 600}))
    run("export", "model", "--format=saved_model,onnx,ctranslate2")
    run("export", "model", "--format=onnx", "--quantize=int8")
    if "shortlist" in COMMANDS:  # Since 0.2.0.
        run("shortlist", "model", "--source=train.en", "--target=train.de", "--num_frequent=128")
        expected["shortlist"] = expected_of_shortlist(tests[0])
    return expected_of_model(tests) | expected


def options(*names, **changes):
    """Options of `OPTIONS`, by default all, for the command line."""
    chosen = {name: OPTIONS[name] for name in names or OPTIONS} | changes
    if HAS_CORPORA:
        chosen |= {"source_language": "en", "target_language": "de"}
    return [f"--{name}={value}" for name, value in chosen.items()]


def run(*arguments, status=0):
    """Runs a command of `keras-transformer`."""
    found = run_command([*arguments])
    if found != status:
        sys.exit(f"{arguments} must end with status {status}. Received: {found}")


def prepare():
    """Writes the prepared corpus `corpus`: where possible, of two corpora, of which one has the tag `<bt>`."""
    text = options(*TEXT)
    if HAS_CORPORA:
        corpora = {"real": TEXT, "back-translated": {**TEXT, "tag": "<bt>"}}
        pathlib.Path("corpora.yaml").write_text(json.dumps({"corpora": corpora}))
        text = ["--config=corpora.yaml"]
    run("prepare", "--output=corpus", *text, *options("max_length", "tokenizer.vocab_size"))


def write_text():
    """Writes the training text, and returns the lines to translate and their translations."""
    draw = random.Random(1)
    rows = [[draw.randrange(len(ENGLISH)) for _ in range(draw.randint(1, 5))] for _ in range(312)]
    tests = []
    for language, words, last in (("en", ENGLISH, "and"), ("de", GERMAN, "und")):
        lines = [sentence([words[i] for i in row], last) for row in rows]
        pathlib.Path(f"train.{language}").write_text("".join(f"{line}\n" for line in lines[12:]), encoding="utf-8")
        tests.append(lines[:12])
    return tests


def sentence(words, last):
    """["one", "two", "three"] -> One, two and three."""
    *first, end = words
    return (f"{', '.join(first)} {last} {end}" if first else end).capitalize() + "."


def write_defaults():
    """Writes a YAML file with all options of each command that reads one, with their defaults."""
    for command in {"train", "prepare", "distill"} & COMMANDS.keys():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            run_command([command, "--output=runs/new", "--print_config"])
        pathlib.Path(f"{command}.yaml").write_text(printed.getvalue(), encoding="utf-8")


def expected_of_model(tests):
    """The translations of every runtime, the scores of given translations, and the ids of text."""
    sources, targets = tests
    translations = {}
    for runtime in RUNTIMES:
        found = load_translator("model", runtime).translate(sources, n_best=2)
        translations[runtime] = [[[one.text, one.score] for one in best.hypotheses] for best in found]
    keras_translator = load_translator("model")
    tokenizer = keras_translator.source_tokenizer
    ids, labels = (keras.utils.pad_sequences(tokenizer.encode(lines), padding="post") for lines in tests)
    constraints = keras_translator.target_tokenizer.text_constraints
    hypotheses = keras_translator.model.generate(ids, BeamSearch(), text_constraints=constraints)
    encoded = tokenizer.encode([*CHARACTERS.values()])
    return {
        "tokenizer": {
            name: {"text": text, "ids": row, "decoded": decoded}
            for (name, text), row, decoded in zip(CHARACTERS.items(), encoded, tokenizer.decode(encoded), strict=True)
        },
        "lines": {"source": sources, "target": targets},
        "translations": translations,
        "model": {
            "source": ids.tolist(),
            "tokens": hypotheses.tokens.tolist(),
            "scores": hypotheses.scores.tolist(),
            "target": labels.tolist(),
            "token_log_probs": keras_translator.model.token_log_probs(ids, labels).tolist(),
        },
    }


def expected_of_shortlist(lines):
    """The candidates for one line."""
    (ids,) = Tokenizer("model/tokenizer.model").encode(lines[:1])
    return {"source": ids, "candidates": kt.decoding.Shortlist.load("model/shortlist.npz").candidates([ids]).tolist()}


def make_classifier():
    """Writes `classifier.keras`, which learns whether the first id is the larger one."""
    keras.utils.set_random_seed(1)
    source = np.random.default_rng(1).integers(4, 20, (256, 5))
    source[::3, 4] = 0  # Padding.
    model = kt.SentenceClassifier(kt.TransformerConfig(**SMALL, norm_first=True, activation="gelu"), num_classes=2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(kt.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    model.fit(source, source[:, 0] > source[:, 1], batch_size=32, epochs=5, verbose=0)
    model.save("classifier.keras")
    return {"source": source[:6].tolist(), "logits": np.asarray(model(source[:6])).tolist()}


def make_language_model():
    """Writes `language_model.keras`, which learns to count."""
    keras.utils.set_random_seed(1)
    text = (np.arange(256)[:, None] % 16 + np.arange(6)) % 16 + 4
    text[:, -1] = 3
    inputs = np.concatenate([np.full((256, 1), 2), text[:, :-1]], axis=1)
    model = kt.LanguageModel(kt.TransformerConfig(**SMALL, share_embeddings=False))
    loss = kt.losses.LabelSmoothedCrossEntropy(pad_id=0)
    model.compile(kt.optimizers.Adam(0.01), loss, metrics=[kt.metrics.TokenAccuracy()])
    model.fit(inputs, text, batch_size=32, epochs=20, verbose=0)
    model.save("language_model.keras")
    prompt = [[8, 9], [17, 0], [4, 5]]
    greedy = model.generate(prompt, GreedySearch(extra_length=10))
    beams = model.generate(prompt, BeamSearch(beam_size=3, n_best=2, extra_length=10))
    return {
        "prompt": prompt,
        "greedy": {"tokens": greedy.tokens.tolist(), "scores": greedy.scores.tolist()},
        "beam": {"tokens": beams.tokens.tolist(), "scores": beams.scores.tolist()},
        "inputs": inputs[:2].tolist(),
        "logits": np.asarray(model(inputs[:2])).tolist(),
        "token_log_probs": model.token_log_probs(text[:2]).tolist(),
    }


def interrupt():
    """Writes the unfinished run `unfinished`, which SIGTERM has stopped after its first checkpoint."""
    changes = {"recipe.max_steps": 5000, "recipe.checkpoint_every": 8}
    command = ["train", "--output=unfinished", *options(**changes)]

    def stop():
        while not list(pathlib.Path("unfinished/checkpoints").glob("step-*.keras")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    run(*command, status=128 + signal.SIGTERM)
    return {"command": command}


def archive(folder, file):
    """Writes the files of a folder to a compressed archive, without logs, whose names contain that of the machine."""
    names = sorted(path for path in folder.rglob("*") if path.is_file() and "logs" not in path.parts)
    with tarfile.open(file, "w:xz", preset=9) as tar:
        for name in names:
            tar.add(name, filter=_anonymous)


def _anonymous(entry):
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
