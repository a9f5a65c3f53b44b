"""A hub that means harm, a mirror or somebody in between: names that lead elsewhere, answers without end."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.repository import RepoFile, Variant
from supervisor.errors import DownloadFailed, HubBusy, HubError, HubUnreachable, VerificationFailed
from supervisor.hub.api import HubClient
from supervisor.hub.download import Downloads
from supervisor.hub.listing import Repository
from supervisor.hub.models import Chosen
from supervisor.system.outside import Limits
from tests.hub.conftest import Client
from tests.support.gguf_bytes import STRING, model, pair
from tests.support.hub import Fault, LocalHub
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * 4096
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def asker(hub: LocalHub, client: Client) -> Iterator[HubClient]:
    found = HubClient(client.access(), sleep=lambda _: None, listing=Limits(1 << 20, 60.0))
    yield found
    found.close()


def everything(folder: Path) -> dict[str, bytes]:
    """What is below a folder."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink()]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in found}


def outside(client: Client) -> dict[str, bytes]:
    """The same of the user's folder, but for the cache."""
    return {name: data for name, data in everything(client.home).items() if not name.startswith("hf/")}


def listing(**more: Any) -> bytes:
    sibling = {"rfilename": "m-Q4_0.gguf", "size": 3, "blobId": "a" * 40}
    return json.dumps({"id": "a/b", "sha": COMMIT, "siblings": [sibling], **more}).encode()


def with_file(**more: Any) -> bytes:
    sibling = {"rfilename": "m-Q4_0.gguf", "size": 3, "blobId": "a" * 40, **more}
    return json.dumps({"id": "a/b", "sha": COMMIT, "siblings": [sibling]}).encode()


NAMES = ["../../../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "x\0.gguf", "a//x.gguf", "", "."]
NO_CONTENT = ["../../x", "..", "/etc/x", "a/b", "x\0y", "*", "", "x" * 500, "a\nb", "C:x", "a\\b"]
LISTINGS = {
    **{f"name {name!r}": with_file(rfilename=name) for name in NAMES},
    **{f"content {name!r}": with_file(blobId=name) for name in NO_CONTENT if name},
    **{f"sha256 {name!r}": with_file(lfs={"size": 3, "sha256": name}) for name in NO_CONTENT if name},
    **{f"commit {name!r}": listing(sha=name) for name in (*NO_CONTENT, "A" * 40, "a" * 41, None, 3)},
    **{f"repository {name!r}": listing(id=name) for name in ("../..", "a/../b", "a", "a/b/c", "a/\0", "x" * 300)},
    **{f"size {size}": with_file(size=size) for size in (-1, 1 << 200, "3", 1.5, True, [3])},
    "size Infinity": with_file(size=0).replace(b'"size": 0', b'"size": Infinity'),
    "size NaN": with_file(size=0).replace(b'"size": 0', b'"size": NaN'),
    "a name that is null": with_file(rfilename=None),
    "files that are null": listing(siblings=None),
    "a file that is null": listing(siblings=[None]),
    "no object": b"[]",
    "no JSON": b"<html>",
    "not UTF-8": b'{"id": "\xff"}',
    "deep": b'{"id": ' + b"[" * 400_000,
    "deep in a field that nobody reads": b'{"x": ' + b"[" * 400_000,
    "too many files": listing(siblings=[{"rfilename": "a"}] * 30_001),
    "too large": listing(x="x" * (1 << 20)),
}


@pytest.mark.parametrize("body", LISTINGS.values(), ids=LISTINGS)
def test_what_no_hub_would_say_is_a_hub_error(body: bytes, hub: LocalHub, asker: HubClient) -> None:
    hub.spoil(Fault("/api/models/a/b", body=body))
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    with pytest.raises(HubError) as told:
        asker.repository("a/b")
    assert type(told.value) is HubError
    assert len(told.value.message) < 400
    assert told.value.message.isprintable()


@pytest.mark.parametrize("name", ["a\\b.gguf", "C:x.gguf", "x\x1b[2J.gguf", "n" * 300 + ".gguf", "con.gguf"])
def test_a_file_that_not_every_system_keeps_is_left_out(name: str, hub: LocalHub, asker: HubClient) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA, name: b"x"})
    assert [file.path for file in asker.repository("a/b").files] == ["m-Q4_0.gguf"]


@pytest.mark.parametrize("where", ["/api/models/", "/resolve/"])
def test_an_answer_without_end_is_left(where: str, hub: LocalHub, client: Client, asker: HubClient) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen = client.chosen("a/b:Q4_0")
    hub.spoil(Fault(where, endless=True, body=b'{"x": "'))
    with pytest.raises(HubError):
        asker.repository("a/b") if "api" in where else client.models().model(chosen)
    assert hub.sent_bytes(where) < 64 << 20


def test_redirects_in_a_circle_are_a_hub_error(hub: LocalHub, asker: HubClient) -> None:
    hub.spoil(Fault("/api/models/a/b", status=307, headers={"Location": "/api/models/a/b/revision/main"}))
    with pytest.raises(HubError, match="from one address to another"):
        asker.repository("a/b")
    assert len(hub.requests("/api/models/a/b")) < 20


def test_a_redirect_without_end_is_a_hub_error(hub: LocalHub, asker: HubClient) -> None:
    hub.spoil(Fault("/api/", status=307, headers={"Location": "/api/models/a/b/revision/main"}, endless=True))
    with pytest.raises(HubError, match="redirect"):
        asker.repository("a/b")


def test_a_compressed_answer_is_not_unpacked(hub: LocalHub, asker: HubClient) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    hub.spoil(Fault("/api/models/a/b", says={"Content-Encoding": "gzip"}))
    with pytest.raises(HubError, match="compresses"):
        asker.repository("a/b")


@pytest.mark.parametrize("pause", ["NaN", "-1", "Infinity", "1e999", "soon", "Thu, 01 Jan 9999999 00:00:00 GMT"])
def test_a_pause_that_is_no_number_does_no_harm(pause: str, hub: LocalHub, asker: HubClient) -> None:
    hub.spoil(Fault("/api/models/a/b", status=503, headers={"Retry-After": pause}))
    with pytest.raises(HubBusy):
        asker.repository("a/b")


def test_a_hub_that_dribbles_is_left(hub: LocalHub, client: Client) -> None:
    hub.spoil(Fault("/api/models/a/b", dribble=True))
    asker = HubClient(client.access(), listing=Limits(1 << 20, 0.5))
    with pytest.raises(HubUnreachable, match="not done with its answer"):
        asker.repository("a/b")
    asker.close()


# ── the way to elsewhere ─────────────────────────────────────────────────────────────────────────────────────────

FAR = "http://192.0.2.1"  # asked through a proxy, which the local hub plays
NEAR = ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "169.254.169.254", "10.0.0.1", "192.168.0.1")


def proxied(hub: LocalHub) -> dict[str, str]:
    return {"HTTP_PROXY": hub.url, "http_proxy": hub.url, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": ""}


@pytest.mark.parametrize("host", NEAR)
def test_a_hub_elsewhere_sends_nobody_to_this_machine(
    host: str, hub: LocalHub, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its services trust whoever is on it: `GET /unload` of a daemon, say."""
    for name, value in proxied(hub).items():
        monkeypatch.setenv(name, value)
    hub.spoil(Fault("/api/models/", status=302, headers={"Location": f"http://{host}:{hub.port}/unload"}))
    found = HubClient(client.access(HF_ENDPOINT=FAR), sleep=lambda _: None)
    with pytest.raises(HubError, match="inside this network or this machine"):
        found.repository("a/b")
    found.close()
    assert not hub.requests("/unload")


def test_the_host_that_is_looked_at_is_the_one_that_is_connected_to(
    hub: LocalHub, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python and HTTP clients write some names in ASCII in two ways, which are the names of two hosts."""
    for name, value in proxied(hub).items():
        monkeypatch.setenv(name, value)
    looked: list[str] = []

    def inside(_: str, target: str) -> bool:
        looked.append(target)
        return True

    monkeypatch.setattr("supervisor.system.outside.leads_inside", inside)
    hub.spoil(Fault("/api/models/", status=302, headers={"Location": "http://xn--fa-hia.example/"}))
    found = HubClient(client.access(HF_ENDPOINT=FAR), sleep=lambda _: None)
    with pytest.raises(HubError, match="inside this network"):
        found.repository("a/b")
    found.close()
    assert looked == ["xn--fa-hia.example"]


def test_a_redirect_to_a_name_that_is_none_is_a_hub_error(hub: LocalHub, asker: HubClient) -> None:
    hub.spoil(Fault("/api/models/a/b", status=307, headers={"Location": "http://xn--a.example/"}))
    with pytest.raises(HubError, match="name is none"):
        asker.repository("a/b")


@pytest.mark.parametrize("says", ["Location", "X-Xet-Cas-Url"])
async def test_a_download_from_elsewhere_does_not_lead_to_this_machine(
    says: str, hub: LocalHub, client: Client
) -> None:
    told = {"X-Repo-Commit": COMMIT, "ETag": f'"{"a" * 40}"', "X-Linked-Size": "3"}
    hub.spoil(Fault("/resolve/", status=302, headers={**told, says: f"http://localhost:{hub.port}/x"}))
    access = client.access(None, HF_ENDPOINT=FAR, **proxied(hub))
    chosen = asked_for(RepoFile("m-Q4_0.gguf", 3, None, "a" * 40))
    with pytest.raises(HubError, match="inside this network or this machine"):
        await Downloads(access).fetch(chosen.repository, chosen.variant.parts)
    assert hub.requests("/resolve/")
    assert not hub.requests("/x")


@pytest.mark.parametrize("place", ["http://localhost:{port}/access", "http://[", "/access"])
async def test_the_token_goes_to_no_other_host_whatever_the_headers_name(
    place: str, hub: LocalHub, client: Client
) -> None:
    """A file of the newer storage has an address at which the client asks for access, with the token, and again when
    that has ended; the part of it that asks again is in another language, and sees to nothing."""
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen = client.chosen("a/b:Q4_0")
    link = f'<{place.format(port=hub.port)}>; rel="xet-auth"'
    ended = {"X-Xet-Cas-Url": hub.url, "X-Xet-Access-Token": "t", "X-Xet-Token-Expiration": "1"}
    hub.spoil(Fault("/resolve/", says={"X-Xet-Hash": "c" * 64, "Link": link}))
    hub.spoil(Fault("/access", status=200, headers=ended))
    with pytest.raises(HubError, match="not its own address"):
        await Downloads(client.access(HF_TOKEN=hub.token, HF_HUB_DISABLE_XET="0")).fetch(
            chosen.repository, chosen.variant.parts
        )
    assert {seen.authorization for seen in hub.requests("/resolve/")} == {f"Bearer {hub.token}"}
    assert not hub.requests("/access")


# ── the download ─────────────────────────────────────────────────────────────────────────────────────────────────


def asked_for(file: RepoFile, repo: str = "a/b", commit: str = COMMIT) -> Chosen:
    variant = Variant("Q4_0", "Q4_0", (file,))
    return Chosen(None, Repository(repo, commit, "main", (file,)), variant, None)


async def pulled(client: Client, chosen: Chosen, patience: float = 60.0) -> Path:
    downloads = Downloads(client.access(), patience=patience)
    return (await downloads.fetch(chosen.repository, chosen.variant.parts))[0]


HEADERS: dict[str, dict[str, str]] = {
    **{f"ETag {name!r}": {"X-Linked-Etag": f'"{name}"'} for name in NO_CONTENT if name.isprintable() and name},
    **{f"commit {name!r}": {"X-Repo-Commit": name} for name in ("../../../x", "a" * 40, "..", "/x")},
    **{f"size {size!r}": {"X-Linked-Size": size} for size in ("-1", "Infinity", "1e3", "9" * 30, "7", "²")},
    "another sha256": {"X-Linked-Etag": f'"{"a" * 64}"'},
}


@pytest.mark.parametrize("says", HEADERS.values(), ids=HEADERS)
async def test_what_a_download_is_told_leads_nowhere(says: dict[str, str], hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    hub.spoil(Fault("/resolve/", says=says))
    (client.home / "x").write_bytes(b"the user's")
    chosen = client.chosen("a/b:Q4_0")
    before = outside(client)
    with pytest.raises(HubError) as told:
        await pulled(client, chosen)
    assert type(told.value) is HubError, told.value
    cached = client.home / "hf"
    assert outside(client) == before
    assert not [path for path in cached.rglob("*") if path.is_file()], "nothing was begun"


async def test_the_commit_of_a_refusal_leads_nowhere(hub: LocalHub, client: Client) -> None:
    """The client notes what there is not, in a folder of the commit that the refusal names."""
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen = client.chosen("a/b:Q4_0")
    more = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": "../../../../x"}
    hub.spoil(Fault("/resolve/", status=404, headers=more))
    with pytest.raises(HubError, match="answers for the commit"):
        await pulled(client, chosen)
    assert not list(client.home.rglob("x"))


@pytest.mark.parametrize(
    "chosen",
    [
        asked_for(RepoFile("../../x.gguf", 3)),
        asked_for(RepoFile("x.gguf", 3, None, "../../x")),
        asked_for(RepoFile("x.gguf", 3, "*", "*")),
        asked_for(RepoFile("x.gguf", 3), commit="../../x"),
        asked_for(RepoFile("x.gguf", 3), repo="../x"),
        asked_for(RepoFile("x.gguf", -3)),
    ],
    ids=lambda chosen: str(chosen.repository),
)
async def test_the_process_that_downloads_checks_names_itself(chosen: Chosen, client: Client) -> None:
    with pytest.raises(HubError, match="invalid names or numbers"):
        await pulled(client, chosen)


@pytest.mark.parametrize("size", [None, len(DATA)])
async def test_more_than_was_announced_is_not_written(size: int | None, hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    hub.spoil(Fault("/storage/", method="GET", endless=True))
    chosen = client.chosen("a/b:Q4_0")
    commit, sha = chosen.repository.commit, chosen.variant.parts[0].sha256
    with pytest.raises(HubError, match="sends more than"):
        await pulled(client, asked_for(RepoFile("m-Q4_0.gguf", size, sha, sha), commit=commit))
    assert sum(len(data) for data in everything(client.home / "hf").values()) < 2 * len(DATA)


async def test_a_file_of_which_nobody_knows_the_size_is_not_begun(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.txt": DATA})
    commit = hub.repositories["a/b"].refs["main"]
    hub.spoil(Fault("/resolve/", endless=True))
    with pytest.raises(HubError, match="how large"):
        await pulled(client, asked_for(RepoFile("m-Q4_0.txt"), commit=commit))


async def test_what_has_no_room_is_not_begun(hub: LocalHub, client: Client) -> None:
    """Where the listing told no size, the process that downloads looks itself."""
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    commit = hub.repositories["a/b"].refs["main"]
    hub.spoil(Fault("/resolve/", says={"X-Linked-Size": str(1 << 60)}))
    with pytest.raises(HubError, match="ran full"):
        await pulled(client, asked_for(RepoFile("m-Q4_0.gguf"), commit=commit))
    assert not hub.requests("/storage/", "GET")


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_a_download_that_dribbles_breaks_off(method: str, hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen = client.chosen("a/b:Q4_0")
    hub.spoil(Fault("/resolve/", method=method, dribble=True))
    with pytest.raises(DownloadFailed, match="less than 64 KiB"):
        await pulled(client, chosen, patience=0.5)


async def test_a_body_that_dribbles_breaks_off(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen = client.chosen("a/b:Q4_0")
    hub.spoil(Fault("/storage/", method="GET", rate=100.0))
    with pytest.raises(DownloadFailed, match="less than 64 KiB"):
        await pulled(client, chosen, patience=0.5)


async def test_a_pause_without_end_is_not_waited_for(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen = client.chosen("a/b:Q4_0")
    hub.spoil(Fault("/storage/", method="GET", status=429, headers={"Retry-After": "99999999"}))
    with pytest.raises(HubBusy, match="Try later"):
        await pulled(client, chosen)


@pytest.mark.parametrize("times", [1, 1 << 30])
async def test_redirects_of_a_download(times: int, hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen = client.chosen("a/b:Q4_0")
    circle = {"Location": f"/a/b/resolve/{chosen.repository.commit}/m-Q4_0.gguf"}
    hub.spoil(Fault("/resolve/", method="GET", times=times, status=302, headers=circle))
    if times == 1:
        assert (await pulled(client, chosen)).read_bytes() == DATA
        return
    with pytest.raises(DownloadFailed):
        await pulled(client, chosen)


# ── nobody else's files ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_link_to_somebody_elses_file_is_left_alone(hub: LocalHub, client: Client) -> None:
    """Whoever put it there: what a check finds wrong, and what is removed, is the link."""
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen, models = client.chosen("a/b:Q4_0"), client.models()
    link = await pulled(client, chosen)
    mine = client.home / "mine.gguf"
    mine.write_bytes(b"the user's own")
    link.unlink()
    link.symlink_to(mine)
    assert await models.downloads.remove([link]) == 0
    assert mine.read_bytes() == b"the user's own"
    assert not link.is_symlink()


async def test_a_link_in_place_of_a_beginning_is_not_written_through(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    chosen = client.chosen("a/b:Q4_0")
    mine = client.home / "mine"
    mine.write_bytes(b"the user's own")
    blobs = client.home / "hf" / "hub" / "models--a--b" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{chosen.variant.parts[0].etag}.partial.incomplete").symlink_to(mine)
    with pytest.raises(DownloadFailed):
        await pulled(client, chosen)
    assert mine.read_bytes() == b"the user's own"
    assert client.models().unfinished() == []


async def test_a_content_that_was_there_is_not_removed_for_another_file(hub: LocalHub, client: Client) -> None:
    """A hub that gives the name of a content which is here already does not get it removed."""
    files = {"m-Q4_0.gguf": DATA, "m-Q8_0.gguf": DATA[::-1]}
    hub.add("a/b", files)
    good = await pulled(client, client.chosen("a/b:Q4_0"))
    other = client.chosen("a/b:Q8_0").variant.parts[0]
    name = "not-a-sha256"
    (good.resolve().parent / name).write_bytes(DATA)
    hub.spoil(Fault("m-Q8_0", method="HEAD", says={"X-Linked-Etag": f'"{name}"'}))
    with pytest.raises(VerificationFailed):
        await pulled(client, asked_for(other, commit=hub.repositories["a/b"].refs["main"]))
    assert (good.resolve().parent / name).exists()


async def test_the_cache_may_be_behind_a_link(hub: LocalHub, client: Client, tmp_path: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": DATA})
    (tmp_path / "disk").mkdir()
    (client.home / "hf").symlink_to(tmp_path / "disk")
    models = client.models()
    await pulled(client, client.chosen("a/b:Q4_0"))
    assert await models.downloads.remove(models.scan()[0].files) == len(DATA)
    assert models.scan() == []


def test_a_ref_that_leads_elsewhere_is_none(client: Client) -> None:
    refs = client.home / "hf" / "hub" / "models--a--b" / "refs"
    refs.mkdir(parents=True)
    (client.home / "x").mkdir()
    (client.home / "x" / "m-Q4_0.gguf").write_bytes(DATA)
    (refs / "main").write_text("../../../../x")
    assert client.models().cache.repositories("a/b", None) == []
    (refs / "main").write_bytes(b"a" * 5_000_000)
    assert client.models().cache.commit_of("a/b", None) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
async def test_a_ref_that_is_a_pipe_is_waited_for_by_nobody(client: Client) -> None:
    """Others may write to a cache that is shared."""
    refs = client.home / "hf" / "hub" / "models--a--b" / "refs"
    refs.mkdir(parents=True)
    os.mkfifo(refs / "main")
    asked = asyncio.create_task(asyncio.to_thread(client.models().cache.repositories, "a/b", None))
    try:
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.shield(asked) == []
    finally:
        os.close(os.open(refs / "main", os.O_RDWR | os.O_NONBLOCK))  # whoever waits goes on
        await asked


def test_a_hash_that_another_repository_announced_shows_no_header_of_its_own(hub: LocalHub, client: Client) -> None:
    known, other = (model([pair("general.architecture", STRING, name)], [], 0) for name in ("llama", "qwen2"))
    hub.digests[id(other)] = hub.digests_of(known)
    hub.add("evil/b", {"m-Q4_0.gguf": other})
    assert client.models().model(client.chosen("evil/b:Q4_0")).header.architecture == "qwen2"
    hub.add("a/b", {"m-Q4_0.gguf": known})
    assert client.models().model(client.chosen("a/b:Q4_0")).header.architecture == "llama"
