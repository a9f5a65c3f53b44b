"""Tool calls on the wire: an answer's chunks in, chunks with proper `tool_calls` out; a request's history mended."""

from supervisor.core.recovery.again import AskAgain, ParserFailed
from supervisor.core.recovery.chunks import ChatRecovery
from supervisor.core.recovery.history import mended_messages
from supervisor.core.recovery.policy import ToolPolicy
from supervisor.core.recovery.stream import RecoveredStream
from supervisor.core.recovery.tally import Tally

__all__ = [
    *("AskAgain", "ChatRecovery", "ParserFailed", "RecoveredStream", "Tally", "ToolPolicy"),
    "mended_messages",
    "AskAgain",
    "ParserFailed",
    "ChatRecovery",
    "ToolPolicy",
    "RecoveredStream",
    "Tally",
]
