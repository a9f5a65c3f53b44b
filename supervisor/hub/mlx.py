"""Reads what decides the memory of a model for MLX that is on the hub: its configuration, and headers by ranges."""

from __future__ import annotations

from pathlib import Path

from supervisor.core.mlx.config import MAX_CONFIG, parse_config
from supervisor.core.mlx.facts import read_facts
from supervisor.core.mlx.header import LENGTH, MAX_HEADER, SafetensorsHeader, bounded, header_bytes, read_header
from supervisor.core.repository import RepoFile, Variant
from supervisor.errors import ModelConfigError, SafetensorsError
from supervisor.files.mlx_folder import TEMPLATES, TOKENIZER, MlxModel, has_template_key
from supervisor.hub.api import HubClient
from supervisor.hub.listing import Repository
from supervisor.hub.ranged import RangeStream

_SUFFIX = ".safetensors"


def remote_mlx(client: HubClient, repository: Repository, variant: Variant) -> MlxModel:
    """Return the model; of its weights only the headers are fetched.

    Raises ModelConfigError, SafetensorsError, and as `HubClient.repository`.
    """
    weights = [part for part in variant.parts if part.path.endswith(_SUFFIX)]
    small = {part.path: part for part in variant.parts if part not in weights}
    config = parse_config(_whole(client, repository, variant.parts[0]))
    headers = bounded(_header(client, repository, part) for part in weights)
    template = not small.keys().isdisjoint(TEMPLATES)
    if not template and TOKENIZER in small:
        template = has_template_key(_whole(client, repository, small[TOKENIZER]))
    folder = Path(repository.id)
    facts = read_facts(headers, config, template)
    return MlxModel(folder, tuple(folder / part.path for part in weights), facts, sum(_size(part) for part in weights))


def _size(file: RepoFile) -> int:
    """Return the bytes of a file; a hub that does not say them cannot be read from afar."""
    if file.size is None:
        raise ModelConfigError(f"The hub does not say how large {file.path} is; download the model to read it.")
    return file.size


def _whole(client: HubClient, repository: Repository, file: RepoFile) -> bytes:
    return RangeStream(client, repository, file).read(min(_size(file), MAX_CONFIG))


def _header(client: HubClient, repository: Repository, file: RepoFile) -> SafetensorsHeader:
    stream, size = RangeStream(client, repository, file), _size(file)
    try:
        length = header_bytes(stream.read(LENGTH), size)
        return read_header(stream.read(min(length, MAX_HEADER)), size)
    except SafetensorsError as error:
        raise SafetensorsError(f"{repository.id}/{file.path}: {error.message}") from None
