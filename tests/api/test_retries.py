"""Which errors client libraries may repeat: of every error class it is decided, and said in the head of the answer."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from supervisor import errors
from supervisor.api.errors import headers_of
from supervisor.core.engine_output.errors import may_pass, translate
from supervisor.core.engine_output.failures import FINAL
from supervisor.errors import ModelLoadFailed, SupervisorError

# What a later try of the same request may not meet again. A new class that is none of these says `false`.
PASSING = {
    *(
        "ShuttingDown",
        "NotReady",
        "ModelLoadFailed",
        "LoadCancelled",
        "HubBusy",
        "HubUnreachable",
        "DownloadFailed",
    ),
    *("EngineLost", "EngineHung", "EngineStreamInvalid", "EngineStartFailed", "EngineStalled"),
    *("RequestTimeout", "Overloaded", "QueueFull", "BodiesFull", "RateLimited", "TakingOver"),
    *("ClusterUnavailable", "NodeLost", "NodeUnknown", "ModelMoved"),
    *("LendingFull", "TooManyConnections", "TooManyReaders", "TooManyDownloads"),
}


def made(kind: type[SupervisorError]) -> SupervisorError:
    """One of that class."""
    given: dict[str, Any] = {"message": "told", "reason": "told", "retry_after": 1.0, "offset": 0, "code": kind.code}
    wanted = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in given.items() if name in wanted})


CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SupervisorError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_a_repetition_cannot_change_is_not_repeated(kind: type[SupervisorError]) -> None:
    error = made(kind)
    repeated = error.status in {408, 409, 429} or error.status >= 499
    told = headers_of(error).get("x-should-retry")
    assert told == ("false" if repeated and kind.__name__ not in PASSING else None)


@pytest.mark.parametrize("code", sorted(FINAL))
def test_causes_that_stay_are_not_repeated(code: str) -> None:
    assert headers_of(ModelLoadFailed("told", code=code)) == {"x-should-retry": "false"}


@pytest.mark.parametrize(
    ("kind", "status", "passes"),
    [
        ("not_supported_error", 501, False),
        ("unavailable_error", 503, True),
        ("invalid_request_error", 400, True),  # no library repeats it
        ("server_error", 500, True),
        ("invalid_request_error", 500, False),
    ],
)
def test_errors_of_the_engine(kind: str, status: int, passes: bool) -> None:
    found, envelope = translate({"type": kind, "code": status, "message": "told"})
    assert may_pass(found, envelope) == passes
