"""Run the reader of a dialect once, pass on what it finds, and stop it where it may not go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.source import Aside, CompleteCall, Piece, Resume, Unknown, Wait


class Receiver(Protocol):
    """The part of the automaton that a reading needs."""

    def give(self, signal: CompleteCall | Piece) -> None: ...

    def set_aside(self, aside: Aside) -> None: ...

    def pass_on(self) -> None: ...

    def held(self) -> int: ...


class Reading:
    """One run of a reader, whose signals are heeded.

    Attributes:
        found: calls of a whole message, which are not given out yet.
        passing: a call of an unknown tool is being read; its text is given out as it is.
        last_is_call: the last thing that was read is a call of a known tool.
        cut_off: the turn was cut inside of what was being read.
    """

    def __init__(self, automaton: Receiver, block: Block) -> None:
        self.automaton = automaton
        self.block = block
        self.calls = 0
        self.found: list[CompleteCall] = []
        self.passing = False
        self.last_is_call = False
        self.too_long = False
        self.cut_off = False
        self._begun: Piece | None = None  # the last piece of a call whose end has not been given out

    def drive(self, reader: Wait[bool]) -> Wait[bool]:
        """Return the reader's result; False if it was stopped. A call whose pieces were given out ends in any case."""
        src = self.block.src
        waited, good = yield from self._drive(reader)
        self.cut_off = src.cut and waited and not good
        src.seek(src.certain())
        src.doubt = -1
        if self._begun is None:
            return good
        end = replace(self._begun, text="", upto=src.pos, last=True, complete=False)
        self.automaton.give(end)
        self._begun = None
        return True

    def _drive(self, reader: Wait[bool]) -> Wait[tuple[bool, bool]]:
        """Return whether the reader waited for text that never came, and its result."""
        waited = False
        while True:
            try:
                signal = next(reader)
            except StopIteration as stop:
                return waited, bool(stop.value)
            if signal is None:
                if self._stops():
                    return False, False
                yield None
                waited = self.block.src.closed
            elif not self._heed(signal):
                return False, False

    def _stops(self) -> bool:
        """Give out what is text anyway while the reader waits; return whether it must stop, since too much is held."""
        if self.passing:
            self.automaton.pass_on()
        self.too_long = self.automaton.held() > self.block.options.max_hold
        return self.too_long

    def _heed(self, signal: CompleteCall | Piece | Unknown | Resume | Aside) -> bool:
        if isinstance(signal, Unknown):
            self.passing, self.last_is_call = True, False
            return not self.block.whole
        if isinstance(signal, Resume):
            if self.passing:
                self.automaton.pass_on()
            self.passing = False
            return True
        if isinstance(signal, Aside):
            self.automaton.set_aside(signal)
            return True
        allowed = self.block.options.dialects
        self.too_long = self.automaton.held() > self.block.options.max_hold
        if self.too_long or (allowed is not None and signal.dialect not in allowed):
            return False
        if self.block.whole:
            if isinstance(signal, CompleteCall):
                self.found.append(signal)
            return True
        self.automaton.give(signal)
        self._begun = signal if isinstance(signal, Piece) and not signal.last else None
        self.calls += 1
        self.last_is_call = True
        return True
