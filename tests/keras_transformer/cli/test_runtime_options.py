from types import SimpleNamespace

import pytest
from jsonargparse import ArgumentError, ArgumentParser

from keras_transformer.cli.runtime_options import add_optional_file, add_runtime
from keras_transformer.cli.translator_options import TranslatorOptions
from keras_transformer.decoding import BeamSearch


@pytest.fixture
def parsed(tmp_path):
    """Parses arguments, abbreviations too, of a command with an optional file and a YAML file of options."""
    (tmp_path / "options.yaml").write_text("min_length: 30\n")

    def parsed(*arguments):
        parser = ArgumentParser(exit_on_error=False, allow_abbrev=True)
        parser.add_argument("directory")
        add_optional_file(parser, "text")
        parser.add_argument("--config", action="config")
        add_runtime(parser)
        return parser.parse_args([argument.format(tmp_path) for argument in arguments])

    return parsed


def chosen(options):
    return TranslatorOptions.of(options, options.directory)


@pytest.mark.parametrize(
    "arguments",
    [
        ("DIR", "FILE", "--runtime", "onnx", "--beam_size=3"),
        ("DIR", "--runtime", "onnx", "FILE", "--beam_size", "3"),
        ("--runtime", "onnx", "DIR", "--beam_size=3", "FILE"),
        ("--runtime=onnx", "--beam_size=3", "DIR", "FILE"),
        ("DIR", "--runtime", "onnx", "--beam_size=3", "FILE"),
    ],
)
def test_files_and_options_in_any_order(parsed, arguments):
    options = parsed(*arguments)
    assert (options.directory, options.file, options.runtime, options.beam_size) == ("DIR", "FILE", "onnx", 3)


def test_the_penalty_is_an_option_and_a_processor_is_none(parsed):
    options = parsed("DIR", "--repetition_penalty", "1.3")
    assert chosen(options).search == {"repetition_penalty": 1.3}
    with pytest.raises(ArgumentError, match="logits_processor"):
        parsed("DIR", "--logits_processor", "print")


def test_the_file_can_be_left_out(parsed):
    assert parsed("DIR").file is parsed("--runtime=onnx", "DIR").file is None
    with pytest.raises(ArgumentError, match="unrecognized.*OTHER"):
        parsed("DIR", "FILE", "--runtime=onnx", "OTHER")
    with pytest.raises(ArgumentError, match="required.*directory"):
        parsed("--runtime=onnx")


#: Options -> what they give of the search.
GIVEN = [
    ((), {}),
    (("--batch_size=3",), {}),
    (("--min_length=30",), {"min_length": 30}),
    (("--min_length", "30"), {"min_length": 30}),
    (("--min_l", "30"), {"min_length": 30}),
    (("--config={}/options.yaml",), {"min_length": 30}),
    (("--beam_size=4", "--n_best=2"), {"beam_size": 4, "n_best": 2}),
]


@pytest.mark.parametrize(("arguments", "search"), GIVEN)
def test_options_count_wherever_they_are_given(parsed, monkeypatch, arguments, search):
    exported = BeamSearch(beam_size=5, n_best=5).options
    clients = {
        "onnx": SimpleNamespace(strategy=None, exported_search=exported),
        "ctranslate2": SimpleNamespace(strategy=BeamSearch(beam_size=5, n_best=5)),
    }
    made = []

    def load(directory, runtime="keras", **options):
        made.append(options)
        return clients.get(runtime)

    monkeypatch.setattr("keras_transformer.cli.translator_options.load_translator", load)
    assert chosen(parsed("DIR", *arguments)).search == search
    chosen(parsed("DIR", *arguments)).load()
    assert made[0]["strategy"] == BeamSearch(**search)
    assert chosen(parsed("DIR", "--runtime=ctranslate2", *arguments)).load().strategy == BeamSearch(
        **{"beam_size": 5, "n_best": 1, **search}
    )
    if search:
        with pytest.raises(ValueError, match="search of the onnx export.*Received: "):
            chosen(parsed("DIR", "--runtime=onnx", *arguments)).load()
    else:
        assert chosen(parsed("DIR", "--runtime=onnx", *arguments)).load() is clients["onnx"]


def test_an_export_gives_any_number_of_its_hypotheses(parsed, monkeypatch):
    client = SimpleNamespace(strategy=None, exported_search=BeamSearch(n_best=4).options)
    monkeypatch.setattr("keras_transformer.cli.translator_options.load_translator", lambda *_, **__: client)
    assert chosen(parsed("DIR", "--runtime=onnx", "--n_best=2", "--beam_size=4")).load() is client


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((), {"num_threads": 0, "parallel_batches": None}),
        (("--num_threads=2", "--parallel_batches=3"), {"num_threads": 2, "parallel_batches": 3}),
    ],
)
def test_threads_and_parallel_batches_are_those_of_python(parsed, monkeypatch, arguments, options):
    client, received = SimpleNamespace(strategy=None, exported_search=BeamSearch().options), {}

    def load(directory, runtime, **options):
        received.update(options)
        return client

    monkeypatch.setattr("keras_transformer.cli.translator_options.load_translator", load)
    chosen(parsed("DIR", "--runtime=onnx", *arguments)).load()
    assert received == options
    chosen(parsed("DIR", *arguments)).load()
    assert received.pop("strategy") == BeamSearch() and received == options
