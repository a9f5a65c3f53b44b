"""The engine's HTTP client against a Unix socket that says exactly what each test wants."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from supervisor.engines.client import MOST_TOLD, AnswerTooLarge, EngineClient, EngineResponse, EngineUnreachable
from tests.shell.waiting import until
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextlib.asynccontextmanager
async def engine(folder: Path, answer: Answer) -> AsyncIterator[EngineClient]:
    """A client of a server that reads the request's head and then does as told."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, folder / "e.sock")
    async with server:
        yield EngineClient(str(folder / "e.sock"))


def says(*pieces: bytes) -> Answer:
    """Send the pieces one by one and close."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return answer


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_a_stream_cut_anywhere(tmp_path: Path) -> None:
    whole = STREAM + chunk(b"data: 1\n\n") + chunk(b"data: 2\n\n") + chunk(b"")
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    async with engine(tmp_path, says(*pieces)) as client, client.post("/x", b"{}") as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        assert await response.read() == b"data: 1\n\ndata: 2\n\n"
        assert await response.read_some() == b""


async def test_what_arrived_together_is_read_together(tmp_path: Path) -> None:
    whole = STREAM + chunk(b"one") + chunk(b"two") + chunk(b"")
    async with engine(tmp_path, says(whole)) as client, client.post("/x", b"{}") as response:
        assert await response.read_some() == b"onetwo"


async def test_the_request_is_sent_as_it_is(tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await reader.readexactly(9)
        writer.write(b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n" + body)

    async with engine(tmp_path, echo) as client, client.post("/x", b'{"a": 1 }') as response:
        assert (response.status, response.content_type) == (503, "application/json")
        assert await response.json() == {"a": 1}


async def test_an_answer_that_breaks_off(tmp_path: Path) -> None:
    async with engine(tmp_path, says(STREAM + chunk(b"half"))) as client, client.get("/x") as response:
        assert await response.read_some() == b"half"
        with pytest.raises(EngineUnreachable, match="closed the connection"):
            await response.read_some()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 O"], ids=["nothing", "half a head"])
async def test_an_engine_that_hangs_up(tmp_path: Path, said: bytes) -> None:
    async with engine(tmp_path, says(said)) as client:
        with pytest.raises(EngineUnreachable, match="closed the connection"):
            async with client.get("/x"):
                pass


async def test_an_engine_that_speaks_no_http(tmp_path: Path) -> None:
    async with engine(tmp_path, says(b"220 mail.example ready\r\n")) as client:
        with pytest.raises(EngineUnreachable, match="not HTTP"):
            async with client.get("/x"):
                pass


async def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachable, match="cannot be reached"):
        async with EngineClient(str(tmp_path / "none.sock")).get("/x"):
            pass


async def test_leaving_closes_the_connection(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def until_left(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(b"first"))
        assert await reader.read() == b""
        left.set()

    async with engine(tmp_path, until_left) as client:
        async with client.get("/x") as response:
            assert await response.read_some() == b"first"
        async with asyncio.timeout(PATIENCE):
            await left.wait()


async def test_closing_the_client_wakes_who_reads(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await reader.read()

    async with engine(tmp_path, silent) as client, client.get("/x") as response:
        reading = asyncio.create_task(response.read())
        await asyncio.sleep(0)  # it waits now
        client.close()
        with pytest.raises(EngineUnreachable):
            async with asyncio.timeout(PATIENCE):
                await reading


async def test_a_slow_reader_holds_the_engine_back(tmp_path: Path) -> None:
    size = 16 << 20
    sent = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    async with engine(tmp_path, flood) as client, client.get("/x") as response:
        await until(lambda: sent > 0, "the engine has begun")
        for _ in range(1000):  # many chances to go on, of which it takes few
            await asyncio.sleep(0)
        assert sent < size / 2
        assert len(await response.read(size)) == size


async def test_pieces_are_handed_on_as_they_arrive(tmp_path: Path) -> None:
    whole = STREAM + chunk(b"one") + chunk(b"two") + chunk(b"three") + chunk(b"")
    got: list[bytes] = []
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    async with engine(tmp_path, says(*pieces)) as client, client.get("/x") as response:
        assert await response.pipe(_into(got))
    assert b"".join(got) == b"onetwothree"


async def test_a_sink_that_is_full_gets_the_rest_later(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(b"one"))
        await until(lambda: got == [b"one"], "the first piece has arrived")
        writer.write(chunk(b"two") + chunk(b""))

    async with engine(tmp_path, answer) as client, client.get("/x") as response:
        while not await response.pipe(_into(got, full=True)):
            pass
    assert got == [b"one", b"two"]


async def test_what_a_sink_raises_is_raised_by_pipe(tmp_path: Path) -> None:
    def refuse(_data: bytes) -> bool:
        raise ArithmeticError("too much")

    piping = asyncio.Event()

    async def late(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await piping.wait()
        writer.write(chunk(b"one"))

    async with engine(tmp_path, late) as client, client.get("/x") as response:
        piping.set()
        with pytest.raises(ArithmeticError):
            await response.pipe(refuse)


async def test_what_a_sink_raises_on_the_last_piece_is_raised_too(tmp_path: Path) -> None:
    def refuse(_data: bytes) -> bool:
        raise ArithmeticError("too much")

    piping = asyncio.Event()

    async def late(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await piping.wait()
        writer.write(chunk(b"one") + chunk(b""))

    async with engine(tmp_path, late) as client, client.get("/x") as response:
        piping.set()
        with pytest.raises(ArithmeticError):
            await response.pipe(refuse)


async def test_a_pipe_that_breaks_off(tmp_path: Path) -> None:
    got: list[bytes] = []
    async with engine(tmp_path, says(STREAM + chunk(b"half"))) as client, client.get("/x") as response:
        with pytest.raises(EngineUnreachable, match="closed the connection"):
            await response.pipe(_into(got))
    assert got == [b"half"]


async def test_a_large_request_arrives_whole(tmp_path: Path) -> None:
    body = bytes(range(256)) * (1 << 15)

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        same = await reader.readexactly(len(body)) == body
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + (b"same" if same else b"else"))

    async with engine(tmp_path, count) as client, client.post("/x", body) as response:
        assert await response.read() == b"same"


async def test_others_are_served_while_a_large_request_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.engines.client._TURN", 1 << 10)  # so small that the socket takes all in one call
    pieces = (b"a" * (30 << 10), b"b" * (30 << 10))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(60 << 10)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n%d" % min(turns, 99))

    async with engine(tmp_path, answer) as client:
        beside = asyncio.ensure_future(others())
        async with client.post("/x", pieces) as response:
            assert int(await response.read()) >= 58
        beside.cancel()


async def test_an_answer_before_the_whole_request_was_taken(tmp_path: Path) -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()

    async with engine(tmp_path, refuse) as client, client.post("/x", b"x" * (8 << 20)) as response:
        assert (response.status, await response.read()) == (413, b"no")


async def test_a_full_queue_of_connections_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "busy.sock")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
        listener.bind(path)
        listener.listen(0)
        while _queued(path, waiting):
            pass

        async def ask() -> int:
            async with EngineClient(path).get("/x") as response:
                return response.status

        asking = asyncio.create_task(ask())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not asking.done()
        server = await asyncio.start_unix_server(_ok, sock=listener)
        async with asyncio.timeout(PATIENCE):
            assert await asking == 200
        server.close()


def _into(got: list[bytes], *, full: bool = False) -> Callable[[bytes], bool]:
    def take(data: bytes) -> bool:
        got.append(data)
        return not full

    return take


def _queued(path: str, waiting: contextlib.ExitStack) -> bool:
    """Connect without being accepted; False where the queue is full."""
    one = waiting.enter_context(socket.socket(socket.AF_UNIX))
    one.setblocking(False)
    return one.connect_ex(path) == 0


async def _ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    writer.close()


async def test_a_head_without_end_is_broken_off(tmp_path: Path) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(1024):
                writer.write(b"x" * 65_536)
                await writer.drain()

    async with engine(tmp_path, answer) as client:
        with pytest.raises(EngineUnreachable, match="a head of more than"):
            async with client.get("/x"):
                pass


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b"[" * 100_000, b"[" * 600 + b"]" * 600])
@pytest.mark.parametrize("status", [200, 500])
async def test_an_object_is_taken_from_any_answer(tmp_path: Path, body: bytes, status: int) -> None:
    head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    async with engine(tmp_path, says(head + body)) as client, client.get("/props") as response:
        assert await response.json_object() == {}


async def test_an_object_of_an_answer(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"
    async with engine(tmp_path, says(head + b'{"a": 1}')) as client, client.get("/props") as response:
        assert await response.json_object() == {"a": 1}


JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def test_no_more_is_read_at_once_than_whoever_asks_takes(tmp_path: Path) -> None:
    """A model's template decides how much some answers say."""
    whole = JSON + b"Content-Length: 10\r\n\r\n" + b"x" * 10
    async with engine(tmp_path, says(whole)) as client:
        async with client.get("/x") as response:
            assert await response.read(10) == b"x" * 10
        async with client.get("/x") as response:
            with pytest.raises(AnswerTooLarge):
                await response.read(9)


@pytest.mark.parametrize(("spare", "found"), [(0, {}), (-1, {"a": ""})])
async def test_json_that_is_too_long_is_none(tmp_path: Path, spare: int, found: dict[str, str]) -> None:
    text = b'{"a":""}'
    body = text + b" " * (MOST_TOLD + 1 + spare - len(text))
    whole = JSON + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with engine(tmp_path, says(whole)) as client, client.get("/x") as response:
        assert await response.json_object() == found


@pytest.mark.parametrize("interim", [b"100 Continue", b"103 Early Hints"])
async def test_an_interim_answer_is_passed_over(tmp_path: Path, interim: bytes) -> None:
    first = b"HTTP/1.1 " + interim + b"\r\nContent-Type: text/html\r\n\r\n"
    whole = first * 2 + JSON + b"Content-Length: 2\r\n\r\n{}"
    async with engine(tmp_path, says(whole)) as client, client.get("/x") as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert await response.read() == b"{}"


async def test_what_follows_an_answer_is_none_of_it(tmp_path: Path) -> None:
    whole = JSON + b"Content-Length: 2\r\n\r\n{}"
    second = b"HTTP/1.1 500 No\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nno"
    async with engine(tmp_path, says(whole + second)) as client, client.get("/x") as response:
        assert await response.read() == b"{}"
        assert (response.status, response.content_type) == (200, "application/json")


@pytest.mark.parametrize("status", [b"000", b"101", b"600", b"999"])
async def test_a_status_that_is_none(tmp_path: Path, status: bytes) -> None:
    """No client could be told."""
    whole = b"HTTP/1.1 " + status + b" Odd\r\nUpgrade: x\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n"
    async with engine(tmp_path, says(whole)) as client:
        with pytest.raises(EngineUnreachable):
            async with client.get("/x"):
                pass


async def test_interim_answers_without_end(tmp_path: Path) -> None:
    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
                await writer.drain()

    async with engine(tmp_path, flood) as client:
        with pytest.raises(EngineUnreachable):
            async with client.get("/x"):
                pass


@pytest.mark.parametrize("endless", [b"x" * 1024, b"x: y\r\n" * 200], ids=["extension", "trailers"])
@pytest.mark.parametrize("read", [EngineResponse.read, lambda one: one.pipe(lambda _: True)], ids=["read", "pipe"])
async def test_frames_without_end_are_broken_off(
    tmp_path: Path, endless: bytes, read: Callable[[EngineResponse], Awaitable[object]]
) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(b"one") + (b"3;" if endless[1:2] == b"x" else b"0\r\n"))
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(endless)
                await writer.drain()

    async with engine(tmp_path, answer) as client, client.post("/x", b"{}") as response:
        with pytest.raises(EngineUnreachable, match="frames of more than"):
            await read(response)


async def test_frames_count_anew_with_each_piece_of_the_body(tmp_path: Path) -> None:
    pieces = [b"1;" + b"x" * 60_000 + b"\r\na\r\n"] * 20
    async with engine(tmp_path, says(STREAM, *pieces, chunk(b""))) as client, client.post("/x", b"{}") as response:
        assert await response.read() == b"a" * 20
