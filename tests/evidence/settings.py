"""The ways a model is started for the evidence."""

from __future__ import annotations

from dataclasses import dataclass

UNMAPPED = "-lm none"
"""Weights are read, not mapped: the log has the size of the tensors, instead of a span of the file."""


@dataclass(frozen=True)
class Setting:
    """Flags of llama-server under a short name; `devices` is how many GPUs, or RPC workers in their place."""

    name: str
    flags: str
    devices: int = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(self.flags.split())


TEN: tuple[Setting, ...] = (
    Setting("auto", f"-c 4096 {UNMAPPED}"),
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
"""For every fixture, on the CPU."""

MORE: tuple[Setting, ...] = (
    Setting("np5", "-c 9000 -np 5"),
    Setting("ub1024", "-c 12288 -np 2 -ub 1024"),
    Setting("long", "-c 32768 -np 1"),
    Setting("kvu-q8", "-c 6000 -np 4 -kvu -ctk q8_0 -ctv q8_0"),
    Setting("kvu-faoff", "-c 4096 -np 3 -kvu -fa off"),
)
"""Further ones, for fixtures whose dimensions are drawn: some of these and of `TEN` each."""

NEXTN: tuple[Setting, ...] = (
    Setting("mtp", f"-c 4096 --spec-type draft-mtp {UNMAPPED}"),
    Setting("mtp-np2", "-c 4096 -np 2 --spec-type draft-mtp --spec-draft-n-max 2 -ctk q8_0 -ctv q8_0"),
)
"""For fixtures with a block that predicts further tokens, which the others leave out."""

ONE_DEVICE: tuple[Setting, ...] = (
    Setting("8k", "-c 8192 -np 1", 1),
    Setting("32k", "-c 32768 -np 1", 1),
    Setting("8k-ub2048", "-c 8192 -np 1 -ub 2048", 1),
    Setting("8k-auto", "-c 8192", 1),
    Setting("32k-np4-q8", "-c 32768 -np 4 -ctk q8_0 -ctv q8_0", 1),
    Setting("8k-faoff", "-c 8192 -np 1 -fa off", 1),
    Setting("8k-cpu", "-c 8192 -np 1"),
)
"""For every known model."""

TWO_DEVICES: tuple[Setting, ...] = (
    Setting("2dev-equal", "-c 8192 -np 1 -ts 1,1", 2),
    Setting("2dev-3:1", "-c 8192 -np 1 -ts 3,1", 2),
    Setting("2dev-ngl20", "-c 8192 -np 1 -ts 1,1 -ngl 20", 2),
    Setting("2dev-nkvo", "-c 8192 -np 1 -ts 2,3 -nkvo", 2),
)
TWO_DEVICES_EXPERTS: tuple[Setting, ...] = (
    Setting("2dev-cmoe", "-c 8192 -np 1 -ts 1,1 -cmoe", 2),
    Setting("2dev-ncmoe10", "-c 8192 -np 1 -ts 1,1 -ncmoe 10", 2),
    Setting("2dev-ngl30-ncmoe20", "-c 8192 -np 1 -ts 1,2 -ngl 30 -ncmoe 20", 2),
)
"""The weights of a layer go to its device, with exceptions: for known models of several kinds."""

PARTS: tuple[Setting, ...] = (
    Setting("1dev-ngl20", "-c 8192 -np 1 -ngl 20", 1),
    Setting("1dev-nkvo", "-c 8192 -np 1 -nkvo", 1),
    Setting("32k-ngl20", "-c 32768 -np 1 -ngl 20", 1),
    Setting("128k-nkvo", "-c 131072 -np 1 -nkvo", 1),
    Setting("32k-np4-nkvo", "-c 32768 -np 4 -nkvo", 1),
    Setting("2dev-np4", "-c 8192 -np 4 -ts 1,1", 2),
    Setting("3dev-equal", "-c 8192 -np 1 -ts 1,1,1", 3),
    Setting("2dev-32k-nkvo", "-c 32768 -np 1 -ts 1,1 -nkvo", 2),
)
PARTS_EXPERTS: tuple[Setting, ...] = (
    Setting("1dev-cmoe", "-c 8192 -np 1 -cmoe", 1),
    Setting("1dev-ncmoe10", "-c 8192 -np 1 -ncmoe 10", 1),
    Setting("1dev-noop-cmoe", "-c 8192 -np 1 -cmoe --no-op-offload", 1),
    Setting("32k-nkvo-cmoe", "-c 32768 -np 1 -nkvo -cmoe", 1),
    Setting("32k-nkvo-noop-cmoe", "-c 32768 -np 1 -nkvo -cmoe --no-op-offload", 1),
)
"""Further ones for devices of a back end, where operations with the host's weights may run on a device."""

SMALL: tuple[Setting, ...] = (
    Setting("1dev-np1", "-c 16384 -np 1", 1),
    Setting("1dev-np3", "-c 5000 -np 3", 1),
    Setting("1dev-q8", "-c 4096 -np 2 -ctk q8_0 -ctv q8_0", 1),
    Setting("1dev-faoff", "-c 4096 -np 2 -fa off", 1),
    Setting("1dev-ngl4", "-c 4096 -np 1 -ngl 4", 1),
    Setting("2dev-np1", "-c 16384 -np 1 -ts 1,1", 2),
)
SMALL_EXPERTS: tuple[Setting, ...] = (
    Setting("1dev-ncmoe3", "-c 16384 -np 1 -ncmoe 3", 1),
    Setting("2dev-ncmoe3", "-c 16384 -np 1 -ts 1,1 -ncmoe 3", 2),
)
"""For fixtures on devices of a back end."""

EVERY = {
    setting.name: setting
    for settings in (
        *(TEN, MORE, NEXTN, ONE_DEVICE, TWO_DEVICES, TWO_DEVICES_EXPERTS),
        *(PARTS, PARTS_EXPERTS, SMALL, SMALL_EXPERTS),
    )
    for setting in settings
}
