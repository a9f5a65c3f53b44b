"""What programs are written by is what it was: a change of it is made on purpose."""

from __future__ import annotations

from tests.api.kept import KEPT, outcomes
from tests.support.recorded import changed


def test_the_schemas_are_what_they_were() -> None:
    names = changed(KEPT, outcomes())
    assert not names, f"{names} changed; if that is meant, `python -m tests.api.kept` keeps it"
