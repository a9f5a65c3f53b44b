"""What kind of failure a worker tells, however deep its cause lies."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from supervisor.hub.worker import _kind


def raised(*errors: BaseException, explicit: bool) -> BaseException:
    """The last error, each raised while the one before was handled, or expressly because of it."""
    for before, error in pairwise(errors):
        if explicit:
            error.__cause__ = before
        else:
            error.__context__ = before
    return errors[-1]


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (OSError(errno.ENOSPC, "no room"), "full"),
        (type("ConnectError", (Exception,), {})(), "unreachable"),
        (ValueError("anything"), "failed"),
    ],
)
def test_a_cause_counts_wherever_it_is_in_the_chain(cause: Exception, kind: str, explicit: bool) -> None:
    assert _kind(cause, None) == kind
    assert _kind(raised(cause, RuntimeError("between"), RuntimeError("outer"), explicit=explicit), None) == kind
