"""Foreign text as a terminal or a log may show it: nothing in it is obeyed, hidden, or taken for another line.

Replaced are control characters (escape sequences begin with one), line ends that are no `\\n`, the characters that turn
the direction of what follows, and halves of surrogate pairs, which no encoding has. Letters of every script stay.
"""

from __future__ import annotations

import re

INSTEAD = "�"

_LINE_ENDS = "\x0b\x0c\x85\u2028\u2029"
_TURNING = "\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(rf"[\x00-\x08\x0e-\x1f\x7f-\x9f{_LINE_ENDS}{_TURNING}\ud800-\udfff]|\r(?!\n)")
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r\n": "\\n"}
_LINES = re.compile(r"\r\n|[\n\t]")


def plain(text: str) -> str:
    """Return text of one line or several, safe to show; tabs and line ends stay, `\\r\\n` becomes `\\n`."""
    return _UNSAFE.sub(INSTEAD, text).replace("\r\n", "\n")


def one_line(text: str) -> str:
    """Return text that is safe to show on one line: line ends and tabs are written as `\\n` and `\\t`."""
    return _LINES.sub(lambda found: _ESCAPES[found[0]], _UNSAFE.sub(INSTEAD, text))


def is_text(text: str) -> bool:
    """Return whether the text can be encoded; a file name that is not UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_name(text: str) -> bool:
    """Return whether the text can be a name: it is not empty, and every character is visible."""
    return bool(text.strip()) and text.isprintable()
