"""Tools that answer, fail or hang; real processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from supervisor.probe.tool import Patience, ProbeFailed, run_tool
from tests.support.patience import PATIENCE

ENV = dict(os.environ)


def test_the_answer_is_what_it_prints() -> None:
    assert run_tool(["sh", "-c", "echo hello; echo noise >&2"], ENV, 5) == "hello\n"


def test_a_failure_says_why() -> None:
    with pytest.raises(ProbeFailed, match=r"sh failed \(exit status 3\): the reason"):
        run_tool(["sh", "-c", "echo the reason >&2; exit 3"], ENV, 5)
    with pytest.raises(ProbeFailed, match="no-such-tool does not start: No such file"):
        run_tool(["no-such-tool"], ENV, 5)


def test_a_tool_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(ProbeFailed, match=r"gave no answer within 3 s"):
        run_tool(["sh", "-c", f"sleep 600 & echo $$ $! > {pids}; wait"], ENV, 3)
    for pid in map(int, pids.read_text().split()):
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=PATIENCE)
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_slow_failure_is_not_repeated_for_a_while() -> None:
    clock, asked = Clock(), []

    def work() -> tuple[str, ...]:
        asked.append(clock.now)
        clock.now += 5
        raise ProbeFailed("it hangs")

    patience = Patience(clock, pause_s=300)
    assert patience.ask("nvml", work) == patience.ask("nvml", work) == ()
    assert asked == [100.0]
    (run,) = patience.runs
    assert (run.seconds, run.problem and run.problem.message) == (5.0, "it hangs")
    clock.now += 299
    patience.ask("nvml", work)
    assert len(asked) == 1
    clock.now += 2
    patience.ask("nvml", work)
    assert len(asked) == 2
    patience.forgive()
    patience.ask("nvml", work)
    assert len(asked) == 3


def test_a_failure_that_costs_nothing_is_repeated_and_forgotten() -> None:
    clock = Clock()
    patience = Patience(clock)
    answers = iter([ProbeFailed("down"), None])

    def work() -> tuple[int, ...]:
        failure = next(answers)
        if failure:
            raise failure
        clock.now += 0.25
        return (1,)

    assert patience.ask("rpc", work) == ()
    assert patience.runs[0].problem is not None
    assert patience.ask("rpc", work) == (1,)
    (run,) = patience.runs
    assert run.problem is None
    assert run.seconds == 0.25


def test_the_nvml_helper_says_so_where_there_is_no_driver(tmp_path: Path) -> None:
    """Whatever this machine has, the helper answers in its own process, quickly, and with JSON or a reason."""
    helper = Path(__file__).parents[2] / "supervisor/probe/nvml_helper.py"
    try:
        assert run_tool([sys.executable, "-P", str(helper)], ENV, 20).startswith('{"gpus": [')
    except ProbeFailed as failure:
        assert "NVML" in str(failure)  # noqa: PT017 - both outcomes are right
