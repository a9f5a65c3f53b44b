"""Combine the headers of a split model into the header that it would have in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from supervisor.core.gguf.header import GgufHeader, TensorInfo
from supervisor.errors import GgufError, ShardMissing

_MAX_SHARDS = 99_999
_MAX_NAMED = 3  # missing parts
_MAX_TOGETHER = 1 << 16  # tensors of all parts, and keys of all but the first
_NEEDED = frozenset({"split.no", "split.count", "split.tensors.count", "general.architecture"})


def bounded(name: str, headers: Iterable[GgufHeader]) -> list[GgufHeader]:
    """Return the headers of a model's parts for `combine_shards`, of all but the first without what nobody asks for.

    Raises GgufError at the first that makes them too large together; name: of the model, for that.
    """
    found: list[GgufHeader] = []
    tensors = keys = 0
    for header in headers:
        tensors += len(header.tensors)
        keys += len(header.metadata) if found else 0
        if tensors > _MAX_TOGETHER or keys > _MAX_TOGETHER:
            raise GgufError(f"{name}: its parts have more than {_MAX_TOGETHER} tensors or keys together")
        kept = {key: value for key, value in header.metadata.items() if key in _NEEDED}
        found.append(replace(header, metadata=kept) if found else header)
    return found


def combine_shards(headers: Sequence[GgufHeader]) -> GgufHeader:
    """Return the parts of a split model, in order, as one header: the first part's keys, the tensors of all.

    Raises ShardMissing (a part is not among them) and GgufError (one doesn't belong here), which name the part.
    Offsets of tensors stay those in their own part.
    """
    first = headers[0]
    _check_complete(headers, first.split_count or 1)
    tensors: dict[str, TensorInfo] = {}
    for position, header in enumerate(headers):
        _check_shard(header, first, position)
        for tensor in header.tensors:
            if tensors.setdefault(tensor.name, tensor) is not tensor:
                raise GgufError(f"part {position + 1}: an earlier part has the tensor {tensor.name!r} too")
    if len(headers) > 1 and first.split_tensors_count not in {None, len(tensors)}:
        raise GgufError(f"the parts hold {len(tensors)} tensors, {first.split_tensors_count} are announced")
    sizes = [header.file_size for header in headers if header.file_size is not None]
    size = sum(sizes) if len(sizes) == len(headers) else None
    return replace(first, tensors=tuple(tensors.values()), file_size=size)


def _check_complete(headers: Sequence[GgufHeader], count: int) -> None:
    if not 0 < count <= _MAX_SHARDS:
        raise GgufError(f"impossible number of parts: {count}")
    missing = sorted(set(range(count)) - {header.split_no or 0 for header in headers})
    if missing:
        named = ", ".join(str(number + 1) for number in missing[:_MAX_NAMED])
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        raise ShardMissing(f"the model has {count} parts, of which part {named}{more} is missing")


def _check_shard(header: GgufHeader, first: GgufHeader, position: int) -> None:
    if (header.split_no or 0) != position:
        raise GgufError(f"part {(header.split_no or 0) + 1} stands where part {position + 1} belongs")
    facts = {
        "number of parts": (header.split_count, first.split_count),
        "number of tensors in all parts": (header.split_tensors_count, first.split_tensors_count),
        "byte order": (header.byte_order, first.byte_order),
        "architecture": (header.architecture or first.architecture, first.architecture),
    }
    for what, (here, there) in facts.items():
        if here != there:
            raise GgufError(f"part {position + 1} is of another model: its {what} is {here}, the first part's {there}")
