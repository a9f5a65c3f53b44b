"""Models that other programs keep: LM Studio's folder and Ollama's blobs with manifests. Read, never changed.

LM Studio: MODELS/PUBLISHER/REPOSITORY/FILE.gguf, below `~/.lmstudio/models` or `~/.cache/lm-studio/models`.
Ollama: `manifests/HOST/OWNER/NAME/TAG` is JSON whose layers name `blobs/sha256-…`, below `$OLLAMA_MODELS` or
`~/.ollama/models`; the layer of type `…image.model` is the GGUF.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from supervisor.core.gguf import GgufHeader
from supervisor.core.repository import RepoFile, catalog_of
from supervisor.core.spec import lookup
from supervisor.errors import ModelFileError, ModelNotFound
from supervisor.files.model_file import open_model

Json = dict[str, Any]

_MODEL = "application/vnd.ollama.image.model"
_HUB_HOST = "registry.ollama.ai"
_INNER = ("v.", "mm.", "a.")  # tensors of a projector within the model's own file


def store_models(env: Mapping[str, str]) -> list[Json]:
    """Return what is there, in the form of `GET /api/v1/disk`; `problem`: why llama.cpp could not load it. Blocks."""
    home = Path(env.get("HOME") or Path.home())
    found: list[Json] = []
    for folder in (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"):
        found += _lm_studio(folder)
    return [*found, *_ollama(_ollama_folder(env))]


def ollama_blob(env: Mapping[str, str], name: str) -> Path:
    """Return the file of a model that Ollama keeps, by the name that Ollama has for it. Blocks.

    Raises ModelNotFound with the names there are, ModelFileError for one that llama.cpp could not load.
    """
    there = {one["name"]: one for one in _ollama(_ollama_folder(env))}
    found = there.get(name) or there.get(f"{name}:latest")
    if found is None:
        known = ", ".join(there) or "none"
        raise ModelNotFound(f"Ollama keeps no model '{name}'. It keeps: {known}.", param="target")
    if found["problem"]:
        raise ModelFileError(f"{name} of Ollama: {found['problem']}")
    return Path(found["path"])


def problem_of(path: Path) -> str | None:
    """Return the reason why llama.cpp could not load a file; None if nothing is known against it."""
    try:
        header = open_model(path).header
    except ModelFileError as error:
        return error.message
    return problem_in(header)


def problem_in(header: GgufHeader) -> str | None:
    """Return the same for a header."""
    name = header.architecture or "none"
    if not lookup(name).known:
        return f"llama.cpp does not know the architecture '{name}': the file was made for another engine"
    inner = [tensor.name for tensor in header.tensors if tensor.name.startswith(_INNER)]
    if inner and not lookup(name).projector:
        return (
            f"the file has its projector inside ({inner[0]}), which only Ollama's own engine reads; "
            "take the model from the hub, where the two are separate"
        )
    return None


def _lm_studio(folder: Path) -> Iterator[Json]:
    with suppress(OSError):
        for repo in sorted(path for path in folder.glob("*/*") if path.is_dir()):
            files = [
                RepoFile(str(path.relative_to(repo)), path.stat().st_size) for path in sorted(repo.rglob("*.gguf"))
            ]
            for variant in catalog_of(files).variants:
                name = f"{repo.parent.name}/{repo.name}/{variant.path}"
                yield _shown("lmstudio", name, repo / variant.path, variant.size, list(variant.missing))


def _ollama_folder(env: Mapping[str, str]) -> Path:
    if env.get("OLLAMA_MODELS"):
        return Path(env["OLLAMA_MODELS"])
    return Path(env.get("HOME") or Path.home()) / ".ollama" / "models"


def _ollama(folder: Path) -> Iterator[Json]:
    root = folder / "manifests"
    with suppress(OSError):
        for manifest in sorted(path for path in root.rglob("*") if path.is_file()):
            layers = _layers(manifest)
            blob = folder / "blobs" / layers[_MODEL].replace(":", "-") if _MODEL in layers else None
            if blob is not None and blob.is_file():
                yield _shown("ollama", _tag(manifest.relative_to(root)), blob, blob.stat().st_size, [])


def _layers(manifest: Path) -> dict[str, str]:
    """Return digests by media type."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {layer["mediaType"]: layer["digest"] for layer in json.loads(manifest.read_text("utf-8"))["layers"]}
    return {}


def _tag(path: Path) -> str:
    *where, tag = path.parts
    shown = [part for part in where if part not in {_HUB_HOST, "library"}]
    return f"{'/'.join(shown)}:{tag}"


def _shown(store: str, name: str, path: Path, size: int | None, missing: list[str]) -> Json:
    return {
        "name": name,
        "store": store,
        "repo": None,
        "variant": None,
        "commit": None,
        "revisions": [],
        "size_bytes": size,
        "used_at": path.stat().st_mtime,
        "path": str(path),
        "missing": missing,
        "loaded": False,
        "problem": f"{len(missing)} parts are missing" if missing else problem_of(path),
    }
