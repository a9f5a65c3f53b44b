"""A hub whose answers become more than they are: compressed ones, cookies, and names of revisions that are paths."""

from __future__ import annotations

import gzip
import resource
from pathlib import Path

import pytest

from supervisor.core.repository import RepoFile, parse_reference
from supervisor.errors import HubError
from supervisor.hub.api import HubClient
from supervisor.hub.cachedir import HubCache
from supervisor.hub.guard import Guard, Misled, limit_files
from tests.hub.conftest import Client
from tests.hub.test_hostile import COMMIT, DATA, asked_for, everything, pulled
from tests.support.hub import Fault, LocalHub

pytestmark = pytest.mark.anyio

SWOLLEN = gzip.compress(gzip.compress(bytes(64 << 20)))
"""64 MiB in some hundred bytes."""


@pytest.mark.parametrize("size", [None, len(DATA)])
async def test_what_a_compressed_download_would_become_is_not_written(
    size: int | None, hub: LocalHub, client: Client
) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen = client.chosen("a/b:Q4_0")
    commit, sha = chosen.repository.commit, chosen.variant.parts[0].sha256
    told = {"Content-Encoding": "gzip, gzip", "X-Repo-Commit": commit, "ETag": f'"{sha}"'}
    hub.spoil(Fault("/storage/", method="GET", status=200, headers=told, body=SWOLLEN))
    with pytest.raises(HubError, match="compresses its answer"):
        await pulled(client, asked_for(RepoFile("m-Q4_0.gguf", size, sha, sha), commit=commit))
    assert sum(len(data) for data in everything(client.home / "hf").values()) < len(DATA)


def test_the_system_knows_the_size_that_only_the_download_is_told() -> None:
    """Another client than ours may write the file, which sees to nothing."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    guard = Guard(60.0)
    guard.expect("a/b", COMMIT, {"path": "m-Q4_0.gguf", "etag": None, "sha256": None, "size": None})
    try:
        guard._check_size(str(len(DATA)))
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        assert len(DATA) <= limit < 32 * len(DATA)
        with pytest.raises(Misled):
            guard._check_size(str(len(DATA) + 1))
    finally:
        limit_files(None)
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before


def test_no_cookie_is_kept(hub: LocalHub, client: Client) -> None:
    """Each would go along with every request, and their number has no bound."""
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    hub.spoil(Fault("/api/models/", says={"Set-Cookie": "a=b; Max-Age=1000"}))
    asker = HubClient(client.access(), sleep=lambda _: None)
    try:
        asker.repository("a/b")
        assert asker._http is not None
        assert not list(asker._http.cookies.jar)
    finally:
        asker.close()


@pytest.mark.parametrize("port", [65536, 99999999, -1])
def test_a_redirect_to_a_port_that_is_none_is_a_hub_error(port: int, hub: LocalHub, client: Client) -> None:
    hub.spoil(Fault("/api/models/a/b", status=307, headers={"Location": f"http://127.0.0.1:{port}/"}))
    asker = HubClient(client.access(), sleep=lambda _: None)
    try:
        with pytest.raises(HubError, match="which is none"):
            asker.repository("a/b")
    finally:
        asker.close()


@pytest.mark.parametrize("revision", ["refs/convert/..", "refs/convert/.", "a" * 256, "\u00e4" * 128, ".a"])
def test_a_revision_that_names_no_file_is_none(revision: str) -> None:
    assert parse_reference(f"a/b@{revision}") is None


@pytest.mark.parametrize("revision", ["refs/convert/parquet", "refs/pr/1", "a" * 255, "v1.0+x"])
def test_a_revision_that_names_one(revision: str) -> None:
    found = parse_reference(f"a/b@{revision}")
    assert found is not None
    assert found.revision == revision


def test_revisions_in_the_way_of_each_other_are_not_noted(tmp_path: Path) -> None:
    cache = HubCache(tmp_path)
    for revision in ("refs/pr/1", "refs", "main", "main/x"):
        cache.keep_ref("a/b", revision, COMMIT)
    kept = [revision for revision in ("refs/pr/1", "refs", "main", "main/x") if cache.commit_of("a/b", revision)]
    assert kept == ["refs/pr/1", "main"]
    assert not list(tmp_path.rglob(".refs.*")), "nothing is left behind"
