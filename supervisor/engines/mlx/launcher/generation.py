"""The one thread that computes: it loads the model, continues prompts side by side, and ends the program if it dies."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, StopSequences, generate_step
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache

from .model import Model
from .sampling import sampler_of
from .work import Read, Work, Written

_MOST_READING = 8  # prompts at the same time
_MOST_KEPT = 64  # caches of ended answers
_WHO = "model"
_UNUSED_BYTES = 32 << 20  # of memory that MLX keeps for its next arrays


@dataclass(frozen=True)
class Limits:
    """What one engine may do.

    Attributes:
        parallel: answers at the same time. step: tokens of a prompt that are read at once.
        kv_bits: of a quantised cache; None: as the model computes. kept_bytes: of caches of ended answers.
    """

    parallel: int
    step: int
    kv_bits: int | None
    kept_bytes: int


class Decoder(Protocol):
    """Continues prompts. Used by the thread that computes alone."""

    works: dict[int, Work]

    def add(self, work: Work, cache: Any) -> None:
        """Begin; `cache` has the prompt's first `work.cached` tokens, or is None."""

    def step(self) -> None:
        """Read a part of the prompts, or write a token of each answer."""

    def drop_gone(self) -> None:
        """Forget those for whom nobody waits."""


class Kept:
    """Caches of ended answers, of which later prompts take what they share. Bounded in bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._caches = LRUPromptCache(_MOST_KEPT, most_bytes)

    def take(self, work: Work) -> Any:
        """Return a copy of the best one for a prompt, and note in it how much that is."""
        if not self._most:
            return None
        cache, rest = self._caches.fetch_nearest_cache(_WHO, work.tokens)
        if cache is None or not rest:  # at least one token has to be read
            return None
        work.cached = len(work.tokens) - len(rest)
        return cache

    def keep(self, tokens: list[int], cache: Any) -> None:
        """Keep one, in the place of older ones."""
        if self._most:
            self._caches.insert_cache(_WHO, tokens, cache)


class Batched:
    """Answers side by side, as mlx-lm batches them."""

    def __init__(self, model: Model, limits: Limits, kept: Kept) -> None:
        self.works: dict[int, Work] = {}
        self._kept = kept
        self._ends = StopSequences([(token,) for token in model.ends])
        self._generator = BatchGenerator(
            model.net,
            completion_batch_size=limits.parallel,
            prefill_batch_size=min(limits.parallel, _MOST_READING),
            prefill_step_size=limits.step,
            stream=mx.default_stream(mx.default_device()),
        )

    def add(self, work: Work, cache: Any) -> None:
        """Put it into the batch."""
        (uid,) = self._generator.insert_segments(
            segments=[[work.tokens[work.cached :]]],
            max_tokens=[work.most],
            caches=[cache],
            all_tokens=[work.tokens[: work.cached]],
            samplers=[work.sampler],
            logits_processors=[work.processors],
            stop_sequences=[self._ends],
        )
        self.works[uid] = work

    def step(self) -> None:
        """Advance all of them."""
        prompts, answers = self._generator.next()
        for one in prompts:
            work = self.works[one.uid]
            work.told.put(Read(work.cached + one.progress[0]))
        for one in answers:
            self.works[one.uid].told.put(Written(one.token, one.finish_reason or ""))
            if one.finish_reason:
                del self.works[one.uid]
                self._kept.keep(one.all_tokens[:], one.prompt_cache)

    def drop_gone(self) -> None:
        """Take those out of the batch for whom nobody waits."""
        gone = [uid for uid, work in self.works.items() if work.gone]
        if gone:
            self._generator.remove(gone)
            for uid in gone:
                del self.works[uid]


class _Left(Exception):
    """Nobody waits for the answer."""


class OneByOne:
    """Answers one after the other: for quantised caches, and for models whose caches cannot be batched."""

    def __init__(self, model: Model, limits: Limits, kept: Kept) -> None:
        self.works: dict[int, Work] = {}
        self._model, self._limits, self._kept = model, limits, kept
        self._count = 0
        self._written: list[int] = []
        self._cache: Any = None
        self._tokens: Any = iter(())

    def add(self, work: Work, cache: Any) -> None:
        """Begin it; there is no other one."""
        self._cache = cache or make_prompt_cache(self._model.net)
        self._written = []

        def on_read(done: int, total: int) -> None:
            if work.gone:
                raise _Left
            work.told.put(Read(work.cached + done))

        self._tokens = generate_step(
            mx.array(work.tokens[work.cached :]),
            self._model.net,
            max_tokens=work.most,
            sampler=work.sampler,
            logits_processors=work.processors,
            prompt_cache=self._cache,
            prefill_step_size=self._limits.step,
            kv_bits=self._limits.kv_bits,
            quantized_kv_start=0,
            prompt_progress_callback=on_read,
        )
        self._count += 1
        self.works = {self._count: work}

    def step(self) -> None:
        """Read its prompt, or write its next token."""
        (work,) = self.works.values()
        try:
            token = int(next(self._tokens)[0])
        except _Left:
            self.works = {}
            return
        self._written.append(token)
        last = "stop" if token in self._model.ends else "length" if len(self._written) >= work.most else ""
        if last:
            self.works = {}
            self._kept.keep([*work.tokens, *self._written[:-1]], self._cache)
        work.told.put(Written(token, last))

    def drop_gone(self) -> None:
        """Forget it, if nobody waits for it."""
        self.works = {number: work for number, work in self.works.items() if not work.gone}


class Generation:
    """The thread, and the works that wait for it.

    Args:
        load: returns the model; called in the thread, like all that computes.
        on_ready: called with the model once it is there.
        on_death: called with what the thread died of, and whether the model was there.
    """

    def __init__(
        self,
        load: Callable[[], Model],
        limits: Limits,
        on_ready: Callable[[Model], None],
        on_death: Callable[[BaseException, bool], None],
    ) -> None:
        self._load, self._limits, self._on_ready, self._on_death = load, limits, on_ready, on_death
        self._asked: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._waiting: list[Work] = []
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)
        self.busy = 0

    @property
    def parallel(self) -> int:
        """Answers at the same time; known once the model is loaded."""
        return self._limits.parallel

    def start(self) -> None:
        """Begin to load the model."""
        self._thread.start()

    def ask(self, work: Work) -> None:
        """Have a prompt continued, after those that were asked for before."""
        self._asked.put(work)

    def _run(self) -> None:
        loaded = False
        mx.set_cache_limit(_UNUSED_BYTES)
        try:
            model = self._load()
            decoder = self._decoder(model)
            _warm_up(decoder, model)
            loaded = True
            self._on_ready(model)
            while True:
                self._turn(decoder)
        except BaseException as error:  # noqa: BLE001 - the program ends with this thread
            self._on_death(error, loaded)

    def _decoder(self, model: Model) -> Decoder:
        self._kept = Kept(self._limits.kept_bytes)
        alone = self._limits.kv_bits is not None
        batches = not alone and all(hasattr(one, "merge") for one in make_prompt_cache(model.net))
        if not batches:
            self._limits = replace(self._limits, parallel=1)
        return (Batched if batches else OneByOne)(model, self._limits, self._kept)

    def _turn(self, decoder: Decoder) -> None:
        self._hear(block=not decoder.works and not self._waiting)
        decoder.drop_gone()
        self._waiting = [work for work in self._waiting if not work.gone]
        while self._waiting and len(decoder.works) < self._limits.parallel:
            work = self._waiting.pop(0)
            decoder.add(work, self._kept.take(work))
        self.busy = len(decoder.works)
        if decoder.works:
            decoder.step()
        self.busy = len(decoder.works)
        if not decoder.works:
            mx.clear_cache()

    def _hear(self, *, block: bool) -> None:
        try:
            self._waiting.append(self._asked.get(block=block))
            while True:
                self._waiting.append(self._asked.get_nowait())
        except queue.Empty:
            return


def _warm_up(decoder: Decoder, model: Model) -> None:
    """Have a token written: MLX compiles what it computes when it does so for the first time."""
    decoder.add(Work([min(model.ends, default=0)] * 2, 1, sampler_of(model.sampling, (), model.n_vocab), []), None)
    while decoder.works:
        decoder.step()
