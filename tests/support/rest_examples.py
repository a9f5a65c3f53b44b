"""The examples in docs/rest.md, made by a running daemon: `python -m tests.support.rest_examples` writes them anew.

What differs by machine or moment is replaced by a value that could be (`SAMPLES`); the rest is as it was answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from supervisor.demo.builtin import ensure_demo_model
from tests.evidence.subjects import write_subject
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.doc_blocks import ROOT, fenced, write_blocks
from tests.support.engine_binary import find_engine_binary
from tests.support.hub.server import local_hub

Json: TypeAlias = Any
PAGE = ROOT / "docs" / "rest.md"
MODEL = "owner/talker-GGUF"
_MOMENT = 1767225600.0
_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_COLUMNS = 110

SAMPLES: Mapping[str, Json] = {
    "available_bytes": 32212254720,
    "build": 11434,
    "commit": _COMMIT,
    "created": int(_MOMENT),
    "footprint": {"CPU": 10412360},
    "free_bytes": 32212254720,
    "left_bytes": 6333205787,
    "load_seconds": 0.03,
    "loaded_at": _MOMENT,
    "others_bytes": 2106732118,
    "pid": 4711,
    "request_id": "req_0123456789abcdef01234567",
    "rss_bytes": 73400320,
    "since": _MOMENT,
    "started_at": _MOMENT,
    "system_fingerprint": "b11434",
    "url": "http://127.0.0.1:8686",
    "usable_bytes": 6442450944,
    "used_at": _MOMENT,
    "version": "1.0.0",
}
_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
_HOST = {"total_bytes": 34359738368}
_IN_FLIGHT = {"prompt_tokens": 25, "completion_tokens": 480, "tokens_per_second": 96.0}
_DECIMAL = re.compile(r"_ms$|_per_second$")


class Example(NamedTuple):
    """A request of the page and its answer, a text or JSON."""

    method: str
    path: str
    body: Json
    answer: Json

    def shown(self) -> str:
        """As the page has it."""
        asked = [f"{self.method} {self.path}", *(dense(self.body) if self.body is not None else [])]
        if isinstance(self.answer, str):
            return f"{fenced('http', asked)}\n{fenced('text', self.answer.splitlines())}"
        return f"{fenced('http', asked)}\n{fenced('json', dense(self.answer))}"


def dense(value: Json, indent: int = 0) -> list[str]:
    """JSON in few lines: what fits in a line stands in one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= _COLUMNS or not isinstance(value, (dict, list)):
        return [flat]
    pairs = value.items() if isinstance(value, dict) else (("", item) for item in value)
    lines: list[str] = []
    for key, item in pairs:
        first, *rest = dense(item, indent + 4)
        first = f"{json.dumps(key)}: {first}" if isinstance(value, dict) else first
        _append(lines, [first, *rest], indent)
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    lines[-1] = lines[-1].rstrip(",")
    return [opened, *(f"  {line}" for line in lines), closed]


def _append(lines: list[str], item: list[str], indent: int) -> None:
    """One item more, on the line of the one before where both are short."""
    *above, last = item
    if not above and lines and lines[-1][:1] == '"' and len(lines[-1]) + len(last) + indent < _COLUMNS - 4:
        lines[-1] += f" {last},"
    else:
        lines += [*above, f"{last},"]


def shape_of(block: str) -> Json:
    """A block of the page: request as it is, and of a JSON answer keys and types."""
    asked, told = re.findall(r"```\w+\n(.*?)```", block, re.DOTALL)
    event, _, data = told.rpartition("data: ")
    return asked, event, shape(json.loads(data))


def shape(value: Json) -> Json:
    """Keys and types: of a list the shape of its first item; numbers are one type."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return "number" if type(value) in {int, float} else type(value).__name__


def examples(engine: Path) -> dict[str, Example]:
    """Every example by name, asked one after the other of a daemon of its own."""
    with scratch_home() as home, local_hub() as hub:
        hub.add(MODEL, {"talker-Q8_0.gguf": ensure_demo_model(home)})
        env = {**hub.environment(home / "hf"), "CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
        large = {"file": str(write_subject("llama-3.3-70b", home))}
        settings = {"models": {"large": large}, "devices": {"limit_mib": {"CPU": 6144}}}
        with running_daemon(home, engine, settings, env=env) as daemon:
            asked = _Asker(daemon, {str(home): "/srv/supervisor", str(engine): "/usr/bin/llama-server"})
            return dict(asked.all())


class _Asker:
    """Asks a daemon, and takes from its answers what is this machine's."""

    def __init__(self, daemon: RunningDaemon, names: Mapping[str, str]) -> None:
        self._daemon = daemon
        self._names = names

    def all(self) -> Iterator[tuple[str, Example]]:
        demo, launched = {"model": "demo"}, {"target": "demo", "options": {"ctx_size": 32768}}
        yield "plan", self._ask("POST", "/api/v1/plan", launched, without=("estimate", "speed"))
        yield "refusal", self._ask("POST", "/api/v1/plan", {"target": "large"})
        yield "estimate", self._ask("POST", "/api/v1/estimate", launched)
        yield "load", self._ask("POST", "/api/v1/models/load", launched, without=("plan",))
        yield "chat", self._ask("POST", "/v1/chat/completions", {**demo, **_question("Hello"), "max_tokens": 8})
        yield "model", self._ask("GET", "/v1/models/demo")
        yield "devices", self._ask("GET", "/api/v1/devices")
        yield "memory", self._ask("GET", "/api/v1/memory")
        self._ask("POST", "/v1/chat/completions", {**demo, **_question("broken-json"), "tools": [_TOOL]})
        yield "toolcalls", self._ask("GET", "/api/v1/toolcalls")
        yield from self._in_flight()
        yield "pin", self._ask("POST", "/api/v1/models/pin", {"model": "dmeo"})
        yield "status", self._ask("GET", "/api/v1/status", without=("models",))
        yield "config", self._ask("GET", "/api/v1/config?model=large")
        yield "reload", self._ask("POST", "/api/v1/config/reload")
        yield from self._on_disk()

    def _in_flight(self) -> Iterator[tuple[str, Example]]:
        """A request that cannot end, since nobody reads what its large context lets come, until it is cancelled."""
        with self._events() as events:
            next(events)
            body = {"model": "demo", "stream": True, **_question("endless")}
            with self._daemon.http.stream("POST", "/v1/chat/completions", json=body) as answer:
                lines = answer.iter_lines()  # kept: the answer is closed with it
                next(lines)
                wait_until(self._at_work, "the request at work")
                told = next(event for event in events if event.startswith("event: request\n"))
                yield "events", Example("GET", "/api/v1/events", None, self._event(told))
                found = self._ask("GET", "/api/v1/requests")
                yield "requests", found
                yield "cancel", self._ask("DELETE", f"/api/v1/requests/{found.answer['requests'][0]['id']}")

    def _at_work(self) -> bool:
        found = self._daemon.http.get("/api/v1/requests").json()["requests"]
        return any(request["state"] == "running" for request in found)

    @contextlib.contextmanager
    def _events(self) -> Iterator[Iterator[str]]:
        with self._daemon.http.stream("GET", "/api/v1/events") as answer:
            yield _events_of(answer.iter_lines())

    def _event(self, told: str) -> str:
        name, _, data = told.partition("\ndata: ")
        return f"{name}\ndata: {json.dumps(self._plain(json.loads(data)))}"

    def _on_disk(self) -> Iterator[tuple[str, Example]]:
        yield "pull", self._ask("POST", "/api/v1/models", {"model": MODEL})
        yield "disk", self._ask("GET", "/api/v1/disk")
        yield "verify", self._ask("POST", "/api/v1/models/verify", {"model": f"{MODEL}:Q8_0"})
        yield "remove", self._ask("DELETE", f"/api/v1/models?model={MODEL}:Q8_0")

    def _ask(self, method: str, path: str, body: Json = None, without: Sequence[str] = ()) -> Example:
        """`without`: keys of the answer that the page shows elsewhere."""
        answer = self._plain(self._daemon.http.request(method, path, json=body).json())
        for key in without:
            answer.pop(key, None)
        return Example(method, path, body, answer)

    def _plain(self, value: Json, key: str = "") -> Json:
        """Without what is this machine's or this moment's."""
        if value is not None and key in SAMPLES:
            return SAMPLES[key]
        if isinstance(value, dict):
            samples = _HOST if key == "host" or "held" in value else _IN_FLIGHT if "since" in value else {}
            return {name: samples.get(name, self._plain(item, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        return self._scalar(value, key)

    def _scalar(self, value: Json, key: str) -> Json:
        if isinstance(value, float) and _DECIMAL.search(key):
            return 1.0 if key.endswith("_ms") else 1000.0
        if not isinstance(value, str):
            return value
        for ours, theirs in self._names.items():
            value = value.replace(ours, theirs)
        value = re.sub(r"chatcmpl-\w+", "chatcmpl-8gCfYtF0oBv", value)
        return re.sub(r"\b[0-9a-f]{40}\b", _COMMIT, re.sub(r"llsup/\w+", "llsup/649e0159", value))


def _question(text: str) -> dict[str, Json]:
    return {"messages": [{"role": "user", "content": text}]}


def _events_of(lines: Iterator[str]) -> Iterator[str]:
    """Server-sent events, each as its lines."""
    event: list[str] = []
    for line in lines:
        if line:
            event.append(line)
        else:
            yield "\n".join(event)
            event = []


if __name__ == "__main__":
    write_blocks(PAGE, {name: example.shown() for name, example in examples(find_engine_binary(os.environ)).items()})
