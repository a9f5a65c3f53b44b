"""Make the file of the built-in model on first use, and keep it in the cache folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from supervisor.demo.maker import MAKER_VERSION, write_scripted_gguf
from supervisor.demo.template import chat_template
from supervisor.demo.texts import DEMO
from supervisor.system.owned import own_folder


def ensure_demo_model(cache: Path) -> Path:
    """Return the built-in model in `cache`; make it if this version of it is not there yet (some 20 ms).

    The file appears whole or not at all, so several processes may call this at once. Raises OSError where the folder
    cannot be written.
    """
    target = cache / demo_file_name()
    if target.is_file():
        return target
    own_folder(cache)
    write_scripted_gguf(target, DEMO)
    return target


def demo_file_name() -> str:
    """Return the file's name, which follows from the content: another text, template or maker gives another name."""
    content = repr((MAKER_VERSION, DEMO, chat_template(DEMO)))
    return f"demo-{hashlib.sha256(content.encode()).hexdigest()[:16]}.gguf"
