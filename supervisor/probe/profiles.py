"""Profiles of machines: files that come with the program, by name, and the user's own, by path."""

from __future__ import annotations

from pathlib import Path

import yaml

from supervisor.core.devices import Machine, parse_profile
from supervisor.errors import ProfileInvalid

_FOLDER = Path(__file__).parents[1] / "profiles"


def profile_names() -> tuple[str, ...]:
    """The profiles that come with the program, without their ending."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_profile(name: str) -> Machine:
    """The machine of a profile: a path of a YAML or JSON file, or a name of `profile_names`.

    Raises ProfileInvalid where there is none, it cannot be read, or it is not a profile.
    """
    path = Path(name).expanduser()
    if "/" not in name and path.suffix == "" and name in profile_names():
        path = _FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(profile_names())
        raise ProfileInvalid(f"There is no file {name}, and no profile of that name; there are {known}.")
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProfileInvalid(f"{path} cannot be read: {error}") from None
    try:
        return parse_profile(value)
    except ProfileInvalid as error:
        raise ProfileInvalid(f"{path}: {error.message}") from None
