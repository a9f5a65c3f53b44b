"""Read from an engine's log at `-lv 4` what it holds: the account of its buffers.

llama.cpp (b11434) writes one line per buffer when it starts, to 0.01 MiB:

    load_tensors:   CPU_Mapped model buffer size =     8.00 MiB
    llama_kv_cache: RPC0[127.0.0.1:50052] KV buffer size =    20.00 MiB
    sched_reserve:        CPU compute buffer size =    26.07 MiB

Contexts follow one another (the model's, then one that drafts); within one, the order of lines does not matter, except
that a context which reserves its compute buffer again keeps the last. Buffer types are not devices: several belong to
the host, and an RPC worker's carries its address and its own number. Lines that say nothing of buffers are passed over.

llama.cpp also prints names and texts of a model's file, line ends and all, so any of these lines may be the file's. An
account that no machine could have is therefore none at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

HOST = "CPU"
_ASKING = ("-lv", "4")
_VERBOSITY = frozenset({"-lv", "--verbosity", "--log-verbosity", "-v", "--verbose", "--log-verbose"})

_MIB = 1 << 20
_LONGEST = 1000  # characters; a name of the model's own choice may make a line longer
_LONGEST_DEVICE = 400  # characters of a line about a device
_MOST_TOLD = 1024  # lines about one load, and names in them; sixteen devices need about a hundred for each context
_MOST_DEVICES = 64  # llama.cpp itself uses sixteen at most
_SIZE = r"(?P<size>\d{1,9}(?:\.\d{1,6})?) MiB"
_BUFFER = re.compile(
    r"\b(?P<writer>\w++):\s++(?P<type>\S++)\s++(?:DSV4 \w+ state|(?P<part>model|LoRA|KV|RS|compute|output))"
    rf" buffer size =\s*{_SIZE}"
)
_CONTEXT = re.compile(r"llama_context: (?P<name>n_ctx|n_ctx_seq|n_seq_max)\s*= (?P<value>\d{1,15})\b")
_CARD = re.compile(
    r"using device (?P<name>\S+) \((?P<text>.*?)\)(?: \((?P<id>[^()]*)\))? - (?P<free>\d{1,12}) MiB free"
)
_LISTED = re.compile(r"  - (?P<name>RPC\d+)\s*: (?P<endpoint>\S+) \(\d+ MiB, \d+ MiB free\)")
_CLIP = re.compile(r"CLIP using (?P<name>\S+) backend")
_CLIP_MODEL = re.compile(rf"load_hparams: model size:\s*{_SIZE}")
_WORKER = re.compile(r"RPC(?P<number>\d+)\[(?P<endpoint>.+)\]$")
_HOST_TYPES = re.compile(r"CPU(?:_.*)?$|AMX.*|BLAS.*|KleidiAI.*|.*_Host$", re.IGNORECASE)
_VARIANT = re.compile(r"_(?:Mapped|Private|Shared|Split)$|-REPACK$")
_CLIP_WRITERS = frozenset({"reserve_compute_meta", "alloc_compute_meta"})
_NUMBER = re.compile(r"(?<!\d)\d++$")
_META = re.compile(r"Meta\((?P<kinds>[^()]*)\)$")
_NO_ID = "unknown id"  # llama.cpp's own words


@dataclass(frozen=True, slots=True)
class Card:
    """A device as the engine found it: its name there, description, PCI or other id, free bytes before the start."""

    name: str
    description: str
    id: str
    free_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceFootprint:
    """The bytes on one device, or on the host as `CPU`; the parts are those of `DevicePlan`.

    Attributes:
        projector_bytes: its weights and what it computes with.
        draft_bytes: all of a second model that drafts; drafting with the model's own blocks is in the other parts.
        lazy_bytes: how much of all this is not the process's own memory when it is ready: mapped from the file, pinned
            by a driver, or compute buffers, which fill with the first large batch.
    """

    name: str
    weights_bytes: int = 0
    kv_bytes: int = 0
    recurrent_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0
    projector_bytes: int = 0
    draft_bytes: int = 0
    lazy_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return (
            self.weights_bytes
            + self.kv_bytes
            + self.recurrent_bytes
            + self.compute_bytes
            + self.output_bytes
            + self.projector_bytes
            + self.draft_bytes
        )


@dataclass(frozen=True, slots=True)
class Footprint:
    """An engine's own account.

    Attributes:
        devices: accelerators by name, the host last; names are the engine's own (`renamed` changes them).
        n_ctx, n_ctx_seq, n_seq: of the main context: tokens of all slots, tokens of one, slots; 0 where not told.
        cards: the devices it was offered.
    """

    devices: tuple[DeviceFootprint, ...]
    n_ctx: int = 0
    n_ctx_seq: int = 0
    n_seq: int = 0
    cards: tuple[Card, ...] = ()

    @property
    def used_bytes(self) -> dict[str, int]:
        """Bytes by device name."""
        return {device.name: device.total_bytes for device in self.devices}

    def on(self, name: str) -> DeviceFootprint:
        """Return what is on this device; an empty footprint where it is not named."""
        return next((device for device in self.devices if device.name == name), DeviceFootprint(name))


def asking(argv: tuple[str, ...], flags: Collection[str]) -> tuple[str, ...]:
    """Return the command line that makes llama-server report its buffers. One that sets a log level stays as it is."""
    if "-lv" not in flags or any(argument.partition("=")[0] in _VERBOSITY for argument in argv):
        return argv
    return (*argv, *_ASKING)


def is_asking(argv: tuple[str, ...]) -> bool:
    """Return whether `asking` set the log level of this command line, so that nobody else wants its lines."""
    return argv[-len(_ASKING) :] == _ASKING


def unasked(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line without what `asking` may have added."""
    return argv[: -len(_ASKING)] if is_asking(argv) else argv


def renamed(footprint: Footprint, names: Mapping[str, str]) -> Footprint:
    """Return the same footprint under other names.

    An engine that sees one GPU alone calls it `CUDA0`, whichever it is.
    """
    devices = tuple(replace(device, name=names.get(device.name, device.name)) for device in footprint.devices)
    cards = tuple(replace(card, name=names.get(card.name, card.name)) for card in footprint.cards)
    return replace(footprint, devices=devices, cards=cards)


@dataclass(slots=True)
class _Context:
    """Bytes by buffer type and part of one context."""

    drafts: bool
    sizes: dict[tuple[str, str], int] = field(default_factory=dict)
    facts: dict[str, int] = field(default_factory=dict)


class AccountReader:
    """A reader of a log, line by line, with any prefix before the function's name."""

    def __init__(self) -> None:
        self._complete = False
        self._cards: dict[str, Card] = {}
        self._workers: dict[str, set[str]] = {}  # names of the devices by endpoint
        self._numbered: dict[str, list[str]] = {}  # the same in order, once all are known
        self._listed = 0  # lines about devices
        self._forget()

    def feed(self, line: str) -> None:
        """Take the next line, which may be any text.

        Lines of llama.cpp about memory are short; no others are looked at.
        """
        line = line[:_LONGEST]
        read = self._reader_of(line)
        if read is not None:
            self._told += 1
            if self._told <= _MOST_TOLD:
                read(line)
        elif " MiB free" in line:
            self._listed += 1
            if self._listed <= _MOST_TOLD:
                self._device(line[:_LONGEST_DEVICE])
        elif "llama_model_loader: loaded meta data" in line:
            if self._models == 0:  # what a projector was projected to take comes before
                self._forget()
            self._models += 1
        elif "common_params_fit" in line or "common_memory_breakdown" in line:
            self._forget()  # at -lv 5 the fit pass logs contexts that it only imagines
        elif "llama_server: model loaded" in line or " main: model loaded" in line:
            self._complete = True

    def _reader_of(self, line: str) -> Callable[[str], None] | None:
        if " buffer size = " in line:
            return self._buffer
        if "llama_context: " in line:
            return self._context
        if "CLIP using " in line or "load_hparams: model size:" in line:
            return self._projector
        return None

    def complete(self) -> bool:
        """Return whether the model is loaded, so that nothing more is to come."""
        return self._complete

    def footprint(self) -> Footprint | None:
        """Return the footprint so far; None while no buffer was reported, or where there is too much to be true."""
        if (not self._contexts and not self._weights.sizes) or max(self._told, self._listed) > _MOST_TOLD:
            return None
        self._numbered = {endpoint: sorted(names, key=_natural) for endpoint, names in self._workers.items()}
        found: dict[str, DeviceFootprint] = {}
        for holder in (self._weights, self._draft_weights, *self._contexts):
            for (kind, part), size in holder.sizes.items():
                for home in self._homes(kind):
                    _add(found, home, "draft_bytes" if holder.drafts else part, size, _is_lazy(kind, part))
        for clip in self._clips:
            for (kind, part), size in clip.sizes.items():
                for home in self._homes(kind):
                    _add(found, home, "projector_bytes", size, _is_lazy(kind, part))
        found.setdefault(HOST, DeviceFootprint(HOST))
        if max(len(found), len(self._cards)) > _MOST_DEVICES:
            return None
        facts = next((context.facts for context in self._contexts if not context.drafts), {})
        return Footprint(
            devices=tuple(sorted(found.values(), key=_order)),
            n_ctx=facts.get("n_ctx", 0),
            n_ctx_seq=facts.get("n_ctx_seq", 0),
            n_seq=facts.get("n_seq_max", 0),
            cards=tuple(self._cards[name] for name in sorted(self._cards, key=_natural)),
        )

    def _forget(self) -> None:
        self._told = 0  # lines about buffers and contexts, and names of devices in them
        self._models = 0
        self._weights = _Context(drafts=False)
        self._draft_weights = _Context(drafts=True)
        self._contexts: list[_Context] = []
        self._clips: list[_Context] = []
        self._clip_home = HOST

    def _buffer(self, line: str) -> None:
        match = _BUFFER.search(line)
        if match is None:
            return
        kind, size = match["type"], _bytes(match["size"])
        self._told += kind.count(",")
        part = _PARTS.get(match["part"], "recurrent_bytes")
        if match["writer"] in _CLIP_WRITERS:
            self._clip().sizes[kind, part] = size
        elif part == "weights_bytes":
            holder = self._draft_weights if self._models > 1 else self._weights
            holder.sizes[kind, part] = holder.sizes.get((kind, part), 0) + size
        else:
            sizes = self._current().sizes
            sizes[kind, part] = size if part == "compute_bytes" else sizes.get((kind, part), 0) + size

    def _context(self, line: str) -> None:
        if "constructing llama_context" in line:
            self._contexts.append(_Context(drafts=self._models > 1))
        elif match := _CONTEXT.search(line):
            self._current().facts[match["name"]] = int(match["value"])

    def _current(self) -> _Context:
        if not self._contexts:
            self._contexts.append(_Context(drafts=False))
        return self._contexts[-1]

    def _projector(self, line: str) -> None:
        if match := _CLIP.search(line):
            self._clips.append(_Context(drafts=False))
            self._clip_home = match["name"]
        elif match := _CLIP_MODEL.search(line):
            self._clip().sizes[self._clip_home, "weights_bytes"] = _bytes(match["size"])

    def _clip(self) -> _Context:
        if not self._clips:
            self._clips.append(_Context(drafts=False))
        return self._clips[-1]

    def _device(self, line: str) -> None:
        if match := _CARD.search(line):
            name, text = match["name"], match["text"]
            self._cards[name] = Card(name, text, match["id"] or _NO_ID, int(match["free"]) * _MIB)
            if name.startswith("RPC"):
                self._workers.setdefault(text, set()).add(name)
        elif match := _LISTED.search(line):
            self._workers.setdefault(match["endpoint"], set()).add(match["name"])

    def _homes(self, kind: str) -> list[str]:
        """Return the devices of a buffer type; several where tensors are split among devices by rows.

        Then the size is that of the largest part (ggml-backend-meta.cpp), which is taken for each. A build
        that does not name the devices leaves nothing to tell, and the buffer is left out.
        """
        several = _META.match(kind)
        if several is None:
            return [self._home(kind)]
        return [self._home(one) for one in several["kinds"].split(",") if one]

    def _home(self, kind: str) -> str:
        """Return the device of a buffer type."""
        if _HOST_TYPES.fullmatch(kind):
            return HOST
        worker = _WORKER.match(kind)
        if worker is None:
            return _VARIANT.sub("", kind)
        names = self._numbered.get(worker["endpoint"], [])
        number = int(worker["number"][:9])
        return names[number] if number < len(names) else kind


_PARTS: Mapping[str | None, str] = {
    "model": "weights_bytes",
    "LoRA": "weights_bytes",
    "KV": "kv_bytes",
    "RS": "recurrent_bytes",
    "compute": "compute_bytes",
    "output": "output_bytes",
}


def _bytes(size: str) -> int:
    return round(float(size) * _MIB)


def _is_lazy(kind: str, part: str) -> bool:
    return part == "compute_bytes" or kind.endswith(("_Mapped", "_Host"))


def _add(found: dict[str, DeviceFootprint], name: str, part: str, size: int, lazy: bool) -> None:
    device = found.get(name, DeviceFootprint(name))
    more = {part: getattr(device, part) + size, "lazy_bytes": device.lazy_bytes + size * lazy}
    found[name] = replace(device, **more)


def _natural(name: str) -> tuple[str, int, str]:
    """Return the sort key of a name that puts RPC2 before RPC10."""
    digits = _NUMBER.search(name)
    return _NUMBER.sub("", name), int(digits[0][:18]) if digits else -1, name


def _order(device: DeviceFootprint) -> tuple[bool, tuple[str, int, str]]:
    return device.name == HOST, _natural(device.name)
