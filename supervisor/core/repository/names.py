"""Read a file's name in a repository: the kind of file, its quantisation, its shard number.

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

from supervisor.core import gguf


class Kind(enum.Enum):
    """The kind of a file, by its name."""

    MODEL = enum.auto()
    PROJECTOR = enum.auto()
    DRAFT = enum.auto()
    ADAPTER = enum.auto()
    OTHER = enum.auto()  # imatrix tables, vocabularies, cards, other formats


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
_MOST_PARTS = 4096
"""Files that a split model may have; llama.cpp's own limit is far beyond what anybody publishes."""

_SAME = {"FP16": "F16", "FP32": "F32"}
_DRAFT = re.compile(r"\A(?:mtp|eagle3?|dflash|dspark)-|(?<![a-z0-9])draft(?![a-z0-9])")
_ADAPTER = re.compile(r"(?<![a-z0-9])(?:q?lora|adapter)(?![a-z0-9])")
_VOCABULARY = re.compile(r"(?<![a-z0-9])vocab(?![a-z0-9])")


def folder_of(path: str) -> str:
    """Return the folder of a path, without a slash at its end; empty for the top folder."""
    return path.rpartition("/")[0]


def stem_of(path: str) -> str:
    """Return the file's name without folder and `.gguf`."""
    name = path.rpartition("/")[2]
    return name[:-5] if name.lower().endswith(".gguf") else name


def shard_of(path: str) -> gguf.Shard | None:
    """Return the shard that the name says; None for a file by itself, or for a numbering that cannot be."""
    shard = gguf.shard_of(path.rpartition("/")[2])
    return shard if shard is not None and shard.is_possible and shard.count <= _MOST_PARTS else None


def kind_of(path: str) -> Kind:
    """Return the kind of a file."""
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
    """Return the quantisation in the usual spelling (`Q4_K_M`, `UD-Q4_K_XL`, `BF16`); empty where the path names none.

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
    """Return a quantisation in its usual spelling."""
    upper = quant.upper()
    return _SAME.get(upper, upper)


def base_of(path: str) -> str:
    """Return the file's name without shard number and quantisation: the same for all variants of a model."""
    shard = shard_of(path)
    stem = shard.prefix if shard else stem_of(path)
    return _QUANT.sub("", stem).strip("-._ ").lower()
