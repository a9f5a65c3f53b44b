"""What the routers ask: each takes the one object that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Protocol, Self, TypeVar

from fastapi import Depends, Request

from supervisor.api.feed import Feed
from supervisor.proxy.counts import CallCounts
from supervisor.proxy.metered import key_of
from supervisor.service.about import About, Identity
from supervisor.service.added import Added
from supervisor.service.captures import Captures
from supervisor.service.clusters import Clustered
from supervisor.service.configuration import Configuration
from supervisor.service.disk import Disk
from supervisor.service.engines import Installed
from supervisor.service.history import History
from supervisor.service.keys import Keys
from supervisor.service.listed import Listed
from supervisor.service.loads import Loads
from supervisor.service.logs import Logs
from supervisor.service.memory import Memory
from supervisor.service.metrics import Metrics
from supervisor.service.pinning import Pinning
from supervisor.service.plans import Plans
from supervisor.service.pulls import Pulls
from supervisor.service.readiness import Readiness
from supervisor.service.reload import Reloader
from supervisor.service.requests import Requests
from supervisor.service.statuses import Statuses
from supervisor.service.workers import Workers
from supervisor.system.logs import LogControl

T = TypeVar("T")
L = TypeVar("L", bound="_Limitable")


class _Limitable(Protocol):
    """What tells of models."""

    def limited(self, sees: Callable[[str], bool]) -> Self:
        """Return the same for who sees only these models, by their ids."""
        ...


@dataclass(frozen=True)
class Services:
    """All of them. `shut_down`: stop everything. `take_over`: have another image of the daemon go on."""

    identity: Identity
    about: About
    statuses: Statuses
    loads: Loads
    added: Added
    pinning: Pinning
    listed: Listed
    plans: Plans
    memory: Memory
    configuration: Configuration
    installed: Installed
    disk: Disk
    pulls: Pulls
    requests: Requests
    logs: Logs
    log_control: LogControl
    reloader: Reloader
    call_counts: CallCounts
    feed: Feed
    readiness: Readiness
    keys: Keys
    history: History
    captures: Captures
    metrics: Metrics
    workers: Workers
    cluster: Clustered
    shut_down: Callable[[], None]
    take_over: Callable[[], Awaitable[None]]


def _one(pick: Callable[[Services], T]) -> Callable[[Request], Awaitable[T]]:
    async def of(request: Request) -> T:
        return pick(request.app.state.services)

    return of


def _seen(pick: Callable[[Services], L]) -> Callable[[Request], Awaitable[L]]:
    """Return the dependency of a route that keys may use which see only some models."""

    async def of(request: Request) -> L:
        found, key = pick(request.app.state.services), key_of(request.scope)
        return found if key is None or not key.rules.models else found.limited(key.rules.sees)

    return of


async def _feed(request: Request) -> Feed:
    services: Services = request.app.state.services
    key = key_of(request.scope)
    if key is None:
        return services.feed
    sees, text = key.rules.sees if key.rules.models else None, key.digest
    return services.feed.of_key(sees, lambda: key.digest != text or key.ended(services.keys.clock()) is not None)


IdentityOf = Annotated[Identity, Depends(_one(lambda all_: all_.identity))]
AboutOf = Annotated[About, Depends(_seen(lambda all_: all_.about))]
StatusesOf = Annotated[Statuses, Depends(_seen(lambda all_: all_.statuses))]
LoadsOf = Annotated[Loads, Depends(_one(lambda all_: all_.loads))]
AddedOf = Annotated[Added, Depends(_one(lambda all_: all_.added))]
ListedOf = Annotated[Listed, Depends(_seen(lambda all_: all_.listed))]
PinningOf = Annotated[Pinning, Depends(_one(lambda all_: all_.pinning))]
PlansOf = Annotated[Plans, Depends(_one(lambda all_: all_.plans))]
MemoryOf = Annotated[Memory, Depends(_seen(lambda all_: all_.memory))]
ConfigurationOf = Annotated[Configuration, Depends(_one(lambda all_: all_.configuration))]
InstalledOf = Annotated[Installed, Depends(_one(lambda all_: all_.installed))]
DiskOf = Annotated[Disk, Depends(_one(lambda all_: all_.disk))]
PullsOf = Annotated[Pulls, Depends(_one(lambda all_: all_.pulls))]
RequestsOf = Annotated[Requests, Depends(_seen(lambda all_: all_.requests))]
LogsOf = Annotated[Logs, Depends(_seen(lambda all_: all_.logs))]
LogControlOf = Annotated[LogControl, Depends(_one(lambda all_: all_.log_control))]
ReloaderOf = Annotated[Reloader, Depends(_one(lambda all_: all_.reloader))]
CountsOf = Annotated[CallCounts, Depends(_seen(lambda all_: all_.call_counts))]
FeedOf = Annotated[Feed, Depends(_feed)]
HistoryOf = Annotated[History, Depends(_one(lambda all_: all_.history))]
CapturesOf = Annotated[Captures, Depends(_one(lambda all_: all_.captures))]
MetricsOf = Annotated[Metrics, Depends(_one(lambda all_: all_.metrics))]
WorkersOf = Annotated[Workers, Depends(_one(lambda all_: all_.workers))]
ClusterOf = Annotated[Clustered, Depends(_one(lambda all_: all_.cluster))]
KeysOf = Annotated[Keys, Depends(_one(lambda all_: all_.keys))]
ReadinessOf = Annotated[Readiness, Depends(_one(lambda all_: all_.readiness))]
TakeOverOf = Annotated[Callable[[], Awaitable[None]], Depends(_one(lambda all_: all_.take_over))]
ShutDownOf = Annotated[Callable[[], None], Depends(_one(lambda all_: all_.shut_down))]
