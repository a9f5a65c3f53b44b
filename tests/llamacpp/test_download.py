"""An archive arrives whole and right, or not at all."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from supervisor.errors import EngineInstallFailed
from supervisor.llamacpp.download import Archive, fetch, make_client, without_credentials
from supervisor.llamacpp.progress import Progress
from tests.llamacpp.fakes import Reply, WebServer

BODY = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(BODY).hexdigest()


def get(url: str, folder: Path, digest: str = DIGEST) -> tuple[Path, list[Progress]]:
    steps: list[Progress] = []

    async def scenario() -> Path:
        async with make_client({}) as client:
            return await fetch(client, Archive("a.tar.gz", url, digest), folder, steps.append)

    return asyncio.run(scenario()), steps


def test_it_arrives_with_progress_and_is_kept(site: WebServer, tmp_path: Path) -> None:
    site.replies["/a"] = Reply(BODY)
    path, steps = get(f"{site.url}/a", tmp_path / "downloads")
    assert path.read_bytes() == BODY
    fractions = [step.fraction for step in steps if step.fraction is not None]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    get(f"{site.url}/a", tmp_path / "downloads")
    assert len(site.requests) == 1


def test_what_was_kept_is_checked_again(site: WebServer, tmp_path: Path) -> None:
    site.replies["/a"] = Reply(BODY)
    path, _ = get(f"{site.url}/a", tmp_path)
    path.write_bytes(b"damaged")
    assert get(f"{site.url}/a", tmp_path)[0].read_bytes() == BODY


def test_redirects_are_followed(site: WebServer, tmp_path: Path) -> None:
    site.replies.update({"/a": Reply(status=302, headers={"Location": "/b"}), "/b": Reply(BODY)})
    assert get(f"{site.url}/a", tmp_path)[0].read_bytes() == BODY


def test_from_disk(tmp_path: Path) -> None:
    (tmp_path / "with space").write_bytes(BODY)
    assert get((tmp_path / "with space").as_uri(), tmp_path / "downloads")[0].read_bytes() == BODY
    with pytest.raises(EngineInstallFailed, match="cannot be read"):
        get((tmp_path / "absent").as_uri(), tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(BODY[1:]), "wrong digest"),
        (Reply(BODY, promised=len(BODY) + 1), "broke off"),
        (Reply(status=404), "answered 404"),
        (Reply(status=500), "answered 500"),
    ],
)
def test_nothing_else_is_left_on_disk(site: WebServer, tmp_path: Path, reply: Reply, reason: str) -> None:
    site.replies["/a"] = reply
    with pytest.raises(EngineInstallFailed, match=reason):
        get(f"{site.url}/a", tmp_path / "downloads")
    assert list((tmp_path / "downloads").iterdir()) == []


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(EngineInstallFailed, match=r"127\.0\.0\.1:1/a"):
        get("http://user:s3cret@127.0.0.1:1/a", tmp_path)


def test_credentials_are_not_shown() -> None:
    assert without_credentials("https://u:p@host:8/a/b?token=t#x") == "https://host:8/a/b"
