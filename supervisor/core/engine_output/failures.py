"""Find the cause of a failed start in the engine's last words and its exit: a stable code and an instruction.

The patterns are llama.cpp's own messages (b11434), the loader's and the kernel's. The first cause in `_RULES` that a
line fits decides: what follows from another failure comes after it. Without a fitting line there is no cause; the
caller has the exit status and the lines themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from supervisor.core.engine_output.shortage import HOST, find_shortage

OUT_OF_MEMORY = "out_of_memory"
KILLED = "engine_killed"
CRASHED = "engine_crashed"
PROJECTOR = "projector_failed"
DRAFT = "draft_failed"
FLASH_ATTENTION = "flash_attn_unsupported"
ARCHITECTURE = "architecture_unknown"
FILE = "model_file_broken"
OPTION = "launch_option_refused"
LIBRARY = "library_missing"
SOCKET = "socket_unusable"
UNSUPPORTED = "device_unsupported"
DEVICE_LOST = "device_lost"
WORKER = "rpc_worker_lost"

_ILLEGAL_SIGNAL = 4
_CRASHES: Mapping[int, str] = {7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
_KILL_SIGNAL = 9
_LONGEST = 1000  # characters of a line that are looked at; the model's own names may make one longer
_NOT_FOUND = 127  # of a shell, and of the dynamic loader

CODES: Mapping[str, str] = {
    OUT_OF_MEMORY: "Close other programs that use the device, choose a smaller ctx_size, a smaller cache type or a "
    "smaller quantisation, or let fewer layers go there (n_gpu_layers).",
    KILLED: "The kernel probably ended it because the machine, or its control group, ran out of memory: close other "
    "programs that use it, raise the limit, or choose a smaller context or model.",
    CRASHED: "That is a fault of the engine or of a driver: try another build (`supervisor engine install`), a newer "
    "driver, repack: false, or flash_attn: off; the engine's log may say where it was.",
    PROJECTOR: "Use the projector (mmproj) that was published with this very model, download it again if it is "
    "damaged, or set mmproj_auto: false for text only.",
    DRAFT: "Check spec_draft_model: it must be a whole GGUF file of an architecture that this engine knows, with the "
    "vocabulary of the model; or leave it out.",
    FLASH_ATTENTION: "Set flash_attn: off; then the V cache cannot be quantised (cache_type_v: f16).",
    ARCHITECTURE: "The model is newer than this engine: install a newer one with `supervisor engine install`, and "
    "choose it with `supervisor engine use`.",
    FILE: "The file is damaged, cut off or not what it claims to be: download it again, and compare its size and "
    "checksum with the source's.",
    OPTION: "Correct or remove the option that the engine names; `llama-server --help` lists what this build takes.",
    LIBRARY: "Install the library that is named, or an engine that needs none of it: `supervisor engine install`; "
    "`supervisor doctor` shows what is missing.",
    SOCKET: "The engine's socket could not be made: check that the runtime folder exists, belongs to you, is on a disk "
    "with space and has a short path.",
    UNSUPPORTED: "Use an engine that was built for this hardware: `supervisor engine install`, or `supervisor engine "
    "build` on this machine. A GPU can be left out (device).",
    DEVICE_LOST: "Look at the kernel's log for the driver's own words. A newer driver or engine, a smaller ubatch_size "
    "or flash_attn: off may help; a GPU that does not come back needs a restart of the machine.",
    WORKER: "Look at the worker's own log and start it again; it may have run out of memory. Both sides must be of one "
    "build.",
}
"""Every code, with what to do."""

MEANINGS: Mapping[str, str] = {
    OUT_OF_MEMORY: "A device, or the host, had less memory than the engine needed; the message names it.",
    KILLED: "The engine was killed from outside while it loaded, likely because memory ran out.",
    CRASHED: "The engine crashed while it loaded, and so did the other tries.",
    PROJECTOR: "The projector could not be loaded.",
    DRAFT: "The draft model could not be loaded, or does not go with the model.",
    FLASH_ATTENTION: "Flash attention does not work on this device.",
    ARCHITECTURE: "This engine does not know the model's architecture or tokenizer.",
    FILE: "The file, or an adapter's, is a well-formed GGUF, but the engine cannot load it.",
    OPTION: "The engine refuses an option or its value.",
    LIBRARY: "The engine lacks a library.",
    SOCKET: "The engine could not listen on its socket.",
    UNSUPPORTED: "The engine has no code for this GPU, or code that this processor cannot run.",
    DEVICE_LOST: "A GPU failed, or its driver gave it up, while an engine loaded or answered.",
    WORKER: "An RPC worker ended, or does not speak the engine's protocol.",
}
"""Every code, with what it means."""

# For these another try of the same thing gives the same answer.
FINAL = frozenset({ARCHITECTURE, FILE, OPTION, LIBRARY, PROJECTOR, DRAFT, FLASH_ATTENTION, UNSUPPORTED})


# These come of how it was launched: what somebody has just set may be what was wrong. Without a known cause, too.
OF_LAUNCH = frozenset({
    *(OUT_OF_MEMORY, KILLED, CRASHED, PROJECTOR, DRAFT, FLASH_ATTENTION, OPTION),
    *(UNSUPPORTED, DEVICE_LOST, WORKER),
})


@dataclass(frozen=True, slots=True)
class Cause:
    """A known cause.

    Attributes:
        code: one of `CODES`.
        what: what happened, as half a sentence.
        device: the name of the device that ran out of memory; None: it did not say, or it was not that.
        lacking: bytes of the buffer that could not be had; None likewise.
    """

    code: str
    what: str
    device: str | None = None
    lacking: int | None = None

    def named(self, names: Mapping[str, str]) -> Cause:
        """Return the cause with our name of the device. names: the engine's → ours, where they differ."""
        theirs, ours = self.device, names.get(self.device or "")
        if theirs is None or ours is None:
            return self
        return replace(self, device=ours, what=self.what.replace(theirs, f"{ours} ({theirs} to the engine)", 1))

    @property
    def message(self) -> str:
        """Sentence that says what happened and what to do."""
        return f"{self.what}. {CODES[self.code]}"


_TOO_LARGE = re.compile(r"pre-allocated tensor \((?P<tensor>[^)]{1,80})\) in a buffer \((?P<name>[^)]+)\) .*\(NONE\)")

Finder: TypeAlias = Callable[[Sequence[str]], Cause | None]


def cause_of(lines: Iterable[str], *, code: int | None = None, signal: int | None = None) -> Cause | None:
    """Return the cause of a start that failed; None if it is not known.

    Args:
        lines: what the engine wrote during this start.
        code, signal: how it ended; both None: it still ran when it was given up.
    """
    said = [line[:_LONGEST] for line in lines]
    for find in _RULES:
        found = find(said)
        if found is not None:
            return found
    if signal == _KILL_SIGNAL:
        return Cause(KILLED, "The engine was killed from outside while it loaded", HOST)
    if signal is not None and signal in _CRASHES:
        return Cause(CRASHED, f"The engine crashed while it loaded ({_CRASHES[signal]})")
    if signal == _ILLEGAL_SIGNAL:
        return Cause(UNSUPPORTED, "The engine used an instruction that this processor does not run (SIGILL)", HOST)
    if code == _NOT_FOUND:
        return Cause(LIBRARY, "The engine's program, or something it needs, was not found (exit code 127)")
    return None


def _memory(lines: Sequence[str]) -> Cause | None:
    found = find_shortage(lines)
    return None if found is None else shortage(found.device, found.lacking)


def shortage(device: str | None, lacking: int | None) -> Cause:
    """Return the cause of a buffer of `lacking` bytes that could not be had on the device; None: not known."""
    size = "" if lacking is None else f": a buffer of {lacking / (1 << 20):.0f} MiB could not be had"
    return Cause(OUT_OF_MEMORY, f"Out of memory on {device or 'a device'}{size}", device, lacking)


def _too_large(lines: Sequence[str]) -> Cause | None:
    """Return the cause of llama.cpp's abort over a tensor that is larger than any buffer of its device."""
    found = next((match for match in map(_TOO_LARGE.search, lines) if match), None)
    if found is None:
        return None
    return Cause(OUT_OF_MEMORY, f"{found['name']} takes no tensor as large as '{found['tensor']}'", found["name"])


def _rule(code: str, what: str, *patterns: str) -> Finder:
    """Return a finder of the first line that matches one of the patterns; its group fills the braces of `what`."""
    known = [re.compile(pattern) for pattern in patterns]

    def find(lines: Sequence[str]) -> Cause | None:
        for pattern in known:
            for line in lines:
                found = pattern.search(line)
                if found is not None:
                    return Cause(code, what.format(found[1]))
        return None

    return find


_RULES: tuple[Finder, ...] = (
    _rule(
        LIBRARY,
        "The engine needs {0}, which this machine lacks",
        r"error while loading shared libraries: ([^:]+):",
        r"Library not loaded: (\S+)",
        r"(?<!\S)(\S+): version `[^']+' not found",
        r"symbol lookup error: ([^:]+):",
    ),
    _memory,
    _too_large,
    _rule(
        WORKER,
        "An RPC worker failed ({0})",
        r"(Remote RPC server crashed or returned malformed response)",
        r"(Failed to connect to \S+)",
        r"(RPC handshake failed for \S+)",
        r"(RPC server version mismatch: .*)",
    ),
    _rule(
        UNSUPPORTED,
        "The engine does not support this GPU ({0})",
        r"(no kernel image is available for execution on the device)",
        r"error: (invalid device function)",
        r"error: (device kernel image is invalid)",
        r"(the provided PTX was compiled with an unsupported toolchain)",
        r"(rocBLAS error: Cannot read .*)",
    ),
    _rule(
        DEVICE_LOST,
        "The GPU failed ({0})",
        r"(device lost on \S+)",
        r"((?:vk::)?DeviceLostError|ErrorDeviceLost)",
        r"((?:VK_|UR_RESULT_|PI_|ZE_RESULT_)?ERROR_DEVICE_LOST)",
    ),
    _rule(PROJECTOR, "The projector {0} could not be loaded", r"failed to load multimodal model, '([^']*)'"),
    _rule(
        DRAFT,
        "The draft model cannot be used ({0})",
        r"failed to (load draft model, '[^']*')",
        r"failed to (create MTP context)",
        r"(draft model vocab type must match target model)",
    ),
    _rule(
        FLASH_ATTENTION,
        "Flash attention does not work here ({0})",
        r"(quantized V cache was requested, but this requires Flash Attention)",
        r"(unsupported op '?FLASH_ATTN_EXT'?)",
        r"(fattn[\w.-]*\.cuh?:\d+: \S.*)",
        r"([Ff]lash [Aa]ttention (?:is )?not supported.*)",
    ),
    _rule(
        ARCHITECTURE,
        "This engine does not know the model's {0}",
        r"unknown model (architecture: '[^']*')",
        r"unknown (pre-tokenizer type: '[^']*')",
        r"unknown (tokenizer: '[^']*')",
    ),
    _rule(
        FILE,
        "The model's file cannot be loaded: {0}",
        r"error loading model: (.*(?:not within the file bounds|corrupted|not found|wrong (?:number|shape)|missing).*)",
        r"gguf_init_from_\w+: (.*)",
        r"(failed to load lora adapter '[^']*')",
        r"(missing tensor '[^']*')",
        r"((?:illegal|invalid) split.*)",
        r"error loading model: (.*)",
    ),
    _rule(
        OPTION,
        "The engine refuses an option: {0}",
        r"error: (invalid argument: .*)",
        r"error while handling argument (.*)",
        r"(the supplied chat template is not supported).*",
        r"error: (unknown argument: .*)",
        r"(quantized V cache requires flash_attn to be enabled)",
    ),
    _rule(SOCKET, "The engine could not listen on {0}", r"couldn't bind HTTP server socket, hostname: ([^,]+)"),
    _rule(
        DEVICE_LOST,
        "The GPU failed ({0})",
        r"(?:CUDA|ROCm|HIP|MUSA) error: (.+)",
        r"what\(\): +(vk::\S+ Error\w+)",
        r"error: (.*\(\w+:kIOGPU\w+\))",
        r"(command buffer \d+ failed with status \d+)",
    ),
)
