"""A key of another node of a cluster: its rules hold where its requests are answered, as they do where it is kept.

The key itself never travels. The node that keeps it says with each request what its holder may do, and what was left
of its tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.requests.keys import Bucket, Key, KeyRules
from supervisor.errors import RequestError


@dataclass(frozen=True, slots=True)
class Heard:
    """What the node of a key has heard of the tokens that its requests have used at another node.

    Attributes:
        since: names this count. It begins anew, under another name, where something may not have been heard.
        tokens: of prompts and completions; what the key has left is without them.
    """

    since: str
    tokens: int = 0


@dataclass(slots=True)
class Tally:
    """What all requests with one key of another node have used here, by one of its counts: tokens, heard of or not."""

    tokens: int = 0

    def at_least(self, tokens: int) -> None:
        """Count what the other node has heard of, where this one knows of less: it may have begun anew."""
        self.tokens = max(self.tokens, tokens)


class PassedKey(Key):
    """The key of one request that another node has passed on.

    Args:
        rules: `token_budget` is what was left of it when the request was passed on.
        tally: of all requests with that key.
        heard: tokens of the tally of which the other node knew when it said what was left.
        minute: tokens that were left of those a minute; None: it has no such limit.

    `usage` is that of this request.
    """

    def __init__(self, rules: KeyRules, tally: Tally, heard: int, minute: float | None = None) -> None:
        super().__init__(rules, b"", 0.0)
        self._tally = tally
        self._heard = heard
        self._taken = 0
        if minute is not None and rules.tokens_per_minute is not None:
            self._tokens = Bucket(rules.tokens_per_minute, minute)

    def may_generate(self, now: float) -> RequestError | None:
        """Return why the key may use no token now, or None: others may have used them since."""
        used = self._tally.tokens - self._heard
        if self._tokens is not None:
            self._tokens.take(used - self._taken)
        self._taken = used
        return self._generating(used, now)

    def spend(self, prompt: int, completion: int) -> None:
        """Count the tokens of an answer."""
        self._prompt_since += prompt
        self._completion_since += completion
        self._tally.tokens += prompt + completion
