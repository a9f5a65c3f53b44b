"""Recover tool calls on the wire: turn an answer's chunks into ones with proper `tool_calls`.

Mend a request's history.
"""

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
