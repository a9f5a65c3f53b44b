"""Profiles of machines: files that come with the program, by name, and the user's own, by path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from supervisor.core.devices import Machine, parse_profile
from supervisor.errors import ProfileInvalid

_FOLDER = Path(__file__).parents[1] / "profiles"
_MOST_BYTES = 1 << 20  # somebody may name a model's file instead
_MOST_DIGITS = 100


class _Loader(yaml.SafeLoader):
    """A loader of plain YAML: no content larger than the text, and no numbers that cannot be written out."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return one value. Refuse a reference to another one, which could make much of little."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # PyYAML has no types here
            raise yaml.composer.ComposerError(None, None, "no aliases (*name) are taken here", mark)
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number."""
        if len(node.value) > _MOST_DIGITS:
            raise ValueError
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def profile_names() -> tuple[str, ...]:
    """Return the profiles that come with the program, without their ending."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_profile(name: str) -> Machine:
    """Return the machine of a profile: a path of a YAML or JSON file, or a name of `profile_names`.

    Raises ProfileInvalid where there is none, it cannot be read, or it is not a profile.
    """
    path = Path(os.path.expanduser(name))
    if "/" not in name and path.suffix == "" and name in profile_names():
        path = _FOLDER / f"{name}.yaml"
    if not os.path.isfile(path):
        known = ", ".join(profile_names())
        raise ProfileInvalid(f"There is no file {name}, and no profile of that name; there are {known}.")
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ProfileInvalid(f"{path} cannot be read: {error.strerror}.") from None
    return read_profile(data, str(path))


def read_profile(data: bytes, where: str) -> Machine:
    """Return the machine of a YAML or JSON text. Raises ProfileInvalid, which names `where` it came from."""
    if len(data) > _MOST_BYTES:
        raise ProfileInvalid(f"{where} is not a profile: it is too large for one.")
    try:
        value = yaml.load(data.decode("utf-8"), _Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ProfileInvalid(f"{where} is neither YAML nor JSON: line {line}: {error.problem}.") from None
    except (ValueError, RecursionError, yaml.YAMLError):  # no UTF-8, no such date or number, too deep
        raise ProfileInvalid(f"{where} is neither YAML nor JSON.") from None
    try:
        return parse_profile(value)
    except ProfileInvalid as error:
        raise ProfileInvalid(f"{where}: {error.message}") from None
