"""Results of calls without ids: which call each belongs to, and that many of them take no longer each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.doors.ollama_conversation import CallIds

NAMES = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from([None, "", "x", "y"])
STEPS = st.lists(st.tuples(st.booleans(), NAMES, IDS), max_size=40)


class Plain:
    """The same by looking through all calls."""

    def __init__(self) -> None:
        self.made = 0
        self.open: list[tuple[str, str]] = []

    def of_call(self, given: str | None, name: str) -> str:
        self.made += 1
        found = given or f"call_{self.made}"
        self.open.append((found, name))
        return found

    def of_result(self, given: str | None, name: str) -> str | None:
        if given:
            self.open = [one for one in self.open if one[0] != given]
            return given
        found = next((one for one in self.open if one[1] == name), self.open[0] if self.open else None)
        if found is None:
            return None
        self.open.remove(found)
        return found[0]


@given(STEPS)
def test_a_result_belongs_to_the_oldest_call_of_its_name(steps: list[tuple[bool, str, str | None]]) -> None:
    ours, plain = CallIds(), Plain()
    for is_call, name, id_ in steps:
        if is_call:
            assert ours.of_call({"id": id_}, name) == plain.of_call(id_, name)
        else:
            assert ours.of_result({"tool_call_id": id_}, name) == plain.of_result(id_, name)


def test_hundreds_of_thousands_are_no_matter() -> None:
    """Each looked for among all would take hours."""
    ids, count = CallIds(), 300_000
    for number in range(count):
        ids.of_call({}, f"f{number % 7}")
    assert all(ids.of_result({}, f"f{number % 5}") for number in range(count))
    assert ids.of_result({}, "f0") is None
