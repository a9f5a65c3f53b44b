"""Tool calls on the wire: an answer's chunks in, chunks with proper `tool_calls` out; a request's history mended."""

from supervisor.core.recovery.chunks import ChatRecovery
from supervisor.core.recovery.history import mended_messages
from supervisor.core.recovery.policy import ToolPolicy, asked_policy
from supervisor.core.recovery.stream import ParserFailed, RecoveredStream
from supervisor.core.recovery.tally import Tally

__all__ = ["ChatRecovery", "ParserFailed", "RecoveredStream", "Tally", "ToolPolicy", "asked_policy", "mended_messages"]
