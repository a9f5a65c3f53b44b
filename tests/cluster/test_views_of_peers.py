"""What other nodes answer when they are asked what they do: understood, refused, too late, or not to be understood."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from supervisor.cluster.peerclient import PeerClient
from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.cluster.peers import Peers, Refused
from supervisor.cluster.views import Viewed, Views, node_now
from supervisor.core.cluster.directory import SILENT_S, Directory
from supervisor.core.cluster.messages import Node
from supervisor.core.cluster.views import DeviceView, ModelView, View
from supervisor.engines.client import AnswerTooLarge
from supervisor.service.clusters import NodeDevice, NodeModel, NodeStatus
from tests.core.test_cluster import ME, load

pytestmark = pytest.mark.anyio

VIEW = View((DeviceView("CUDA0", 1 << 34),), (ModelView("m", "ready", loaded_s=5.0, leaves_s=60.0),), 2)
SAID = msgspec.to_builtins(VIEW)
OTHERS = ("b", "c")


class Answering(Peers):
    """Peers that answer as they are told to, by their port. asked: the ports in the order in which they were."""

    def __init__(self, answers: Mapping[int, Any]) -> None:
        super().__init__(ssl.create_default_context())
        self.answers = dict(answers)
        self.asked: list[int] = []
        self._ports: dict[PeerClient, int] = {}

    def client(self, node: Node) -> PeerClient:
        found = super().client(node)
        self._ports[found] = node.port
        return found

    async def ask(self, client: PeerClient, method: str, target: str, body: object, within: float) -> Any:
        assert (method, target, body) == ("GET", "/cluster/view", None)
        self.asked.append(self._ports[client])
        answer = self.answers[self._ports[client]]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Stage:
    """This node, and two others at the ports 2 and 3, all of which were heard at 0."""

    def __init__(self, **answers: Any) -> None:
        self.directory = Directory(ME, connected=True)
        for port, name in enumerate((ME, *OTHERS), 1):
            self.directory.put(Node(name, "127.0.0.1", port, "1"))
            self.directory.hear(load(name), 0.0)
        self.now = 0.0
        self.peers = Answering({2: answers.get("b", SAID), 3: answers.get("c", SAID)})
        self.held = asyncio.Event()
        self.held.set()
        self.looks = 0
        self.views = Views(self.directory, self.peers, self._own, lambda: self.now)

    async def _own(self) -> View:
        self.looks += 1
        await self.held.wait()
        return View(requests=7)


async def test_every_node_says_it_for_itself() -> None:
    found = await Stage().views.all()
    assert found == {ME: Viewed(View(requests=7)), "b": Viewed(VIEW), "c": Viewed(VIEW)}


async def test_this_node_holds_nobody_up_whose_devices_take_long() -> None:
    stage = Stage()
    stage.held.clear()
    impatient = replace(stage.views, patience=0.001)
    for _ in range(2):
        found = await impatient.all()
        assert (found[ME].view, found["b"]) == (None, Viewed(VIEW))
        assert "take long" in str(found[ME].why)
    stage.held.set()
    assert (await stage.views.all())[ME] == Viewed(View(requests=7))
    assert stage.looks == 1, "the look that was begun serves them all"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Refused("route_not_found", "Nodes do not ask each other for GET /cluster/view."), "version"),
        (Refused("too_many_connections", "Try again."), "it refuses: Try again."),
        (PeerUnreachable("its answer is too large", sent=True), "too large"),
        ({"models": [{"id": "m"}]}, "not understood"),
        ([], "not understood"),
        ("\x1b[2J", "not understood"),
    ],
)
async def test_one_that_cannot_be_understood_hides_no_other(answer: Any, why: str) -> None:
    found = await Stage(b=answer).views.all()
    assert found["b"].view is None
    assert why in str(found["b"].why)
    assert found["c"] == Viewed(VIEW)


async def test_one_that_was_late_is_asked_again_once_it_has_said_something() -> None:
    stage = Stage(b=PeerUnreachable("it does not answer in time", sent=True))
    for _ in range(3):
        assert (await stage.views.all())["b"].view is None
    assert stage.peers.asked.count(2) == 1, "nobody waits for it a second time"
    assert stage.peers.asked.count(3) == 3
    stage.peers.answers[2] = SAID
    assert (await stage.views.all())["b"].view is None
    stage.directory.hear(load("b", 2), 1.0)
    assert (await stage.views.all())["b"] == Viewed(VIEW)


async def test_one_that_is_away_is_not_asked() -> None:
    stage = Stage()
    stage.now = SILENT_S
    stage.directory.hear(load("c", 2), stage.now)
    assert (await stage.views.all())["b"] == Viewed(None, "it is away")
    assert stage.peers.asked == [3]


STATUS = NodeStatus(
    name="b",
    state="ready",
    address="127.0.0.1:2",
    program="1",
    here=False,
    free_bytes=5,
    heard_s=1.5,
    devices=[NodeDevice("CUDA0", 1 << 34)],
    models=[NodeModel("m", "ready", slots=2, busy=1, waiting=3, wait_s=0.0, load_s=0.0)],
    claims=[],
    config_version=0,
    config_problem=None,
)


def test_who_has_not_answered_is_shown_as_it_last_told() -> None:
    shown = node_now(STATUS, Viewed(None, "it hangs"))
    assert (shown.asked, shown.why, shown.requests) == (False, "it hangs", None)
    assert shown.devices == (DeviceView("CUDA0", 1 << 34),)
    (model,) = shown.models
    assert (model.id, model.state, model.n_slots, model.leases, model.waiting) == ("m", "ready", 2, 1, 3)
    assert (model.pid, model.n_ctx, model.loaded_at) == (None, None, None)
    away = node_now(replace(STATUS, state="away"), Viewed(None, "it is away"))
    assert (away.devices, away.models) == (shown.devices, [])
    assert not node_now(STATUS, None).asked, "it has come while the others were asked"


class _Answer:
    """A client whose answer is this one, and that answer."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    def send(self, *_: object, **__: object) -> _Answer:
        return self

    async def __aenter__(self) -> _Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave it."""

    async def read(self, most: int) -> bytes:
        if len(self._body) > most:
            raise AnswerTooLarge(f"it has more than {most} bytes")
        return self._body


async def asked(status: int, body: bytes) -> Any:
    """What a node is taken to have said."""
    client = cast(PeerClient, _Answer(status, body))
    return await Peers(ssl.create_default_context()).ask(client, "GET", "/cluster/view", None, 1.0)


async def test_what_a_node_says_has_a_bound() -> None:
    assert await asked(200, b'{"requests": 3}') == {"requests": 3}
    with pytest.raises(PeerUnreachable, match="too large"):
        await asked(200, b'"' + b"x" * (8 << 20) + b'"')
    with pytest.raises(PeerUnreachable, match="no JSON"):
        await asked(200, b"<html>")
    with pytest.raises(Refused) as refused:
        await asked(404, json.dumps({"error": {"code": "x" * 5000, "message": "y" * 100_000}}).encode())
    assert len(refused.value.code) + len(str(refused.value)) < 5000
    with pytest.raises(Refused):
        await asked(500, b"[]")
