"""Tell by its name whether a value is likely to be a secret, before it is shown to people or handed on.

It is wide on purpose: a harmless value that is hidden costs a look into the file, a token on a screen costs the token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "(hidden)"
_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|(?:^|[_-])PAT(?:[_-]|$)", re.IGNORECASE)
_NAMED = re.compile(r"([^=:/]*+(?:=|:(?!//)))(?=.)", re.DOTALL)  # an option, a variable or a header, before its value
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


def is_likely_secret(name: str) -> bool:
    """Return whether the value of this name, of a variable, a key or an option, is likely to be a secret."""
    return _NAMES.search(name) is not None


def without_credentials(text: str) -> str:
    """Return the text without the user names and passwords of the URLs in it."""
    return _CREDENTIALS.sub("***@", text) if "@" in text else text


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line as it may be shown: without the values of options and variables named like a secret.

    A command for a shell, and a header, which stand in one argument, count as well.
    """
    shown, hide = [], False
    for argument in arguments:
        named = _NAMED.match(argument)
        is_option, names_secret = argument.startswith("-"), is_likely_secret(argument.partition("=")[0])
        if hide and not is_option:
            shown.append(HIDDEN)
        elif " " in argument:
            shown.append(_shown_words(argument))
        else:
            secret = named is not None and is_likely_secret(named[1])
            shown.append(f"{named[1]}{HIDDEN}" if named and secret else without_credentials(argument))
        hide = is_option and names_secret and " " not in argument
    return shown


def _shown_words(text: str) -> str:
    header, colon, _ = text.partition(": ")
    if colon and " " not in header and is_likely_secret(header):
        return f"{header}: {HIDDEN}"
    return " ".join(shown_arguments(text.split(" ")))
