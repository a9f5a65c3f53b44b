"""A conversation: what was said, and the requests that it leads to. It touches nothing; who asks is `turns`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from supervisor.cli.client import Json


@dataclass
class Conversation:
    """The state of one conversation.

    Args:
        model: its id.
        system: the system message; None: there is none.
        settings: parameters of every request, by name.
        inputs: what the model takes (`text`, `image`, `audio`); None: nobody knows.
        images: parts that go with the next message.
        messages: what was said, without the system message.
        last: the message that was sent last, and how many were said before it; None before the first.
    """

    model: str
    system: str | None = None
    settings: Json = field(default_factory=dict)
    inputs: tuple[str, ...] | None = None
    images: list[Json] = field(default_factory=list)
    messages: list[Json] = field(default_factory=list)
    last: tuple[int, Json] | None = None

    def say(self, text: str) -> Json:
        """Take a message of the user, with the images that wait for one, and return the request that asks it."""
        content = [{"type": "text", "text": text}, *self.images] if self.images else text
        self.images = []
        self.last = (len(self.messages), {"role": "user", "content": content})
        return self._asked()

    def say_again(self) -> Json | None:
        """Return the request for another answer to the last message; None where there is none."""
        return None if self.last is None else self._asked()

    def take(self, content: str) -> None:
        """Keep the last message and its answer, in place of an earlier answer to it; nothing came: keep neither."""
        if self.last is not None and content:
            before, asked = self.last
            self.messages[before:] = [asked, {"role": "assistant", "content": content}]

    def forget(self) -> None:
        """Begin anew, with the same model, system message and settings."""
        self.messages, self.images, self.last = [], [], None

    def request(self, messages: list[Json]) -> Json:
        """Return the request for these messages."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return {**self.settings, "model": self.model, "messages": [*system, *messages]}

    def as_json(self) -> str:
        """Return the whole as JSON text."""
        found = {"model": self.model, "system": self.system, "settings": self.settings, "messages": self.messages}
        return json.dumps(found, ensure_ascii=True, indent=2) + "\n"

    def as_markdown(self) -> str:
        """Return what was said, as Markdown; images are only named."""
        return "\n".join(self._paragraphs())

    def _asked(self) -> Json:
        before, asked = self.last or (0, {})
        return self.request([*self.messages[:before], asked])

    def _paragraphs(self) -> Iterator[str]:
        yield f"# {self.model}\n"
        if self.system:
            yield f"## system\n\n{self.system}\n"
        for message in self.messages:
            yield f"## {message['role']}\n\n{text_of(message)}\n"


def text_of(message: Json) -> str:
    """Return a message's text; an image among its parts is `(image)`."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n\n".join(part.get("text") or "(image)" for part in content)
