"""What the routers ask: each takes the one object that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from supervisor.api.feed import Feed
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.service.about import About, Identity
from supervisor.service.added import Added
from supervisor.service.disk import Disk
from supervisor.service.loads import Loads
from supervisor.service.logs import Logs
from supervisor.service.pinning import Pinning
from supervisor.service.plans import Plans
from supervisor.service.pulls import Pulls
from supervisor.service.readiness import Readiness
from supervisor.service.reload import Reloader
from supervisor.service.requests import Requests
from supervisor.service.statuses import Statuses
from supervisor.system.logs import LogControl

T = TypeVar("T")


@dataclass(frozen=True)
class Services:
    """All of them. `shut_down`: stop everything."""

    identity: Identity
    about: About
    statuses: Statuses
    loads: Loads
    added: Added
    pinning: Pinning
    plans: Plans
    disk: Disk
    pulls: Pulls
    requests: Requests
    logs: Logs
    log_control: LogControl
    reloader: Reloader
    tool_calls: ToolCalls
    feed: Feed
    readiness: Readiness
    shut_down: Callable[[], None]


def _one(pick: Callable[[Services], T]) -> Callable[[Request], Awaitable[T]]:
    async def of(request: Request) -> T:
        return pick(request.app.state.services)

    return of


IdentityOf = Annotated[Identity, Depends(_one(lambda all_: all_.identity))]
AboutOf = Annotated[About, Depends(_one(lambda all_: all_.about))]
StatusesOf = Annotated[Statuses, Depends(_one(lambda all_: all_.statuses))]
LoadsOf = Annotated[Loads, Depends(_one(lambda all_: all_.loads))]
AddedOf = Annotated[Added, Depends(_one(lambda all_: all_.added))]
PinningOf = Annotated[Pinning, Depends(_one(lambda all_: all_.pinning))]
PlansOf = Annotated[Plans, Depends(_one(lambda all_: all_.plans))]
DiskOf = Annotated[Disk, Depends(_one(lambda all_: all_.disk))]
PullsOf = Annotated[Pulls, Depends(_one(lambda all_: all_.pulls))]
RequestsOf = Annotated[Requests, Depends(_one(lambda all_: all_.requests))]
LogsOf = Annotated[Logs, Depends(_one(lambda all_: all_.logs))]
LogControlOf = Annotated[LogControl, Depends(_one(lambda all_: all_.log_control))]
ReloaderOf = Annotated[Reloader, Depends(_one(lambda all_: all_.reloader))]
ToolCallsOf = Annotated[ToolCalls, Depends(_one(lambda all_: all_.tool_calls))]
FeedOf = Annotated[Feed, Depends(_one(lambda all_: all_.feed))]
ReadinessOf = Annotated[Readiness, Depends(_one(lambda all_: all_.readiness))]
ShutDownOf = Annotated[Callable[[], None], Depends(_one(lambda all_: all_.shut_down))]
