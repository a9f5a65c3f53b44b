"""Keep one engine's output: the newest lines in memory, all of it in a rotating file, and live for those who follow.

Between its lines stand notes of the daemon: which request reached the engine when.

Nothing here can block the engine: a follower that does not keep up loses lines and is told how many. What a full disk
does not take is missing in the file, but not in the ring, and the file goes on once the engine has ended. Control
characters are replaced: a prompt must not drive the terminal of whoever reads the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from supervisor.core.text.plaintext import one_line, plain
from supervisor.system.owned import inner_folder

_RING_LINE = 4000  # characters of a line that are kept in memory; the file has all
_BACKLOG = 1000  # lines that a follower may lag behind
_BACKLOG_CHARACTERS = 1 << 20  # and characters of them


class OutputLog:
    """The log of one model's engines, through all their restarts. Belongs to one event loop.

    Args:
        path: the file, None for none; its folder is made if needed, older files are `path.1` (newer) to
            `path.<backups>`.
        ring_lines: how many lines `tail` can give.
        max_bytes: size after which the file is rotated.
        backups: how many older files are kept.
    """

    def __init__(
        self, path: Path | None, *, ring_lines: int = 500, max_bytes: int = 5_000_000, backups: int = 2
    ) -> None:
        self.path = path
        self._ring: deque[tuple[str, bool]] = deque(maxlen=ring_lines)  # a line, and whether it is a note of ours
        self._said: deque[str] = deque(maxlen=ring_lines)  # those of them that the engine wrote
        self._max_bytes = max_bytes
        self._backups = backups
        self._followers: set[Follower] = set()
        self._file: BinaryIO | None = None
        self._size = 0
        self._closed = False
        self.written = 0  # lines of the engine, all told
        self.file_error: OSError | None = None

    def write(self, line: bytes) -> None:
        """Take a line without its end. Never raise because of the file: see `file_error`."""
        text = plain(line.decode("utf-8", "replace"))
        self.written += 1
        self._said.append(text[:_RING_LINE])
        self._take(text, is_note=False)

    def go_on_after(self, lines: Sequence[tuple[str, bool]]) -> None:
        """Have these be the newest lines: an earlier image of this process took them. They are in the file already.

        lines: as `newest` gave them.
        """
        for line, is_note in lines:
            self._ring.append((line[:_RING_LINE], is_note))
            if not is_note:
                self._said.append(line[:_RING_LINE])

    def note(self, text: str) -> None:
        """Take a line of the daemon's own, which is no output of the engine. Never raise, as `write`."""
        self._take(text if text.isprintable() else one_line(text), is_note=True)

    def _take(self, text: str, *, is_note: bool) -> None:
        self._ring.append((text[:_RING_LINE], is_note))
        for follower in self._followers:
            follower.offer(text)
        if self.path is not None and self.file_error is None and not self._closed:
            try:
                self._to_file(self.path, text.encode() + b"\n")
            except OSError as error:
                self.file_error = error

    def tail(self, lines: int) -> tuple[str, ...]:
        """Return the newest lines, oldest of them first."""
        return tuple(text for text, _ in self.newest(lines))

    def newest(self, lines: int) -> tuple[tuple[str, bool], ...]:
        """Return the newest lines likewise, each with whether it is a note."""
        return tuple(self._ring)[-lines:] if lines > 0 else ()

    def said(self, lines: int) -> tuple[str, ...]:
        """Return the newest lines of the engine likewise, without notes: an error shows them to any client."""
        return tuple(self._said)[-lines:] if lines > 0 else ()

    def subscribe(self, last: int = 0) -> Follower:
        """Follow from now on, after the `last` newest lines; use as `with log.subscribe() as lines`."""
        follower = Follower(self._followers)
        for line in self.tail(last):
            follower.offer(line)
        if self._closed:
            follower.close()
        return follower

    def close(self) -> None:
        """Close the file and end all followers; later lines go to the ring only."""
        self._closed = True
        for follower in tuple(self._followers):
            follower.close()
        self.rest()

    def rest(self) -> None:
        """Hold no open file until the next line, as a machine may have more models than open files.

        A file that could not be written to is tried again then.
        """
        self.file_error = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _to_file(self, path: Path, data: bytes) -> None:
        file = self._file or self._open(path)
        if self._size + len(data) > self._max_bytes and self._size > 0:
            self.rest()
            self._rotate(path)
            file = self._open(path)
        file.write(data)
        self._size += len(data)

    def _open(self, path: Path) -> BinaryIO:
        inner_folder(path.parent)
        self._file = path.open("ab", buffering=0)  # whole lines, also when we are killed
        self._size = self._file.tell()
        return self._file

    def _rotate(self, path: Path) -> None:
        for number in range(self._backups - 1, 0, -1):
            older = _numbered(path, number)
            if older.exists():
                older.replace(_numbered(path, number + 1))
        if self._backups > 0:
            path.replace(_numbered(path, 1))
        else:
            path.unlink()


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


class Follower:
    """An async iterator over lines as they come; it ends when the log or the follower is closed."""

    def __init__(self, registry: set[Follower]) -> None:
        self._registry = registry
        self._lines: deque[str] = deque()
        self._size = 0  # characters of them
        self._dropped = 0
        self._news = asyncio.Event()
        self._closed = False
        registry.add(self)

    def offer(self, line: str) -> None:
        """Queue a line, or count it as lost when too many wait already."""
        if len(self._lines) >= _BACKLOG or self._size > _BACKLOG_CHARACTERS:
            self._dropped += 1
        else:
            self._flush_dropped()
            self._queue(line)
        self._news.set()

    def close(self) -> None:
        """Take no more; what is queued can still be read."""
        self._closed = True
        self._registry.discard(self)
        self._news.set()

    async def __anext__(self) -> str:
        while not self._lines:
            if self._dropped:
                self._flush_dropped()
            elif self._closed:
                raise StopAsyncIteration
            else:
                self._news.clear()
                await self._news.wait()
        line = self._lines.popleft()
        self._size -= len(line)
        return line

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _flush_dropped(self) -> None:
        if self._dropped:
            self._queue(f"[{self._dropped} lines skipped: the reader was too slow]")
            self._dropped = 0

    def _queue(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)
