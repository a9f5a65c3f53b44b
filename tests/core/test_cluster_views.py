"""What a node says of itself when it is asked: read within bounds, whatever comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.core.cluster.messages import MOST_MODELS, NotUnderstood
from supervisor.core.cluster.views import MOST_DEVICES, DeviceView, Holding, ModelView, View, view_of

DEVICE = {"name": "CUDA0", "total_bytes": 1 << 34}
MODEL = {"id": "m", "state": "ready"}


def test_what_is_said_is_what_is_read() -> None:
    held = Holding("m", weights_bytes=5, measured=True)
    device = DeviceView("CUDA0", 1 << 34, "cuda", "a card", free_bytes=7, others_bytes=1, usable_bytes=6, held=(held,))
    model = ModelView("m", "loading", stage="weights", progress=0.5, waiting=2, leaves_s=3.5, code="load_failed")
    view = View((device,), (model,), requests=3)
    assert view_of(msgspec.json.decode(msgspec.json.encode(view))) == view


def test_a_node_of_another_version_is_understood() -> None:
    assert view_of({}) == View()
    newer = {"devices": [{**DEVICE, "colour": "red"}], "models": [{**MODEL, "more": [1]}], "requests": 1, "new": {}}
    assert view_of(newer) == View((DeviceView("CUDA0", 1 << 34),), (ModelView("m", "ready"),), 1)


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        "view",
        {"requests": -1},
        {"requests": 1.5},
        {"requests": 1 << 70},
        {"devices": [DEVICE] * (MOST_DEVICES + 1)},
        {"models": [MODEL] * (MOST_MODELS + 1)},
        {"devices": [{**DEVICE, "name": "x" * 256}]},
        {"devices": [{**DEVICE, "total_bytes": -1}]},
        {"devices": [{**DEVICE, "held": [{"model": 7}]}]},
        {"models": [{**MODEL, "id": ""}]},
        {"models": [{**MODEL, "id": "x" * 1025}]},
        {"models": [{**MODEL, "state": None}]},
        {"models": [{**MODEL, "progress": 2}]},
        {"models": [{**MODEL, "loaded_s": -1}]},
        {"models": [{**MODEL, "code": "x" * 65}]},
        {"models": [{"id": "m"}]},
    ],
)
def test_what_is_out_of_bounds_is_refused(said: Any) -> None:
    with pytest.raises(NotUnderstood):
        view_of(said)
