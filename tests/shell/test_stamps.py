"""Files told from each other by their stamps."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.files.stamps import stamps


def test_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one")
    (tmp_path / "link").symlink_to("file")
    assert stamps([tmp_path / "link"]) == stamps([str(tmp_path / "file")])


def test_another_file_in_its_place_is_another(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    path.write_bytes(b"one")
    other.write_bytes(b"two")
    before = stamps([path])
    os.utime(other, ns=(0, before[0].changed_ns))
    other.replace(path)
    assert stamps([path]) != before


def test_a_missing_file_has_a_stamp(tmp_path: Path) -> None:
    assert [(one.size, one.inode) for one in stamps([tmp_path / "gone"])] == [(0, 0)]
