"""The options of a command that translates, as one object, and the translator that they describe."""

import dataclasses
from pathlib import Path
from typing import Any, Self

from jsonargparse import Namespace

from keras_transformer.cli.runtime_options import sampling_defaults
from keras_transformer.decoding import BeamSearch, Sampling
from keras_transformer.storage.languages import require_languages
from keras_transformer.storage.origin import export_command
from keras_transformer.translate.batching import BatchLimits
from keras_transformer.translate.load import load_translator
from keras_transformer.translate.protection import Protection
from keras_transformer.translate.translator import Translator


@dataclasses.dataclass(frozen=True)
class TranslatorOptions:
    """The options of `add_runtime` and `add_sampling`, checked.

    Args:
        directories: the model directories, whose models translate together.
        runtime: name of the runtime.
        limits: the `BatchLimits`.
        loading: the other options of `load_translator`.
        search: the search options on the command line. The others have the values of the export.
        sampling: the options of sampling; empty without `--sampling`.
        languages: the options `source_language` and `target_language`.
    """

    directories: tuple[str, ...]
    runtime: str
    limits: BatchLimits
    loading: dict[str, Any]
    search: dict[str, Any]
    sampling: dict[str, Any]
    languages: dict[str, str | None]

    @classmethod
    def of(cls, options: Namespace, directory: str) -> Self:
        """Takes the options of a command.

        Raises:
            ValueError: if an option is out of range, or has no effect beside others, or the model does not know a
                language.
        """
        loading = {name: options[name] for name in ("num_threads", "parallel_batches", "protect") if name in options}
        Protection(loading.get("protect", "auto"))  # Checked before the model is loaded.
        search = {field.name: options[field.name] for field in dataclasses.fields(BeamSearch) if field.name in options}
        found = cls(
            tuple(split_directories(directory)),
            options.runtime,
            BatchLimits(options.batch_size, options.batch_tokens),
            loading,
            search,
            _sampling_options(options, search),
            {name: options.get(name) for name in ("source_language", "target_language")},
        )
        if not options.get("from_json"):
            require_languages(found.directories[0], *found.languages.values())
        if options.runtime != "keras" and (found.sampling or len(found.directories) > 1):
            raise ValueError(
                "`--sampling` and several model directories require `--runtime keras`. "
                f"Received: --runtime {options.runtime}"
            )
        return found

    @property
    def n_best(self) -> int:
        """Number of hypotheses per line."""
        return self.search.get("n_best", 1)

    def load(self) -> Translator:
        """Loads the translator.

        Raises:
            ValueError: if the export does not support the search options, or a number of threads or batches is wrong;
                see `load_translator`.
        """
        if self.runtime == "keras":
            paths = self.directories[0] if len(self.directories) == 1 else [*self.directories]
            strategy = (
                Sampling(**self._search_without_n_best, **self.sampling, n_samples=self.n_best)
                if self.sampling
                else BeamSearch(**self.search)
            )
            return load_translator(paths, "keras", strategy=strategy, **self.loading)
        translator = load_translator(self.directories[0], self.runtime, **self.loading)
        if translator.strategy is None:
            self._require_exported(translator.exported_search)
        else:
            translator.strategy = dataclasses.replace(translator.strategy, **{"n_best": 1, **self.search})
        return translator

    @property
    def _search_without_n_best(self) -> dict[str, Any]:
        return {name: value for name, value in self.search.items() if name != "n_best"}

    def _require_exported(self, exported):
        """Checks that the search options equal those of the export, except `n_best`, which the translator checks."""
        from keras_transformer.export.registry import FORMATS

        given = self._search_without_n_best
        if all(exported.get(name) == value for name, value in given.items()):
            return
        usual, format = vars(BeamSearch()), FORMATS[self.runtime]
        wanted = {name: value for name, value in {**exported, **given}.items() if name != "n_best"}
        changes = [f"--{name} {value}" for name, value in wanted.items() if usual[name] != value]
        raise ValueError(
            f"The search of the {self.runtime} export is fixed: {exported}. "
            f"Received: {', '.join(f'{name}={value}' for name, value in given.items())}. To change it, export again: "
            + " ".join([export_command(self.directories[0], format.format, format.quantize), *changes])
        )


def split_directories(directory: str) -> list[str]:
    """The model directories that an argument names: one, or several separated by commas."""
    return [directory] if Path(directory).exists() else directory.split(",")


def _sampling_options(options, search) -> dict[str, Any]:
    defaults = sampling_defaults()
    given = [name for name, usual in defaults.items() if name in options and options[name] != usual]
    if not options.get("sampling"):
        if given:
            raise ValueError(f"{', '.join(f'`--{name}`' for name in given)} must be given with `--sampling`")
        return {}
    useless = search.keys() & {"beam_size", "length_penalty", "length_penalty_kind"}
    if useless:
        raise ValueError(f"{', '.join(f'`--{name}`' for name in sorted(useless))} must not be given with `--sampling`")
    return {name: options[name] for name in defaults}
