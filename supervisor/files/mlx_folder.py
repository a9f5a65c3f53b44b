"""Read a folder with a model of mlx-lm: `config.json`, and the headers of its `model*.safetensors` files."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from supervisor.core.mlx.config import MAX_CONFIG, parse_config
from supervisor.core.mlx.facts import MlxFacts, read_facts
from supervisor.core.mlx.header import LENGTH, SafetensorsHeader, bounded, header_bytes, read_header
from supervisor.core.repository.mlx import missing_parts
from supervisor.errors import ModelConfigError, ModelFileError, SafetensorsError, ShardMissing

CONFIG: Final = "config.json"
_WEIGHTS = re.compile(r"model.*\.safetensors")
TEMPLATES: Final = ("chat_template.jinja", "chat_template.json")
TOKENIZER: Final = "tokenizer_config.json"
_MAX_NAMED = 3
_MARK = b'"chat_template"'


@dataclass(frozen=True)
class MlxModel:
    """A model in a folder.

    Attributes:
        files: with its weights, by name.
        size_bytes: of these files.
    """

    folder: Path
    files: tuple[Path, ...]
    facts: MlxFacts
    size_bytes: int


def is_mlx_folder(folder: Path) -> bool:
    """Return whether a folder looks like one: `config.json`, weights in safetensors, and no model in GGUF."""
    names = _names(folder)
    if any(name.endswith(".gguf") for name in names):
        return False
    return CONFIG in names and any(_WEIGHTS.fullmatch(name) for name in names)


def read_mlx(folder: Path) -> MlxModel:
    """Read the model of a folder. Blocks.

    Raises ModelFileError and its subclasses: ModelConfigError, SafetensorsError, ShardMissing.
    """
    names = _names(folder)
    if CONFIG not in names:
        raise ModelConfigError(f"{folder} has no {CONFIG}; a model for MLX has one beside its safetensors files.")
    found = sorted(name for name in names if _WEIGHTS.fullmatch(name))
    if not found:
        raise ModelFileError(f"{folder} has no model*.safetensors file; check the path.")
    missing = missing_parts(found)
    if missing:
        raise ShardMissing(f"{folder} lacks parts of the model: {_some(missing)}; put them beside the others")
    headers = bounded(_header(folder / name) for name in found)
    config = parse_config(_beginning(folder / CONFIG, MAX_CONFIG + 1))
    facts = read_facts(headers, config, _has_template(folder, names))
    size = sum(header.file_size for header in headers)
    return MlxModel(folder.absolute(), tuple(folder.absolute() / name for name in found), facts, size)


def has_template_key(text: bytes) -> bool:
    """Return whether the text of a `tokenizer_config.json` has a chat template."""
    return _MARK in text


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (OSError, ValueError):
        return set()


def _has_template(folder: Path, names: set[str]) -> bool:
    if not names.isdisjoint(TEMPLATES):
        return True
    return TOKENIZER in names and has_template_key(_beginning(folder / TOKENIZER, MAX_CONFIG))


def _header(path: Path) -> SafetensorsHeader:
    with _opened(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            length = header_bytes(stream.read(LENGTH), size)
            return read_header(stream.read(length), size)
        except SafetensorsError as error:
            raise SafetensorsError(f"{path}: {error.message}") from None
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error


def _beginning(path: Path, most: int) -> bytes:
    with _opened(path) as stream:
        try:
            return stream.read(most)
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error


def _opened(path: Path) -> BinaryIO:
    """Open a regular file; what is none, a pipe for instance, is not waited for."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelFileError(f"{path} is not a regular file; copy or download it again.")
        return path.open("rb")
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from error
