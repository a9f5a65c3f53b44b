"""Which requests are taken to belong together."""

from __future__ import annotations

import pytest

from supervisor.core.requests.affinity import affinity_of

SYSTEM = {"role": "system", "content": "Be brief."}
HI = {"role": "user", "content": "Hi"}
HELLO = {"role": "assistant", "content": "Hello"}


def test_the_turns_of_a_conversation_belong_together() -> None:
    first = affinity_of({"messages": [SYSTEM, HI]})
    assert first is not None
    assert affinity_of({"messages": [SYSTEM, HI, HELLO, {"role": "user", "content": "And now?"}]}) == first
    assert affinity_of({"messages": [SYSTEM, {"role": "user", "content": "Good morning"}]}) != first
    assert affinity_of({"messages": [HI]}) != first


def test_the_clients_own_key_counts_first() -> None:
    one = affinity_of({"prompt_cache_key": "k", "messages": [HI]})
    assert one == affinity_of({"prompt_cache_key": "k", "messages": [HELLO]})
    assert one != affinity_of({"messages": [HI]})


def test_prompts_belong_together_by_their_beginning() -> None:
    start = "x" * 5000
    assert affinity_of({"prompt": start + "a"}) == affinity_of({"prompt": start + "b"})
    assert affinity_of({"prompt": "a"}) != affinity_of({"prompt": "b"})
    assert affinity_of({"prompt": [1, 2, 3]}) is not None


@pytest.mark.parametrize("body", [{}, {"input": "x"}, {"messages": []}, {"prompt": ""}, {"prompt_cache_key": 3}])
def test_what_has_no_beginning_has_no_key(body: dict[str, object]) -> None:
    assert affinity_of(body) is None


@pytest.mark.parametrize(
    "messages", [[None], ["x"], [{"role": "user"}], [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}]]
)
def test_what_is_no_proper_conversation_does_no_harm(messages: list[object]) -> None:
    affinity_of({"messages": messages})


def test_what_lies_behind_the_beginning_of_a_long_conversation_is_not_looked_at() -> None:
    looked: list[object] = []
    said: list[object] = [{"role": "assistant", "content": [{"type": "text", "text": "x"}] * 1000}] * 1000

    def noted(value: object) -> object:
        looked.append(value)
        return value

    assert affinity_of({"messages": [*said, HI]}, noted) is not None
    assert len(looked) <= 100
    assert all(isinstance(one, list) and len(one) <= 100 for one in looked)
