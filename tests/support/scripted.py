"""Makes scripted models for tests, each with exactly the texts a test expects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Reply, Script, TemplateKind


class ScriptedModel(Protocol):
    """The `scripted_model` fixture.

    Args:
        reply: said when nothing else applies, and to plain prompts.
        when: word in the last message -> text; the first in the mapping that occurs wins.
        tools: said when the request offers tools and no word applies.
        after_tool: said when the last message is a tool's result.
        think: reasoning put before `reply` in a `<think>` block.
        endless: `reply` begins again at its end for ever.
        template: "chatml" lets the engine parse reasoning and tool calls; "plain" leaves all in `content`.
        n_ctx: the context the header says the model was trained with.
    """

    def __call__(
        self,
        reply: str = ...,
        *,
        when: Mapping[str, str] | None = ...,
        tools: str | None = ...,
        after_tool: str | None = ...,
        think: str | None = ...,
        endless: bool = ...,
        template: TemplateKind = ...,
        n_ctx: int = ...,
    ) -> Path: ...


class ScriptedModels:
    """Writes each script once into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(
        self,
        reply: str = "Hello from a scripted model.",
        *,
        when: Mapping[str, str] | None = None,
        tools: str | None = None,
        after_tool: str | None = None,
        think: str | None = None,
        endless: bool = False,
        template: TemplateKind = "chatml",
        n_ctx: int = 32768,
    ) -> Path:
        script = Script(
            name="scripted",
            default=reply if think is None else f"<think>\n{think}\n</think>\n\n{reply}",
            replies=tuple(Reply(word, text) for word, text in (when or {}).items()),
            after_tool=after_tool,
            tools=tools,
            endless=endless,
            template=template,
            n_ctx=n_ctx,
        )
        path = self._folder / f"scripted-{hashlib.sha256(repr(script).encode()).hexdigest()[:16]}.gguf"
        if not path.exists():
            write_scripted_gguf(path, script)
        return path
