"""Every block of Python and shell in README and the site runs, page by page, in a folder with a tiny model.

A block that cannot run here has a comment before it: `<!-- skip: next "reason" -->`. The blocks of `docs/tutorials` are
those of scripts, which `tests/system/test_tutorials.py` runs.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import pytest
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

from keras_transformer.cli import main

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^ *```(python|sh)$", re.MULTILINE)
#: Pages that have blocks.
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/api/*.md")]
    if BLOCK.search(path.read_text(encoding="utf-8"))
)
#: Pages whose blocks take seconds: they run in the quick tier. All other pages take minutes: they run in the nightly
#: tier, and `test_pages.py` checks the options of their commands in the quick tier.
QUICK = {
    "docs/ray.md",
    "docs/exactness.md",
    "docs/benchmarks.md",
    "docs/releasing.md",
    "docs/api/index.md",
}
#: Blocks that do not run, by page.
EXEMPT = {
    "README.md": ["trains for minutes; the system tests run it", "starts a server"],
    "docs/getting-started.md": ["trains for minutes; the system tests run it", "needs the corpus", "starts a server"],
    "docs/bring-a-model.md": [
        "downloads from the Hugging Face Hub",
        "starts a server",
        *("downloads from the Hugging Face Hub",) * 2,
        "needs the model",
    ],
    "docs/languages.md": ["starts a server"],
    "docs/browser.md": ["starts a server", "downloads from npm"],
    "docs/http.md": [*("starts a server", "needs a server") * 2, "needs Docker"],
    "docs/ray.md": [
        "installs Ray",
        "starts a server",
        "needs Ray; the nightly tests run it",
        "needs Ray; the nightly tests run it small",
    ],
    "docs/corpus.md": ["trains a model in the other direction", "starts a server"],
    "docs/decoding.md": ["needs two trained models", "needs a trained model"],
    "docs/paper-recipe.md": [
        "downloads the test set",
        "needs two GPUs",
        "needs two machines; the tests of the clusters run two workers on one",
    ],
    "docs/serve.md": ["needs Docker", "needs a model server", "needs Docker", "needs OpenVINO"],
    "docs/benchmarks.md": [
        "takes half an hour; the tests of the benchmarks run them small",
        "needs a GPU",
        *("takes half an hour; the tests of the benchmarks run them small",) * 2,
        "takes more than an hour; the tests of the benchmarks run it small",
        "takes half an hour; the tests of the benchmarks run them small",
        "needs Chromium, and optimum in an environment of its own",
        "takes half an hour; the tests of the benchmarks run them small",
        "needs the corpus and two models",
    ],
    "docs/releasing.md": [
        "trains for minutes; the system tests run it",
        "trains and exports for minutes",
        "tags a commit",
        "builds and installs distributions; .ci/run does it",
    ],
}
#: Changes to the tiny run of `tests/conftest.py`. Marian's models have biases.
CHANGES = {"model.preset": "tiny", "model.use_bias": "true", "recipe.max_steps": 8, "recipe.warmup_steps": 4}
#: Replacements of the programs that blocks call.
PROGRAMS = {
    "keras-transformer": f'exec {sys.executable} {ROOT / "tests/docs/tiny.py"} "$@"',
    "python": f'exec {sys.executable} "$@"',
    "pip": 'echo "not installed here: $*"',
}

#: Packages that blocks may need, and names for the conditions of `skip`.
OPTIONAL = ("jax", "torch", "transformers", "keras_hub", "keras_tuner")
HAS = {f"has_{name}": importlib.util.find_spec(name) is not None for name in OPTIONAL}
HAS["has_npm"] = shutil.which("npm") is not None

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of TensorFlow and NumPy, in exports.


def run_shell(example):
    completed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example.parsed], capture_output=True, text=True, timeout=900
    )
    assert completed.returncode == 0, f"{example.path}, line {example.line}:\n{completed.stdout}{completed.stderr}"


SYBIL = Sybil([SkipParser(), PythonCodeBlockParser(), CodeBlockParser("sh", run_shell)])


@pytest.fixture(scope="module")
def example_files(arguments, toy_files, build_once):
    """The files that the documents use: text, the examples, a model with its exports. Do not modify."""
    return build_once("example_files", lambda folder: _write_example_files(folder, arguments, toy_files))


def _write_example_files(folder, arguments, toy_files):
    for side in ("en", "de"):
        for name, copies in (("train", "train all a b"), ("test", "dev test")):
            for copy in copies.split():
                shutil.copy(toy_files / f"{name}.{side}", folder / f"{copy}.{side}")
    shutil.copy(toy_files / "train.en", folder / "back-translated.en")
    shutil.copy(toy_files / "train.de", folder / "mono.de")
    shutil.copytree(ROOT / "examples", folder / "examples")
    model = folder / "runs/en-de"
    assert main(arguments(model, **{**CHANGES, "recipe.checkpoint_every": 2})) == 0
    assert main(["export", str(model), "--format=saved_model,onnx", "--beam_size=2", "--extra_length=5"]) == 0


@pytest.fixture
def working_directory(example_files, arguments, tmp_path, monkeypatch):
    """A copy of the example files as the working directory, with the programs that blocks call."""
    shutil.copytree(example_files, tmp_path, dirs_exist_ok=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, line in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    options = dict(argument[2:].split("=", 1) for argument in arguments("", **CHANGES)[1:])
    for name in ("output", "source", "target"):
        del options[name]
    monkeypatch.setenv("TINY_OPTIONS", json.dumps(options))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save_torch_module(path):
    """The module of the block on `nn.Transformer`."""
    import torch
    from safetensors.torch import save_file

    module = torch.nn.Module()
    module.transformer = torch.nn.Transformer(128, 4, 2, 2, 512, batch_first=True)  # Otherwise PyTorch warns.
    module.target_embedding = torch.nn.Embedding(8000, 128)
    module.generator = torch.nn.Linear(128, 8000)
    module.generator.weight.data = module.target_embedding.weight.data.clone()
    save_file(module.state_dict(), path)


def prepare(page, folder):
    """Makes the files that only this page needs, and removes those that its blocks make."""
    if page in ("README.md", "docs/getting-started.md"):
        (folder / "runs/en-de").rename(folder / "runs/quickstart")
    if page == "docs/bring-a-model.md":
        assert main(["export", "runs/en-de", "--format=huggingface"]) == 0
        (folder / "runs/en-de/export/huggingface").rename(folder / "opus-mt-en-de")
        if HAS["has_torch"]:
            save_torch_module(folder / "model.safetensors")


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.nightly] * (page not in QUICK)) for page in PAGES]
)
def test_blocks_run(page, request, tensorflow):
    document = SYBIL.parse(ROOT / page)
    if page not in QUICK:
        prepare(page, request.getfixturevalue("working_directory"))
    document.namespace |= HAS
    blocks, skipped = 0, []
    for example in document.examples():
        blocks += isinstance(example.parsed, str)
        try:
            example.evaluate()
        except unittest.SkipTest as reason:
            skipped.append(str(reason))
    assert blocks == len(BLOCK.findall((ROOT / page).read_text(encoding="utf-8")))
    assert [reason for reason in skipped if "not installed" not in reason] == EXEMPT.get(page, [])
