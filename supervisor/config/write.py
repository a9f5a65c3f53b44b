"""Write configuration files as text: from data, and as a template to fill in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from supervisor.config.document import to_yaml
from supervisor.core.text.plaintext import one_line

_VARIABLE = re.compile(r"(?<!\$)(\$\{(?:env\.\w+(?::-[^{}]*)?|SOCKET|PORT|PID)\})")
_HEAD = "Configuration of llama-supervisor. `supervisor config check` says what is wrong with it."


def as_text(data: Mapping[str, object], comments: Iterable[str] = ()) -> str:
    """Return the data under comments, a line each whatever they contain.

    References to variables (`${env.X}`) and what is put in at a start (`${PORT}`) stay. Every other `${` is taken as it
    is.
    """
    body = to_yaml(_escaped(dict(data))) if data else "{}\n"
    return "".join(f"# {one_line(line)}\n" for line in (_HEAD, *comments)) + "\n" + body


def template(count: int) -> str:
    """Return a file with this many models to fill in."""
    lines = [f"# {_HEAD}", "# config.example.yaml and docs/configuration.md have every key.", "", "models:"]
    for number in range(1, count + 1):
        lines += [
            f"  model-{number}:                          # the id that requests name",
            "    source: owner/repo:Q4_K_M       # or ./path/to/model.gguf, or a folder",
            "    # ctx_size: 8192                # left out: as much as is sensible here",
            "    # ttl: 600                      # seconds of idleness after which it is unloaded",
            "    # preload: true",
        ]
    return "\n".join(lines) + "\n"


def unique_ids(names: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """Return the names, with a number added to those that came before."""
    known = set(taken)
    found = []
    for name in names:
        number, unique = 2, name
        while unique in known:
            unique, number = f"{name}-{number}", number + 1
        known.add(unique)
        found.append(unique)
    return found


def _escaped(data: object) -> object:
    """Return the same data, written so that `expand` gives it back; `${env.…}` and `${PORT}` are left as they were."""
    if isinstance(data, dict):
        return {key: _escaped(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_escaped(item) for item in data]
    if not isinstance(data, str):
        return data
    parts = _VARIABLE.split(data)
    return "".join(part if number % 2 else part.replace("${", "$${") for number, part in enumerate(parts))
