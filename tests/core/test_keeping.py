"""Which saved slots go together, and which go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.launch import LaunchOptions, LoraAdapter
from supervisor.core.launch.keeping import (
    FileStamp,
    HeldSlot,
    SavedSlot,
    held_slots,
    kept,
    slots_key,
    to_drop,
    to_restore,
)

F16 = ("f16", "f16")
MODEL = FileStamp("/m.gguf", 1, 2, 3)
SAVED = st.lists(
    st.builds(SavedSlot, st.uuids().map(str), st.integers(0, 100), st.floats(0, 1e6)), max_size=20, unique_by=id
)


def key(options: LaunchOptions | None = None, **other: Any) -> str:
    given = {"files": [MODEL], "engine": "e", "cache_types": F16, **other}
    return slots_key(options=options or LaunchOptions(), **given)


@pytest.mark.parametrize(
    "options",
    [
        LaunchOptions(ctx_size=4096, parallel=2),
        LaunchOptions(device=("CUDA0",), n_gpu_layers=3, threads=4),
        LaunchOptions(chat_template="chatml", reasoning="off"),
        LaunchOptions(keep_kv=True, slot_save_path="/elsewhere"),
    ],
)
def test_where_and_how_much_does_not_matter(options: LaunchOptions) -> None:
    assert key(options) == key()


@pytest.mark.parametrize(
    "other",
    [
        key(files=[FileStamp("/n.gguf", 1, 2, 3)]),
        key(files=[FileStamp("/m.gguf", 4, 2, 3)]),
        key(files=[FileStamp("/m.gguf", 1, 4, 3)]),
        key(files=[FileStamp("/m.gguf", 1, 2, 4)]),
        key(files=[MODEL, FileStamp("/a.gguf", 1, 2, 3)]),
        key(engine="f"),
        key(cache_types=("f16", "q8_0")),
        key(LaunchOptions(lora=(LoraAdapter("a.gguf", 1.0),))),
        key(LaunchOptions(rope_freq_scale=0.5)),
        key(LaunchOptions(flash_attn="off")),
        key(LaunchOptions(swa_full=True)),
        key(LaunchOptions(extra_args=("--control-vector", "v.gguf"))),
    ],
)
def test_what_makes_other_numbers_matters(other: str) -> None:
    assert other != key()


def test_a_key_names_a_folder() -> None:
    assert key().isalnum()
    assert len(key()) == 32


def test_slots_with_something_in_them_the_longest_first() -> None:
    answer = [
        {"id": 0, "is_processing": False},
        {"id": 1, "is_processing": False, "n_prompt_tokens": 7},
        {"id": 2, "is_processing": True, "n_prompt_tokens": 900},
        {"id": 3, "is_processing": False, "n_prompt_tokens": 800},
        {"id": 4, "is_processing": False, "n_prompt_tokens": 0},
        "nonsense",
        {"id": "x", "n_prompt_tokens": 5},
    ]
    assert held_slots(answer) == (HeldSlot(3, 800), HeldSlot(1, 7))
    assert held_slots({"error": {}}) == held_slots(None) == ()


@given(SAVED, st.integers(0, 500))
def test_the_budget_is_kept_and_nothing_goes_in_vain(saved: list[SavedSlot], budget: int) -> None:
    gone = to_drop(saved, budget)
    left = [slot for slot in saved if slot not in gone]
    assert sum(slot.size for slot in left) <= budget
    for slot in gone:
        newer = sum(other.size for other in left if other.at >= slot.at)
        assert newer + slot.size > budget


def test_the_oldest_go_first() -> None:
    saved = [SavedSlot(name, 10, at) for name, at in (("a", 1.0), ("b", 3.0), ("c", 2.0))]
    assert [slot.name for slot in to_drop(saved, 20)] == ["a"]
    assert to_drop(saved, 30) == ()


def test_the_newest_are_restored() -> None:
    saved = [SavedSlot(name, 10, at) for name, at in (("a", 1.0), ("b", 3.0), ("c", 2.0))]
    assert [slot.name for slot in to_restore(saved, 2)] == ["b", "c"]


def test_idle_slots_are_left_filled_where_the_engine_would_empty_them() -> None:
    flags = {"--no-cache-idle-slots": False}
    assert kept(LaunchOptions(), "/kv", flags) == LaunchOptions(
        slot_save_path="/kv", extra_args=("--no-cache-idle-slots",)
    )
    assert kept(LaunchOptions(), "/kv", {}).extra_args == ()
    assert kept(LaunchOptions(), "/kv", None).extra_args == ()
    chosen = ("--cache-idle-slots",)
    assert kept(LaunchOptions(extra_args=chosen), "/kv", flags).extra_args == chosen
