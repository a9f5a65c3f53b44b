"""The messages on the wire, and what a backend is without an engine: its limits, its start and its end."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from supervisor.cli.localai.backend import Backend
from supervisor.cli.localai.call import Call, Gate
from supervisor.cli.localai.serving import MOST_MESSAGE, Server, calls_of, wait_for_end
from supervisor.cli.localai.wire import MOST_ENTRIES, Wire
from supervisor.core.localai import messages as m
from supervisor.core.localai.messages import Row, rows_of
from supervisor.core.localai.watching import INTERVAL
from supervisor.errors import BodiesFull, DaemonError, QueueFull
from tests.cli.localai.loader import Client, compiled, message, told
from tests.support.daemon import environment, scratch_home
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[3]
CALLS = calls_of(Backend(lambda: pytest.fail("nobody asked for a daemon")))


def test_every_field_has_the_number_and_the_type_of_localais() -> None:
    (file,) = compiled().file
    theirs = {one.name: one for one in file.message_type}
    pairs: dict[type, str] = {}
    for method in file.service[0].method:
        if method.name in CALLS:
            rpc = CALLS[method.name]
            assert rpc.streams == method.server_streaming
            pairs |= {rpc.request: method.input_type, rpc.reply: method.output_type}
    compared = 0
    while pairs:
        ours, name = pairs.popitem()
        found = theirs[name.rpartition(".")[2]]
        by_number = {one.number: one for one in found.field}
        for row in rows_of(ours):
            field = by_number[row.number]
            assert field.name.lower().replace("_", "") == row.name.replace("_", ""), (ours, row)
            assert kind_of(row) == kind_in(field, found), (ours, row)
            compared += 1
            if row.message is not None:
                pairs[row.message] = field.type_name
    assert compared > 100


def kind_of(row: Row) -> tuple[str, bool]:
    return ("map " if row.is_map else "") + (row.kind or "message"), row.is_many or row.is_map


def kind_in(field: Any, message: Any) -> tuple[str, bool]:
    nested = {one.name: one for one in message.nested_type}
    entry = nested.get(field.type_name.rpartition(".")[2])
    word = field.Type.Name(field.type if entry is None else entry.field[1].type).removeprefix("TYPE_").lower()
    plain = "int32" if word == "enum" else word  # alike on the wire
    return ("map " if entry is not None else "") + plain, field.label == field.LABEL_REPEATED


def test_messages_keep_every_value_both_ways() -> None:
    wire = Wire([m.PredictOptions, m.Reply, m.StatusResponse])
    theirs = message("PredictOptions")(
        Prompt="ä" * 3,
        Seed=-1,
        Temperature=0.5,
        StopPrompts=["a", "b"],
        Messages=[{"role": "user", "content": "Hi"}],
        EmbeddingTokens=[1, 2],
        Metadata={"a": "b"},
        CorrelationId="skipped",
    )
    assert wire.reader(m.PredictOptions)(theirs.SerializeToString()) == m.PredictOptions(
        prompt="äää",
        seed=-1,
        temperature=0.5,
        stop_prompts=("a", "b"),
        messages=(m.Message("user", "Hi"),),
        embedding_tokens=(1, 2),
        metadata={"a": "b"},
    )
    call = m.ToolCallDelta(1, "c", "f", "{}")
    reply = m.Reply(b"\xff", 1, 2, 0.25, 0.5, b"{}", (m.ChatDelta("a", "b", (call,)),))
    found = message("Reply").FromString(wire.writer(m.Reply)(reply))
    assert (found.message, found.tokens, found.timing_prompt_processing) == (b"\xff", 1, 0.25)
    assert found.chat_deltas[0].tool_calls[0].arguments == "{}"
    assert wire.reader(m.Reply)(found.SerializeToString()) == reply
    failed = m.StatusResponse(-1, m.MemoryUsage(1 << 40, {"CPU": 1 << 40}))
    status = message("StatusResponse").FromString(wire.writer(m.StatusResponse)(failed))
    assert (status.state, status.memory.total, dict(status.memory.breakdown)) == (-1, 1 << 40, {"CPU": 1 << 40})


def test_only_so_many_calls_and_bytes_are_let_in() -> None:
    gate = Gate(calls=2, size=100)
    with gate.passed(60):
        with pytest.raises(BodiesFull), gate.passed(41):
            pass
        with gate.passed(40), pytest.raises(QueueFull), gate.passed(0):
            pass
    with gate.passed(100), gate.passed(0):
        pass


def test_a_call_that_was_left_ends_also_what_begins_later() -> None:
    call = Call()
    for before in (True, False):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            call.hold(ours)
            if before:
                call.leave()
            assert theirs.recv(1) == b""
    assert call.left
    call.leave()  # the connection is closed; nothing happens


class Strange(Backend):
    """Its answers are not as they should be."""

    def status(self, _: m.Nothing, call: Call) -> m.StatusResponse:
        raise KeyError("state")

    def predict_stream(self, asked: m.PredictOptions, call: Call) -> Iterator[m.Reply]:
        yield m.Reply(message=b"a")
        raise TypeError("no text")


def test_every_error_begins_with_a_code() -> None:
    server = Server(Strange(lambda: pytest.fail("nobody asked for a daemon")), "127.0.0.1:0", "")
    server.start()
    try:
        client = Client(f"127.0.0.1:{server.port}")
        assert client.error("Status") == (
            "INTERNAL",
            "internal_error: An answer is not understood (KeyError: 'state').",
        )
        stream = client.stream("PredictStream")
        assert next(stream).message == b"a"
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        assert told(raised.value) == ("INTERNAL", "internal_error: An answer is not understood (TypeError: no text).")
        client.close()
    finally:
        server.stop()


@pytest.mark.parametrize("rpc", CALLS)
def test_of_a_call_without_the_token_no_message_is_taken(rpc: str) -> None:
    """Its client never sends one, and is answered all the same."""
    server = Server(Strange(lambda: pytest.fail("nobody asked for a daemon")), "127.0.0.1:0", "secret")
    server.start()
    never = threading.Event()

    def messages() -> Iterator[bytes]:
        never.wait(PATIENCE)
        yield b""

    try:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            begun: Any = channel.stream_unary(f"/{m.SERVICE}/{rpc}")
            with pytest.raises(grpc.RpcError) as raised:
                begun(messages(), timeout=PATIENCE / 2)
            assert told(raised.value) == ("UNAUTHENTICATED", "invalid token")
    finally:
        never.set()
        server.stop()


def test_a_message_may_be_as_long_as_localais() -> None:
    assert MOST_MESSAGE == 50 * 1024 * 1024


def test_it_waits_until_its_parent_is_another() -> None:
    parents = iter([7, 7, 7, 1])
    wait_for_end({INTERVAL: "1ms"}, threading.Event(), lambda: next(parents))
    assert list(parents) == []


def test_it_waits_until_it_is_told_to_stop() -> None:
    stop = threading.Event()
    stop.set()
    wait_for_end({}, stop, lambda: 7)


def test_closing_without_a_daemon_asks_for_none() -> None:
    Backend(lambda: pytest.fail("nobody asked for a daemon")).close()


def test_a_load_without_a_daemon_says_why_in_its_result() -> None:
    def find() -> Any:
        raise DaemonError("There is none.")

    result = Backend(find).load_model(m.ModelOptions(model="a"), Call())
    assert (result.success, result.message) == (False, "daemon_error: There is none.")


def test_nothing_else_imports_grpc() -> None:
    for path in (ROOT / "supervisor").rglob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            names |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
        used = {name for name in names if name.partition(".")[0] in {"grpc", "google"}}
        assert not used or path.parent.name == "localai", path
    code = "import sys, supervisor.cli.main, supervisor.cli.verbs.localai_backend as v; "
    code += "print([n for n in sys.modules if n.partition('.')[0] in {'grpc', 'google'} and n != 'google'])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("lacks", ["grpc", "google.protobuf"])
def test_without_the_extra_it_says_what_to_install(tmp_path: Path, lacks: str) -> None:
    code = f"import sys; sys.modules['{lacks}'] = None; from supervisor.cli.main import main; sys.exit(main())"
    with scratch_home() as home:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, "localai-backend", "--addr", "127.0.0.1:0"],
            env=environment(home, tmp_path),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "[extra_missing]" in last
    assert "llama-supervisor[localai]" in last


@pytest.mark.parametrize("address", ["", "50051", ":50051", "127.0.0.1:x", "127.0.0.1:65536"])
def test_an_address_is_a_host_and_a_port(tmp_path: Path, address: str) -> None:
    with scratch_home() as home:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "supervisor", "localai-backend", "--addr", address],
            env=environment(home, tmp_path),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 2


class Counting(Backend):
    """It counts what it was asked."""

    asked = 0

    def predict(self, asked: m.PredictOptions, call: Call) -> m.Reply:
        self.asked += 1
        return m.Reply(message=b"a")


def test_of_who_may_not_call_nothing_is_read() -> None:
    """Many empty entries take far more memory than their bytes on the wire."""
    backend = Counting(lambda: pytest.fail("nobody asked for a daemon"))
    server = Server(backend, "127.0.0.1:0", "secret")
    read: list[bytes] = []
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("supervisor.cli.localai.serving._understood", lambda _, data: read.append(data))
            found = Client(f"127.0.0.1:{server.port}").error("Predict", StopPrompts=["a"] * 1000)
            assert found == ("UNAUTHENTICATED", "invalid token")
            assert read == []
        found = Client(f"127.0.0.1:{server.port}", "secret").error("Predict", StopPrompts=[""] * (MOST_ENTRIES + 1))
        assert found[0] == "INVALID_ARGUMENT"
        assert "stop_prompts has 65537 entries" in found[1]
        assert Client(f"127.0.0.1:{server.port}", "secret")("Predict", StopPrompts=[""] * MOST_ENTRIES).message == b"a"
        assert backend.asked == 1
    finally:
        server.stop()


def test_bytes_that_are_no_message_are_refused() -> None:
    server = Server(Counting(lambda: pytest.fail("nobody asked for a daemon")), "127.0.0.1:0", "")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call: Any = channel.unary_unary("/backend.Backend/Predict")
            with pytest.raises(grpc.RpcError) as raised:
                call(b"\xff\xff\xff", timeout=PATIENCE)
        assert told(raised.value)[0] == "INVALID_ARGUMENT"
    finally:
        server.stop()


def test_a_large_question_for_the_state_is_counted() -> None:
    server = Server(Strange(lambda: pytest.fail("nobody asked for a daemon")), "127.0.0.1:0", "", Gate(calls=0))
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call: Any = channel.unary_unary("/backend.Backend/Status")
            large = b"\x0a\xff\xff\x07" + bytes((1 << 17) - 1)  # a field that is not known
            for body, said in ((b"", "INTERNAL"), (large, "RESOURCE_EXHAUSTED")):
                with pytest.raises(grpc.RpcError) as raised:
                    call(body, timeout=PATIENCE)
                assert told(raised.value)[0] == said
    finally:
        server.stop()
