"""The engines' own metrics, with the model as a label. Engines answer between two batches, so nobody waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from supervisor.engines.client import AnswerTooLarge, EngineClient, EngineUnreachable

_WAIT_S: Final = 0.01  # for all engines together; what comes later is there for the next look
_MOST: Final = 1 << 16  # bytes of one engine's page
_MOST_FIGURES: Final = 100
_OURS: Final = "engine_"

Family = CounterMetricFamily | GaugeMetricFamily
Figures = dict[str, tuple[str, str, float]]


class EngineMetrics:
    """Those of all engines that are ready. `ready`: the models, and the clients of their engines."""

    def __init__(self, ready: Callable[[], Iterable[tuple[str, EngineClient]]]) -> None:
        self._ready = ready
        self._found: dict[str, Figures] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def look(self) -> None:
        """Ask every engine that is not being asked, and take what comes at once."""
        ready = dict(self._ready())
        self._found = {model: found for model, found in self._found.items() if model in ready}
        for model, client in ready.items():
            if model not in self._asking:
                self._asking[model] = asyncio.ensure_future(self._ask(model, client))
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=_WAIT_S)

    def families(self) -> Iterator[Family]:
        """Yield what was found: a family for each of the engines' names, a row for each model."""
        families: dict[str, Family] = {}
        for model, figures in self._found.items():
            for name, (kind, help_text, value) in figures.items():
                make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                shown = f"{name.removesuffix('_total')}_total" if kind == "counter" else name  # once on the page
                families.setdefault(shown, make(name, help_text, labels=("model",))).add_metric((model,), value)
        yield from families.values()

    def close(self) -> None:
        """Ask no more."""
        for task in self._asking.values():
            task.cancel()

    async def _ask(self, model: str, client: EngineClient) -> None:
        try:
            with contextlib.suppress(EngineUnreachable, AnswerTooLarge, ValueError, OverflowError):
                async with client.send("GET", "/metrics", b"", "text/plain") as answer:
                    text = await answer.read(_MOST)
                if answer.status == 200:
                    self._found[model] = _read(text.decode("utf-8", "replace"))
        finally:
            del self._asking[model]


def _read(text: str) -> Figures:
    """Return the figures of a page by our name for each: kind, help, value. Raises ValueError, OverflowError."""
    found: Figures = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples[:1]:
            falls = family.type == "counter" and not sample.value >= 0  # no reader takes such a counter
            if len(found) < _MOST_FIGURES and not sample.labels and not falls:
                name = _OURS + family.name.removeprefix("llamacpp:").replace(":", "_")
                found[name] = (family.type, family.documentation, float(sample.value))
    return found
