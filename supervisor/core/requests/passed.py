"""A key of another node of a cluster: its rules hold where its requests are answered, as they do where it is kept.

The key itself never travels. The node that keeps it says with each request what its holder may do, and what was left
of its tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.requests.keys import Bucket, Key, KeyRules
from supervisor.errors import RequestError


@dataclass(slots=True)
class Tally:
    """What all requests with one key of another node have used here.

    Attributes:
        tokens: of prompts and completions. told: those of them that the other node has been told of.
    """

    tokens: int = 0
    told: int = 0

    def tell(self, tokens: int) -> None:
        """Note that the other node has been told of so many."""
        self.told += tokens


class PassedKey(Key):
    """The key of one request that another node has passed on.

    Args:
        rules: `token_budget` is what was left of it when the request was passed on.
        tally: of all requests with that key.
        minute: tokens that were left of those a minute; None: it has no such limit.

    `usage` is that of this request.
    """

    def __init__(self, rules: KeyRules, tally: Tally, minute: float | None = None) -> None:
        super().__init__(rules, b"", 0.0)
        self._tally = tally
        self._began = tally.told  # of the others it knew nothing when it said what was left
        self._taken = 0
        if minute is not None and rules.tokens_per_minute is not None:
            self._tokens = Bucket(rules.tokens_per_minute, minute)

    def may_generate(self, now: float) -> RequestError | None:
        """Return why the key may use no token now, or None: others may have used them since."""
        used = self._tally.tokens - self._began
        if self._tokens is not None:
            self._tokens.take(used - self._taken)
        self._taken = used
        return self._generating(used, now)

    def spend(self, prompt: int, completion: int) -> None:
        """Count the tokens of an answer."""
        self._prompt_since += prompt
        self._completion_since += completion
        self._tally.tokens += prompt + completion
