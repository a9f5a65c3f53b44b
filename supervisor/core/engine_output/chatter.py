"""Recognise the lines that an engine at `-lv 4` writes for every request and that say nothing a person looks for.

llama.cpp writes them at level trace but marks them `I` like the useful ones, so they are told by their text; the list
is that of b11434. A line that is not on it is kept. And what a line quotes of a file that is no model.
"""

from __future__ import annotations

import re

_TEXTS = (
    rb"   - prompt ",  # one for every prompt in the cache, so it comes first
    rb"conv_id=",
    rb"chat format: ",
    rb" - skipping, ",
    rb" - checking sim = ",
    rb"updating prompt cache",
    rb"prompt cache update took ",
    rb" - looking for better prompt",
    rb" - found better prompt",
    rb" - prompt is already in the cache",
    rb" - removing obsolete cached prompt",
    rb" - saving prompt with length",
    rb" - cache state: ",
    rb"sampler chain: ",
    rb"sampler params: ",
    rb"saving idle slot to prompt cache",
    rb"clearing prompt with ",
    rb"clearing cache for lora change",
    rb"keeping cache for alora",
    rb"new prompt, n_ctx_slot",
    rb"cached n_tokens = ",
    rb"reusing chunk with size",
    rb"init sampler, took",
    rb"all slots are idle",
    rb"done request: ",
    rb"encoding mtmd batch",
    rb"checking checkpoint with ",
    rb"restored context checkpoint",
    rb"created context checkpoint",
    rb"erasing context checkpoint too close",
    rb"erased invalidated context checkpoint",
    rb"superseding context checkpoint",
    rb" - copying shared prompt",
    rb" - copying state to child",
    rb"launching slots for parent task",
    rb"set lora adapter idx",
)
_CHATTER = re.compile(
    rb"(?:[\d.]+ )?(?:I )?(?:srv|slot|que)\s+\S+: (?:id\s+-?\d+ \| task -?\d+ \| )?(?:%s)"
    % b"|".join(map(re.escape, _TEXTS))
    + rb"|\t(?:repeat_last_n|dry_multiplier|top_k|mirostat) = "
)


_QUOTED = (
    (re.compile(rb"(invalid magic characters: )'.{0,16}?'(?=,|$)"), rb"\1(not shown)"),
    (re.compile(rb"(unknown \(magic, version\) for [a-z ]+: )[0-9a-f]{8}, [0-9a-f]{8}"), rb"\1(not shown)"),
)


def unquoted(line: bytes) -> bytes:
    """Return the line without the bytes that it quotes of a file that is no model, since they may be anybody's."""
    if b"magic" in line:
        for pattern, instead in _QUOTED:
            line = pattern.sub(instead, line)
    return line


def is_chatter(line: bytes) -> bool:
    """Return whether a line of a ready engine, without its end, is only about the course of one request."""
    return _CHATTER.match(line) is not None
