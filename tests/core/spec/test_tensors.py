"""Tensors by block: all of them, once, and equal blocks found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.gguf import TensorInfo
from supervisor.core.spec.tensors import group_tensors

_F16 = 1


def tensor(name: str, *shape: int, kind: int = _F16) -> TensorInfo:
    return TensorInfo(name, shape or (4,), kind, offset=0)


def test_blocks_that_differ_in_their_number_only_are_alike() -> None:
    names = ("attn_q.weight", "ffn_up.weight")
    found = group_tensors([tensor(f"blk.{layer}.{name}") for layer in (0, 1, 2) for name in names], 3)
    assert [block.like for block in found.blocks] == [0, 0, 0]
    assert [one.name for one in found.blocks[2].tensors] == ["blk.2.attn_q.weight", "blk.2.ffn_up.weight"]
    assert found.one_of_each() == [found.blocks[0].tensors]


def test_another_shape_type_name_or_half_makes_another_block() -> None:
    first = tensor("blk.0.ffn_up.weight", 8, 4)
    for other in (
        tensor("blk.1.ffn_up.weight", 4, 8),
        tensor("blk.1.ffn_up.weight", 8, 4, kind=0),
        tensor("blk.1.ffn_up.bias", 8, 4),
        tensor("enc.blk.1.ffn_up.weight", 8, 4),
    ):
        assert [block.like for block in group_tensors([first, other], 2).blocks] == [0, 1]


def test_what_has_no_layer_is_loose() -> None:
    names = ("token_embd.weight", "blk.2.attn_q.weight", "xblk.0.attn_q.weight", "blk.x.attn_q.weight")
    found = group_tensors([tensor(name) for name in names], 2)
    assert tuple(one.name for one in found.loose) == names
    assert [block.tensors for block in found.blocks] == [(), ()]


_NAMES = st.builds(
    "{}blk.{}.{}".format,
    st.sampled_from(["", "enc.", "dec.", "v."]),
    st.integers(0, 5),
    st.sampled_from(["attn_q", "ffn_up_exps"]),
)


@given(st.lists(_NAMES, unique=True, max_size=30), st.integers(0, 5))
def test_every_tensor_is_in_one_place(names: list[str], n_layers: int) -> None:
    tensors = [tensor(name) for name in names]
    found = group_tensors(tensors, n_layers)
    everywhere = [*found.loose, *(one for block in found.blocks for one in block.tensors)]
    assert sorted(one.name for one in everywhere) == sorted(names)
    assert len(found.blocks) == n_layers
    assert all(found.blocks[block.like].like == block.like <= number for number, block in enumerate(found.blocks))
