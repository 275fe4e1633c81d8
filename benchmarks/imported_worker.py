"""A runtime of `benchmarks.imported`. Reads sources as lines of JSON, and prints lines of JSON.

It does not import this package, because optimum needs an environment of its own.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

#: Id of the language token that forced hypotheses begin with. Its value does not matter.
_LANGUAGE = 5


def main():
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Standard output is for the answers only.
    runtime, folder, search = json.loads(sys.argv[1])
    generate = RUNTIMES[runtime](Path(folder), **search)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        source = np.array(json.loads(line))
        started = time.perf_counter()
        steps = generate(source)
        print(json.dumps({"seconds": time.perf_counter() - started, "steps": steps}), file=answers, flush=True)


def onnx(folder, beam_size, steps, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    takes_prefix = len(session.get_inputs()) > 1

    def generate(source):
        prefix = {"prefix": np.full((len(source), 1), _LANGUAGE, "int32")} if takes_prefix else {}
        tokens, _ = session.run(None, {"source": source.astype("int32"), **prefix})
        return tokens.shape[-1]

    return generate


def transformers(folder, beam_size, steps, threads):
    import torch
    from transformers import AutoModelForSeq2SeqLM

    torch.set_num_threads(threads)
    return _generator(AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval(), beam_size, steps)


def optimum(folder, beam_size, steps, threads):
    from onnxruntime import SessionOptions
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    options = SessionOptions()
    options.intra_op_num_threads = threads
    model = ORTModelForSeq2SeqLM.from_pretrained(folder, export=True, session_options=options)
    return _generator(model, beam_size, steps)


def _generator(model, beam_size, steps):
    import torch

    config = model.config
    forced = {"forced_bos_token_id": _LANGUAGE} if config.model_type == "m2m_100" else {}
    ids = {f"{name}_token_id": getattr(config, f"{name}_token_id") for name in ("pad", "eos", "decoder_start")}
    barred = {"bad_words_ids": [[config.pad_token_id]]} if config.model_type == "marian" else {}
    length = {"min_new_tokens": steps, "max_new_tokens": steps}
    options = {**ids, **forced, **barred, **length, "num_beams": beam_size, "do_sample": False, "length_penalty": 0.0}

    def generate(source):
        source = torch.from_numpy(source)
        with torch.inference_mode():
            tokens = model.generate(input_ids=source, attention_mask=torch.ones_like(source), **options)
        return tokens.shape[1] - 1

    return generate


def ctranslate2(folder, beam_size, steps, threads, compute_type):
    from ctranslate2 import Translator
    from ctranslate2.converters import TransformersConverter

    class Converter(TransformersConverter):
        """CTranslate2's converter for a model whose tokens are named by their ids."""

        def load_tokenizer(self, tokenizer_class, name, **options):
            return _Ids(json.loads((Path(name) / "config.json").read_text()))

    with tempfile.TemporaryDirectory() as converted:
        Converter(str(folder)).convert(converted, force=True)
        model = Translator(converted, compute_type=compute_type, intra_threads=threads)
    is_forced = json.loads((folder / "config.json").read_text())["model_type"] == "m2m_100"
    options = {"beam_size": beam_size, "length_penalty": 0.0, "max_decoding_length": steps, "max_input_length": 0}

    def generate(source):
        rows = [[*map(str, row)] for row in source.tolist()]
        prefix = [[str(_LANGUAGE)]] * len(rows) if is_forced else None
        found = model.translate_batch(rows, target_prefix=prefix, min_decoding_length=steps, **options)
        return max(len(result.hypotheses[0]) for result in found)

    return generate


class _Ids:
    """What the converter needs of a tokenizer."""

    special_tokens_map: dict = {}
    additional_special_tokens: tuple = ()

    def __init__(self, config):
        self._names = [str(i) for i in range(config["vocab_size"])]
        if config["model_type"] == "marian":
            self._names[config["pad_token_id"]] = "<pad>"
        unknown = {"marian": 1, "m2m_100": 3}.get(config["model_type"], 2)
        self.unk_token_id, self.unk_token = unknown, str(unknown)
        self.pad_token, self.eos_token = (self._names[config[f"{name}_token_id"]] for name in ("pad", "eos"))
        self.bos_token = self._names[config.get("bos_token_id") or config["decoder_start_token_id"]]

    def get_vocab(self):
        return {name: i for i, name in enumerate(self._names)}

    def convert_ids_to_tokens(self, i):
        return self._names[i]


RUNTIMES = {function.__name__: function for function in (onnx, transformers, optimum, ctranslate2)}


if __name__ == "__main__":
    main()
