"""Search through the daemon for the options with which a model is fastest: foretell, load, measure; leave as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from supervisor.cli.client import Json
from supervisor.cli.daemon import Daemon
from supervisor.cli.loading import load
from supervisor.cli.progress import Report
from supervisor.core.speed.tuning import Changes, Facts, Job, is_better, kinds, promising
from supervisor.errors import ModelDoesNotFit, SupervisorError

_PROSE = (
    "The harbour master wrote down every ship that came in, its cargo and the hour of the tide, and in the evening he "
    "compared his list with the one of the year before. Number {}: a barge with timber, late, its captain cheerful. "
)
_TOKENS_EACH = 24  # at least, of one such passage
_SAMPLES = 2


@dataclass(frozen=True)
class Row:
    """One set of options: what was foretold, what was measured, or why not. Speeds are tokens per second."""

    changes: Changes
    foretold: float | None = None
    prefill: float | None = None
    decode: float | None = None
    seconds: float | None = None
    note: str = ""

    def to_json(self) -> Json:
        """For programs."""
        return {
            "options": dict(self.changes),
            "foretold_seconds": self.foretold,
            "prefill_tokens_per_second": self.prefill,
            "decode_tokens_per_second": self.decode,
            "seconds": self.seconds,
            "note": self.note,
        }


@dataclass
class Tuner:
    """Searches for one model.

    Attributes:
        given: options that the user set, which every trial has.
        most: how many of each kind of change are measured.
        ends: the moment by `clock`, in seconds, after which no further trial begins.
        rows: what was tried so far, the options as they are first.
    """

    daemon: Daemon
    target: str
    given: Json
    job: Job
    most: int
    ends: float
    clock: Callable[[], float]
    report: Report
    rows: list[Row] = field(default_factory=list)

    def search(self, cores: int, processors: int) -> Row:
        """Return the best. Raises ModelDoesNotFit where another model would have to leave, and as `load`."""
        first = self._planned({})
        if not first["fits"]:
            raise ModelDoesNotFit(" ".join((first["message"], *first["hints"])))
        if first["evict_models"]:
            raise ModelDoesNotFit(
                f"{', '.join(first['evict_models'])} would have to leave first: unload it, or tune when it is idle."
            )
        best = self._measured({}, self._foretold(first))
        if best.seconds is None:
            return best
        facts = Facts(cores, processors, first["n_cpu_moe"], frozenset(self.given))
        for changes in kinds(facts):
            for one, foretold in self._worth(best.changes, changes, first["request_ctx"]):
                if self.clock() >= self.ends:
                    return best
                found = self._measured(one, foretold)
                if found.seconds is not None and best.seconds is not None and is_better(found.seconds, best.seconds):
                    best = found
        return best

    def _worth(self, base: Changes, kind: Iterable[Changes], context: int) -> list[tuple[Changes, float | None]]:
        """Return what is worth measuring of one kind of change, with the seconds foretold."""
        tried = [row.changes for row in self.rows]
        fitting = []
        for one in (dict[str, object](base) | dict(change) for change in kind):
            if one not in tried and (plan := self._fitting(one, context)):
                fitting.append((one, self._foretold(plan)))
        return promising(fitting, self.most)

    def _fitting(self, changes: Changes, context: int) -> Json | None:
        """Return the plan; None, and a row that says why, where it is not to be measured."""
        try:
            plan = self._planned(changes)
        except SupervisorError as error:
            self.rows.append(Row(changes, note=error.code))
            return None
        if plan["fits"] and not plan["evict_models"] and plan["request_ctx"] >= context:
            return plan
        self.rows.append(Row(changes, note="does not fit, or with less context"))
        return None

    def _planned(self, changes: Changes) -> Json:
        body = {"target": self.target, "options": {**self.given, **changes} or None, "reset": True}
        return self.daemon.client.post("/api/v1/plan", body, timeout=None)

    def _foretold(self, plan: Json) -> float | None:
        speed = plan.get("speed")
        if not speed:
            return None
        depths = {int(depth): rate for depth, rate in speed["decode_tokens_per_second"].items()}
        behind = max(depth for depth in depths if depth <= self.job.prompt)
        return self.job.seconds(speed["prefill_tokens_per_second"], depths[behind])

    def _measured(self, changes: Changes, foretold: float | None) -> Row:
        self.report(f"trial {len(self.rows) + 1}: {text_of(changes)}", None)
        body: Json = {"target": self.target, "options": {**self.given, **changes} or None, "reset": True}
        try:
            status = load(self.daemon, body, self.report)
            row = self._timed(status["id"], changes, foretold)
        except SupervisorError as error:
            if not changes:
                raise
            row = Row(changes, foretold, note=error.code)
        self.rows.append(row)
        return row

    def _timed(self, model: str, changes: Changes, foretold: float | None) -> Row:
        self._asked(model, 0, 2)  # the first takes longer
        found = [self._asked(model, number + 1, self.job.answer) for number in range(_SAMPLES)]
        prefill = max(one["prompt_n"] * 1000 / max(one["prompt_ms"], 1e-6) for one in found)
        decode = max((one["predicted_n"] - 1) * 1000 / max(one["predicted_ms"], 1e-6) for one in found)
        return Row(changes, foretold, prefill, decode, self.job.seconds(prefill, decode))

    def _asked(self, model: str, number: int, tokens: int) -> Json:
        count = -(-self.job.prompt // _TOKENS_EACH) if number else 1
        prompt = "".join(_PROSE.format(1000 * number + passage) for passage in range(count))
        body = {"model": model, "prompt": prompt, "n_predict": tokens, "cache_prompt": False, "ignore_eos": True}
        body |= {"temperature": 0, "truncate": False}
        timings: Json = self.daemon.client.post("/completion", body, timeout=None)["timings"]
        return timings


@contextlib.contextmanager
def as_it_was(daemon: Daemon, target: str, was: Json | None) -> Iterator[None]:
    """Run the block; then have the model as it was before: not loaded, or with the options that it had.

    was: its status before; None: it was not known.
    """
    try:
        yield
    finally:
        with contextlib.suppress(SupervisorError):
            if was is None or was["state"] != "ready":
                daemon.client.post("/api/v1/models/unload", {"model": target}, timeout=None)
            else:
                body = {"target": target, "options": was["given"] or None, "reset": True}
                daemon.client.post("/api/v1/models/load", body, timeout=None)


def text_of(changes: Changes) -> str:
    """Format options as a person writes them."""
    return " ".join(f"{name}={_value(value)}" for name, value in changes.items()) or "as it is"


def _value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
