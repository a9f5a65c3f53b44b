"""Nothing that a key takes at another node counts twice, and nothing not at all, in whatever order it is heard of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from supervisor.cluster import tickets
from supervisor.cluster.passed import Passed, passed_of
from supervisor.cluster.tickets import Tickets
from supervisor.core.requests.keys import Key, KeyRules, Usage
from supervisor.core.requests.passed import Heard, PassedKey
from supervisor.core.requests.scopes import Scope
from supervisor.proxy.account import Account


class Nodes:
    """The node that keeps a key, `front`, and one that answers for it, `back`."""

    def __init__(self, budget: int) -> None:
        self.front, self.back = Tickets(), Tickets()
        self.key = Key(KeyRules("k", frozenset({Scope.INFER}), token_budget=budget), b"", 0.0)
        self.account = Account(lambda told: None, "/p", {"type": "http", "headers": []}, self.key)

    def passed(self) -> Passed:
        """What `front` says of a request now."""
        return passed_of("m", self.key, "t", lambda name: self.front.heard("back", name), 0.0)

    def arrives(self, passed: Passed) -> PassedKey:
        """The key of the request at `back`."""
        rules = passed.rules
        assert rules is not None
        return rules.key("m", "front", self.back.tally("front", "k", Heard(rules.since, rules.heard)))

    def hears(self, prompt: int, completion: int, **more: Any) -> None:
        """`front` hears what a request has taken."""
        said = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
        self.front.take(said, "back", self.account)


def code(key: PassedKey) -> str | None:
    error = key.may_generate(0.0)
    return None if error is None else error.code


def test_a_request_that_arrives_after_the_figures_that_its_node_had_not_heard_of_pays_for_them() -> None:
    nodes = Nodes(5)
    first, early = nodes.arrives(nodes.passed()), nodes.passed()
    first.spend(9, 3)
    nodes.hears(9, 3)
    late = nodes.arrives(early)
    assert code(late) == "budget_spent"
    assert code(nodes.arrives(nodes.passed())) == "budget_spent"


def test_what_has_been_heard_of_counts_once() -> None:
    nodes = Nodes(20)
    nodes.arrives(nodes.passed()).spend(9, 3)
    nodes.hears(9, 3)
    assert code(nodes.arrives(nodes.passed())) is None
    nodes.back = Tickets()  # it has begun anew
    again = nodes.arrives(nodes.passed())
    assert code(again) is None
    again.spend(5, 4)
    assert code(again) == "budget_spent"
    nodes.front = Tickets()
    assert code(nodes.arrives(nodes.passed())) is None


@pytest.mark.parametrize("late", [False, True])
def test_what_is_never_heard_of_is_not_waited_for(late: bool) -> None:
    nodes = Nodes(20)
    nodes.arrives(nodes.passed()).spend(30, 3)
    assert code(nodes.arrives(nodes.passed())) == "budget_spent"
    if late:
        nodes.hears(0, 0, late=True)
    else:
        nodes.front.missed("back", "k")
    assert code(nodes.arrives(nodes.passed())) is None


def test_who_asks_too_early_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        back = Tickets()
        assert (await back.spent("a"))["late"] is True
        back.ended("a", Usage(1, 2, 3))
        back.ended("b", Usage(1, 2, 3))
        assert await back.spent("b") == {"prompt_tokens": 2, "completion_tokens": 3}

    monkeypatch.setattr(tickets, "_WAIT_S", 0.0)
    asyncio.run(run())
