"""Split models as one."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from supervisor.core.gguf import GgufHeader, bounded, combine_shards, read_header
from supervisor.errors import GgufError, ShardMissing
from tests.support.gguf_bytes import STRING, model, pair, tensor


def part(
    number: int, *names: str, count: int = 3, total: int = 4, arch: str | None = None, order: str = "<"
) -> GgufHeader:
    pairs = [
        pair("split.no", 2, number, order),
        pair("split.count", 2, count, order),
        pair("split.tensors.count", 5, total, order),
    ]
    if number == 0 or arch:
        pairs.append(pair("general.architecture", STRING, arch or "llama", order))
    infos = [tensor(name, [8], 0, 32 * place, order) for place, name in enumerate(names)]
    data = model(pairs, infos, 32 * len(names), order)
    return read_header(io.BytesIO(data), len(data))


_PARTS = [part(0), part(1, "a", "b"), part(2, "c", "d")]


def test_all_tensors_under_the_first_ones_keys() -> None:
    whole = combine_shards(_PARTS)
    assert whole.architecture == "llama"
    assert [t.name for t in whole.tensors] == ["a", "b", "c", "d"]
    assert whole.file_size == sum(p.file_size or 0 for p in _PARTS)


def test_a_file_that_is_not_split() -> None:
    data = model([pair("general.architecture", STRING, "llama")], [tensor("a", [1], 0, 0)], 4)
    single = read_header(io.BytesIO(data))
    assert combine_shards([single]) == single


@pytest.mark.parametrize(
    ("parts", "named"),
    [([_PARTS[0], _PARTS[2]], "3 parts, of which part 2 is missing"), ([_PARTS[1]], "part 1, 3 is missing")],
)
def test_a_missing_part_is_named(parts: list[GgufHeader], named: str) -> None:
    with pytest.raises(ShardMissing, match=named):
        combine_shards(parts)


def test_of_many_missing_parts_some_are_named() -> None:
    with pytest.raises(ShardMissing, match="part 2, 3, 4 and 495 more is missing"):
        combine_shards([part(0, count=499)])


@pytest.mark.parametrize(
    ("position", "foreign", "reason"),
    [
        (2, part(2, "c", "d", count=4), "part 3 is of another model: its number of parts is 4, the first part's 3"),
        (1, part(1, "a", "b", total=9), "part 2 is of another model: its number of tensors in all parts is 9"),
        (1, part(1, "a", "b", arch="gemma3"), "part 2 is of another model: its architecture is gemma3"),
        (2, part(2, "c", "d", order=">"), "part 3 is of another model: its byte order is big"),
        (2, part(2, "c", "b"), "part 3: an earlier part has the tensor 'b' too"),
        (2, part(2, "c"), "the parts hold 3 tensors, 4 are announced"),
    ],
)
def test_a_foreign_part_is_named(position: int, foreign: GgufHeader, reason: str) -> None:
    parts = list(_PARTS)
    parts[position] = foreign
    with pytest.raises(GgufError, match=reason):
        combine_shards(parts)


def test_parts_in_another_order() -> None:
    with pytest.raises(GgufError, match="part 3 stands where part 2 belongs"):
        combine_shards([_PARTS[0], _PARTS[2], _PARTS[1]])


@pytest.mark.parametrize("count", [-1, 100_000, 2**62])
def test_impossible_numbers_of_parts(count: int) -> None:
    single = read_header(io.BytesIO(model([pair("split.count", 11, count)], [], 0)))
    with pytest.raises(GgufError, match=f"impossible number of parts: {count}"):
        combine_shards([single])


def test_parts_are_read_only_as_far_as_they_are_bounded_together() -> None:
    """Each may have as many tensors as a model, and there may be thousands of parts."""
    many = 30_000
    read = 0

    def parts() -> Iterator[GgufHeader]:
        nonlocal read
        for number in range(1000):
            read += 1
            yield part(number, *(f"{number}.{place}" for place in range(many)), count=1000)

    with pytest.raises(GgufError, match=r"m\.gguf: its parts have more than 65536 tensors or keys together"):
        bounded("m.gguf", parts())
    assert read == 3


def test_keys_of_further_parts_are_bounded_and_not_kept() -> None:
    more = [pair(f"{number:x}", 10, number) for number in range(30_000)]
    data = model([pair("split.no", 2, 1), *more], [], 0)
    header = read_header(io.BytesIO(data), len(data))
    with pytest.raises(GgufError, match="tensors or keys together"):
        bounded("m.gguf", [header] * 4)
    assert [len(one.metadata) for one in bounded("m.gguf", [header] * 3)] == [30_001, 1, 1]


def test_bounded_parts_combine_as_the_whole_ones_do() -> None:
    assert combine_shards(bounded("m.gguf", _PARTS)) == combine_shards(_PARTS)
