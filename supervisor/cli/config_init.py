"""Find models that a configuration could name: in folders, and in the caches of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from supervisor.config.write import unique_ids
from supervisor.files.folder import FolderModel, left_out, look_inside, scan


def found_models(
    env: Mapping[str, str], folders: Sequence[Path], note: Callable[[str], None]
) -> dict[str, dict[str, str]]:
    """Return settings by id: first the folders' models, then the caches'. A file that is there twice counts once.

    What cannot be a model is left out, and `note` is told.
    """
    every: dict[Path, FolderModel] = {}
    for found in (*_in_folders(folders), *_in_caches(env)):
        every.setdefault(found.path.resolve(), found)
    models = list(every.values())
    for path in (path for folder in folders for path in left_out(folder.absolute())):
        note(f"left out: {path} (not a model file)")
    return dict(zip(unique_ids([model.name for model in models]), map(_settings, models), strict=True))


def _settings(model: FolderModel) -> dict[str, str]:
    companions = {"mmproj": model.projector, "spec_draft_model": model.draft}
    return {"file": str(model.path), **{key: str(path) for key, path in companions.items() if path is not None}}


def _in_folders(folders: Iterable[Path]) -> Iterator[FolderModel]:
    for folder in folders:
        yield from scan(folder.absolute())


def _in_caches(env: Mapping[str, str]) -> Iterator[FolderModel]:
    """Yield models of the caches of Hugging Face (a snapshot per repository), llama.cpp (files) and LM Studio."""
    home = Path(env.get("HOME") or Path.home())
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    hub = Path(env.get("HF_HUB_CACHE") or Path(env.get("HF_HOME") or cache / "huggingface") / "hub")
    for snapshot in sorted(hub.glob("models--*/snapshots/*")):
        yield from _files(snapshot, snapshot.parent.parent.name.split("--")[-1])
    yield from scan(Path(env.get("LLAMA_CACHE") or cache / "llama.cpp"))
    for repository in sorted((home / ".lmstudio" / "models").glob("*/*")):
        yield from _files(repository, repository.name)


def _files(folder: Path, name: str) -> Iterator[FolderModel]:
    """Yield every file of a repository as a model; projector and draft beside them belong to each."""
    beside = look_inside(folder, name)
    if beside is None:
        return
    for one in scan(folder):
        yield FolderModel(one.name, one.path, one.projector or beside.projector, one.draft or beside.draft)
