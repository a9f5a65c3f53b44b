"""What is fetched for clients, from real servers: from where, how much, for how long, and through which redirects."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_network
from typing import Any

import pytest
import trustme

from supervisor.core.requests.media import FetchRules, Place
from supervisor.errors import MediaNotFetched, MediaTooLarge, MediaUrlRefused, SupervisorError
from supervisor.proxy.fetching import Fetch, resolved
from tests.support.media_server import MediaServer, answer, media_server, png
from tests.support.patience import PATIENCE

HERE = (ip_network("127.0.0.1/32"),)
RULES = FetchRules("all", HERE, most=1 << 20, seconds=PATIENCE)


@pytest.fixture
def server() -> Iterator[MediaServer]:
    with media_server() as running:
        yield running


class Names:
    """A resolver whose answers the test has: each is given once, the last one for ever."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        given = self.answers.get(host)
        if given is None:
            return await resolved(host)
        return given.pop(0) if len(given) > 1 else given[0]


def fetched(url: str, rules: FetchRules = RULES, names: Names | None = None, kind: str = "image") -> bytes:
    return asyncio.run(Fetch(rules, names or Names()).data_url(Place(("at",), kind, url)))


def refused(error: type[SupervisorError], url: str, rules: FetchRules = RULES, names: Names | None = None) -> str:
    with pytest.raises(error) as found:
        fetched(url, rules, names)
    assert type(found.value) is error
    assert found.value.param == "at"
    return found.value.message


def test_a_picture_becomes_a_data_url(server: MediaServer) -> None:
    assert fetched(server.url()) == b"data:image/png;base64," + base64.b64encode(png())
    (asked,) = server.asked
    assert asked.headers["user-agent"].startswith("llama-supervisor/")
    assert not {"cookie", "authorization", "x-api-key"} & asked.headers.keys()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 49151, 49152, 49153, 200_000])
def test_every_byte_arrives(server: MediaServer, size: int) -> None:
    body = bytes(number % 251 for number in range(size))
    server.answers["/x"] = lambda handler: answer(handler, body, kind=None)
    assert base64.b64decode(fetched(server.url("/x")).partition(b",")[2]) == body


def test_nothing_is_asked_of_an_address_inside(server: MediaServer) -> None:
    rules = FetchRules("all", seconds=PATIENCE)
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1"):
        refused(MediaUrlRefused, server.url(host=host), rules)
    refused(MediaUrlRefused, "http://169.254.169.254/latest/meta-data", rules)
    assert server.asked == []


def test_a_name_counts_by_all_of_its_addresses(server: MediaServer) -> None:
    for found in (["8.8.8.8", "10.0.0.1"], ["127.0.0.2"], ["fe80::1%lo"], ["::1"]):
        refused(MediaUrlRefused, server.url(host="a.example"), RULES, Names(a_example=[found]))
    assert server.asked == []


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(server: MediaServer) -> None:
    """A name that is looked up a second time leads elsewhere (DNS rebinding)."""
    names = Names(a_example=[["127.0.0.1"], ["127.0.0.2"]])
    assert fetched(server.url(host="a.example"), RULES, names).startswith(b"data:image/png")
    assert names.asked == ["a.example"]
    assert server.asked[0].headers["host"] == f"a.example:{server.port}"


def test_redirects_are_followed_and_each_is_checked(server: MediaServer) -> None:
    def to(location: str) -> None:
        server.answers["/r"] = lambda handler: answer(handler, b"", status=302, location=location)

    for location in ("/a.png", server.url(), "a.png"):
        to(location)
        assert fetched(server.url("/r")).startswith(b"data:image/png")
    before = len(server.asked)
    for location in (
        *("file:///etc/passwd", "ftp://127.0.0.1/", server.url(host="127.0.0.2"), "http://[::1]/", "//127.0.0.2/x"),
        f"http://a:b@127.0.0.1:{server.port}/a.png",
    ):
        to(location)
        refused(MediaUrlRefused, server.url("/r"))
    assert {one.path for one in server.asked[before:]} == {"/r"}


def test_a_redirect_s_name_is_looked_up_once_more(server: MediaServer) -> None:
    server.answers["/r"] = lambda handler: answer(handler, b"", status=307, location="/a.png")
    names = Names(a_example=[["127.0.0.1"], ["10.0.0.1"]])
    refused(MediaUrlRefused, server.url("/r", host="a.example"), RULES, names)
    assert [one.path for one in server.asked] == ["/r"]


def test_redirects_have_an_end(server: MediaServer) -> None:
    server.answers["/r"] = lambda handler: answer(handler, b"", status=301, location="/r")
    assert "redirects" in refused(MediaNotFetched, server.url("/r"))
    assert len(server.asked) == 6


def test_what_is_too_large_is_refused_while_it_arrives(server: MediaServer) -> None:
    stopped = threading.Event()

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "image/png")
        handler.end_headers()
        try:
            for _ in range(1 << 12):  # 256 MiB, of which the sockets hold a few
                handler.wfile.write(b"x" * (1 << 16))
        except OSError:
            stopped.set()

    server.answers["/x"] = endless
    assert "fetch_max_mib" in refused(MediaTooLarge, server.url("/x"))
    assert stopped.wait(PATIENCE)


def test_what_comes_in_crumbs_is_given_up(server: MediaServer) -> None:
    """Each of them costs a step, so a server could keep its clients at work for as long as it likes."""

    def crumbs(handler: BaseHTTPRequestHandler) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n"
        with suppress(OSError):
            handler.wfile.write(head + b"1\r\na\r\n" * 5000 + b"0\r\n\r\n")

    server.answers["/crumbs"] = crumbs
    assert "small pieces" in refused(MediaNotFetched, server.url("/crumbs"))


def test_what_takes_too_long_is_given_up(server: MediaServer) -> None:
    over = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        over.wait(PATIENCE)

    server.answers["/x"] = slow
    try:
        assert "0.2 s" in refused(MediaNotFetched, server.url("/x"), FetchRules("all", HERE, seconds=0.2))
    finally:
        over.set()


def test_errors_compression_and_pages_are_no_media(server: MediaServer) -> None:
    server.answers["/gone"] = lambda handler: answer(handler, b"", status=404)
    server.answers["/packed"] = lambda handler: answer(handler, b"x", content_encoding="gzip")
    server.answers["/page"] = lambda handler: answer(handler, b"<html>", kind="text/html")
    assert "404" in refused(MediaNotFetched, server.url("/gone"))
    assert "compressed" in refused(MediaNotFetched, server.url("/packed"))
    assert "no image" in refused(MediaNotFetched, server.url("/page"))


@pytest.mark.parametrize(
    "url", ["http://", "http://a b/", "http://[::1", "http://a:99999/", "http://u:p@127.0.0.1/", "http:/a"]
)
def test_addresses_that_are_none(url: str) -> None:
    refused(MediaUrlRefused, url)


def test_hosts_that_are_none_and_servers_that_are_gone() -> None:
    with media_server() as server:
        url = server.url()
    refused(MediaNotFetched, url)
    refused(MediaNotFetched, "http://nowhere.invalid/")


def test_names_whose_servers_are_silent_keep_no_other_name_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    look, go_on, asked = socket.getaddrinfo, threading.Event(), threading.Semaphore(0)

    def slow(host: Any, *others: Any, **more: Any) -> Any:
        if not str(host).endswith(".silent"):
            return look(host, *others, **more)
        asked.release()
        go_on.wait()
        raise socket.gaierror

    async def run() -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                waiting = [asyncio.ensure_future(resolved("a.silent")) for _ in range(40)]
                assert await resolved("127.0.0.1") == ("127.0.0.1",)
                waiting += [asyncio.ensure_future(resolved("a.silent")) for _ in range(24)]
                for _ in waiting:
                    await asyncio.to_thread(asked.acquire)
                with pytest.raises(BlockingIOError):
                    await resolved("127.0.0.1")
                waiting.pop().cancel()
        finally:
            go_on.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(one, socket.gaierror) for one in found)
        assert await resolved("127.0.0.1") == ("127.0.0.1",)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    asyncio.run(run())


def test_plain_http_only_where_it_is_wanted(server: MediaServer) -> None:
    assert "https" in refused(MediaUrlRefused, server.url(), FetchRules("https", HERE))
    assert "data: URL" in refused(MediaUrlRefused, server.url(), FetchRules("off", HERE))
    assert server.asked == []


def test_https_counts_by_the_name_though_an_address_is_connected_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = trustme.CA()
    file = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("a.example").configure_cert(context)
    names = Names(a_example=[["127.0.0.1"]], b_example=[["127.0.0.1"]])
    rules = FetchRules("https", HERE, seconds=PATIENCE)
    with media_server(context) as server:
        refused(MediaNotFetched, server.url(host="a.example"), rules, names)  # an authority that nobody trusts
        trusting = Fetch(rules, names, lambda: ssl.create_default_context(cafile=str(file)))
        place = Place(("at",), "image", server.url(host="a.example"))
        assert asyncio.run(trusting.data_url(place)).startswith(b"data:image/png")
        with pytest.raises(MediaNotFetched):
            asyncio.run(trusting.data_url(Place(("at",), "image", server.url(host="b.example"))))
