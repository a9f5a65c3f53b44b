"""Where a request for a model would go, and why, without anything being loaded: the choice is that of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from supervisor.core.cluster.choice import Choice, Go, Nowhere, Place, Spill, Wait, Wanted, choose
from supervisor.core.cluster.directory import Directory
from supervisor.core.cluster.messages import MOST_MODELS, ModelName, Running
from supervisor.core.cluster.placing import Offer, best, why_best
from supervisor.core.cluster.views import Number
from supervisor.errors import ClusterUnavailable, SupervisorError
from supervisor.service.clusters import ClusterPlan, OfferShown

_LONGEST: Final = 4000  # characters of what a node says of a refusal
_AGAIN_S: Final = 5.0

Ask = Callable[[str, str], Awaitable[Offer | SupervisorError]]
"""Asks a node for its offer of a model: model and node."""


@dataclass(frozen=True)
class Foretelling:
    """Foretells.

    Attributes:
        running: what runs of a model on this node.
        meant: the id of the model that a name means in the cluster; None: nobody there knows it.
        offer: a node's offer of a model.
        own: this node's plan of whatever can be loaded. Raises SupervisorError.
        clock: seconds of a monotonic clock.
    """

    directory: Directory
    running: Callable[[str], Running | None]
    meant: Callable[[str], str | None]
    offer: Ask
    own: Callable[[str], Awaitable[Mapping[str, Any]]]
    clock: Callable[[], float]

    async def plan(self, target: str) -> ClusterPlan:
        """Return which node would answer for a load target. Raises SupervisorError where nothing can be said of it."""
        model = self.meant(target)
        if model is None:
            return await self._of_this_node(target)
        choice = choose(self.directory, Wanted(model, here=self.running(model)), self.clock())
        order = _asked(choice)
        answers = dict(zip(order, await asyncio.gather(*(self.offer(model, name) for name in order)), strict=True))
        node, why = self._decided(model, choice, [one for one in answers.values() if isinstance(one, Offer)])
        if node is None and answers and not any(isinstance(one, Offer) for one in answers.values()):
            raise next(one for one in answers.values() if isinstance(one, SupervisorError))
        shown = [self._shown(name, answer, chosen=name == node) for name, answer in answers.items()]
        of = self._planner(node, answers)
        plan = None if of is None else of.plan
        return ClusterPlan(node, why, shown, plan, foreign=of is not None and of.node != self.directory.me)

    async def _of_this_node(self, target: str) -> ClusterPlan:
        """Return the plan of what is loaded where it is asked for: a file, or a model that nobody has configured."""
        me, plan = self.directory.me, await self.own(target)
        fits = plan.get("fits") is True
        why = "no node has configured it, so it is for the node that is asked"
        shown = self._shown(me, Offer(me, fits=fits, plan=plan), chosen=fits)
        return ClusterPlan(node=me if fits else None, why=why, offers=[shown], plan=plan)

    def _decided(self, model: str, choice: Choice, offers: list[Offer]) -> tuple[str | None, str]:
        """Return the node, if any, and what is said of it behind its name."""
        match choice:
            case Go(node=name) | Spill(back=name):
                return name, self._of_owner(model, name)
            case Place(nodes):
                found = best(offers, nodes)
                return (None, "it fits on no node now") if found is None else (found.node, why_best(offers, nodes))
            case Wait(claim):
                return None, f"{claim.claim.node} may have loaded it, and cannot be reached now"
            case Nowhere(why):
                raise ClusterUnavailable(f"'{model}' cannot be loaded now: {why}.", retry_after=_AGAIN_S)

    def _of_owner(self, model: str, name: str) -> str:
        seen = self.directory.node(name)
        running = self.running(model) if name == self.directory.me else seen.runs(model) if seen is not None else None
        if running is None:
            return "it has claimed it, and is about to load it"
        return "it has it loaded" if running.state == "ready" else "it is loading it"

    def _planner(self, node: str | None, answers: Mapping[str, Offer | SupervisorError]) -> Offer | None:
        """Return whose plan is shown: of the node that is chosen, else of this one, else of the first that has one."""
        names = (node,) if node is not None else (self.directory.me, *answers)
        found = (answers.get(name) for name in names)
        return next((one for one in found if isinstance(one, Offer) and one.plan), None)

    def _shown(self, name: str, answer: Offer | SupervisorError, *, chosen: bool) -> OfferShown:
        here = name == self.directory.me
        if isinstance(answer, SupervisorError):
            return OfferShown(name, here, chosen, None, (), None, None, None, answer.message[:_LONGEST])
        try:
            said = msgspec.convert(answer.plan, _Said)
        except msgspec.ValidationError as error:
            return OfferShown(name, here, chosen, None, (), None, None, None, f"its plan is not understood: {error}")
        return OfferShown(
            node=name,
            here=here,
            chosen=chosen,
            fits=answer.fits,
            evict_models=said.evict_models if answer.fits else said.blocking_models,
            tokens_per_second=answer.tokens_per_second,
            request_ctx=said.request_ctx,
            on_disk=answer.here,
            why=None if said.message is None else said.message[:_LONGEST],
        )


def _asked(choice: Choice) -> tuple[str, ...]:
    """Return the nodes whose offers count."""
    match choice:
        case Place(nodes):
            return nodes
        case Go(node=name) | Spill(back=name):
            return (name,)
        case _:
            return ()


class _Said(msgspec.Struct, frozen=True):
    """What is shown of a node's plan."""

    evict_models: Annotated[tuple[ModelName, ...], msgspec.Meta(max_length=MOST_MODELS)] = ()
    blocking_models: Annotated[tuple[ModelName, ...], msgspec.Meta(max_length=MOST_MODELS)] = ()
    request_ctx: Number | None = None
    message: str | None = None
