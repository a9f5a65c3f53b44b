"""Clients of a daemon under heavy use, and what they may hear."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from tests.support.patience import PATIENCE

LEFT = "left"


@dataclass(frozen=True)
class Asked:
    """Models to choose from, how often each, and what each says."""

    models: Sequence[str]
    weights: Sequence[float]
    says: Sequence[str]


class Client(threading.Thread):
    """Asks for this and that until the time is over.

    Attributes:
        seen: how often what happened, as `kind: how`; `how` is `ok`, `left` or the code of an error.
        waits: seconds of whole requests that were answered.
        told: the messages of each code of an error.
        failed: what should not have happened.
    """

    def __init__(self, url: str, seed: int, until: float, asked: Asked, *, think: float = 0.0) -> None:
        super().__init__(name=f"client {seed}")
        self._random = random.Random(seed)
        self._until = until
        self._asked = asked
        self._think = think
        self._http = httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False)
        self.seen: Counter[str] = Counter()
        self.waits: list[float] = []
        self.told: defaultdict[str, set[str]] = defaultdict(set)
        self.failed: list[str] = []

    def run(self) -> None:
        with self._http:
            while time.monotonic() < self._until:
                kind = self._random.choice(("whole", "stream", "leave", "vanish", "embed"))
                (which,) = self._random.choices(range(len(self._asked.models)), self._asked.weights)
                begun = time.monotonic()
                try:
                    how = getattr(self, f"_{kind}")(self._asked.models[which], self._asked.says[which])
                except Exception as error:  # noqa: BLE001 - told by the test that started this thread
                    self.failed.append(f"{kind} of {self._asked.models[which]}: {error!r}")
                    continue
                self.seen[f"{kind}: {how}"] += 1
                if how != LEFT:
                    self.waits.append(time.monotonic() - begun)
                time.sleep(self._random.random() * self._think)

    def _whole(self, model: str, says: str) -> str:
        answer = self._http.post("/v1/chat/completions", json=_chat(model, "Hi"))
        if answer.status_code != 200:
            return self._told(answer.json()["error"])
        text = answer.json()["choices"][0]["message"]["content"]
        assert text == says, f"{text!r} is what another model says"
        return "ok"

    def _stream(self, model: str, says: str) -> str:
        with self._http.stream("POST", "/v1/chat/completions", json=_chat(model, "Hi", stream=True)) as answer:
            if answer.status_code != 200:
                answer.read()
                return self._told(answer.json()["error"])
            events = [line.removeprefix("data: ") for line in answer.iter_lines() if line and line[0] != ":"]
        assert events[-1] == "[DONE]", events[-3:]
        last = json.loads(events[-2])
        if "error" in last:
            return self._told(last["error"])
        deltas = [choice["delta"] for event in events[:-1] for choice in json.loads(event)["choices"]]
        text = "".join(delta.get("content") or "" for delta in deltas)
        assert text == says, f"{text!r} is what another model says, or not all of it"
        return "ok"

    def _leave(self, model: str, _says: str) -> str:
        """In mid-stream."""
        with self._http.stream("POST", "/v1/chat/completions", json=_chat(model, "endless", stream=True)) as answer:
            next(answer.iter_raw(), b"")
        return LEFT

    def _vanish(self, model: str, _says: str) -> str:
        """Most often while it waits for an engine."""
        body = _chat(model, "endless", max_tokens=200)
        try:
            answer = self._http.post("/v1/chat/completions", json=body, timeout=self._random.choice((0.01, 0.1, 1.0)))
        except httpx.TimeoutException:
            return LEFT
        return "ok" if answer.status_code == 200 else self._told(answer.json()["error"])

    def _embed(self, model: str, _says: str) -> str:
        answer = self._http.post("/v1/embeddings", json={"model": model, "input": "x"})
        return "ok" if answer.status_code == 200 else self._told(answer.json()["error"])

    def _told(self, error: dict[str, str]) -> str:
        self.told[error["code"]].add(error["message"])
        return error["code"]


def _chat(model: str, text: str, **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def finished(clients: Sequence[Client], within: float) -> Counter[str]:
    """Wait for their end; what they saw together. Fails where a request is never answered, or not as it should be."""
    until = time.monotonic() + within
    for client in clients:
        client.join(max(0.0, until - time.monotonic()))
        assert not client.is_alive(), "a request was never answered"
    failed = [failure for client in clients for failure in client.failed]
    assert not failed, f"{len(failed)} answers: {failed[:10]}"
    return sum((client.seen for client in clients), Counter[str]())
