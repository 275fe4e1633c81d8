"""`number_words/en_de` and others: the numbers 0 to 999,999 spelled in two languages, made locally."""

import itertools
import random

import num2words
import tensorflow_datasets as tfds

_LIMIT = 1_000_000
_LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish"}
_SIZES = {"train": 40_000, "validation": 1_000, "test": 1_000}


class NumberWords(tfds.core.GeneratorBasedBuilder):
    """A translation task without download or licence: `einundzwanzig` is `twenty-one`.

    The splits are disjoint sets of numbers, sampled from one range with a fixed seed.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}
    BUILDER_CONFIGS = [
        tfds.core.BuilderConfig(name=f"{one}_{other}", description=f"{_LANGUAGES[one]} and {_LANGUAGES[other]}.")
        for one, other in itertools.combinations(_LANGUAGES, 2)
    ]

    def _info(self):
        languages = self.builder_config.name.split("_")
        return tfds.core.DatasetInfo(
            builder=self,
            description="Numbers from 0 to 999,999 spelled in two languages with num2words.",
            features=tfds.features.Translation(languages=languages),
            supervised_keys=tuple(languages),
        )

    def _split_generators(self, dl_manager):
        numbers = random.Random(0).sample(range(_LIMIT), sum(_SIZES.values()))
        generators = {}
        for name, size in _SIZES.items():
            generators[name] = self._generate_examples(numbers[:size])
            numbers = numbers[size:]
        return generators

    def _generate_examples(self, numbers):
        languages = self.builder_config.name.split("_")
        for number in numbers:
            yield number, {language: num2words.num2words(number, lang=language) for language in languages}
