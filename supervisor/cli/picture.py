"""The picture of `top`: lines for a screen, made from what the daemon said and what a person has chosen.

Nothing here touches the world. Foreign text is made safe here, because the picture goes to the screen as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from supervisor.cli.client import Json
from supervisor.cli.nodes import name_of
from supervisor.cli.prose import clipped
from supervisor.cli.render import size
from supervisor.cli.rows import MODEL_HEADERS, REQUEST_HEADERS, model_row, request_row, since, speed
from supervisor.cli.tables import columns_of, laid_out
from supervisor.core.text.plaintext import one_line

Kind = Literal["model", "request"]

_KEYS = "↑↓ choose · u unload · p pin or let go · c cancel the request · q quit"
_BAR = 24
_HELD = ("weights_bytes", "kv_bytes", "compute_bytes", "other_bytes")
_HOSTS = {"CPU": "host"}  # what main memory is called by nodes, and here
_BUSY = frozenset({"reserved", "loading", "ready", "draining", "stopping", "backoff", "failed"})
_FIXED = 9  # lines that are no row: title, two gaps, two heads, how many more there are, what was done, keys


@dataclass(frozen=True)
class Snapshot:
    """What the daemon said at one moment.

    Args:
        status: of `GET /api/v1/status`; devices: of `GET /api/v1/devices`; requests: those in flight.
        now: seconds since 1970.
        nodes: of the cluster, this one first; empty where the daemon is in none.
    """

    status: Json
    devices: Json
    requests: Sequence[Json]
    now: float
    nodes: Sequence[Json] = ()

    def chosen(self, view: View) -> Choice | None:
        """Return what is chosen: what the view says if it is still there, else the first there is."""
        found = self.choices()
        return view.choice if view.choice in found else next(iter(found), None)

    def choices(self) -> list[Choice]:
        """Return what can be chosen, from above."""
        models = [Choice("model", str(model["id"])) for model in self.models()]
        models += [Choice("model", str(model["id"]), str(node["name"])) for node, model in self.elsewhere()]
        return [*models, *(Choice("request", str(one["id"])) for one in self.requests)]

    def models(self) -> list[Json]:
        """Return this node's models that have an engine, or had one that failed."""
        return [model for model in self.status.get("models") or () if model["state"] in _BUSY]

    def pins(self, choice: Choice) -> bool:
        """Return whether a model is pinned."""
        found = [("", model) for model in self.models()]
        found += [(str(node["name"]), model) for node, model in self.elsewhere()]
        return any(
            bool(model.get("pinned")) for node, model in found if (node, model["id"]) == (choice.node, choice.id)
        )

    def elsewhere(self) -> list[tuple[Json, Json]]:
        """Return the same of other nodes, each with its node."""
        return [(node, model) for node in self.nodes[1:] for model in node["models"] if model["state"] in _BUSY]


@dataclass(frozen=True)
class Choice:
    """A line that is chosen: a model by its id, or a request by its number. node: empty for this one."""

    kind: Kind
    id: str
    node: str = ""


@dataclass(frozen=True)
class View:
    """What a person has chosen, what was done last, and what waits for a yes."""

    choice: Choice | None = None
    message: str = ""
    question: str = ""

    def moved(self, snapshot: Snapshot, by: int) -> View:
        """Return the view with another line chosen, so many below."""
        found = snapshot.choices()
        if not found:
            return self
        place = found.index(snapshot.chosen(self) or found[0])
        return replace(self, choice=found[min(max(place + by, 0), len(found) - 1)], message="")


@dataclass(frozen=True)
class Line:
    """One line of the picture; `style`: how it stands out."""

    text: str
    style: Literal["", "bold", "dim", "chosen"] = ""


def picture(snapshot: Snapshot, view: View, width: int, height: int) -> list[Line]:
    """Return at most `height` lines of at most `width` columns: daemon, devices, models, requests, keys."""
    below = [Line(view.question, "bold") if view.question else Line(view.message), Line(_KEYS, "dim")]
    devices = _fitting(list(_devices(snapshot)), height // 2)
    room = max(height - len(devices) - _FIXED, 2)
    above = [Line(_title(snapshot), "bold"), *devices, Line(""), *_tables(snapshot, view, room)]
    lines = [*above[: max(height - len(below), 0)], *below]
    return [replace(line, text=clipped(one_line(line.text), width)) for line in lines[-height:]]


def _title(snapshot: Snapshot) -> str:
    status = snapshot.status
    engine = status.get("engine") or {}
    told = [f"llama-supervisor {status.get('version')}", str(status.get("url") or "")]
    told += [f"up {since(status['started_at'], snapshot.now)}"] if status.get("started_at") else []
    told += [f"llama.cpp b{engine['build']}"] if engine.get("build") else []
    together = sum(request.get("tokens_per_second") or 0.0 for request in snapshot.requests)
    told += [speed(together)] if together else []
    told += ["stopping"] if status.get("stopping") else []
    return " · ".join(filter(None, told))


def _fitting(lines: list[Line], most: int) -> list[Line]:
    """Return at most so many lines, and how many more there are."""
    if len(lines) <= max(most, 2):
        return lines
    kept = max(most, 2) - 1
    return [*lines[:kept], Line(f"… {len(lines) - kept} more lines of devices", "dim")]


def _devices(snapshot: Snapshot) -> Iterator[Line]:
    """Yield a bar for each device: what our engines hold, what others do, and what is free; by node in a cluster."""
    first, *others = snapshot.nodes or ({},)
    if first:
        yield _heading(first)
    yield from _devices_here(snapshot)
    for node in others:
        yield _heading(node)
        if node["asked"]:
            yield from _devices_of(node)


def _heading(node: Json) -> Line:
    told = [name_of(node), str(node["state"])]
    if node["asked"]:
        told.append(f"requests: {node['requests']}")
    elif node["state"] != "away":
        told += [f"{node['why']}, as it last told"]
        told += [] if node["free_bytes"] is None else [f"{size(node['free_bytes'])} free for models"]
    return Line(" · ".join(told), "bold")


def _devices_of(node: Json) -> Iterator[Line]:
    """Yield a bar for each device of another node."""
    devices = [(_HOSTS.get(one["name"], str(one["name"])), one) for one in node["devices"]]
    width = max((columns_of(name) for name, _ in devices), default=0)
    for name, one in devices:
        ours = sum(held[part] for held in one["held"] for part in _HELD)
        yield Line(f"{name:<{width}}  {_bar(one, ours)}")


def _devices_here(snapshot: Snapshot) -> Iterator[Line]:
    host = snapshot.devices.get("host")
    found = [one for one in snapshot.devices.get("devices") or () if one.get("usable_bytes") is not None]
    if host:
        found.append({**host, "name": "host", "free_bytes": host.get("available_bytes")})
    width = max((columns_of(str(one["name"])) for one in found), default=0)
    for one in found:
        yield Line(f"{one['name']:<{width}}  {_bar(one, _ours(snapshot, one['name']))}")


def _bar(device: Json, ours: int) -> str:
    total, free = device.get("total_bytes"), device.get("free_bytes")
    if not total or free is None:
        return "nothing is known of its memory"
    used = max(total - free, 0)
    filled = min(round(_BAR * used / total), _BAR)
    own = min(round(_BAR * min(ours, used) / total), filled)
    load = device.get("utilization_percent")
    told = f"{size(used)} of {size(total)}, ours {size(ours)}" + ("" if load is None else f", busy {load} %")
    return f"{'█' * own}{'▒' * (filled - own)}{'·' * (_BAR - filled)}  {told}"


def _ours(snapshot: Snapshot, name: str) -> int:
    """Return the bytes that our engines hold on a device; on the host what their processes take."""
    models = snapshot.models()
    if name == "host":
        return sum(model.get("rss_bytes") or 0 for model in models)
    return sum((model.get("footprint") or {}).get(name, 0) for model in models)


def _tables(snapshot: Snapshot, view: View, room: int) -> Iterator[Line]:
    chosen = snapshot.chosen(view)
    choices = snapshot.choices()
    headers, models = _models(snapshot)
    requests = list(snapshot.requests)
    wanted, below = max(len(models), 1), max(len(requests), 1)
    second = min(below, max(room // 2, room - wanted))
    place = choices.index(chosen) if chosen in choices else -1
    yield from _table(headers, models, place if place < len(models) else -1, room - second)
    yield Line("")
    rows = [request_row(one, snapshot.now) for one in requests]
    yield from _table(REQUEST_HEADERS, rows, place - len(models), second)


def _models(snapshot: Snapshot) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return the table of models; in a cluster with the node of each."""
    own = [model_row(one, snapshot.now) for one in snapshot.models()]
    if not snapshot.nodes:
        return MODEL_HEADERS, own
    here = name_of(snapshot.nodes[0])
    others = [(name_of(node), *model_row(one, snapshot.now)) for node, one in snapshot.elsewhere()]
    return ("NODE", *MODEL_HEADERS), [*((here, *row) for row in own), *others]


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], place: int, most: int) -> Iterator[Line]:
    """Yield the head and as many rows as there is room for, that at `place`, which is chosen, among them.

    place: below 0 where none is chosen.
    """
    safe = [[one_line(cell) for cell in row] for row in rows]
    head, *lines = laid_out(headers, safe, None)
    yield Line(f"  {head.text}", "bold")
    if not rows:
        yield Line("  none", "dim")
    begin = max(min(place - most + 1, len(rows) - most), 0)
    for number, line in enumerate(lines[begin : begin + most], begin):
        yield Line(f"{'›' if number == place else ' '} {line.text}", "chosen" if number == place else "")
    if begin + most < len(rows):
        yield Line(f"  … {len(rows) - begin - most} more", "dim")
