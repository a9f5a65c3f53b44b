"""What a script refuses."""

from __future__ import annotations

import pytest

from supervisor.demo.script import Reply, Script


@pytest.mark.parametrize("word", ["", "Think", "two words", "-x", 'a"b', "{{x}}"])
def test_only_plain_words_pick_replies(word: str) -> None:
    with pytest.raises(ValueError, match="not a word"):
        Reply(word, "text")


def test_a_word_picks_one_reply() -> None:
    with pytest.raises(ValueError, match="two replies: think"):
        Script(name="s", default="d", replies=(Reply("think", "a"), Reply("think", "b")))


def test_an_endless_reply_needs_a_text() -> None:
    with pytest.raises(ValueError, match="needs a text"):
        Reply("on", "", endless=True)
    with pytest.raises(ValueError, match="needs a text"):
        Script(name="s", default="", endless=True)


@pytest.mark.parametrize("script", [{"tools": "text"}, {"template": "plain"}])
def test_calling_the_first_tool_needs_the_template_for_it(script: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="call_first_tool"):
        Script(name="s", default="d", call_first_tool=True, **script)  # type: ignore[arg-type]  # the point of the test
