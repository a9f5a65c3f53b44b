"""Remember the tools of requests: an agent sends the same ones with every turn."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from supervisor.core.toolcalls.options import Options
from supervisor.core.toolcalls.recoverer import tools_of
from supervisor.core.toolcalls.tools import Tools

_MOST: Final = 16
_DEFAULTS: Final = Options()


class KnownTools:
    """The tools of the last requests, made once for all that offer the same."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[bytes, bool, bool], Tools] = OrderedDict()

    def of(self, tools: object, tool_choice: object = None, options: Options = _DEFAULTS) -> Tools:
        """Return the tools of a request, as `tools_of` does. They are compared as JSON: there 1 is not `true`."""
        try:
            said = msgspec.json.encode((tools, tool_choice))
        except (ValueError, TypeError, OverflowError, RecursionError):  # a half of a surrogate pair, a long integer
            return tools_of(tools, tool_choice, options)
        key = said, options.coerce, options.forward_unknown
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tools_of(tools, tool_choice, options)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return found
