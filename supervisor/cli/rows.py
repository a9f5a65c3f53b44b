"""Models and requests as rows of tables; used by `ps` and `top`."""

from __future__ import annotations

from supervisor.cli.client import Json
from supervisor.cli.render import cell, duration, size, state_word

MODEL_HEADERS = ("MODEL", "STATE", "PID", "CONTEXT", "MEMORY", "BUSY", "WAITING", "UP", "UNTIL")
REQUEST_HEADERS = ("REQUEST", "MODEL", "PATH", "STATE", "ENGINE", "FOR", "TOKENS", "SPEED")


def model_row(model: Json, now: float) -> tuple[str, ...]:
    """Return the row of a model's status; `now` in seconds since 1970."""
    return (
        model["id"],
        _state(model),
        cell(model.get("pid")),
        cell(model.get("n_ctx")),
        size(model.get("rss_bytes")),
        cell(model.get("leases")),
        cell(model.get("waiting")),
        since(model.get("loaded_at"), now),
        _until(model, now),
    )


def request_row(request: Json, now: float) -> tuple[str, ...]:
    """Return the row of a request in flight."""
    facts = (request["id"], request["model"], request["path"], request["state"])
    written = (cell(request.get("completion_tokens")), speed(request.get("tokens_per_second")))
    return (*(str(fact) for fact in facts), cell(request.get("engine")), since(request.get("since"), now), *written)


def speed(tokens_per_second: float | None) -> str:
    """Format a speed: `9.5 t/s`, `120 t/s`; `-` where nothing comes."""
    return f"{tokens_per_second:.{1 if tokens_per_second < 100 else 0}f} t/s" if tokens_per_second else "-"


def since(epoch: float | None, now: float) -> str:
    """Format how long ago it was; `-` for None."""
    return "-" if epoch is None else duration(now - epoch)


def _until(model: Json, now: float) -> str:
    """Format how long it stays: `pinned`, or what is left of its time to live; `-`: until its room is needed."""
    expires_at = model.get("expires_at")
    if model.get("pinned"):
        return "pinned"
    return "-" if expires_at is None else duration(max(0.0, expires_at - now))


def _state(model: Json) -> str:
    progress = model.get("progress")
    if model["state"] == "loading" and progress is not None:
        return f"loading {progress:.0%}"
    error = model.get("error")
    state = state_word(model["state"])
    return f"{state} ({error['code']})" if error else state
