"""Plan where models go, here and now: by the newest look at the machine and what is known of each model.

The pool has a model fetched and read (`fetch_and_read`) and the machine looked at (`Lookout.see_room`) before the
scheduler asks for a plan. What `plan` answers then is computed from these alone. It reads nothing and waits for
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from supervisor.core.engine_output.failures import OPTION, OUT_OF_MEMORY
from supervisor.core.launch.fallback import (
    Fallback,
    unguessed,
    with_fallback,
    without_draft,
    without_shortage,
)
from supervisor.core.memory import Refusal
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.options import LaunchOptions
from supervisor.core.plan import DoesNotFit, Place, Resident
from supervisor.core.schedule.events import Failure
from supervisor.engines.kind import Planning, Read
from supervisor.engines.kinds import Parts
from supervisor.errors import ModelFileError, ModelLoadFailed, SupervisorError, file_refused
from supervisor.planning.lookout import Lookout
from supervisor.pool.living import Living


class Planner:
    """The planner that answers the scheduler.

    Args:
        kinds: know the models, each those of its kind, and say where they go.
        lookout: has looked at the machine before a plan is asked for.
    """

    def __init__(self, registry: Registry, kinds: Parts[Planning], lookout: Lookout) -> None:
        self._registry = registry
        self._kinds = kinds
        self._lookout = lookout
        self._known: dict[str, Read] = {}
        self._fallbacks: dict[str, tuple[LaunchOptions, Fallback]] = {}
        self._spent: set[str] = set()  # keeping more memory free has led to a refusal

    async def fetch_and_read(self, model: str, living: Living) -> None:
        """Download what is missing of the model, and read its files. Raise what either does.

        What led to a refusal is no reason to refuse again: memory that others held may be free by now. What was read of
        models that are no more is dropped.
        """
        entry = self._registry.find(model)
        fallback = self.fallback(entry)
        if entry.id in self._spent:
            self._spent.discard(entry.id)
            fallback = without_shortage(fallback)
            self._fallbacks[entry.id] = entry.options, fallback
        kind = self._kinds.of(entry)
        try:
            known = await kind.know(_with_fallback(entry, fallback), living)
        except ModelFileError:
            fallback = without_draft(entry.options, fallback)
            known = await kind.know(_with_fallback(entry, fallback), living)
            self._fallbacks[entry.id] = entry.options, fallback
        there = {name: one for name, one in self._known.items() if name in self._registry}
        self._known = {**there, entry.id: replace(known, fallback=fallback)}

    def fallback(self, entry: ModelEntry) -> Fallback:
        """Return the changes to the model's start after failed ones; other options begin anew."""
        options, fallback = self._fallbacks.get(entry.id, (entry.options, Fallback()))
        return fallback if options == entry.options else Fallback()

    def failed(self, model: str, place: Place, failure: Failure) -> bool:
        """Take in that a start of the model failed.

        Return whether there is something else to try, for the next `fetch_and_read`.
        """
        entry = self._registry.find(model)
        found = self._kinds.of(entry).again(self.fallback(entry), failure, entry, place)
        if found is not None:
            self._fallbacks[entry.id] = entry.options, found
        elif failure.code == OUT_OF_MEMORY:
            self._spent.add(entry.id)
        return found is not None

    def forget(self, model: str) -> None:
        """Start the model again as its options say."""
        self._fallbacks.pop(model, None)
        self._spent.discard(model)

    def known(self, model: str) -> Read:
        """Return the model as it was read."""
        return self._known[model]

    def read(self, model: str) -> Read | None:
        """Return the model as it was read; None if it was not."""
        return self._known.get(model)

    def plan(self, model: str, residents: Sequence[Resident]) -> Place | DoesNotFit:
        """Return the place of the model beside these engines, or why there is none.

        Raises InvalidRequest for options that cannot be planned, ModelLoadFailed for those that no engine starts with,
        ModelFileError for a file that none serves.
        """
        known = self._known[model]
        found, by_guess = self._kinds.of(known.entry).plan(known, self._lookout.sight, residents)
        if not isinstance(found, DoesNotFit) and not by_guess and model in self._fallbacks:
            options, fallback = self._fallbacks[model]
            self._fallbacks[model] = options, unguessed(fallback)
        if isinstance(found, DoesNotFit):
            if found.refusal is not None:
                raise refused(found.refusal)
            if known.fallback.tries and not found.later and all(one.model != model for one in residents):
                self._spent.add(model)
        return found


def _with_fallback(entry: ModelEntry, fallback: Fallback) -> ModelEntry:
    return replace(entry, options=with_fallback(entry.options, fallback))


def refused(refusal: Refusal) -> SupervisorError:
    """Return the error of a load that llama-server would refuse: for its file, or for an option."""
    return file_refused(refusal.code, refusal.message) or ModelLoadFailed(refusal.message, code=OPTION)
