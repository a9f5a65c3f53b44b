"""Save slots to disk: what an engine remembered when it ended, taken up again by the next one of its kind.

Nothing here fails a start or a stop: what cannot be saved or restored is said in the log, and the conversation is
processed anew. A file is written under another name first, so that a whole one is never lost for a broken one, and is
out of the way while it is read, so that one which kills its engine does so once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from supervisor.core.launch.keeping import HeldSlot, SavedSlot, held_slots, to_drop, to_restore
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.engines.client import AnswerTooLarge, EngineClient, EngineUnreachable
from supervisor.system.owned import inner_folder, written_later

_log = structlog.get_logger()

_SUFFIX = ".slot"
_BUSY = ".busy"
_SPARE = 256 << 20  # bytes that stay free on the disk
_WITHIN_S = 15.0


class _Refused(Exception):
    """The engine did not do it; the message says why."""


def _file_names() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{os.getpid()}-{time.time_ns()}-{next(numbers)}"


class SlotStore:
    """The saved slots of all models, one folder per key, within a size budget.

    Args:
        folder: made on first use, for this user alone.
        max_bytes: of all files together; the oldest go first.
        within: seconds that saving or restoring the slots of one engine may take.
        file_name: makes names that were never used.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        *,
        within: float = _WITHIN_S,
        file_name: Callable[[], str] | None = None,
    ) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.within = within
        self.file_name = file_name or _file_names()

    def keeper(self, key: str, model: str, bytes_per_token: int) -> SlotKeeper:
        """Return the keeper of one engine's slots, and make its folder. Raise OSError.

        Args:
            key: as `slots_key` makes it.
            model: for the log.
            bytes_per_token: about what a token takes in the file.
        """
        folder = self.folder / key
        inner_folder(self.folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        return SlotKeeper(self, folder, model, bytes_per_token)

    def sweep(self) -> None:
        """Remove what a killed daemon or engine left half done."""
        for folder in self._folders():
            for path in folder.glob(f"*{_BUSY}"):
                path.unlink(missing_ok=True)
        self.trim()

    def trim(self) -> int:
        """Keep to the budget; return the number of files that were removed."""
        gone = to_drop(self._all(), self.max_bytes)
        for slot in gone:
            (self.folder / slot.name).unlink(missing_ok=True)
        return len(gone)

    def room_for(self, size: int) -> bool:
        """Return whether a file of about this size may be written."""
        return size <= self.max_bytes and size + _SPARE <= shutil.disk_usage(self.folder).free

    def _all(self) -> Iterator[SavedSlot]:
        for folder in self._folders():
            for path in folder.glob(f"*{_SUFFIX}"):
                found = _saved(path, f"{folder.name}/{path.name}")
                if found is not None:
                    yield found

    def _folders(self) -> list[Path]:
        """List the folders of engines; what lay there before the program is none."""
        return written_later(self.folder.glob("*/"))


@dataclass
class SlotKeeper:
    """The slots of one engine: restored when it is ready, saved before it ends.

    folder: what `--slot-save-path` is to say.
    """

    store: SlotStore
    folder: Path
    model: str
    bytes_per_token: int

    def __post_init__(self) -> None:
        self._restored: dict[int, Path] = {}  # by slot

    async def restore(self, client: EngineClient, slots: int) -> None:
        """Fill the slots of an engine that has just become ready with the newest saved ones."""
        try:
            async with asyncio.timeout(self.store.within):
                for slot, saved in enumerate(await asyncio.to_thread(self._candidates, slots)):
                    await self._restore(client, slot, saved)
        except (TimeoutError, OSError) as error:
            _log.warning("kv_not_restored", model=self.model, reason=_reason(error))

    async def save(self, client: EngineClient) -> None:
        """Save what the idle slots hold, the longest first; older files of theirs go once a newer one is complete.

        A slot that was filled and not used since is not among them: what it was filled from stays.
        """
        try:
            async with asyncio.timeout(self.store.within):
                saved = [slot.id for slot in await self._held(client) if await self._save(client, slot)]
            if saved:
                await asyncio.to_thread(self._tidy, saved)
        except (TimeoutError, OSError, _Refused, EngineUnreachable) as error:
            _log.warning("kv_not_saved", model=self.model, reason=_reason(error))

    def _candidates(self, slots: int) -> list[SavedSlot]:
        found = (_saved(path, path.name) for path in self.folder.glob(f"*{_SUFFIX}"))
        return list(to_restore((one for one in found if one is not None), slots))

    async def _restore(self, client: EngineClient, slot: int, saved: SavedSlot) -> None:
        whole = self.folder / saved.name
        busy = whole.with_suffix(_BUSY)
        try:
            whole.rename(busy)
        except FileNotFoundError:
            return  # another engine of the model has it
        try:
            answer = await _ask(client, slot, "restore", busy.name)
        except (_Refused, EngineUnreachable) as error:
            busy.unlink(missing_ok=True)
            _log.warning("kv_not_restored", model=self.model, reason=_reason(error))
            return
        busy.rename(whole)
        self._restored[slot] = whole
        _log.info("kv_restored", model=self.model, slot=slot, tokens=answer.get("n_restored"))

    async def _held(self, client: EngineClient) -> tuple[HeldSlot, ...]:
        async with client.get("/slots") as response:
            with suppress(ValueError):
                return held_slots(await response.json()) if response.status == 200 else ()
        return ()

    async def _save(self, client: EngineClient, slot: HeldSlot) -> bool:
        """Save one slot; return whether it was saved."""
        expected = slot.tokens * self.bytes_per_token
        if not self.store.room_for(expected):
            reason = f"about {expected >> 20} MiB are more than kv_store.max_mib or the disk allow"
            _log.warning("kv_not_saved", model=self.model, slot=slot.id, tokens=slot.tokens, reason=reason)
            return False
        busy = self.folder / f"{self.store.file_name()}{_BUSY}"
        try:
            answer = await _ask(client, slot.id, "save", busy.name)
            busy.rename(busy.with_suffix(_SUFFIX))
        except (_Refused, FileNotFoundError) as error:
            busy.unlink(missing_ok=True)
            _log.warning("kv_not_saved", model=self.model, slot=slot.id, tokens=slot.tokens, reason=_reason(error))
            return False
        except BaseException:
            busy.unlink(missing_ok=True)
            raise
        written = answer.get("n_written")
        _log.info("kv_saved", model=self.model, slot=slot.id, tokens=slot.tokens, bytes=written)
        return True

    def _tidy(self, saved: Iterable[int]) -> None:
        for slot in saved:
            older = self._restored.pop(slot, None)
            if older is not None:
                older.unlink(missing_ok=True)
        self.store.trim()


async def _ask(client: EngineClient, slot: int, action: str, name: str) -> dict[str, object]:
    """Ask the engine for an action on a slot. Raise _Refused, EngineUnreachable."""
    body = json.dumps({"filename": name}).encode()
    text, found = b"", None
    async with client.post(f"/slots/{slot}?action={action}", body) as response:
        with suppress(AnswerTooLarge, NotJson):
            text = await response.read()
            found = parse(text)
    if response.status != 200 or not isinstance(found, dict):
        raise _Refused(f"the engine answered {response.status}: {text.decode('utf-8', 'replace')[:300]}")
    return found


def _saved(path: Path, name: str) -> SavedSlot | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return SavedSlot(name, status.st_size, status.st_mtime)


def _reason(error: BaseException) -> str:
    return "it took too long" if isinstance(error, TimeoutError) else str(error)
