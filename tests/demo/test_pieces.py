"""Texts are cut so that no piece occurs twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.demo.pieces import split_texts

_CHARACTERS = st.characters(exclude_categories=["Cs"])
_TEXTS = st.text(st.one_of(_CHARACTERS, st.sampled_from("ab")), min_size=2, max_size=60)


@given(st.lists(_TEXTS, max_size=6))
def test_pieces_are_the_text_again_and_occur_once(texts: list[str]) -> None:
    try:
        split = split_texts(texts)
    except ValueError:
        # Only short texts may be impossible to cut: too many copies of the same few characters.
        assert any(len(text) < 20 for text in texts)
        return
    assert ["".join(pieces) for pieces in split] == texts
    flat = list(itertools.chain(*split))
    assert len(flat) == len(set(flat))
    assert all(len(piece.encode()) >= 2 for piece in flat)


def test_copies_of_a_text_are_cut_at_other_places() -> None:
    text = "The same words again and again, as texts of a model often have them."
    split = split_texts([text] * 8)
    assert ["".join(pieces) for pieces in split] == [text] * 8
    flat = list(itertools.chain(*split))
    assert len(flat) == len(set(flat))


def test_a_monotonous_text_gets_longer_pieces() -> None:
    (pieces,) = split_texts(["a" * 400])
    assert "".join(pieces) == "a" * 400
    assert len(set(pieces)) == len(pieces)
    assert max(map(len, pieces)) > 9


def test_reserved_strings_and_names_of_special_tokens_are_no_pieces() -> None:
    ((first, *_),) = split_texts(["abcdefgh"], reserved=["abcd"])
    assert first != "abcd"
    (pieces,) = split_texts(["one <eos> two </s> three"])
    assert not {"<eos>", "</s>"} & set(pieces)


def test_an_empty_text_has_no_pieces() -> None:
    assert split_texts(["", "abc"]) == ((), ("abc",))


@pytest.mark.parametrize("texts", [["x"], ["abc", "abc"], ["a" * 10_000]])
def test_a_text_that_cannot_be_cut_is_named(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=f"'{texts[-1][:40]}"):
        split_texts(texts)
