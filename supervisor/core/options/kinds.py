"""The kinds of option values with their bounds, as plain data, and the types that carry them.

Settings, schema, command line and pages are made from these; `Tokens` is an `int` to the type checker and `Whole(0, …)`
to whoever reads the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from supervisor.core.gguf.ggml import CACHE_TYPES

MOST_TEXT = 32_000  # characters: at most 128,000 bytes, and Linux takes no argument of 131,072
MOST_TOKENS = (1 << 31) - 1  # llama.cpp's own type
MOST_MIB = 1 << 24
MOST_LAYERS = 10_000  # people write 999 for all of them; llama.cpp knows models of up to 512
MOST_SLOTS = 256  # llama.cpp's LLAMA_MAX_SEQ
MOST_OVERRIDES = 128
MOST_THREADS = 512  # ggml's GGML_MAX_N_THREADS
MOST_COUNT = 1_000_000
MOST_NAMES = 64
MOST_ENTRIES = 256
MOST_NUMBER = 1e12
MOST_SHARE = 1e6


@dataclass(frozen=True, slots=True)
class Truth:
    """true or false."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number of `unit`; `tokens` and `MiB` may be written with a letter behind (`8k`, `8g`)."""

    least: int
    most: int
    unit: str = "number"


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Text:
    """A text of at most so many characters, and what they may be."""

    most: int
    what: Literal["text", "name", "path", "folder"] = "text"

    @property
    def told(self) -> str:
        """Description in words."""
        return "a path" if self.what == "folder" else f"a {self.what}"


@dataclass(frozen=True, slots=True)
class Override:
    """`PATTERN=BUFFER TYPE`: where the tensors go whose names match."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's file and scale."""


@dataclass(frozen=True, slots=True)
class Many:
    """A list of at most so many."""

    item: Choice | Whole | Decimal | Text | Override | Adapter
    most: int


@dataclass(frozen=True, slots=True)
class Words:
    """Arguments of a program, in order; all of them together must fit its command line."""

    most: int


@dataclass(frozen=True, slots=True)
class Variables:
    """Texts by name."""

    most: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """MiB by name; they may be written with a letter behind (`8g`)."""

    most: int


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON object, neither deep nor long."""


Kind: TypeAlias = Truth | Choice | Whole | Decimal | Text | Override | Adapter | Many | Words | Variables | Sizes | Json


@dataclass(frozen=True)
class LoraAdapter:
    """An adapter's GGUF file, and how strongly it is applied."""

    path: str
    scale: float = 1.0


def names_file(kind: Kind, *, folders: bool = True) -> bool:
    """Return whether values of this kind name a file of the machine, or several; or a folder, where those count too."""
    match kind:
        case Many(item, _):
            return names_file(item, folders=folders)
        case Text(_, what):
            return what == "path" or (folders and what == "folder")
        case _:
            return isinstance(kind, Adapter)


# ── the types of options ─────────────────────────────────────────────────────────────────────────────────────────

CacheType = Annotated[str, Choice(CACHE_TYPES)]
Tokens = Annotated[int, Whole(0, MOST_TOKENS, "tokens")]
SomeTokens = Annotated[int, Whole(1, MOST_TOKENS, "tokens")]
AllTokens = Annotated[int, Whole(-1, MOST_TOKENS, "tokens")]  # -1: no limit
AllMebibytes = Annotated[int, Whole(-1, MOST_MIB, "MiB")]  # -1: no limit
Slots = Annotated[int, Whole(1, MOST_SLOTS, "slots")]
Threads = Annotated[int, Whole(1, MOST_THREADS, "threads")]
Layers = Annotated[int, Whole(0, MOST_LAYERS, "layers")]
Natural = Annotated[int, Whole(0, MOST_COUNT)]
Positive = Annotated[int, Whole(1, MOST_COUNT)]
Number = Annotated[float, Decimal(-MOST_NUMBER, MOST_NUMBER)]
Probability = Annotated[float, Decimal(0, 1)]
Name = Annotated[str, Text(256, "name")]
LongText = Annotated[str, Text(MOST_TEXT)]
File = Annotated[str, Text(4096, "path")]
Folder = Annotated[str, Text(4096, "folder")]
Names = Annotated[tuple[str, ...], Many(Text(256, "name"), MOST_NAMES)]
Shares = Annotated[tuple[float, ...], Many(Decimal(0, MOST_SHARE), MOST_NAMES)]
Overrides = Annotated[tuple[str, ...], Many(Override(), MOST_OVERRIDES)]
Adapters = Annotated[tuple[LoraAdapter, ...], Many(Adapter(), MOST_NAMES)]
Arguments = Annotated[tuple[str, ...], Words(MOST_ENTRIES)]
Environment = Annotated[Mapping[str, str], Variables(MOST_ENTRIES)]
HttpStatuses = Annotated[tuple[int, ...], Many(Whole(100, 599, "status"), MOST_NAMES)]
Memories = Annotated[Mapping[str, int], Sizes(MOST_ENTRIES)]
JsonObject = Annotated[Mapping[str, object], Json()]
