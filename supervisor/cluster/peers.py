"""The clients of all nodes, and what they are asked for besides clients' requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from supervisor.cluster.peerclient import PeerClient
from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.core.cluster.directory import Seen
from supervisor.core.cluster.identity import Peer
from supervisor.core.cluster.messages import Node, peer_of
from supervisor.core.cluster.placing import Offer
from supervisor.core.text.foreignjson import parse
from supervisor.engines.client import AnswerTooLarge
from supervisor.errors import ModelDoesNotFit

_PLAN_S: Final = 5.0
_MOST: Final = 4 << 20
_LONGEST: Final = 2000  # characters of what a node says of an error
_FASTEST: Final = 1 << 40  # tokens per second that are believed
_JSON: Final = [("content-type", "application/json")]


class Refused(Exception):
    """A node has answered with an error: its code and its message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Peers:
    """The nodes as they are reached. tls: how they are dialled."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._clients: dict[tuple[str, int, Peer], PeerClient] = {}

    def client(self, node: Node) -> PeerClient:
        """Return the client of a node."""
        place = _place(node)
        found = self._clients.get(place)
        if found is None:
            host, port, who = place
            found = self._clients[place] = PeerClient(host, port, self._tls, who)
        return found

    async def drop(self, node: Node) -> None:
        """Close all connections to a node; whoever reads an answer of it gets PeerUnreachable."""
        if (client := self._clients.get(_place(node))) is not None:
            await client.close()

    async def ask(self, client: PeerClient, method: str, target: str, body: object, within: float) -> Any:
        """Return the JSON that a node answers. Raises PeerUnreachable, Refused."""
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            async with asyncio.timeout(within), client.send(method, target, _JSON, payload, safe=True) as response:
                said = await response.read(_MOST)
                status = response.status
        except TimeoutError:
            raise PeerUnreachable("it does not answer in time", sent=True) from None
        except AnswerTooLarge:
            raise PeerUnreachable("its answer is too large", sent=True) from None
        try:
            found = parse(said)
        except ValueError:
            raise PeerUnreachable("its answer is no JSON", sent=True) from None
        if status >= 400:
            error = found.get("error") if isinstance(found, Mapping) else None
            known: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
            raise Refused(str(known.get("code", ""))[:_LONGEST], str(known.get("message", ""))[:_LONGEST])
        return found

    async def offer(self, seen: Seen, model: str) -> Offer:
        """Return what a node says of loading a model. Raises PeerUnreachable, ModelDoesNotFit."""
        client = self.client(seen.node)
        try:
            found = await self.ask(client, "POST", "/api/v1/plan", {"target": model}, _PLAN_S)
        except Refused as error:
            raise ModelDoesNotFit(f"{seen.node.name}: {error}") from None
        return offer_of(seen.node.name, found) if isinstance(found, dict) else Offer(seen.node.name, fits=False)

    async def reach(self, seen: Seen) -> None:
        """See whether a node can be reached. Raises PeerUnreachable."""
        with contextlib.suppress(Refused):
            await self.ask(self.client(seen.node), "GET", "/health", None, _PLAN_S)

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(one.close() for one in self._clients.values()), return_exceptions=True)


def _place(node: Node) -> tuple[str, int, Peer]:
    return node.host, node.port, peer_of(node)


def offer_of(node: str, plan: Mapping[str, Any]) -> Offer:
    """Return a node's plan as an offer."""
    fits = plan.get("fits") is True
    evicts = plan.get("evict" if fits else "blockers")
    return Offer(
        node,
        fits=fits,
        later=not fits and plan.get("later") is True,
        evicts=len(evicts) if isinstance(evicts, Sequence) else 0,
        tokens_per_second=_speed(plan.get("speed")),
        here=plan.get("on_disk") is True,
        plan=plan,
    )


def _speed(said: object) -> float | None:
    """Return the tokens per second that a plan foretells for a short context."""
    by_context = said.get("decode_tokens_per_second") if isinstance(said, Mapping) else None
    found = next(iter(by_context.values()), None) if isinstance(by_context, Mapping) else None
    return float(found) if isinstance(found, int | float) and 0 <= found < _FASTEST else None
