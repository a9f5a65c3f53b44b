"""Saving a conversation to a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from supervisor.cli.talking.conversation import Conversation
from supervisor.errors import UsageError
from supervisor.system.owned import inner_folder, keep_newest
from supervisor.system.paths import Places, safe_name

MOST_SAVED = 200
"""Conversations that stay in the state folder."""


def save(talk: Conversation, name: str, where: Places) -> Path:
    """Write the conversation, as JSON where the name ends in `.json`, else as Markdown; return the file.

    Args:
        name: the file; empty: a new one in the state folder, of which the newest MOST_SAVED stay.

    Raises UsageError for a file that is there already or cannot be written.
    """
    path = Path(os.path.expanduser(name)).absolute() if name else _new_file(talk, where)
    text = talk.as_json() if path.suffix == ".json" else talk.as_markdown()
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
    except FileExistsError:
        raise UsageError(f"{path} is there already; choose another name.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
    return path


def _new_file(talk: Conversation, where: Places) -> Path:
    folder = inner_folder(where.chats)
    keep_newest(folder.glob("*.md"), MOST_SAVED - 1)
    began = time.strftime("%Y%m%d-%H%M%S")
    name = f"{safe_name(talk.model)[:60]}-{began}"
    candidates = (folder / f"{name}{more}.md" for more in ("", *(f"-{number}" for number in range(2, 100))))
    return next((path for path in candidates if not path.exists()), folder / f"{name}.md")
