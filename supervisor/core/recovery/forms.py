"""The APIs whose answers may hold calls: how a request becomes one for a chat, and the form of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.core.recovery.messages_request import chat_of_messages
from supervisor.core.recovery.messages_voice import MessagesVoice
from supervisor.core.recovery.responses_request import chat_of_responses
from supervisor.core.recovery.responses_voice import ResponsesVoice, echoed
from supervisor.core.recovery.voices import ChatVoice, Voice

CHAT_PATH: Final = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one API.

    Attributes:
        chat: the request as one for a chat; None where it can be none.
        voice: of the answer to a request, of which it is given what the answer may repeat, `echoed`.
        needs: what the voice has to be told, as fields of the request for a chat, `chat`.
        always: the engine is asked for a chat though nothing is looked for: its own path reports no prompt progress.
    """

    chat: Callable[[Mapping[str, object]], Mapping[str, object] | None]
    voice: Callable[[Mapping[str, object]], Voice]
    needs: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda chat: {}
    always: bool = False
    echoed: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda asked: {}


def _usage(chat: Mapping[str, object]) -> Mapping[str, object]:
    return {"stream_options": {"include_usage": True}}


def _usage_and_stop_word(chat: Mapping[str, object]) -> Mapping[str, object]:
    return {**_usage(chat), **({"verbose": True} if chat.get("stop") else {})}


CHAT_FORM: Final = Form(lambda asked: asked, lambda asked: ChatVoice())
RESPONSES_FORM: Final = Form(chat_of_responses, ResponsesVoice, _usage, echoed=echoed)
MESSAGES_FORM: Final = Form(chat_of_messages, lambda asked: MessagesVoice(), _usage_and_stop_word, always=True)
