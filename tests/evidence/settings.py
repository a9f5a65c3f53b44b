"""The ways a model is started for the evidence: ten that decide the cache, and some for the compute buffer alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """Flags of llama-server under a short name."""

    name: str
    flags: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(self.flags.split())


TEN = (
    Setting("auto", "-c 4096"),
    Setting("np1", "-c 4096 -np 1"),
    Setting("np3", "-c 5000 -np 3"),
    Setting("kvu", "-c 8192 -np 2 -kvu"),
    Setting("q8", "-c 4096 -np 2 -ctk q8_0 -ctv q8_0"),
    Setting("q4", "-c 3000 -np 1 -ctk q4_0 -ctv q4_1"),
    Setting("swafull", "-c 4096 -np 2 --swa-full"),
    Setting("faoff", "-c 4096 -np 2 -fa off"),
    Setting("ub256", "-c 4096 -np 2 -kvu -ub 256"),
    Setting("np8", "-c 1000 -np 8 -b 512 -ub 128"),
)
BY_NAME = {setting.name: setting for setting in TEN}
