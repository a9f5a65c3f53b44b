"""What becomes of thousands of damaged texts is what it was: a change of it is made on purpose."""

from __future__ import annotations

import pytest

from tests.core.toolcalls.damaged import CORPORA, damaged, kept, outcomes
from tests.support.recorded import changed


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_damaged_text_is_read_as_it_was(corpus: str) -> None:
    found = outcomes(corpus)
    names = changed(kept(corpus), found)
    assert not names, (
        f"{len(names)} of {len(found)} cases become something else; if that is meant, "
        f"`python -m tests.core.toolcalls.damaged` keeps it. The first now: {names[0]}: {found.get(names[0])}"
    )


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_damage_is_of_many_kinds(corpus: str) -> None:
    texts = {case.text: {one.text for one in damaged(case)} for case in CORPORA[corpus].CASES if len(case.text) > 20}
    assert texts
    assert all(len(found - {text}) > 4 for text, found in texts.items())
