"""Somebody nearer than the hub, where the hub cannot be asked: its listing and its bytes serve, and are not kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.repository import RepoFile, parse_reference
from supervisor.errors import HubUnreachable
from supervisor.hub.access import HubChoices
from supervisor.hub.listing import Repository, as_listing, read_listing
from tests.hub.conftest import Client
from tests.support.hub import LocalHub

COMMIT = "c" * 40


class Neighbour:
    """One who has files."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.contents = {hashlib.sha256(data).hexdigest(): data for data in files.values()}
        self.files = tuple(
            RepoFile(name, len(data), sha, sha) for (name, data), sha in zip(files.items(), self.contents, strict=True)
        )
        self.asked: list[tuple[int, int]] = []

    async def fetch(
        self, repository: Repository, files: Sequence[RepoFile], heard: Callable[[Mapping[str, Any]], None]
    ) -> Mapping[str, int]:
        """Give nothing: no test downloads."""
        return {}

    def listing(self, repo: str, revision: str | None) -> Repository | None:
        """What it has of the one repository that it knows."""
        return Repository("a/b", COMMIT, revision or "main", self.files) if repo == "a/b" else None

    def read(self, sha256: str, size: int, first: int, last: int) -> bytes | None:
        """Bytes of what it has."""
        self.asked.append((first, last))
        found = self.contents.get(sha256)
        return None if found is None or len(found) != size else found[first : last + 1]


def test_a_header_is_read_from_who_is_nearer_where_the_hub_cannot_be_asked(
    client: Client, talker: Path, hub: LocalHub
) -> None:
    data = talker.read_bytes()
    near, models = Neighbour({"m-Q4_0.gguf": data}), client.models(HubChoices(offline=True))
    models.ask_first(near)
    reference = parse_reference("a/b:Q4_0")
    assert reference is not None
    found = models.look(reference)
    assert found.note is not None
    assert "another node" in found.note
    model = models.model(found.choice(found.candidates[0]))
    assert model.size_bytes == len(data)
    assert model.header.tensors
    assert near.asked[0][0] == 0
    assert not list((client.home / "headers").glob("*")), "what is not the hub's word is not remembered as it"
    assert not list((client.home / "listings").glob("*"))
    assert not hub.seen


def test_what_nobody_nearer_has_is_unreachable(client: Client, talker: Path) -> None:
    near, models = Neighbour({"m-Q4_0.gguf": talker.read_bytes()}), client.models(HubChoices(offline=True))
    models.ask_first(near)
    other, known = parse_reference("a/other:Q4_0"), parse_reference("a/b:Q4_0")
    assert other is not None
    assert known is not None
    with pytest.raises(HubUnreachable):
        models.look(other)
    found = models.look(known)
    near.contents.clear()
    with pytest.raises(HubUnreachable):
        models.model(found.choice(found.candidates[0]))


def test_where_the_hub_answers_nobody_nearer_is_believed(client: Client, talker: Path, hub: LocalHub) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker})
    near, models = Neighbour({"m-Q8_0.gguf": b"another"}), client.models()
    models.ask_first(near)
    reference = parse_reference("a/b")
    assert reference is not None
    found = models.look(reference)
    assert [one.name for one in found.candidates] == ["Q4_0"]
    models.model(found.choice(found.candidates[0]))
    assert near.asked == []


def test_a_listing_is_told_as_a_hub_tells_it() -> None:
    files = (RepoFile("m-Q4_0.gguf", 7, "a" * 64, "a" * 64), RepoFile("README.md", 3, None, "b" * 40))
    told = Repository("a/b", COMMIT, "main", files)
    body = json.dumps(as_listing(told)).encode()
    assert read_listing(body, "a/b", "main", "node") == told
