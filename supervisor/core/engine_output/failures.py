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

OUT_OF_MEMORY = "out_of_memory"
KILLED = "engine_killed"
PROJECTOR = "projector_failed"
DRAFT = "draft_failed"
FLASH_ATTENTION = "flash_attn_unsupported"
ARCHITECTURE = "architecture_unknown"
FILE = "model_file_broken"
OPTION = "launch_option_refused"
LIBRARY = "library_missing"
SOCKET = "socket_unusable"
DEVICE_FAILED = "device_failed"

HOST = "CPU"
_KILL_SIGNAL = 9
_LONGEST = 1000  # characters of a line that are looked at; the model's own names may make one longer
_NOT_FOUND = 127  # of a shell, and of the dynamic loader

CODES: Mapping[str, str] = {
    OUT_OF_MEMORY: "Close other programs that use the device, choose a smaller ctx_size, a smaller cache type or a "
    "smaller quantisation, or let fewer layers go there (n_gpu_layers).",
    KILLED: "The kernel probably ended it because the machine, or its control group, ran out of memory: close other "
    "programs that use it, raise the limit, or choose a smaller context or model.",
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
    DEVICE_FAILED: "The engine is started anew, so repeat the request. If it happens again, look at what the system's "
    "log has of the GPU's driver, update that, or keep the model off the device (device, n_gpu_layers).",
}
"""Every code, with what to do."""

MEANINGS: Mapping[str, str] = {
    OUT_OF_MEMORY: "A device, or the host, had less memory than the engine needed; the message names it.",
    KILLED: "The engine was killed from outside while it loaded, likely because memory ran out.",
    PROJECTOR: "The projector could not be loaded.",
    DRAFT: "The draft model could not be loaded, or does not go with the model.",
    FLASH_ATTENTION: "Flash attention does not work on this device.",
    ARCHITECTURE: "This engine does not know the model's architecture or tokenizer.",
    FILE: "The file, or an adapter's, is a well-formed GGUF, but the engine cannot load it.",
    OPTION: "The engine refuses an option or its value.",
    LIBRARY: "The engine lacks a library.",
    SOCKET: "The engine could not listen on its socket.",
    DEVICE_FAILED: "A GPU failed, or was reset, while an engine was using it; the engine is started anew.",
}
"""Every code, with what it means."""

# For these another try of the same thing gives the same answer.
FINAL = frozenset({ARCHITECTURE, FILE, OPTION, LIBRARY, PROJECTOR, DRAFT, FLASH_ATTENTION})


# These come of how it was launched: what somebody has just set may be what was wrong. Without a known cause, too.
OF_LAUNCH = frozenset({OUT_OF_MEMORY, KILLED, PROJECTOR, DRAFT, FLASH_ATTENTION, OPTION})


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
    if code == _NOT_FOUND:
        return Cause(LIBRARY, "The engine's program, or something it needs, was not found (exit code 127)")
    return None


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────

_BUFFER = re.compile(r"failed to allocate (?P<name>\S+) buffer of (?:size )?(?P<bytes>\d{1,18})\b")
_UNABLE = re.compile(r"unable to allocate (?P<name>\S+) buffer")
_CUDA = re.compile(r"allocating (?P<mib>\d{1,15}(?:\.\d{1,9})?) MiB on device (?P<index>\d{1,9}): \w+ failed")
_CUDA_ERROR = re.compile(r"(?P<api>CUDA|ROCm|HIP|MUSA) error: out of memory")
_CURRENT = re.compile(r"current device: (?P<index>\d{1,9})\b")
_HOST_MALLOC = re.compile(r"insufficient memory \(attempted to allocate (?P<mb>\d{1,15}(?:\.\d{1,9})?) MB\)")
_TOO_LARGE = re.compile(r"pre-allocated tensor \((?P<tensor>[^)]{1,80})\) in a buffer \((?P<name>[^)]+)\) .*\(NONE\)")
_ANY = re.compile(
    r"std::bad_alloc|[Oo]ut of memory|OutOfMemory|ErrorOutOf(?:Device|Host)Memory|Insufficient Memory"
    r"|Cannot allocate memory|Device memory allocation of size (?P<bytes>\d{1,18}) failed"
    r"|failed to allocate buffer, size = +(?P<mib>\d{1,15}(?:\.\d{1,9})?) MiB"
    r"|unable to allocate \S+ buffer|failed to allocate (?:compute \w+ buffers|buffer for \w+ cache|output buffer)"
)
_BESIDE = ("pinned", "host buffer for async", "WARNING:")  # it goes on without these
_VARIANT = re.compile(r"_(?:Mapped|Private|Shared|Split|REPACK)$|-REPACK$")
_HOST_NAMES = re.compile(r"CPU(?:_.*)?$|AMX.*|BLAS.*|KleidiAI.*|.*_Host$", re.IGNORECASE)


def _memory(lines: Sequence[str]) -> Cause | None:
    told = [line for line in lines if not any(words in line for words in _BESIDE)]
    for find in (_named_buffer, _cuda, _host):
        for index, line in enumerate(told):
            found = find(line, told[index + 1 : index + 3])
            if found is not None:
                return shortage(*found)
    large = next((match for match in map(_TOO_LARGE.search, told) if match), None)
    if large is not None:
        name = _device(large["name"])
        return Cause(OUT_OF_MEMORY, f"{name} takes no tensor as large as '{large['tensor']}'", name)
    general = [match for match in map(_ANY.search, told) if match]
    if not general:
        return None
    sized = next((match for match in general if match["bytes"] or match["mib"]), None)
    unable = next((match for match in map(_UNABLE.search, told) if match), None)
    on_host = any("bad_alloc" in match[0] or "HostMemory" in match[0] for match in general)
    device = _device(unable["name"]) if unable else HOST if on_host else None
    return shortage(device, _size(sized) if sized else None)


def _named_buffer(line: str, after: Sequence[str]) -> tuple[str | None, int | None] | None:
    found = _BUFFER.search(line)
    if found is None or found["name"] in {"buffer", "output", "compute"}:
        return None
    metal = found["name"] == "Metal"  # of all of them, there is no telling which
    return (None if metal else _device(found["name"])), int(found["bytes"])


def _cuda(line: str, after: Sequence[str]) -> tuple[str | None, int | None] | None:
    found = _CUDA.search(line)
    if found is not None:
        return f"CUDA{found['index']}", _mebibytes(found["mib"])
    error = _CUDA_ERROR.search(line)
    if error is None:
        return None
    current = next((match for match in map(_CURRENT.search, after) if match), None)
    api = "ROCm" if error["api"] == "HIP" else error["api"]
    return (f"{api}{current['index']}" if current else None), None


def _host(line: str, after: Sequence[str]) -> tuple[str | None, int | None] | None:
    found = _HOST_MALLOC.search(line)
    return None if found is None else (HOST, _mebibytes(found["mb"]))


def shortage(device: str | None, lacking: int | None) -> Cause:
    """Return the cause of a buffer of `lacking` bytes that could not be had on the device; None: not known."""
    size = "" if lacking is None else f": a buffer of {lacking / (1 << 20):.0f} MiB could not be had"
    return Cause(OUT_OF_MEMORY, f"Out of memory on {device or 'a device'}{size}", device, lacking)


def _device(buffer: str) -> str:
    name, opening, behind = buffer.partition("[")
    name = _VARIANT.sub("", name + behind.rpartition("]")[2] if "]" in behind else name + opening + behind)
    return HOST if _HOST_NAMES.match(name) else name


def _size(found: re.Match[str]) -> int:
    return int(found["bytes"]) if found["bytes"] else _mebibytes(found["mib"])


def _mebibytes(text: str) -> int:
    return int(float(text) * (1 << 20))


# ── everything else ──────────────────────────────────────────────────────────────────────────────────────────────


def _rule(code: str, what: str, *patterns: str) -> Finder:
    """Return a finder of the first line that matches one of the patterns; its groups fill the braces of `what`."""
    known = [re.compile(pattern) for pattern in patterns]

    def find(lines: Sequence[str]) -> Cause | None:
        for pattern in known:
            for line in lines:
                found = pattern.search(line)
                if found is not None:
                    return Cause(code, what.format(*found.groups() or (found[0],)))
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
    _rule(DEVICE_FAILED, "The device failed ({0})", r"(ErrorDeviceLost)"),
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
)
