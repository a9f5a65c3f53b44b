"""Clients that ask all front doors at once, and what goes wrong meanwhile: by a seed, and bounded."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

from tests.cluster.stage import Node, events
from tests.support.daemon import wait_until
from tests.support.patience import PATIENCE
from tests.support.routes import code_of

HI = [{"role": "user", "content": "hi"}]
SHORT = 4
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI, "max_tokens": SHORT},
    "/v1/completions": {"prompt": "hi", "max_tokens": SHORT},
    "/v1/responses": {"input": "hi", "max_output_tokens": SHORT},
    "/v1/messages": {"messages": HI, "max_tokens": SHORT},
    "/completion": {"prompt": "hi", "n_predict": SHORT},
    "/api/chat": {"messages": HI, "options": {"num_predict": SHORT}},
    "/api/generate": {"prompt": "hi", "options": {"num_predict": SHORT}},
    "/upstream/MODEL/v1/chat/completions": {"messages": HI, "max_tokens": SHORT},
}
LONG = "/v1/chat/completions"
PROPER = frozenset({
    "cluster_unavailable",
    "engine_hung",
    "engine_lost",
    "engine_stalled",
    "model_load_failed",
    "node_lost",
})
"""What a request may end with while nodes, servers and engines end and hang."""


class Improper(AssertionError):
    """An answer that is neither whole nor an error as it should be."""


def verdict(path: str, answer: httpx.Response, *, stream: bool) -> str:
    """What an answer is: `whole`, or the code of its error. Raises Improper."""
    if answer.status_code != 200:
        return code_of(answer)
    if not stream:
        found = answer.json()
        if not isinstance(found, dict) or "error" in found:
            raise Improper(answer.text[-500:])
        return "whole"
    return _of_stream(path, answer.text)


def _of_stream(path: str, text: str) -> str:
    lines = events(text) if not path.startswith("/api/") else [json.loads(line) for line in text.splitlines() if line]
    if not lines:
        raise Improper(f"a stream without an event: {text!r}")
    ended = lines[-1] == "[DONE]"
    last = lines[-2] if ended and len(lines) > 1 else lines[-1]
    if "error" in last or last.get("type") == "error":
        if path.endswith("completions") and not ended:
            raise Improper("no [DONE] after the error")
        return str(last.get("code") or last["error"]["code"])
    if path.endswith("completions"):
        whole = ended and any(choice.get("finish_reason") for one in lines[:-1] for choice in one.get("choices", ()))
    elif path == "/v1/responses":
        whole = last["type"] in {"response.completed", "response.incomplete"}
    elif path == "/v1/messages":
        whole = last["type"] == "message_stop"
    else:
        whole = last.get("stop") is True or last.get("done") is True
    if not whole:
        raise Improper(f"a stream that breaks off: {text[-500:]!r}")
    return "whole"


@dataclass
class Crowd:
    """Clients of all doors; each asks one of them again and again until it is told to stop.

    models: what is asked for with a few tokens. long: what is asked for with many.
    """

    nodes: list[Node]
    models: list[str]
    long: str
    seed: int
    each: int = 2
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    deaths: Counter[str] = field(default_factory=Counter)
    down: set[str] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    ended: int = 0

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Have them ask within the block."""
        threads = [
            threading.Thread(target=self._client, args=(node, random.Random(f"{self.seed} {node.name} {number}")))
            for node in self.nodes
            for number in range(self.each)
        ]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            self._stop.set()
            for one in threads:
                one.join(PATIENCE)
        assert not any(one.is_alive() for one in threads), "a request that never ends"

    def more(self, count: int) -> None:
        """Wait until so many more requests have ended, however."""
        wanted = self.ended + count
        wait_until(lambda: self.ended >= wanted, f"{count} more requests end")

    def _client(self, node: Node, chance: random.Random) -> None:
        while not self._stop.is_set():
            before = self.deaths[node.name]
            if (daemon := node.running) is None or node.name in self.down:
                self._stop.wait(0.05)
                continue
            found = self._asked(node, daemon.url, chance, before)
            with self._lock:
                self.ended += 1
                self.counts[found] += 1
            if found != "whole":
                self._stop.wait(0.05)

    def _asked(self, node: Node, url: str, chance: random.Random, before: int) -> str:
        long, stream = chance.random() < 0.25, chance.random() < 0.7
        path = LONG if long else chance.choice(list(BODIES))
        model = self.long if long else chance.choice(self.models)
        body = {"model": model, "stream": stream, **BODIES[path]}
        if long:
            body["max_tokens"] = chance.choice((50, 500, 3000))
        leaves = stream and chance.random() < 0.1
        try:
            with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as client:
                target = path.replace("MODEL", model)
                with client.stream("POST", target, json=body) as answer:
                    if leaves:
                        next(answer.iter_bytes(), None)
                        return "left"
                    answer.read()
            found = verdict(path, answer, stream=stream)
            if found != "whole" and found not in PROPER and self.deaths[node.name] == before:
                raise Improper(f"{answer.status_code} {answer.text[-500:]}")
        except (httpx.HTTPError, ValueError, Improper) as error:
            if self.deaths[node.name] != before:
                return "door killed"
            with self._lock:
                self.faults.append(f"{node.name} {path} {model} stream={stream}: {type(error).__name__} {error}")
            return "improper"
        return found


class Havoc:
    """What goes wrong. Each fault returns how it ends, or nothing where it is over at once."""

    def __init__(self, crowd: Crowd, chance: random.Random) -> None:
        self.crowd = crowd
        self.chance = chance
        self.told: list[str] = []
        self._under: dict[str, Callable[[], None]] = {}

    def wreak(self, count: int) -> None:
        """Bring about so many faults, of two nodes at most at the same time; at the end nothing is wrong any more."""
        kinds = list(KINDS)
        for _ in range(count):
            free = [node for node in self.crowd.nodes if node.name not in self._under]
            if len(self._under) == 2 or (self._under and self.chance.random() < 0.4):
                self._end(self.chance.choice(sorted(self._under)))
            node, kind = self.chance.choice(free), self.chance.choice(kinds)
            self.told.append(f"{kind} {node.name}")
            end = KINDS[kind](self, node)
            if end is not None:
                self._under[node.name] = end
            self.crowd.more(self.chance.choice((1, 4, 16, 40)))
        self.over()

    def over(self) -> None:
        """End all that goes on."""
        for name in sorted(self._under):
            self._end(name)

    def _end(self, name: str) -> None:
        self.told.append(f"over {name}")
        self._under.pop(name)()

    def killed(self, node: Node) -> Callable[[], None]:
        """The daemon is killed, and started again later."""
        self.crowd.down.add(node.name)
        self.crowd.deaths[node.name] += 1
        node.kill()

        def again() -> None:
            node.start(alone=True)
            self.crowd.down.remove(node.name)

        return again

    def frozen(self, node: Node) -> Callable[[], None]:
        """The daemon stands still for a while."""
        return _stopped(psutil.Process(node.daemon.pid))

    def store_killed(self, node: Node) -> Callable[[], None] | None:
        """The NATS server is killed; the daemon starts it again."""
        if (server := _below(node, "nats-server")) is not None:
            server.kill()
        return None

    def store_frozen(self, node: Node) -> Callable[[], None] | None:
        """The NATS server stands still for a while."""
        server = _below(node, "nats-server")
        return None if server is None else _stopped(server)

    def engine_killed(self, node: Node) -> Callable[[], None] | None:
        """An engine is killed."""
        if (engine := _below(node, "llama-server", self.chance)) is not None:
            engine.kill()
        return None

    def engine_frozen(self, node: Node) -> Callable[[], None] | None:
        """An engine stands still for a while."""
        engine = _below(node, "llama-server", self.chance)
        return None if engine is None else _stopped(engine)

    def taken_over(self, node: Node) -> Callable[[], None] | None:
        """The daemon is restarted; its engines and streams go on."""
        with httpx.Client(base_url=node.daemon.url, timeout=PATIENCE * 2, trust_env=False) as client:
            answer = client.post("/api/v1/restart")
        assert answer.status_code == 200 or code_of(answer) == "takeover_failed", answer.text
        return None

    def drained(self, node: Node) -> Callable[[], None]:
        """The node takes nothing new for a while."""
        self._drain(node, on=True)
        return lambda: self._drain(node, on=False)

    def _drain(self, node: Node, *, on: bool) -> None:
        with httpx.Client(base_url=node.daemon.url, timeout=PATIENCE, trust_env=False) as client:
            client.post(f"/api/v1/cluster/nodes/{node.name}/drain", json={"on": on}).raise_for_status()


def _below(node: Node, name: str, chance: random.Random | None = None) -> psutil.Process | None:
    found = []
    for one in psutil.Process(node.daemon.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.name() == name and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return None if not found else found[0] if chance is None else chance.choice(found)


def _stopped(process: psutil.Process) -> Callable[[], None]:
    process.send_signal(signal.SIGSTOP)

    def go_on() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)

    return go_on


KINDS: Mapping[str, Callable[[Havoc, Node], Callable[[], None] | None]] = {
    "kill": Havoc.killed,
    "freeze": Havoc.frozen,
    "kill the NATS server of": Havoc.store_killed,
    "freeze the NATS server of": Havoc.store_frozen,
    "kill an engine of": Havoc.engine_killed,
    "freeze an engine of": Havoc.engine_frozen,
    "restart": Havoc.taken_over,
    "drain": Havoc.drained,
}
