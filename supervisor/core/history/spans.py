"""A relayed request as a trace: what its span is called, its attributes, and its parts.

Names are those of OpenTelemetry's conventions for generative AI and for HTTP, where these have one; others begin with
`llama_supervisor.`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.core.history.records import Finished

Value = str | bool | int | float | tuple[str, ...]
"""The value of an attribute."""

Operation = str
"""`gen_ai.operation.name`: of a row of the table of paths; empty where nothing is generated."""

_OWN: Final = "llama_supervisor."
_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class Loaded:
    """A load of a model. Times are seconds since 1970; ended: None while it goes on. code: why it failed."""

    began: float
    ended: float | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a request: `queue`, `load`, `prefill`, `decode`. Times are seconds since 1970."""

    name: str
    began: float
    ended: float
    attributes: Mapping[str, Value]
    error: str | None = None


def name_of(record: Finished, operation: Operation) -> str:
    """Return the span's name: of few different values."""
    return f"{operation or f'POST {record.path}'} {record.model or ''}".rstrip()


def error_of(record: Finished) -> str | None:
    """Return the code where the request failed by the server's fault, or in the middle of its answer."""
    ours = record.status >= _SERVER_ERROR or record.status < 400
    return record.code if ours else None


def attributes_of(record: Finished, operation: Operation) -> dict[str, Value]:
    """Return what is known of a request that has ended."""
    spent = record.spent
    known: dict[str, Value | None] = {
        "http.route": record.path,
        "http.response.status_code": record.status,
        "error.type": record.code,
        "user_agent.original": record.client or None,
        "gen_ai.operation.name": operation or None,
        "gen_ai.provider.name": "llama.cpp" if operation else None,
        "gen_ai.request.model": record.model,
        "gen_ai.request.stream": record.stream,
        "gen_ai.response.finish_reasons": (spent.finish,) if spent.finish else None,
        "gen_ai.response.time_to_first_chunk": record.first,
        "gen_ai.usage.input_tokens": spent.prompt_tokens,
        "gen_ai.usage.output_tokens": spent.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": spent.cached_tokens,
        f"{_OWN}request_id": record.request_id,
        f"{_OWN}key": record.key,
        f"{_OWN}tool_calls": record.calls or None,
    }
    return _known(known)


def parts_of(record: Finished, load: Loaded | None) -> Iterator[Part]:
    """Yield the parts that a request had. load: the last one of its model."""
    end = record.at + record.seconds
    if record.model is None:
        return
    engine = end if record.queued is None else record.at + record.queued
    yield Part("queue", record.at, engine, {})
    if load is not None and load.began < engine and (load.ended or engine) > record.at:
        yield Part("load", max(load.began, record.at), min(load.ended or engine, engine), {}, load.code)
    if record.queued is None:
        return
    first = end if record.first is None else max(engine, record.at + record.first)
    yield Part("prefill", engine, first, _of_prefill(record))
    if record.first is not None:
        yield Part("decode", first, max(first, end), _of_decode(record))


def _of_prefill(record: Finished) -> Mapping[str, Value]:
    spent = record.spent
    return _known({
        "gen_ai.usage.input_tokens": spent.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": spent.cached_tokens,
        f"{_OWN}engine_ms": spent.prompt_ms,
    })


def _of_decode(record: Finished) -> Mapping[str, Value]:
    spent = record.spent
    return _known({
        "gen_ai.usage.output_tokens": spent.completion_tokens,
        f"{_OWN}engine_ms": spent.predicted_ms,
    })


def _known(values: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value is not None}
