"""Scripted models for many texts: as few files as can hold them, since no piece of a text may occur twice in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Reply, Script, TemplateKind

_MOST = 24  # texts in one file; cutting gets slow with more


def write_talkers(
    folder: Path, texts: Mapping[str, str], template: TemplateKind = "plain"
) -> tuple[dict[str, Path], dict[str, str]]:
    """Models by name, and for each text's name the model that says it, where the name is in the last message.

    Names are words of `Reply`. Raises ValueError for a text that cannot be said at all.
    """
    folder.mkdir(exist_ok=True)
    left = dict(texts)
    files: dict[str, Path] = {}
    homes: dict[str, str] = {}
    while left:
        name = f"talker-{len(files)}"
        path = folder / f"{name}.gguf"
        said: dict[str, str] = {}
        for word, text in list(left.items()):
            trial = {**said, word: text}
            if len(said) < _MOST and _can_say(path, trial, template):
                said = trial
                del left[word]
        if not said:
            raise ValueError(f"cannot be said: {', '.join(left)}")
        _write(path, said, template)
        files[name] = path
        homes.update(dict.fromkeys(said, name))
    return files, homes


def _can_say(path: Path, texts: Mapping[str, str], template: TemplateKind) -> bool:
    try:
        _write(path, texts, template)
    except ValueError:
        return False
    return True


def _write(path: Path, texts: Mapping[str, str], template: TemplateKind) -> None:
    replies = tuple(Reply(word, text) for word, text in texts.items())
    write_scripted_gguf(path, Script("talker", "Hm.", replies, template=template, n_ctx=8192))
