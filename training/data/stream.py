"""Batches from a stream of blocks: pairs from a mixture, changed at random and packed into rows.

Worker processes make the blocks ahead of the training, so this module imports neither Keras nor a backend.
"""

import bisect
import concurrent.futures
import dataclasses
import functools
import itertools
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_transformer.storage.rows import TokenSide
from keras_transformer.storage.token_directory import Prefixes, TokenDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.data.augmentation import Augmenter
from keras_transformer.training.data.batches import Batches
from keras_transformer.training.data.mixture import Mixture, make_stages
from keras_transformer.training.data.packing import PACKED_INPUTS, PackedPairs, Packing, longest_row, packed_shape
from keras_transformer.training.data.processes import WorkerProcesses
from keras_transformer.training.data_config import AugmentationConfig
from keras_transformer.training.stopping import WorkerStopped
from keras_transformer.translate.threads import num_cores

#: Approximate number of batches in a block. The last batch of a block is not full.
_BATCHES_PER_BLOCK = 100
#: Number of blocks that are made ahead of the training, each by a process. Fast devices have many cores beside them.
_AHEAD = min(max(2, num_cores() // 4), 8)


@dataclasses.dataclass(frozen=True)
class BlockMaker:
    """Makes the blocks of a stream. The arguments determine each block.

    Args:
        path: folder of the tokenized corpora.
        prefixes: split of each corpus -> the ids that start every source and every target.
        mixture: the order of the pairs.
        augmentation: an `AugmentationConfig`.
        max_length: maximum length of a changed sentence, at least that of the corpora. Default: only the rows limit it.
    """

    path: str
    prefixes: dict[str, Prefixes]
    mixture: Mixture
    augmentation: AugmentationConfig
    max_length: int | None = None

    def sentences(self, seed: int, number: int, longest: tuple[int, int]) -> tuple[TokenSide, TokenSide]:
        """The tokenized pairs of a block. The seed determines their order and the changes.

        A changed pair with a side longer than `longest` is replaced by the unchanged pairs.
        """
        if self.max_length is not None:
            longest = min(longest[0], self.max_length), min(longest[1], self.max_length)
        generator = np.random.default_rng((seed, number))
        parts = []
        chosen_pairs = self.mixture.pairs(seed, number)
        for prefixes, sides, chosen in zip(self.prefixes.values(), self._sides, chosen_pairs, strict=True):
            if len(chosen):
                part = tuple(side.take(chosen) for side in sides)
                if self.augmentation.is_used:
                    part = self._augmenter(part, prefixes, longest, generator)
                parts.append(part)
        return tuple(TokenSide.concatenated(sides) for sides in zip(*parts, strict=True))

    def block(self, seed: int, number: int, lengths: tuple[int, int]) -> PackedPairs:
        """A block in rows, whose source and target have these lengths."""
        source, target = self.sentences(seed, number, lengths)
        packing = Packing(source.lengths, target.lengths, lengths)
        return PackedPairs(source, target, packing, packing.order(np.random.default_rng((seed, number, 1))))

    @property
    def longest(self) -> tuple[int, int]:
        """The lengths of the longest source and of the longest target of the corpora."""
        source, target = (max(int(side.lengths.max()) for side in sides) for sides in zip(*self._sides, strict=True))
        return source, target

    def num_tokens(self, counts: Iterable[int]) -> float:
        """The approximate number of tokens in `counts` unchanged pairs of each corpus, on the side that has more."""
        means = (max(side.lengths.mean() for side in sides) for sides in self._sides)
        return sum(count * float(mean) for count, mean in zip(counts, means, strict=True))

    @functools.cached_property
    def _sides(self):
        return [TokenDirectory(self.path).sides(split) for split in self.prefixes]

    @functools.cached_property
    def _augmenter(self):
        models = TokenDirectory(self.path).tokenizer_models()
        return Augmenter(self.augmentation, (Tokenizer(models[0]), Tokenizer(models[-1])))


class StreamedBatches(Batches):
    """Packed batches of a stream, whose pairs change in each epoch or come from several corpora.

    An epoch has as many tokens as all corpora together. `steps` and `tokens` are estimates, because the changed pairs
    have other lengths in each epoch.

    Attributes and methods are those of `Batches`.

    Args:
        maker: makes the blocks.
        config: a `BatchConfig`.
        multiple: see `Batches`.
        path: folder of the tokens during the training. Default: the folder in `maker`.
    """

    inputs = PACKED_INPUTS

    def __init__(self, maker: BlockMaker, config, multiple: int = 1, path: str | Path | None = None):
        longest = maker.longest
        super().__init__(config, max(longest), multiple)
        # A copy: `maker` caches arrays, which would be sent to the worker processes.
        self._maker = dataclasses.replace(maker, path=str(path or maker.path))
        length = longest_row(max(longest), config.tokens_per_batch)
        first_blocks = (maker.sentences(0, number, (length, length)) for number in maker.mixture.first_blocks)
        source, target = (TokenSide.concatenated(sides).lengths for sides in zip(*first_blocks, strict=True))
        self.shapes = [packed_shape(source, target, config.tokens_per_batch, longest)]
        # Other blocks differ little from the first one in the numbers of their steps and tokens, relative to the
        # numbers of tokens that their pairs have without changes.
        mixture, first = maker.mixture, maker.block(0, 0, self._lengths)
        tokens = maker.num_tokens(map(len, mixture.parts(0)))
        steps_per_token = self._steps_of(first) / tokens
        epoch = maker.num_tokens(mixture.sizes)
        self.steps_each = [max(1, round(steps_per_token * epoch))]
        self.tokens = round(epoch / tokens * int(first.target.lengths.sum(dtype="int64")))
        before = [maker.num_tokens(mixture.taken(block)) for block in mixture.first_blocks]
        self.stage_starts = tuple(round(steps_per_token * count) for count in before)
        self._block_steps: list[int] = []  # Numbers of steps of the first blocks.
        self._blocks: dict[int, concurrent.futures.Future] = {}
        self._workers: WorkerProcesses | None = None
        self._lock = threading.Lock()  # A new call of `fit` may start while the previous one still makes a batch.

    def _training_rows(self, seed, step):
        with self._lock:
            number, first_step = self._find(seed, step)
            block = self._block(seed, number)
            (shape,) = self.shapes
            return block.batch(step - first_step, shape.rows, self.filled(shape))

    def _find(self, seed, step):
        """The block of a step, and the first step of that block."""
        while sum(self._block_steps) <= step:
            self._block_steps.append(self._steps_of(self._block(seed, len(self._block_steps))))
        ends = list(itertools.accumulate(self._block_steps))
        number = bisect.bisect_right(ends, step)
        return number, ends[number] - self._block_steps[number]

    def _block(self, seed, number) -> PackedPairs:
        if self._workers is None:
            self._workers = WorkerProcesses(functools.partial(self._maker.block, lengths=self._lengths), count=_AHEAD)
        try:
            for i in range(number, number + 1 + _AHEAD):
                if i not in self._blocks:
                    self._blocks[i] = self._workers.submit(seed, i)
            for i in [i for i in self._blocks if i < number - 1]:
                del self._blocks[i]
            return self._workers.result(self._blocks[number])
        except WorkerStopped as error:
            self.failure = error
            raise

    @property
    def _lengths(self):
        return self.shapes[0].source, self.shapes[0].target

    def _steps_of(self, block):
        return -(-block.packing.num_rows // self.shapes[0].rows)

    def position(self, step: int) -> list[int]:
        """The numbers of steps of the first blocks, up to the one that contains the step before `step`."""
        starts = itertools.accumulate(self._block_steps, initial=0)
        return [steps for steps, start in zip(self._block_steps, starts, strict=False) if start < step]

    def resume(self, position: list[int]) -> None:
        self._block_steps = list(position)

    def sources(self, step: int) -> str | None:
        mixture, names = self._maker.mixture, [split.partition(".")[2] for split in self._maker.prefixes]
        if len(names) == 1:
            return None
        steps = self.position(step)
        before, upto = (mixture.taken(max(len(steps) - i, 0)) for i in (1, 0))
        part = (step - sum(steps[:-1])) / steps[-1] if steps else 0.0
        taken = [first + part * (last - first) for first, last in zip(before, upto, strict=True)]
        return ", ".join(
            f"{name} {count:,.0f} ({count / max(sum(taken), 1):.0%}, {count / size:.2f} epochs)"
            for name, count, size in zip(names, taken, mixture.sizes, strict=True)
        )

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()


def make_stream(
    tokens: TokenDirectory,
    config,
    multiple: int = 1,
    path: str | Path | None = None,
    max_length: int | None = None,
) -> StreamedBatches:
    """The stream of a training on the tokens of a `TrainConfig`; see `StreamedBatches`."""
    splits = tokens.train_splits
    sides = [tokens.sides(split) for split in splits]
    sizes = [len(source.lengths) for source, _ in sides]
    longer = sum(max(int(side.lengths.sum(dtype="int64")) for side in corpus) for corpus in sides)
    per_batch = max(1, config.tokens_per_batch * sum(sizes) // longer)
    stages = make_stages(config.stages, _weights(tokens), dict(zip(splits, sizes, strict=True)))
    mixture = Mixture(sizes, stages, min(_BATCHES_PER_BLOCK * per_batch, sum(sizes)))
    prefixes = {split: tokens.prefixes.get(split, ((), ())) for split in splits}
    maker = BlockMaker(str(tokens.path), prefixes, mixture, config.augmentation, max_length)
    return StreamedBatches(maker, config, multiple, path)


def _weights(tokens) -> dict[str, float | None]:
    """The weight of each corpus in the options of the tokens."""
    corpora = tokens.record()["data"].get("corpora") or {}
    return {f"train.{name}": corpus["weight"] for name, corpus in corpora.items()}
