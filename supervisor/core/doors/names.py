"""Names of models as clients of Ollama write them, and ours as they expect them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

_LATEST: Final = ":latest"
_HOSTS: Final = ("hf.co/", "huggingface.co/", "https://hf.co/", "https://huggingface.co/")


def shown_name(model: str) -> str:
    """Return the name under which a list shows a model: always with a tag."""
    return model if ":" in model.rpartition("/")[2] else model + _LATEST


def meant_names(name: str) -> Iterator[str]:
    """Yield what a client may mean by a name, the most likely first: without the host of the hub, without `latest`."""
    yield name
    typed = name.lower()
    host = next((one for one in _HOSTS if typed.startswith(one)), "")
    name = name[len(host) :]
    if name.lower().endswith(_LATEST):
        name = name[: -len(_LATEST)]
    yield name


def digest_of(model: str) -> str:
    """Return what stands for a model's digest: clients expect 64 hexadecimal digits, and compare them."""
    return hashlib.sha256(model.encode("utf-8", "replace")).hexdigest()
