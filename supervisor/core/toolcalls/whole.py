"""Read a whole answer at once, and collect its events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from supervisor.core.toolcalls.dialects import REGISTRY
from supervisor.core.toolcalls.events import CallArguments, CallEnd, CallStart, Dropped, Event, LeftAsText, Text
from supervisor.core.toolcalls.options import Options
from supervisor.core.toolcalls.recoverer import Recoverer
from supervisor.core.toolcalls.registry import Registry


@dataclass(slots=True)
class Call:
    """A call. `arguments` is JSON text of an object, unless the call is not `complete`."""

    id: str
    name: str
    dialect: str
    arguments: str = ""
    complete: bool = True
    repaired: bool = False


@dataclass(slots=True)
class Answer:
    """An answer's text and calls.

    Attributes:
        dropped: markup that reaches nobody, as the model wrote it.
        left: what began like a call and stayed text.
    """

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    left: list[LeftAsText] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        """Add the content of these events."""
        for event in events:
            if isinstance(event, Text):
                self._text(event)
            elif isinstance(event, CallStart):
                self.calls.append(Call(event.id, event.name, event.dialect))
            elif isinstance(event, CallArguments):
                self.calls[event.index].arguments += event.text
            elif isinstance(event, CallEnd):
                self.calls[event.index].complete = event.complete
                self.calls[event.index].repaired = event.repaired
            elif isinstance(event, Dropped):
                self.dropped.append(event.text)
            else:
                self.left.append(event)

    def _text(self, event: Text) -> None:
        if event.channel == "content":
            self.content += event.text
        else:
            self.reasoning += event.text


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that matter here: its tools, its choice, the options and the dialects."""

    tools: object
    tool_choice: object = None
    options: Options = field(default_factory=Options)
    make_id: Callable[[], str] | None = None
    registry: Registry = REGISTRY

    def recoverer(self) -> Recoverer:
        """Return a new recoverer for one answer."""
        return Recoverer(self.tools, self.tool_choice, self.options, self.make_id, self.registry)


def read_answer(
    request: Request, content: Iterable[str], reasoning: Iterable[str], finish_reason: str | None
) -> Answer:
    """Read an answer that has come in these pieces, the reasoning first."""
    recoverer = request.recoverer()
    answer = Answer()
    for piece in reasoning:
        answer.take(recoverer.feed("reasoning", piece))
    for piece in content:
        answer.take(recoverer.feed("content", piece))
    answer.take(recoverer.finish(finish_reason))
    return answer


def finish_reason_of(answer: Answer, given: str) -> str:
    """Return the finish reason for the client: a turn that stopped with a call stopped for the call."""
    return "tool_calls" if given == "stop" and answer.calls else given
