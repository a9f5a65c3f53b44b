"""Tell by its name whether a value is likely to be a secret, before it is shown to people or handed on.

It is wide on purpose: a harmless value that is hidden costs a look into the file, a token on a screen costs the token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "(hidden)"
_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|(?:^|[_-])PAT(?:[_-]|$)", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


def is_likely_secret(name: str) -> bool:
    """Return whether the value of this name, of a variable, a key or an option, is likely to be a secret."""
    return _NAMES.search(name) is not None


def without_credentials(text: str) -> str:
    """Return the text without the user names and passwords of the URLs in it."""
    return _CREDENTIALS.sub("***@", text) if "@" in text else text


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line as it may be shown: without the values of options that are named like a secret."""
    shown, hide = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_option = argument.startswith("-")
        hidden = HIDDEN if hide and not is_option else without_credentials(argument)
        hide = is_option and is_likely_secret(name)
        shown.append(f"{name}={HIDDEN}" if hide and equals else hidden)
    return shown
