"""The host's memory within control groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.devices.host import Group, host_memory, memory_groups
from tests.core.devices.support import GIB

STAT = f"anon {GIB}\nfile {3 * GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\nslab_reclaimable 4096\n"


def test_groups_of_both_versions() -> None:
    assert memory_groups("0::/user.slice/a.scope\n") == ((2, "/user.slice/a.scope"),)
    assert memory_groups("9:name=systemd:/\n4:memory:/docker/abc\n0::/\n") == ((1, "/docker/abc"), (2, "/"))
    assert memory_groups("5:cpu,memory:/x\n") == ((1, "/x"),)


def test_without_a_limit_the_machine_counts() -> None:
    unlimited = (Group("max\n", "123\n"), Group("9223372036854771712\n", "5\n"))
    host = host_memory(64 * GIB, 50 * GIB, unlimited)
    assert (host.total_bytes, host.available_bytes) == (64 * GIB, 50 * GIB)


def test_file_cache_of_the_group_is_available() -> None:
    host = host_memory(64 * GIB, 50 * GIB, [Group(f"{16 * GIB}\n", f"{10 * GIB}\n", STAT)])
    assert host.total_bytes == 16 * GIB
    assert host.available_bytes == 16 * GIB - 10 * GIB + 3 * GIB + 4096


def test_version_1_counts_the_totals() -> None:
    stat = f"inactive_file 1\nactive_file 1\ntotal_inactive_file {GIB}\ntotal_active_file {GIB}\n"
    host = host_memory(64 * GIB, 50 * GIB, [Group(str(8 * GIB), str(6 * GIB), stat)])
    assert host.available_bytes == 4 * GIB


def test_the_tightest_group_decides() -> None:
    groups = [Group(str(16 * GIB), str(GIB)), Group(str(32 * GIB), str(30 * GIB))]
    host = host_memory(64 * GIB, 50 * GIB, groups)
    assert (host.total_bytes, host.available_bytes) == (16 * GIB, 2 * GIB)


@given(
    st.integers(0, 1 << 50), st.integers(0, 1 << 50),
    st.lists(st.builds(Group, st.integers(0, 1 << 50).map(str), st.integers(0, 1 << 50).map(str), st.just(STAT))),
)  # fmt: skip
def test_never_more_than_the_machine_and_never_negative(total: int, available: int, groups: list[Group]) -> None:
    host = host_memory(total, min(available, total), groups)
    assert 0 <= host.available_bytes <= host.total_bytes <= total
    assert host.available_bytes <= available
