"""A plan as JSON beside engines that live, on a machine that is always the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.config import Settings
from supervisor.core.plan import Resident
from supervisor.pool.living import Beside
from supervisor.probe.profiles import load_profile
from supervisor.service.build import plans_alone, without_daemon
from supervisor.service.resolve import Asked
from supervisor.system.paths import places

pytestmark = pytest.mark.anyio

GIB = 1 << 30
# all of the card and all of the memory of 1x8gb but a bit
FULL = {"CUDA0": int(7.2 * GIB), "CPU": int(26.9 * GIB)}


async def plan(model: Path, *residents: Resident) -> dict[str, Any]:
    where = places({"HOME": str(model.parent), "XDG_RUNTIME_DIR": str(model.parent)})
    with without_daemon(Settings(), where, {"PATH": "/usr/bin:/bin"}, load_profile("1x8gb")) as parts:
        return await plans_alone(parts, Beside(residents)).plan(Asked(str(model), "mine"))


async def test_an_idle_engine_would_leave(demo_model: Path) -> None:
    alone = await plan(demo_model)
    assert (alone["devices"], alone["evict"]) == (["CUDA0"], [])
    found = await plan(demo_model, Resident(7, "other", FULL, evictable=True))
    assert (found["fits"], found["evict"], found["evict_models"]) == (True, [7], ["other"])
    assert found["parts"] == alone["parts"]


async def test_a_busy_one_is_named(demo_model: Path) -> None:
    found = await plan(demo_model, Resident(7, "other", {**FULL, "CPU": 40 * GIB}))
    assert (found["fits"], found["later"]) == (False, True)
    assert (found["blockers"], found["blocking_models"]) == ([7], ["other"])


async def test_engines_of_the_model_itself_count_as_gone(demo_model: Path) -> None:
    assert await plan(demo_model, Resident(7, "mine", FULL)) == await plan(demo_model)
