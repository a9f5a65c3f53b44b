"""What llama.cpp does for each architecture, as data: one row per name it knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Layout(Enum):
    """How an architecture remembers; the label of its cache, most specific first in what it says."""

    PLAIN = "plain"  # keys and values per layer
    ISWA = "iswa"  # two caches: full layers, layers with a window
    MLA = "mla"  # one latent key per token
    DSA = "dsa"  # MLA and a cache of index keys
    MSA = "msa"  # keys and values, and a cache of index keys and values
    DEEPSEEK4 = "deepseek4"  # windowed keys, compressed keys and state
    RECURRENT = "recurrent"  # a state of fixed size only
    HYBRID = "hybrid"  # some layers with a state, some with a cache
    NONE = "none"  # nothing is kept


class RecurrentFamily(Enum):
    """What a recurrent layer computes, which decides the size of its state."""

    MAMBA = "mamba"
    MAMBA2 = "mamba2"
    DELTA_NET = "delta-net"
    RWKV = "rwkv"
    SHORTCONV = "shortconv"
    KDA = "kda"
    LIGHTNING = "lightning"


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row.

    Attributes:
        known: whether it is in the table; what is not gets the plain layout.
    """

    name: str
    layout: Layout = Layout.PLAIN
    recurrent: RecurrentFamily | None = None
    mla: bool = False
    rollback: bool = False
    encoder: bool = False
    known: bool = True
