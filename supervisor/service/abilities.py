"""What a model can do, as far as its file tells: for clients that choose among models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from supervisor.core.options import LaunchOptions
from supervisor.core.plan import Placement
from supervisor.core.spec.template import TemplateCapabilities, read_template
from supervisor.planning.known import Known

_read = lru_cache(64)(read_template)  # it takes milliseconds, and statuses are asked for often


@dataclass(frozen=True)
class Contexts:
    """Contexts of a model, in tokens.

    Attributes:
        native: that it was trained with.
        fitting: the largest that one request could have where it is placed; None: unknown, or it is not placed.
        request: that one request has now; None: no engine is ready.
    """

    native: int | None
    fitting: int | None
    request: int | None


@dataclass(frozen=True)
class Abilities:
    """The abilities of a model. Those of its template are None where the template is not known.

    Attributes:
        inputs: kinds of input: text, image, audio.
        template: whose chat template it has: `model`, `configured`, the name of one of llama-server's own; None: none.
        tools: the template tells the model of tools; for others they are described in the prompt.
        tool_dialect: how calls are written (docs/toolcalls.md).
        parallel_tools: it can make several calls in one turn.
        thinking: the variable that switches reasoning; "always" where none does; None: without reasoning, or unknown.
        preserve_thinking: a variable decides whether earlier reasoning stays in the prompt.
        system_role: it takes a system message.
    """

    inputs: Sequence[str]
    contexts: Contexts
    template: str | None
    tools: bool | None
    tool_dialect: str | None
    parallel_tools: bool | None
    thinking: str | None
    preserve_thinking: bool | None
    system_role: bool | None


def abilities_of(known: Known, placement: Placement | None, request: int | None) -> Abilities:
    """Return the abilities of a model that was read. request: tokens that one request has now."""
    info = known.info
    template, can = _template(known.entry.options, info.spec.template)
    contexts = Contexts(info.spec.n_ctx_train or None, placement.fitting_ctx if placement else None, request)
    return Abilities(
        inputs=info.inputs,
        contexts=contexts,
        template=template,
        tools=can.tools if can else None,
        tool_dialect=can.tool_dialect if can else None,
        parallel_tools=can.parallel_tools if can else None,
        thinking=can.thinking if can else None,
        preserve_thinking=can.preserve_thinking if can else None,
        system_role=can.system_role if can else None,
    )


def _template(
    options: LaunchOptions, own: TemplateCapabilities | None
) -> tuple[str | None, TemplateCapabilities | None]:
    """Return whose template counts, and what it can do as far as its text is here."""
    if options.chat_template_file is not None:
        return "configured", None
    text = options.chat_template
    if text is None:
        return None if own is None else "model", own
    return ("configured", _read(text)) if "{" in text else (text, None)
