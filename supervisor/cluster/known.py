"""The members of the cluster as this node last knew them, in a file: it knows them before it hears the store again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from supervisor.core.cluster.identity import Peer
from supervisor.core.cluster.messages import MOST_BYTES, Node
from supervisor.system.atomic import atomic_write
from supervisor.system.owned import read_own

_log = structlog.get_logger()

MOST_NODES: Final = 256
_VERSION: Final = 1
_MOST_FILE: Final = MOST_BYTES * MOST_NODES


class _File(msgspec.Struct, frozen=True):
    version: int
    nodes: tuple[Node, ...]
    removed: tuple[Peer, ...] = ()


class Known:
    """The file. What cannot be read, or written, counts as nothing: the store says it again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._kept: _File | None = None

    def read(self) -> tuple[Sequence[Node], Sequence[Peer]]:
        """Return the members, and who was removed."""
        try:
            found = msgspec.json.decode(read_own(self._file, _MOST_FILE), type=_File)
        except FileNotFoundError:
            return (), ()
        except (OSError, ValueError) as error:
            _log.warning("cluster_nodes_unreadable", file=str(self._file), reason=str(error))
            return (), ()
        return (found.nodes, found.removed) if found.version == _VERSION else ((), ())

    def keep(self, nodes: Iterable[Node], removed: Sequence[Peer] = ()) -> None:
        """Write the members down, and who was removed, where that has changed."""
        kept = _File(_VERSION, tuple(nodes)[:MOST_NODES], tuple(removed))
        if kept == self._kept:
            return
        try:
            atomic_write(self._file, msgspec.json.encode(kept))
        except OSError as error:
            _log.warning("cluster_nodes_unkept", file=str(self._file), reason=str(error))
        else:
            self._kept = kept


def known_in(folder: Path) -> Known:
    """Return what is known in a node's folder of its cluster."""
    return Known(folder / "nodes.json")
