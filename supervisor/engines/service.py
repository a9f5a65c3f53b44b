"""How the engine of a model is asked: on which paths, under which name, and whether in llama-server's own way."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.errors import NotSupportedByEngine

_NAMED = 12  # paths that an error lists


@dataclass(frozen=True)
class Service:
    """What the relay needs to know of an engine.

    Attributes:
        apis: the paths that it answers, as the rows of `core/routes` spell them.
        model_name: what it calls the model; None: it does not care, and gets what the client wrote.
        plain: it gets requests as they are, and its answers are passed on as they come: nothing of llama-server's own
            is asked for, and no tool calls are looked for. Closing its connection cancels a request.
        chats: a request of another API than OpenAI's that can be a chat becomes one before it is asked.
    """

    apis: frozenset[str]
    model_name: str | None = None
    plain: bool = False
    chats: bool = False

    def check(self, path: str, model: str) -> None:
        """Raise NotSupportedByEngine where the engine of the model does not answer the path."""
        if path not in self.apis:
            known = sorted(self.apis)
            listed = ", ".join(known[:_NAMED]) + ("" if len(known) <= _NAMED else ", …")
            raise NotSupportedByEngine(
                f"The engine of '{model}' does not answer {path}. It answers: {listed}. Choose another model for this.",
            )
