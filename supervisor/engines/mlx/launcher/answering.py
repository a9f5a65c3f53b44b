"""Answer one request: from its prompt to the pieces of text that its form makes events of."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from .answers import Account
from .asked import Asked, Refused
from .generation import Generation
from .model import Model
from .sampling import processors_of, sampler_of
from .texts import Piece, StopCut, Thoughts
from .work import Read, Work, Written

_LOOK_S = 0.05  # between looks whether the client is still there

Step: TypeAlias = "int | list[Piece]"


class Leaving(Exception):
    """The client is gone."""


@dataclass(frozen=True)
class Place:
    """Where an answer is written.

    Attributes:
        context: tokens of prompt and answer together.
        is_gone: tells whether nobody waits for it any more.
    """

    model: Model
    generation: Generation
    context: int
    is_gone: Callable[[], bool]


class Answer:
    """The answer to one request. within: its prompt ends within a thought.

    Raises Refused for a prompt that has no place.
    """

    def __init__(self, place: Place, asked: Asked, prompt: list[int], *, within: bool = False) -> None:
        model, context = place.model, place.context
        room = context - len(prompt)
        if not prompt:
            raise Refused("The prompt is empty.", param="prompt")
        if room < 1:
            raise Refused(
                f"the request ({len(prompt)} tokens) exceeds the available context size ({context} tokens)",
                kind="exceed_context_size_error",
                n_prompt_tokens=len(prompt),
                n_ctx=context,
            )
        _check_tokens(asked, model.n_vocab)
        self.account = Account(len(prompt))
        self._generation, self._is_gone = place.generation, place.is_gone
        self._most = room if asked.most is None else min(asked.most, room)
        self._cut = StopCut(asked.stops)
        self._thoughts = Thoughts(model.marks if asked.thoughts else None, within=within)
        sampler = sampler_of(asked.sampling, sorted(model.ends), model.n_vocab)
        self._work = Work(prompt, max(1, self._most), sampler, processors_of(asked.sampling))
        self._looks_at = time.monotonic() + _LOOK_S
        self._letters: Any = model.tokenizer.detokenizer

    def steps(self) -> Iterator[Step]:
        """Yield how much of the prompt is read, and then pieces. Raise Leaving when the client is gone."""
        if not self._most:
            self.account.last = "length"
            return
        self._generation.ask(self._work)
        try:
            while not self.account.last:
                told = self._next()
                if isinstance(told, Read):
                    self.account.cached = self._work.cached
                    yield told.tokens
                else:
                    yield self._pieces(told)
        finally:
            self._work.gone = True

    def _next(self) -> Read | Written:
        while True:
            if time.monotonic() >= self._looks_at:
                self._looks_at = time.monotonic() + _LOOK_S
                if self._is_gone():
                    raise Leaving
            with contextlib.suppress(queue.Empty):
                return self._work.told.get(timeout=_LOOK_S)

    def _pieces(self, told: Written) -> list[Piece]:
        account = self.account
        if account.answering is None:
            account.answering = time.monotonic()
        account.written += 1
        if told.last != "stop":
            self._letters.add_token(told.token)
        if told.last:
            self._letters.finalize()
        text = self._cut.feed(self._letters.last_segment)
        account.last, account.word = ("word", self._cut.word) if self._cut.word else (told.last, "")
        if account.last and not self._cut.word:
            text += self._cut.end()
        found = self._thoughts.feed(text)
        return [*found, *self._thoughts.end()] if account.last else found


def _check_tokens(asked: Asked, n_vocab: int) -> None:
    if any(not 0 <= token < n_vocab for token in asked.sampling.logit_bias):
        raise Refused(f"`logit_bias`: the model's tokens are 0 to {n_vocab - 1}.", param="logit_bias")
