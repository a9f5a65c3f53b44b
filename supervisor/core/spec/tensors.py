"""Group the tensors of a model by block. Most blocks are alike, so whoever counts bytes looks at one of each kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.gguf import TensorInfo

_BLOCK = re.compile(r"((?:enc\.|dec\.)?blk\.)(\d+)\.")


@dataclass(frozen=True, slots=True)
class TensorBlock:
    """The tensors of one layer, in file order.

    Attributes:
        like: the first layer whose tensors are the same but for the layer's number: by name, type, shape and size.
    """

    tensors: tuple[TensorInfo, ...]
    like: int


@dataclass(frozen=True, slots=True)
class TensorGroups:
    """`blocks` has one item per layer; `loose` are the tensors that belong to none."""

    blocks: tuple[TensorBlock, ...] = ()
    loose: tuple[TensorInfo, ...] = ()

    def one_of_each(self) -> list[tuple[TensorInfo, ...]]:
        """Return the tensors of the blocks without those that are like an earlier one."""
        return [block.tensors for number, block in enumerate(self.blocks) if block.like == number]


def group_tensors(tensors: Sequence[TensorInfo], n_layers: int) -> TensorGroups:
    """Sort tensors by layer; blocks with a number of `n_layers` or more are loose."""
    members: list[list[TensorInfo]] = [[] for _ in range(n_layers)]
    kinds: list[list[tuple[object, ...]]] = [[] for _ in range(n_layers)]
    loose: list[TensorInfo] = []
    for tensor in tensors:
        block = _BLOCK.match(tensor.name)
        layer = int(block[2]) if block else n_layers
        if block is None or layer >= n_layers:
            loose.append(tensor)
            continue
        members[layer].append(tensor)
        name = (block[1], tensor.name[block.end() :])
        kinds[layer].append((name, tensor.type, tensor.shape, tensor.n_bytes))
    first: dict[tuple[tuple[object, ...], ...], int] = {}
    blocks = (
        TensorBlock(tuple(found), first.setdefault(tuple(kind), layer))
        for layer, (found, kind) in enumerate(zip(members, kinds, strict=True))
    )
    return TensorGroups(tuple(blocks), tuple(loose))
