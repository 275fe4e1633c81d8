"""Fixtures of all tests: seeds, the NumPy reference, a tiny run, and rules for skipping."""

import collections
import contextlib
import gc
import importlib.util
import os
import pathlib
import random
import subprocess
import sys
import tarfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Tests use tiny arrays: compilation takes most of the time, and one thread for each test process is enough.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Threads of CTranslate2 that wait must not take the cores of other test processes.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# PyTorch imports Triton lazily. Triton crashes if TensorFlow was imported before, because both contain an LLVM.
with contextlib.suppress(ImportError):
    import triton  # noqa: F401

import filelock
import numpy as np
import pytest

# TensorFlow keeps the graphs of all tests. With the default thresholds they would be searched for garbage too often.
gc.set_threshold(100_000, 50, 100)

FOLDER = pathlib.Path(__file__).parent
EXPORTED = pathlib.PurePosixPath("tests/integration/exported")
#: Files and folders of tests that take longest, the longest first.
LONGEST = [
    str(EXPORTED),
    "tests/system/test_number_words.py",
    "tests/system/test_kill.py",
    "tests/docs/test_blocks.py",
    "tests/integration/test_replicas.py",
    "tests/integration/test_resume.py",
    "tests/integration/test_recipe.py",
    "tests/torch_parity/test_marian_parity.py",
    "tests/system/test_examples.py",
    "tests/integration/test_workers.py",
]
ENGLISH = "zero one two three four five six seven eight nine".split()
GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun".split()

#: Options of a run that takes seconds. An epoch has 16 steps.
OPTIONS = {
    "max_length": 40,
    "tokens_per_batch": 400,
    "tokenizer.vocab_size": 300,
    "model.num_layers": 1,
    "model.d_model": 16,
    "model.num_heads": 2,
    "model.d_ff": 32,
    "model.use_bias": "false",
    "recipe.max_steps": 24,
    "recipe.validate_every": 10,
    "recipe.checkpoint_every": 4,
    "recipe.warmup_steps": 8,
    "recipe.peak_learning_rate": 0.02,
    "recipe.xla": "false",
}


@pytest.fixture(autouse=True)
def seed():
    """Gives every test the same random state."""
    import keras

    keras.utils.set_random_seed(7)


@pytest.fixture(scope="session")
def reference():
    """The module `tests/reference.py`, which is not on the import path."""
    spec = importlib.util.spec_from_file_location("reference", FOLDER / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tensorflow():
    """TensorFlow. Skips the test on other backends."""
    import keras

    if keras.backend.backend() != "tensorflow":
        pytest.skip("the contract is TensorFlow's own: the backend is another")
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="session")
def few_steps():
    """Options of `compile` for a few eager training steps; on TensorFlow, tracing would take ten times as long."""
    import keras

    return {"run_eagerly": True} if keras.backend.backend() == "tensorflow" else {}


@pytest.fixture(scope="session")
def randomize():
    """Gives all trainable weights random values, including biases. Normalization scales are around 1."""

    def randomize(layer, seed=3, scale=0.5):
        rng = np.random.default_rng(seed)
        for weight in layer.trainable_weights:
            mean = 1.0 if weight.name == "gamma" else 0.0
            weight.assign(rng.normal(mean, scale, weight.shape).astype("float32"))
        return layer

    return randomize


@pytest.fixture
def run_python():
    """Runs a program in a new process and returns its standard output."""

    def run_python(program, *arguments, **environment):
        completed = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    return run_python


@pytest.fixture(scope="session")
def command():
    """The start of a command line that runs the package in a new process; arguments follow."""
    return [sys.executable, "-c", "import sys; from keras_transformer.cli import main; sys.exit(main(sys.argv[1:]))"]


@pytest.fixture(scope="session")
def build_once(tmp_path_factory):
    """Builds a folder once for all processes of a test run. The first calls `build(folder)`, the others wait."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def build_once(name, build):
        folder, done = root / name, root / f"{name}.done"
        with filelock.FileLock(root / f"{name}.lock"):
            if not done.exists():
                folder.mkdir()
                build(folder)
                done.touch()
        return folder

    return build_once


@pytest.fixture(scope="session")
def golden(build_once):
    """Unpacks the files of a version in `tests/golden`, and returns their folder. Do not modify."""

    def golden(version):
        def unpack(folder):
            with tarfile.open(FOLDER / "golden" / version / "written.tar.xz") as archive:
                archive.extractall(folder, filter="data")

        return build_once(f"golden-{version}", unpack)

    return golden


@pytest.fixture(scope="session")
def toy_files(build_once):
    """Text files with 1 to 7 digits per line, in English and German: 300 training lines and 20 test lines."""
    return build_once("toy_files", _write_toy_files)


def _write_toy_files(folder):
    draw = random.Random(1)
    for name, count in (("train", 300), ("test", 20)):
        rows = [[draw.randrange(10) for _ in range(draw.randint(1, 7))] for _ in range(count)]
        for language, words in (("en", ENGLISH), ("de", GERMAN)):
            text = "".join(" ".join(words[i] for i in row) + "\n" for row in rows)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def arguments(toy_files):
    """Makes the command line arguments of a tiny run."""

    def arguments(output, **changes):
        options = {
            "output": output,
            "source": toy_files / "train.en",
            "target": toy_files / "train.de",
            **OPTIONS,
            **changes,
        }
        # A longer warm-up than the run would cause a warning.
        options["recipe.warmup_steps"] = min(options["recipe.warmup_steps"], options["recipe.max_steps"])
        return ["train", *(f"--{name}={value}" for name, value in options.items() if value is not None)]

    return arguments


def _scope(nodeid):
    """The file of a test, or the folder whose files share the exports."""
    file = pathlib.PurePosixPath(nodeid.partition("::")[0])
    return str(EXPORTED) if EXPORTED in file.parents else str(file)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Moves the files that take longest to the front. Otherwise one of them would run last, with the other cores idle.

    All other files are in the order of their numbers of tests, as pytest-xdist would put them.
    """
    numbers = collections.Counter(_scope(item.nodeid) for item in items)

    def place(item):
        scope = _scope(item.nodeid)
        return LONGEST.index(scope) if scope in LONGEST else len(LONGEST), -numbers[scope], scope

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)  # The plugin may be off.
def pytest_xdist_make_scheduler(config, log):
    """Gives each process whole files, and one process the folder whose files share the exports."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return _scope(nodeid)

    return Scheduling(config, log)


def pytest_terminal_summary(terminalreporter):
    """Reports how many layers and models fulfil how many contracts, counting all parameters."""
    for kind in ("layers", "models"):
        outcomes = ("passed", "failed", "error", "skipped")
        kept, *others = (_contracts(terminalreporter.stats.get(name, []), kind) for name in outcomes)
        pairs = kept.difference(*others)
        if pairs:
            contracts, rows = (len(set(part)) for part in zip(*pairs, strict=True))
            terminalreporter.write_line(f"{rows} {kind} x {contracts} contracts: {len(pairs)} kept")


def _contracts(reports, kind):
    """The test and the row of the table, for each report on `tests/conformance`."""
    noted = ((report.nodeid.partition("[")[0], getattr(report, "user_properties", ())) for report in reports)
    return {(contract, row) for contract, properties in noted for of, row in properties if of == kind}
