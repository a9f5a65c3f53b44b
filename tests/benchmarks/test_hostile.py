"""What the benchmark of hostile clients does, on small things; and that it measures all it promises."""

from __future__ import annotations

import json
import mmap
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path

import pytest

from benchmarks.hostile import _answered_after, _endless_headers, _half_open, _memory, _post, _Watch, arrays, image
from benchmarks.load import Place
from benchmarks.servers import MODEL
from tests.benchmarks.running import run_benchmark
from tests.support.daemon import wait_until
from tests.support.patience import PATIENCE
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class _Listener:
    """Counts connections and what they send; answers each with `answer` once its head has come, and closes it."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.place = Place("m", self._socket.getsockname()[1])
        self._serving: list[threading.Thread] = []
        self.received: list[int] = []  # bytes of each connection that has ended
        self.much = threading.Event()  # set once a connection has sent a megabyte

    def serve(self) -> None:
        """Until it is closed."""
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self._serving.append(threading.Thread(target=self._serve, args=(client,)))
            self._serving[-1].start()

    def close(self) -> None:
        """Take no more, and wait until those who are there have left."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for one in self._serving:
            one.join(PATIENCE)

    def _serve(self, client: socket.socket) -> None:
        said, size, answer = b"", 0, self._answer
        with client:
            while data := client.recv(1 << 16):
                said, size = said + data[:1000], size + len(data)
                if size > 1_000_000:
                    self.much.set()
                if answer and b"\r\n\r\n" in said:
                    client.sendall(answer)
                    client.shutdown(socket.SHUT_WR)
                    answer = b""
        self.received.append(size)


@contextmanager
def listening(answer: bytes = b"") -> Iterator[_Listener]:
    listener = _Listener(answer)
    serving = threading.Thread(target=listener.serve)
    serving.start()
    try:
        yield listener
    finally:
        listener.close()
        serving.join(PATIENCE)


def closed() -> Place:
    """A port on which nobody listens."""
    return Place("m", free_port())


def test_bodies_have_the_size_that_is_asked_for_and_name_the_model() -> None:
    for make in (image, arrays):
        body = make(100_000)
        assert 99_000 < len(body) < 101_000
        assert json.loads(body)["model"] == MODEL
    assert len(json.loads(arrays(3000))["x"]) == 1001
    assert json.loads(image(8))["messages"][0]["content"][1]["image_url"]["url"].endswith(",iVBORw0K")


def test_the_longest_gap_lies_between_two_events_or_at_an_edge() -> None:
    now = time.monotonic()
    for arrived, expected in (([now - 9, now - 5, now - 4], 4.0), ([now - 20], 10.0), ([now + 60], 10.0)):
        ours, theirs = Pipe()
        theirs.send(arrived)
        found = _Watch(ours).longest_gap(now - 10) / 1000
        assert found >= expected
        assert found - expected <= time.monotonic() - now
        assert theirs.recv() == "stop"
    ours, theirs = Pipe()
    theirs.send("the stream broke off")
    with pytest.raises(RuntimeError, match="broke off"):
        _Watch(ours).longest_gap(now)


def test_connections_that_never_finish_their_request_are_counted() -> None:
    with listening() as there:
        with _half_open(there.place, 5) as taken:
            assert taken == 5
            assert there.received == [], "they stay"
        wait_until(lambda: len(there.received) == 5, "they have left")
    assert len(set(there.received)) == 1
    with _half_open(closed(), 5) as taken:
        assert taken == 0


def test_headers_are_sent_for_as_long_as_they_are_taken() -> None:
    with listening() as there, _endless_headers(there.place):
        assert there.much.wait(PATIENCE)
    with _endless_headers(closed()):
        pass


@pytest.mark.parametrize(("answer", "counts"), [(_OK, True), (b"HTTP/1.1 503 No\r\n\r\n", False)])
def test_what_has_no_answer_counts_as_the_longest_time(answer: bytes, counts: bool) -> None:
    with listening(answer) as there:
        assert (_answered_after(there.place) != 5000.0) is counts
    assert _answered_after(closed()) == 5000.0


def test_a_body_is_sent_whole_and_its_answer_is_waited_for() -> None:
    with listening(_OK) as there:
        _post(there.place, arrays(300_000))
    assert [size > 300_000 for size in there.received] == [True]


def test_growth_is_looked_at_all_the_while() -> None:
    fresh = 64 << 20  # pages of the system's own, whatever the allocator has kept of earlier tests
    with _memory(os.getpid()) as grown, mmap.mmap(-1, fresh) as held:
        held.write(b"x" * fresh)
        before = len(grown)
        wait_until(lambda: len(grown) > before + 2, "it looks again")
    assert max(grown) > 32 << 20


@pytest.mark.engine
@pytest.mark.full
def test_a_quick_run_measures_everything(engine_binary: Path) -> None:
    out = run_benchmark("hostile", "--quick", "--engine", str(engine_binary))
    figures = json.loads(out.splitlines()[-1])
    assert any(name.startswith("gap at rest") for name in figures)
    assert {"supervisor", "router"} <= figures["gap at rest [ms]"].keys()
    assert figures["half-open connections taken []"]["supervisor"] == 50
