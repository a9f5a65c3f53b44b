"""Progress: the time that is left of a stage, and how an installation is told."""

from __future__ import annotations

import pytest

from supervisor.cli.installing import teller
from supervisor.cli.progress import TimeLeft
from supervisor.llamacpp.progress import Progress


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("spent", "fraction", "text"),
    [
        (30.0, 0.01, ""), (1.0, 0.5, ""), (60.0, 1.0, ""), (30.0, 0.5, "about 30 s left"),
        (10.0, 0.9, "about 10 s left"),
        (61.0, 0.5, "about 70 s left"), (60.0, 0.1, "about 9 min left"), (600.0, 0.05, "about 3 h left"),
    ],
)  # fmt: skip
def test_it_goes_on_as_it_went(spent: float, fraction: float, text: str) -> None:
    clock = Clock()
    left = TimeLeft(clock)
    assert left.text(0.0) == ""
    clock.now += spent
    assert left.text(fraction) == text


def test_a_new_stage_begins_anew() -> None:
    clock = Clock()
    left = TimeLeft(clock)
    left.text(0.0)
    clock.now += 1000
    assert left.text(0.5) == "about 17 min left"
    assert left.text(0.1) == "", "less than before: another file"
    clock.now += 10
    assert left.text(0.55) == "about 10 s left"
    assert left.text(None) == ""
    clock.now += 5
    assert left.text(0.9) == "", "after a stage that nobody can measure"


def test_a_build_is_told_every_tenth_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock, told = Clock(), list[tuple[str, float | None]]()
    tell = teller(lambda text, fraction: told.append((text, fraction)), TimeLeft(clock))
    tell(Progress("configure", None, "llama.cpp for cpu"))
    for step in range(0, 101, 2):
        tell(Progress("compile", step / 100, f"file {step}"))
        clock.now += 6
    assert [text for text, _ in told][:4] == [
        "configure: llama.cpp for cpu",
        "compile 0 %",
        "compile 10 %, about 5 min left",
        "compile 20 %, about 4 min left",
    ]
    assert len(told) == 12
