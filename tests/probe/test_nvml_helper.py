"""The helper's process, with a stand-in for NVIDIA's bindings: what it writes is what the core reads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from supervisor.core.devices.nvidia import parse_nvml
from supervisor.core.devices.visibility import cuda_visible
from supervisor.probe import drivers
from supervisor.probe.places import Surroundings

FAKE = Path(__file__).parents[1] / "fakes/pynvml.py"


def test_what_the_helper_writes_is_read(tmp_path: Path) -> None:
    shutil.copy(FAKE, tmp_path)  # alone in its folder, so that nothing else is found there
    found = drivers.nvidia(Surroundings({**os.environ, "PYTHONPATH": str(tmp_path)}, limit_s=20))
    assert found == parse_nvml(
        """{"gpus": [
        {"name": "NVIDIA A100-SXM4-40GB", "uuid": "GPU-a", "pci": "0000:81:00.0", "total": 40000, "free": 30000,
         "capability": [8, 0], "mig": [{"name": "NVIDIA A100 MIG 3g.20gb", "uuid": "MIG-c", "total": 20000,
                                        "free": 15000, "processes": [[7, 5000]]}]},
        {"name": "NVIDIA GB10", "uuid": "GPU-b", "pci": "000f:01:00.0", "total": null, "free": null,
         "capability": [12, 1], "utilization": 12, "temperature": 40}]}"""
    )
    assert found[1].shares_host
    assert [gpu.uuid for gpu in cuda_visible({"CUDA_VISIBLE_DEVICES": "0"}, found[:1]).gpus] == ["MIG-c"]
