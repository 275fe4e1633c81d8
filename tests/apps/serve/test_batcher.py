import asyncio
import random
import threading
import time

import pytest
from starlette.exceptions import HTTPException

from keras_transformer.apps.serve.batcher import Batcher, QueueFull
from keras_transformer.apps.serve.metrics import Metrics
from keras_transformer.translate.batching import BatchLimits


class Gate:
    """Makes a translator wait until the gate is open."""

    def __init__(self, translator):
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)
        self._inner, translator._translate_batch = translator._translate_batch, self._wait

    async def occupy(self, batcher):
        """Lets a thread of a batcher wait with the sentence "first". Returns the task that translates it."""
        task = asyncio.create_task(batcher.translate(["first"]))
        await asyncio.to_thread(self.entered.acquire)
        return task

    def _wait(self, sentences, n_best):
        self.entered.release()
        assert self.opened.wait(10)
        return self._inner(sentences, n_best)


@pytest.fixture
def make_batcher():
    """Makes a batcher for a translator."""

    def make_batcher(translator, batch_size=4, workers=1, max_wait=0.0, max_queue=100):
        return Batcher(translator, BatchLimits(batch_size), workers, max_wait, max_queue, Metrics())

    return make_batcher


def test_every_sentence_gets_its_translation(make_batcher, upper):
    batcher = make_batcher(upper(), batch_size=7, workers=3, max_wait=0.001, max_queue=1000)
    draw = random.Random(1)

    async def client(number):
        for request in range(20):
            sentences = [f"c{number} r{request} s{i} {'x' * draw.randrange(30)}" for i in range(draw.randrange(1, 6))]
            found = await batcher.translate(sentences, n_best=draw.choice([1, 3]))
            assert [translation.text for translation in found] == [sentence.upper() for sentence in sentences]

    async def clients():
        await asyncio.gather(*map(client, range(30)))

    asyncio.run(clients())


def test_waiting_sentences_of_similar_length_form_a_batch(make_batcher, upper):
    translator = upper()
    gate, batcher = Gate(translator), make_batcher(translator)

    async def requests():
        first = await gate.occupy(batcher)
        others = [asyncio.create_task(batcher.translate(["x" * n])) for n in (3, 50, 4, 60, 5, 2, 70)]
        await asyncio.sleep(0.01)
        assert batcher.queue_length == 7
        gate.opened.set()
        await asyncio.gather(first, *others)

    asyncio.run(requests())
    assert [sorted(map(len, batch)) for batch in translator.batches] == [[5], [2, 3, 4, 5], [50, 60, 70]]


def test_a_batch_is_not_divided(make_batcher, upper):
    translator = upper(parallel_batches=3)
    asyncio.run(make_batcher(translator).translate(["a", "b", "c"]))
    assert [len(batch) for batch in translator.batches] == [3] and translator.parallel_batches == 1


def test_an_idle_server_does_not_wait(make_batcher, upper):
    batcher = make_batcher(upper(), workers=2, max_wait=60.0)
    started = time.monotonic()
    asyncio.run(batcher.translate(["a"]))
    assert time.monotonic() - started < 30


def test_a_busy_server_waits_for_other_clients(make_batcher, upper):
    translator = upper()
    gate, batcher = Gate(translator), make_batcher(translator, batch_size=2, workers=2, max_wait=60.0)

    async def requests():
        first = await gate.occupy(batcher)
        second = asyncio.create_task(batcher.translate(["second"]))
        await asyncio.sleep(0.05)
        assert batcher.queue_length == 1  # One thread is free, and waits for more.
        third = asyncio.create_task(batcher.translate(["third"]))
        await asyncio.to_thread(gate.entered.acquire)
        gate.opened.set()
        await asyncio.gather(first, second, third)

    asyncio.run(requests())
    assert sorted(map(sorted, translator.batches)) == [["first"], ["second", "third"]]


def test_free_threads_share_a_request(make_batcher, upper):
    translator = upper()
    gate, batcher = Gate(translator), make_batcher(translator, batch_size=32, workers=2)

    async def request():
        task = asyncio.create_task(batcher.translate([*"abcdef"]))
        for _ in range(2):
            await asyncio.to_thread(gate.entered.acquire)
        gate.opened.set()
        await task

    asyncio.run(request())
    assert [len(batch) for batch in translator.batches] == [3, 3]


def test_a_full_queue_refuses_all_sentences_of_a_request(make_batcher, upper):
    translator = upper()
    gate, batcher = Gate(translator), make_batcher(translator, max_queue=3)

    async def requests():
        tasks = [await gate.occupy(batcher)]
        tasks.append(asyncio.create_task(batcher.translate([*"abc"])))
        await asyncio.sleep(0.01)
        with pytest.raises(QueueFull):
            await batcher.translate(["d"])
        with pytest.raises(HTTPException, match="4 sentences, more than 3"):
            await batcher.translate([*"defg"])
        gate.opened.set()
        return await asyncio.gather(*tasks)

    assert [len(found) for found in asyncio.run(requests())] == [1, 3]
    assert not any("d" in batch for batch in translator.batches)


def test_an_error_is_that_of_one_sentence(make_batcher, upper):
    translator = upper()
    gate, batcher = Gate(translator), make_batcher(translator)

    async def requests():
        tasks = [await gate.occupy(batcher)]
        tasks += [asyncio.create_task(batcher.translate([sentence])) for sentence in ("a", "fail", "b")]
        await asyncio.sleep(0.01)
        gate.opened.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    _, a, failed, b = asyncio.run(requests())
    assert (a[0].text, b[0].text) == ("A", "B") and isinstance(failed, RuntimeError)


def test_a_client_that_disconnects_does_not_matter(make_batcher, upper):
    translator = upper()
    gate, batcher = Gate(translator), make_batcher(translator)

    async def requests():
        tasks = [await gate.occupy(batcher)]
        tasks += [asyncio.create_task(batcher.translate([name])) for name in ("gone", "other")]
        await asyncio.sleep(0.01)
        tasks[0].cancel(), tasks[1].cancel()
        await asyncio.sleep(0.01)
        gate.opened.set()
        return await tasks[2]

    assert asyncio.run(requests())[0].text == "OTHER"
    assert sorted(sum(translator.batches, [])) == ["first", "other"]


@pytest.mark.nightly
def test_a_long_queue_takes_no_long_time(make_batcher, upper):
    batcher = make_batcher(upper(), batch_size=32, max_queue=20_000)
    started = time.monotonic()
    found = asyncio.run(batcher.translate([f"sentence {i}" for i in range(20_000)]))
    assert [one.text for one in found] == [f"SENTENCE {i}" for i in range(20_000)]
    assert time.monotonic() - started < 20


def test_no_sentences_have_no_translations(make_batcher, upper):
    assert asyncio.run(make_batcher(upper()).translate([])) == []
