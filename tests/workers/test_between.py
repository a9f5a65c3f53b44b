"""Who is between a host and the daemon that has invited it: it learns nothing, and is not trusted from then on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from supervisor.cluster.joining import join as join_cluster
from supervisor.core.workers import messages as m
from supervisor.core.workers.token import JoinToken
from supervisor.errors import ClusterRefused, WorkerRefused
from supervisor.workers.authority import Authority, proven
from supervisor.workers.joining import join as join_daemon

pytestmark = pytest.mark.anyio

Says = Callable[[asyncio.StreamReader, str], Awaitable[bytes]]


@pytest.fixture
def true(tmp_path: Path) -> Authority:
    """An authority, whose certificate in base64 ends with padding: lax readers stop there."""
    for number in range(64):
        (tmp_path / f"true{number}").mkdir()
        found = Authority(tmp_path / f"true{number}")
        if found.certificate.partition("=")[1]:
            return found
    raise AssertionError("one in three has no padding")


@pytest.fixture(scope="module")
def forger() -> trustme.CA:
    return trustme.CA()


@contextlib.asynccontextmanager
async def between(forger: trustme.CA, said: str, says: Says) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A port at which somebody answers with this text in place of the authority's certificate, and what is told it."""
    heard: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    forger.issue_cert("127.0.0.1").configure_cert(context)

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await says(reader, said))
        writer.write(_answers[says](said))
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


async def a_line(reader: asyncio.StreamReader, said: str) -> bytes:
    return await reader.readline()


async def a_request(reader: asyncio.StreamReader, said: str) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)


def _as_http(said: str) -> bytes:
    body = json.dumps({"authority": said}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)


_answers: dict[Says, Callable[[str], bytes]] = {
    a_line: lambda said: m.line_of(m.Authority(said)),
    a_request: _as_http,
}


def forged(true: Authority, forger: trustme.CA) -> list[str]:
    """Texts that begin with the true certificate and bring another one."""
    first, second = true.certificate.strip(), forger.cert_pem.bytes().decode().strip()
    return [f"{first}\n{second}\n", f"{first}{second}", f"{second}\n{first}\n", f"{first}\n\n{second}", second, "", "-"]


async def joins_daemon(folder: Path, token: JoinToken) -> object:
    return await join_daemon(folder, token, "studio")


async def joins_cluster(folder: Path, token: JoinToken) -> object:
    return await asyncio.to_thread(join_cluster, folder, token, "studio", ("127.0.0.1", 1), 2)


@pytest.mark.parametrize(
    ("joins", "says", "refusal"),
    [(joins_daemon, a_line, WorkerRefused), (joins_cluster, a_request, ClusterRefused)],
)
@pytest.mark.parametrize("number", range(7))
async def test_a_second_certificate_behind_the_true_one_is_trusted_by_nobody(
    true: Authority,
    forger: trustme.CA,
    tmp_path: Path,
    joins: Callable[[Path, JoinToken], Awaitable[object]],
    says: Says,
    refusal: type[Exception],
    number: int,
) -> None:
    async with between(forger, forged(true, forger)[number], says) as (port, heard):
        with pytest.raises(refusal):
            await joins(tmp_path / "state", JoinToken("127.0.0.1", port, true.fingerprint, "the-secret"))
    assert not any(b"the-secret" in one for one in heard)
    assert not (tmp_path / "state").exists()


def test_what_is_proven_is_one_certificate(true: Authority, forger: trustme.CA) -> None:
    for said in forged(true, forger)[:2]:
        found = proven(said, true.fingerprint)
        assert found in {None, true.certificate}
    assert proven(f"# anybody's words\n{true.certificate}", true.fingerprint) == true.certificate
    assert proven(forger.cert_pem.bytes().decode(), true.fingerprint) is None
    assert proven("\ud800", true.fingerprint) is None
    assert proven(true.certificate, "\u00fc") is None
