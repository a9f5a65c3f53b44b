"""The engines that live on this machine, side by side, and which of them is in use.

ROOT/NAME/bin/llama-server       one engine, moved into place whole and never changed afterwards
ROOT/NAME/manifest.json          what it is (`Manifest`)
ROOT/chosen.json                 {"current", "previous"}: names, or paths of binaries from elsewhere
ROOT/downloads, logs, tools      archives kept for next time, build logs, cmake where the machine has none
ROOT/cuda                        NVIDIA's compiler from wheels, where a build needed it
ROOT/vulkan-sdk/include          newer Vulkan headers than the system's, where somebody has put them
ROOT/scratch                     work in progress; removed by whoever holds ROOT/.lock next
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from supervisor.errors import EngineNotFound, FolderRefused, UsageError
from supervisor.llamacpp.jsonfile import number, read_object, text, write_object
from supervisor.llamacpp.lock import short_lock
from supervisor.system.removal import check_unmounted, remove_tree

SERVER = "llama-server.exe" if os.name == "nt" else "llama-server"
MANIFEST = "manifest.json"
_SCRATCH = re.compile(r"[a-z]+-\d+-[0-9a-f]{8}")


@dataclass(frozen=True)
class Manifest:
    """The known facts of an engine that its binary may not tell: `build` also where it says 0.

    backend: `cpu`, `cuda`, …; source: `release`, `registry`, `git` or the source folder; sha256: of
    llama-server; made_at: seconds since the epoch; recipe: of what all but ggml was made from (`llamacpp/recipe`), None
    where nobody knows; aside: installed with the wish not to use it.
    """

    name: str
    build: int | None
    commit: str | None
    backend: str
    source: str
    sha256: str
    made_at: int
    recipe: str | None = None
    aside: bool = False


@dataclass(frozen=True)
class Chosen:
    """The engine in use and the one before it: names in the store, or absolute paths."""

    current: str | None
    previous: str | None


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest in an engine's folder; None where there is none."""
    found = read_object(folder / MANIFEST)
    if not found:
        return None
    return Manifest(
        name=folder.name,
        build=number(found.get("build")),
        commit=text(found.get("commit")),
        backend=text(found.get("backend")) or "",
        source=text(found.get("source")) or "",
        sha256=text(found.get("sha256")) or "",
        made_at=number(found.get("made_at")) or 0,
        recipe=text(found.get("recipe")),
        aside=found.get("aside") is True,
    )


def manifest_of(binary: Path) -> Manifest | None:
    """Return the manifest of the engine that `binary` belongs to, if it is one of ours."""
    return read_manifest(binary.parent.parent)


class EngineStore:
    """The folder of engines."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock_file = root / ".lock"
        self.downloads = root / "downloads"
        self.logs = root / "logs"
        self.tools = root / "tools"
        self.cuda = root / "cuda"
        self.vulkan_sdk = root / "vulkan-sdk"
        self._scratch = root / "scratch"
        self._chosen_file = root / "chosen.json"

    def binary(self, name: str) -> Path:
        """Return the path of engine `name`'s server; for a path, the path."""
        return Path(name) if Path(name).is_absolute() else self.root / name / "bin" / SERVER

    def engines(self) -> tuple[Manifest, ...]:
        """Return every engine here, the newest build first."""
        folders = sorted(self.root.iterdir()) if self.root.is_dir() else []
        found = [manifest for folder in folders if (manifest := read_manifest(folder))]
        return tuple(sorted(found, key=lambda m: (m.build or 0, m.made_at), reverse=True))

    def recipes(self) -> dict[str, Path]:
        """Return the folder of programs of a CPU engine for each recipe by which one was built here."""
        known = {manifest.recipe: manifest.name for manifest in self.engines() if manifest.backend == "cpu"}
        return {recipe: self.binary(name).parent for recipe, name in known.items() if recipe}

    def chosen(self) -> Chosen:
        """Return what `choose` left."""
        found = read_object(self._chosen_file)
        return Chosen(text(found.get("current")), text(found.get("previous")))

    def choose(self, name: str) -> Chosen:
        """Use `name` from now on; the one used until now is kept for `choose_previous`."""
        if not self.binary(name).is_file():
            raise EngineNotFound(f"there is no engine {name!r}; `supervisor engine list` shows what there is")
        with self._changing():
            before = self.chosen()
            after = before if before.current == name else Chosen(name, before.current)
            self._write(after)
        return after

    def choose_previous(self) -> Chosen:
        """Go back to the engine used before; doing it twice comes back."""
        with self._changing():
            before = self.chosen()
            if before.previous is None or not self.binary(before.previous).is_file():
                raise UsageError("there is no previous engine; `supervisor engine list` shows what there is")
            after = Chosen(before.previous, before.current)
            self._write(after)
        return after

    def remove(self, name: str) -> Chosen:
        """Delete an engine; if it was in use, the previous one is used from then on."""
        if name not in {manifest.name for manifest in self.engines()}:
            raise EngineNotFound(f"there is no engine {name!r} installed here; `supervisor engine list` shows them")
        check_unmounted(self.root / name)
        with self._changing():
            kept = [n for n in (self.chosen().current, self.chosen().previous) if n and n != name]
            after = Chosen(kept[0] if kept else None, kept[1] if len(kept) > 1 else None)
            self._write(after)
        doomed = self.new_scratch("removed") / name
        os.rename(self.root / name, doomed)
        remove_tree(doomed.parent)
        return after

    def place(self, made: Path, manifest: Manifest) -> Manifest:
        """Move a finished engine folder into place; a name that is taken gets a number behind it."""
        name = manifest.name
        taken = 1
        while (self.root / name).exists():
            taken += 1
            name = f"{manifest.name}.{taken}"
        placed = Manifest(**{**asdict(manifest), "name": name})
        write_object(made / MANIFEST, asdict(placed))
        os.rename(made, self.root / name)
        return placed

    def new_scratch(self, purpose: str) -> Path:
        """Make a fresh folder on the engines' own disk, so that a rename moves what was made in it."""
        folder = self._scratch / f"{purpose}-{os.getpid()}-{os.urandom(4).hex()}"
        folder.mkdir(parents=True)
        return folder

    def clear_scratch(self) -> None:
        """Remove what killed builders left; only for the holder of the lock. Nothing else that lies there is ours."""
        for folder in self._scratch.glob("*"):
            if _SCRATCH.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink():
                with contextlib.suppress(OSError, FolderRefused):
                    remove_tree(folder)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with short_lock(self.root / ".chosen.lock"):
            yield

    def _write(self, chosen: Chosen) -> None:
        write_object(self._chosen_file, asdict(chosen))
