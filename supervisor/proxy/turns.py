"""Have a conversation written anew where the model's template does not take its turns, tools or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from supervisor.core.recovery.emulate import TemplateFacts, retold
from supervisor.core.recovery.raw import TEMPLATE_PATH, template_request
from supervisor.core.recovery.turns import Doubt, doubts_of
from supervisor.core.text.foreignjson import escaped
from supervisor.engines.client import EngineClient
from supervisor.proxy.bodies import ClientJson

_MOST = 1 << 20  # bytes of a request that the engine is asked about before
FactsOf: TypeAlias = Callable[[EngineClient], Awaitable[TemplateFacts]]


class Turns:
    """A chat without tools of which something is in doubt.

    facts_of: asks an engine about its template, once.
    """

    def __init__(
        self, chat: Mapping[str, object], request: ClientJson, doubts: frozenset[Doubt], facts_of: FactsOf
    ) -> None:
        self._chat, self._request, self._doubts, self._facts_of = chat, request, doubts, facts_of

    async def changed(self, client: EngineClient) -> Mapping[str, object] | None:
        """Return the chat as the template takes it; None where it takes it as it is.

        A template without a place for tools may leave their turns out without a word, so those are always rewritten.
        """
        facts = await self._facts_of(client)
        known = {Doubt.TOOLS: facts.tools, Doubt.SYSTEM: facts.system}
        doubts = {doubt for doubt in self._doubts if not known.get(doubt, False)}
        if not doubts or (Doubt.TOOLS not in doubts and await self._is_taken(client)):
            return None
        return await self._request.work(partial(retold, self._chat, facts))

    async def _is_taken(self, client: EngineClient) -> bool:
        asked = template_request(self._chat)
        payload = await self._request.work(lambda: self._request.payload(escaped(asked)))
        async with client.post(TEMPLATE_PATH, payload) as rendered:
            return rendered.status < 400


def turns_of(chat: Mapping[str, object], request: ClientJson, facts_of: FactsOf) -> Turns | None:
    """Return what looks after the turns of a chat; None where every template takes them, or it is very long."""
    if request.size > _MOST:
        return None
    doubts = doubts_of(chat.get("messages"))
    return Turns(chat, request, doubts, facts_of) if doubts else None
