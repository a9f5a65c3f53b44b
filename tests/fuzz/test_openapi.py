"""Every call, with what the OpenAPI schema allows and what it does not, of a daemon with a real engine.

No answer is a fault of the program, each is as the schema says, what the schema forbids is refused, and methods that a
path does not have are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

from supervisor.core.routes import ASKED as ASKED_PATHS
from supervisor.core.routes import SERVED, UPSTREAM
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.patience import PATIENCE
from tests.support.routes import code_of
from tests.support.schemas import schema

pytestmark = pytest.mark.engine

FEW, MANY = 8, 150
POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
KEY = "key-of-the-configuration"
ENDS_THE_DAEMON = "POST /api/v1/shutdown"
TAKES_MINUTES = "POST /api/v1/engines"  # it downloads and compiles; tests/api/test_engines.py asks it
HAS_NO_END = {"GET /api/v1/events", "GET /models/sse"}
LOGS = "GET /api/v1/logs"  # has no end with `follow`, whichever spelling of true that has
TARGETS = st.sampled_from(["demo", "other", "nobody", "/nowhere.gguf", "owner/repo:Q4_0", "ollama:x"])
"""What a field that names a model says in most of the cases that the schema allows."""
NO_CHECKS = {
    "not_a_server_error": "503 and 507 are answers, and so is an engine's own 500; ours is looked for here",
    "positive_data_acceptance": "no schema says which models there are, or what a template takes",
    "ignored_auth": "tests/api/test_keys.py",
    "use_after_free": "needs calls in a row",
    "ensure_resource_availability": "needs calls in a row",
    "object_level_authorization": "needs two users",
}
OF_RELAYED = {"negative_data_rejection": "the engine judges its requests, and takes some that lack everything"}
RELAYED = {*SERVED, *(row.path for row in ASKED_PATHS)}

load_all_checks()
API = schemathesis.openapi.from_dict(schema())
OPERATIONS = {one.label: one for one in (found.ok() for found in API.get_all_operations() if isinstance(found, Ok))}
ASKED = sorted(OPERATIONS.keys() - HAS_NO_END - {ENDS_THE_DAEMON, TAKES_MINUTES})


def can_be_wrong(label: str) -> bool:
    """Whether a call takes anything that is not right in any form."""
    one = OPERATIONS[label]
    said = schema()["paths"][one.path][one.method]
    takes = bool(said.get("parameters") or said.get("requestBody"))
    return takes and label != LOGS and not one.path.startswith(UPSTREAM)


CASES = [(label, POSITIVE) for label in ASKED if label != TAKES_MINUTES] + [
    (label, NEGATIVE) for label in ASKED if can_be_wrong(label)
]


@pytest.fixture(scope="module")
def daemon(engine_binary: Path) -> Iterator[RunningDaemon]:
    more = {"models": {"other": {"file": "/nowhere/other.gguf"}}, "server": {"api_keys": [KEY]}}
    with scratch_home() as home, running_daemon(home, engine_binary, more) as running:
        yield running


def aimed(case: Any) -> st.SearchStrategy[Any]:
    """The same call, or that for a model which is there, or might be."""
    name = next((key for key in ("target", "model") if isinstance(case.body, dict) and key in case.body), None)
    if name is None:
        return st.just(case)
    return st.one_of(st.none(), TARGETS, TARGETS).map(lambda target: case if target is None else at(case, name, target))


def at(case: Any, name: str, target: str) -> Any:
    case.body = {**case.body, name: target}
    return case


def is_of_the_engine(answer: Any) -> bool:
    """Whether the engine answered: it has 500 for much that is wrong with a request, and its own words for it.

    Ollama's API has 500 for what does not fit, too.
    """
    return code_of(answer) in {"engine_error", "does_not_fit"}


def calls(label: str, mode: GenerationMode) -> st.SearchStrategy[Any]:
    """Cases of one operation."""
    found = OPERATIONS[label].as_strategy(generation_mode=mode)
    return found.flatmap(aimed) if mode is POSITIVE else found


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
@pytest.mark.parametrize(("label", "mode"), CASES, ids=lambda one: getattr(one, "value", one))
def test_no_call_is_a_fault_of_the_program(
    daemon: RunningDaemon, label: str, mode: GenerationMode, examples: int
) -> None:
    unchecked = NO_CHECKS.keys() | (OF_RELAYED.keys() if OPERATIONS[label].path in RELAYED else set())
    checks = [one for one in CHECKS.get_all() if one.__name__ not in unchecked]

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=calls(label, mode))
    def ask(case: Any) -> None:
        if label == LOGS:
            case.query = {**case.query, "follow": False}
        answer = case.call(base_url=daemon.url, headers={"authorization": f"Bearer {KEY}"}, timeout=PATIENCE)
        assert answer.status_code != 500 or is_of_the_engine(answer), answer.text
        too_large = answer.status_code == 413  # a rejection, though not one of those that the check knows
        fitting = [one for one in checks if not (too_large and one.__name__ in OF_RELAYED)]
        case.validate_response(answer, checks=fitting)

    ask()


def test_what_is_not_checked_is_known() -> None:
    assert {one.__name__ for one in CHECKS.get_all()} >= NO_CHECKS.keys()


def test_the_daemon_lives_on(daemon: RunningDaemon) -> None:
    assert daemon.http.get("/health").json() == {"status": "ok"}
    assert "Internal error" not in (daemon.home / "daemon-output.log").read_text()
