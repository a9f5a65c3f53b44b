"""A device is timed with real engines on generated models, and plans say what it was measured to do."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

from supervisor.config import Settings
from supervisor.core.speed import Rates
from supervisor.core.speed.published import host_rates
from supervisor.measuring.calibrate import Calibration, Step, steady
from supervisor.measuring.maker import Shape
from supervisor.measuring.timing import Timing, read_timing
from supervisor.planning.speeds import Foreteller
from supervisor.probe.profiles import load_profile
from supervisor.service.build import plans_alone, without_daemon
from supervisor.service.resolve import Asked
from supervisor.store import Database
from supervisor.store.speeds import MeasuredSpeed, Speeds
from supervisor.system.cores import physical_cores
from supervisor.system.paths import places

pytestmark = pytest.mark.anyio

STEPS = (
    Step(Shape("f16", 64, 2, 2, 2, 128, 512), (8, 40)),
    Step(Shape("f16", 64, 2, 2, 1, 64, 512, experts=4, used=2), (8,)),
    Step(Shape("f16", 64, 4, 2, 2, 64, 512), (8,), small=True),
)


@pytest.mark.engine
async def test_a_host_is_timed(tmp_path: Path, engine_binary: Path) -> None:
    told: list[tuple[int, int]] = []
    where = places({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)})
    calibration = Calibration(
        engine_binary, where, dict(os.environ), threads=1, told=lambda *step: told.append(step), todo=STEPS
    )
    found = await calibration.rates()
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert found.source == "measured"
    assert found.seconds.keys() >= {"read:f16", "multiply_many:f16", "layer", "attend", "vocabulary"}
    assert "read:small" not in found.seconds
    assert min(found.seconds.values()) >= 0
    assert list(where.cache.glob("timed-*")) == []


async def test_a_plan_says_what_was_measured_else_a_first_guess(tmp_path: Path, demo_model: Path) -> None:
    where = places({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)})
    measured = {kind: seconds * 3 for kind, seconds in host_rates(1).seconds.items()}

    async def speed() -> dict[str, object]:
        with without_daemon(Settings(), where, {"PATH": "/usr/bin:/bin"}) as parts:
            found = await plans_alone(parts).plan(Asked(str(demo_model), "mine"))
        assert isinstance(found["speed"], dict)
        return found["speed"]

    assert (await speed())["from"] == "published"
    with contextlib.closing(Database.open(where.database)) as database:
        Speeds(database).record(MeasuredSpeed("another", "CPU", physical_cores(), Rates(measured, "measured"), 1.0))
    assert (await speed())["from"] == "measured"


def test_what_the_host_did_with_other_threads_is_a_guess(tmp_path: Path) -> None:
    with contextlib.closing(Database.open(tmp_path / "state.db")) as database:
        speeds, foreteller = Speeds(database), Foreteller(database, 4)
        for threads, seconds in ((4, 1.0), (8, 0.5)):
            speeds.record(MeasuredSpeed("mine", "CPU", threads, Rates({"layer": seconds}, "measured"), 1.0))

        def host(threads: int | None) -> tuple[float, str, int]:
            found = foreteller.rates([], "mine", threads)
            return found.devices["CPU"].of("layer"), found.devices["CPU"].source, found.threads

        assert (host(None), host(4), host(8)) == ((1.0, "measured", 4), (1.0, "measured", 4), (0.5, "measured", 8))
        assert (host(2), host(12)) == ((2.0, "published", 2), (0.5, "published", 12))


async def test_a_run_that_others_disturbed_is_repeated() -> None:
    """Until two are alike, ten times at most."""

    async def repeated(*seconds: float) -> int:
        left = iter(seconds)

        async def again() -> Timing:
            taken = next(left)
            return Timing(10, taken, 5, taken)

        return len(await steady(again))

    assert await repeated(1.0, 1.01) == 2
    assert await repeated(3.0, 1.0, 2.0, 1.02) == 4
    assert await repeated(*(2.0**step for step in range(10))) == 10


async def test_a_machine_of_a_profile_is_only_guessed(tmp_path: Path, demo_model: Path) -> None:
    where = places({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)})
    with without_daemon(Settings(), where, {"PATH": "/usr/bin:/bin"}, load_profile("1x8gb")) as parts:
        found = await plans_alone(parts).plan(Asked(str(demo_model), "mine"))
    assert isinstance(found["speed"], dict)
    assert found["speed"]["from"] == "published"


def test_a_token_takes_the_middle_of_all_steps() -> None:
    ends = (0.5, 10.5, 20.5, 1020.5, 1030.5)
    timings = [
        {"prompt_n": 7, "prompt_ms": 35.0, "predicted_n": n, "predicted_ms": end} for n, end in enumerate(ends, 1)
    ]
    stream = b"".join(b"data: %s\n\n" % json.dumps({"timings": one}).encode() for one in timings) + b"data: [DONE]\n\n"
    assert read_timing(stream) == Timing(7, 0.035, 4, 0.01)


@pytest.mark.parametrize("stream", [b"", b"data: {}\n\n", b'data: {"timings": {}}\n\n', b"data: {\n\n"])
def test_an_answer_without_times_is_no_timing(stream: bytes) -> None:
    with pytest.raises((LookupError, ValueError)):
        read_timing(stream)
