"""Check the slots that a client has an engine save, through `/upstream/MODEL/slots/N?action=…`.

They go to `slot_save_path`, where the configuration names one, and never become more than `kv_store.max_mib`. Where
it names none they are refused: the folder that an engine has for `keep_kv` is the daemon's own.
"""

from __future__ import annotations

import os
from urllib.parse import unquote

from supervisor.core.launch import LaunchOptions
from supervisor.errors import DiskFull, InvalidRequest

_ACTIONS = frozenset({"action=save", "action=restore", "action=erase"})
_ERASE = "action=erase"
_SAVE = "action=save"


def is_slot_action(method: str, target: str) -> bool:
    """Return whether a request for this path, percent-encoded, is one to save, restore or erase a slot."""
    path = unquote(target).strip("/")
    return method == "POST" and (path == "slots" or path.startswith("slots/"))


def check_slot_action(model: str, options: LaunchOptions, query: str, max_bytes: int) -> None:
    """Raise where the engine may not do the action. It reads the folder.

    Args:
        model: for the message.
        options: the model's.
        query: of the request, as it came.
        max_bytes: of all files in the folder.

    Raises:
        InvalidRequest: no such action, or there is no folder for clients.
        DiskFull: the folder holds as much as it may.
    """
    if query not in _ACTIONS:
        raise InvalidRequest("Only ?action=save, ?action=restore and ?action=erase are supported.", param="action")
    if query == _ERASE:
        return
    folder = options.slot_save_path
    if folder is None:
        raise InvalidRequest(
            f"'{model}' has no folder for slots that clients save. Set `slot_save_path` for this model in the "
            "configuration; or `keep_kv`, with which the daemon saves and restores them itself.",
            param="action",
        )
    if query == _SAVE and (held := _bytes_in(folder)) >= max_bytes:
        raise DiskFull(
            f"{folder} holds {held >> 20} MiB, and kv_store.max_mib allows {max_bytes >> 20}: remove some saved slots."
        )


def _bytes_in(folder: str) -> int:
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except OSError:
        return 0  # the engine says what is wrong with it
