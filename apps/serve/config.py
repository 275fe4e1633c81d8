"""Options of the server. Their defaults are defined here only."""

import dataclasses
import re
from typing import Literal

from keras_transformer.checks import at_least, fields, one_of, require, within
from keras_transformer.text.languages import KNOWN_CODES, is_language, normal_code
from keras_transformer.translate.batching import BATCH_SIZE, BATCH_TOKENS, BatchLimits
from keras_transformer.translate.load import RUNTIMES
from keras_transformer.translate.protection import Protection
from keras_transformer.translate.threads import check_threads

#: Valid path prefixes.
ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
#: Bytes of a request body for each character of text that is allowed: a character escaped in a form takes up to 12.
_BYTES_PER_CHARACTER = 12
#: Bytes of a request body for everything else.
_OTHER_BYTES = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Options of `keras-transformer serve`.

    Args:
        host: address to listen on. `0.0.0.0` accepts requests from other machines.
        port: port to listen on. 0: any free port.
        languages: pair of languages of each directory, separated by commas, such as `en-de,de-en`. Codes with a hyphen
            need a colon: `zh-TW:en`. Default: those that the directories record. For a single directory of a model
            with several languages: the pairs to serve. Default: all.
        runtime: runtime that translates: Keras, or the name of an export. Default: the fastest that each directory
            contains, onnx_int8 first.
        num_threads: threads per batch. 0: all cores, divided among the parallel batches.
        parallel_batches: batches translated at the same time. Default: all cores, or 1 for Keras on a GPU or on JAX.
        batch_size: maximum sentences per batch, of one client or of several.
        batch_tokens: maximum source tokens per batch, including padding.
        max_wait: milliseconds that a sentence waits for those of other clients, to be translated in one batch. It does
            not wait while the server has nothing else to do.
        max_queue: maximum number of waiting sentences. Requests that come later are refused with status 503.
        max_characters: maximum number of characters per request.
        requests_per_minute: maximum number of requests per minute to the API from one address. Default: no limit.
        api_key: key that requests must contain. The environment variable `KERAS_TRANSFORMER_API_KEY` hides it from the
            list of processes. Default: no key is needed.
        split_sentences: split texts into sentences. `false`: each line is one sentence.
        protect: what is not translated. `auto`: what is no language, such as `12:30`, URLs, `{placeholders}`, `<tags>`
            and emoji that the model does not know. `off`: nothing. Otherwise a regular expression for more parts.
        page: show a web page at `/`.
        root_path: path of the server behind a proxy that removes this path, such as `/translation`.

    Raises:
        ValueError: if an option is invalid.
    """

    host: str = "127.0.0.1"
    port: int = 5000
    languages: str | None = None
    runtime: Literal[RUNTIMES] | None = None
    num_threads: int = 0
    parallel_batches: int | None = None
    batch_size: int = BATCH_SIZE
    batch_tokens: int = BATCH_TOKENS
    max_wait: float = 5.0
    max_queue: int = 10_000
    max_characters: int = 50_000
    requests_per_minute: int | None = None
    api_key: str | None = None
    split_sentences: bool = True
    protect: str = "auto"
    page: bool = True
    root_path: str = ""

    def __post_init__(self):
        BatchLimits(self.batch_size, self.batch_tokens)
        Protection(self.protect)
        require(
            within("[0, 65535]", port=self.port),
            at_least(0, num_threads=self.num_threads, max_wait=self.max_wait),
            at_least(1, **fields(self, "parallel_batches", "max_queue", "max_characters", "requests_per_minute")),
            one_of((None, *RUNTIMES), runtime=self.runtime),
        )
        check_threads(self.num_threads, self.parallel_batches or 1)
        if not ROOT_PATH.fullmatch(self.root_path):
            raise ValueError(
                f"`root_path` must be a path such as /translation, without / at the end. "
                f"Received: root_path={self.root_path!r}"
            )
        if self.api_key == "":
            raise ValueError("`api_key` must not be empty. Received: api_key=''")
        self.pairs_of_languages  # noqa: B018, checks them.

    @property
    def pairs_of_languages(self) -> list[tuple[str, str]]:
        """Source language and target language of each directory; empty if `languages` is not given."""
        pairs = []
        for pair in filter(None, map(str.strip, (self.languages or "").split(","))):
            codes = _split_pair(pair)
            if codes is None:
                raise ValueError(
                    "`languages` must be pairs of language codes such as en-de, separated by commas. "
                    f"Received: languages={self.languages!r}. The known codes: {KNOWN_CODES}"
                )
            pairs.append(codes)
        return pairs

    @property
    def max_body_bytes(self) -> int:
        """Maximum number of bytes of a request body."""
        return _BYTES_PER_CHARACTER * self.max_characters + _OTHER_BYTES


def _split_pair(pair: str) -> tuple[str, str] | None:
    """The two codes of a pair.

    Example:

    >>> _split_pair("EN-de"), _split_pair("zh-TW:en"), _split_pair("pt_br-en"), _split_pair("english")
    (('en', 'de'), ('zh-TW', 'en'), ('pt-BR', 'en'), None)
    """
    codes = pair.split(":" if ":" in pair else "-")
    if len(codes) != 2 or not all(map(is_language, codes)):
        return None
    return normal_code(codes[0]), normal_code(codes[1])
