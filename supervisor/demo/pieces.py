"""Cut texts into pieces of which none occurs twice, so that every piece has one successor.

A scripted model knows only its last token. To say several texts, each token must occur once over all of them;
a text that repeats another one (or itself) is therefore cut at other places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SIZES = (4, 5, 3, 6, 2, 7, 8, 9, 1)
_LONGEST = 64
_MAX_STEPS = 20_000
_MIN_BYTES = 2  # single bytes are tokens already

# Names of special tokens: the engine gives them a meaning wherever a vocabulary has them, an end of text for example.
_ENGINE_NAME = re.compile(r"<\|?[\w-]+\|?>|</s>|_<EOT>|\[(EOT|EOS|PAD)\]|\[e~\[")


def split_texts(texts: Sequence[str], reserved: Iterable[str] = ()) -> tuple[tuple[str, ...], ...]:
    """Return the pieces of each text, in order; joined they are the text again.

    Args:
        texts: may repeat each other; an empty text has no pieces.
        reserved: strings that must not become pieces.

    Pieces have 2 bytes at least and 9 characters at most, more only where that is not enough. Raises ValueError
    naming the text that cannot be cut uniquely.
    """
    taken = set(reserved)
    # A short text has few ways to be cut: it goes first.
    order = sorted(range(len(texts)), key=lambda index: (len(texts[index].encode()), index))
    found: dict[int, tuple[str, ...]] = {}
    for index in order:
        found[index] = _split(texts[index], taken)
        taken.update(found[index])
    return tuple(found[index] for index in range(len(texts)))


def _split(text: str, taken: set[str]) -> tuple[str, ...]:
    sizes: tuple[int, ...] = _SIZES
    while True:
        pieces = _search(text, taken, sizes)
        if pieces is not None:
            return pieces
        longest = max(sizes) * 2
        if longest > _LONGEST:
            raise ValueError(f"cannot be cut into pieces that occur nowhere else: {_shortened(text)}")
        sizes = (*sizes, *range(max(sizes) + 1, longest + 1))


def _search(text: str, taken: set[str], sizes: Sequence[int]) -> tuple[str, ...] | None:
    """Return pieces found depth first, trying `sizes` in order at every place.

    None without a way or after too many steps.
    """
    pieces: list[str] = []
    used: set[str] = set()
    choices = [iter(sizes)]
    position = 0
    for _ in range(_MAX_STEPS + 20 * len(text)):
        if position == len(text):
            return tuple(pieces)
        size = next(choices[-1], None)
        if size is None:
            choices.pop()
            if not pieces:
                return None
            last = pieces.pop()
            used.discard(last)
            position -= len(last)
            continue
        piece = text[position : position + size]
        if len(piece) == size and piece not in used and piece not in taken and _can_be_token(piece):
            pieces.append(piece)
            used.add(piece)
            position += size
            choices.append(iter(sizes))
    return None


def _can_be_token(piece: str) -> bool:
    return len(piece.encode()) >= _MIN_BYTES and not _ENGINE_NAME.fullmatch(piece)


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
