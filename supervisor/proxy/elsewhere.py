"""Answers of other nodes: whoever relays asks first whether the request is for another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from starlette.types import Scope

from supervisor.core.stream.apis import Api
from supervisor.engines.client import Payload
from supervisor.proxy.account import Account
from supervisor.proxy.asgi import Responder
from supervisor.proxy.bodies import ClientJson

PEER: Final = "supervisor.peer"
"""The place in an ASGI scope of the node that passes a request on, a `Peer`; not there for a client's own."""

MEANT: Final = "supervisor.meant"
"""The place in an ASGI scope of the id of the model that a node means which passes a request on: names may differ."""

MOVED: Final = "x-supervisor-moved"
"""The header of an answer by which a node says that the model is another's."""


@dataclass(frozen=True)
class Call:
    """A client's request.

    Attributes:
        model: the name that it says, whatever it is; None: none.
        body, content_type: as the client sent them.
        path: of the table, for those who list requests.
        api: in whose form a stream ends.
        said: its fields, where they were read.
        wakes: it has a model loaded that is not.
        target: path under which another node is asked, percent-encoded; "": the same as here.
    """

    scope: Scope
    model: object
    body: Payload
    content_type: str
    path: str
    api: Api
    stream: bool = False
    said: ClientJson | None = None
    wakes: bool = True
    target: str = ""


class Elsewhere(Protocol):
    """The other nodes."""

    def id_of(self, name: str) -> str | None:
        """Return the id of the model that a name means on any node; None where nobody knows it."""

    async def answers(self, call: Call, responder: Responder, account: Account) -> bool:
        """Have another node answer, and return True; False where this one is to.

        Raises ClusterUnavailable, NodeLost, ModelDoesNotFit, ModelMoved.
        """
