"""What a file's name in a repository says: the kind of file, its quantisation, which shard it is.

People name files as they like; the rules are those that the names of published GGUF files follow:

- `NAME-QUANT.gguf`, `NAME.QUANT.gguf`, `QUANT/NAME.gguf`, with any case; `UD-` before a quant belongs to it.
- `-00001-of-00003` at the end of the stem numbers shards (llama.cpp's `llama-gguf-split`).
- `mmproj` anywhere is a projector; `imatrix` a table for quantising; `mtp-`, `eagle3-`, `dflash-` at the beginning, or
  `draft` as a word, a companion that drafts (llama.cpp's `common/download.cpp` looks for the same marks). MTP
  within the name is said of models that have such layers themselves.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class Kind(enum.Enum):
    """What a file is, by its name."""

    MODEL = "model"
    PROJECTOR = "projector"
    DRAFT = "draft"
    ADAPTER = "adapter"
    OTHER = "other"  # imatrix tables, vocabularies, cards, other formats


_SHARD = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\Z")
_QUANT = re.compile(
    r"""(?<![A-Za-z0-9])
    (?P<quant>(?>
        (?:UD-)?
        (?: I?Q\d{1,2}(?:_(?:\d+|XXS|XS|S|M|L|XL|XXL|K|NL|P|KS|KSS|KT|R\d)(?![A-Za-z0-9]))*
          | TQ\d_\d | I2_S | MXFP\d+(?:_MOE)? | NVFP4 | BF16 | FP?16 | FP?32 | F64
        )
    ))
    (?![A-Za-z0-9]|_[A-Za-z0-9]{1,3}(?![A-Za-z0-9]))""",
    re.VERBOSE | re.IGNORECASE,
)
_SAME = {"FP16": "F16", "FP32": "F32"}
_DRAFT = re.compile(r"\A(?:mtp|eagle3?|dflash|dspark)-|(?<![a-z0-9])draft(?![a-z0-9])")
_ADAPTER = re.compile(r"(?<![a-z0-9])(?:q?lora|adapter)(?![a-z0-9])")
_VOCABULARY = re.compile(r"(?<![a-z0-9])vocab(?![a-z0-9])")


@dataclass(frozen=True, slots=True)
class Shard:
    """Which part of a split model a file is: from 1."""

    prefix: str
    number: int
    count: int


def folder_of(path: str) -> str:
    """The folder a path lies in, without a slash at its end; empty: the top."""
    return path.rpartition("/")[0]


def stem_of(path: str) -> str:
    """The file's name without folder and `.gguf`."""
    name = path.rpartition("/")[2]
    return name[:-5] if name.lower().endswith(".gguf") else name


def shard_of(path: str) -> Shard | None:
    """What the end of the name says; None: a file by itself, or a numbering that cannot be."""
    match = _SHARD.fullmatch(stem_of(path))
    if match is None:
        return None
    number, count = int(match["number"]), int(match["count"])
    return Shard(match["prefix"], number, count) if 1 <= number <= count else None


def shard_name(path: str, number: int) -> str:
    """The path of another part of the same split model."""
    shard = shard_of(path)
    assert shard is not None  # asked of shards only
    folder = folder_of(path)
    return f"{folder}/{shard.prefix}-{number:05d}-of-{shard.count:05d}.gguf".removeprefix("/")


def kind_of(path: str) -> Kind:
    """The kind of a file."""
    lower = path.lower()
    name = lower.rpartition("/")[2]
    if not name.endswith(".gguf") or name.startswith("."):
        return Kind.OTHER
    if "imatrix" in name or _VOCABULARY.search(name):
        return Kind.OTHER
    if "mmproj" in name:
        return Kind.PROJECTOR
    if _DRAFT.search(name):
        return Kind.DRAFT
    if _ADAPTER.search(name):
        return Kind.ADAPTER
    return Kind.MODEL


def quant_of(path: str) -> str:
    """The quantisation in the usual spelling (`Q4_K_M`, `UD-Q4_K_XL`, `BF16`); empty where the path names none.

    The last one in the file's name counts, else that of the nearest folder.
    """
    shard = shard_of(path)
    stem = shard.prefix if shard else stem_of(path)
    for part in (stem, *reversed(folder_of(path).split("/"))):
        found = _QUANT.findall(part)
        if found:
            return usual(found[-1])
    return ""


def usual(quant: str) -> str:
    """A quantisation in its usual spelling."""
    upper = quant.upper()
    return _SAME.get(upper, upper)


def base_of(path: str) -> str:
    """What is left of the file's name without shard number and quantisation: the same for all variants of a model."""
    shard = shard_of(path)
    stem = shard.prefix if shard else stem_of(path)
    return _QUANT.sub("", stem).strip("-._ ").lower()
