"""What a gateway and workers say to each other, and when one is lost: no socket, and time is given."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.devices import is_lent_processor, lent_name
from supervisor.core.engine_output.capabilities import Capabilities
from supervisor.core.text.foreignjson import NotJson
from supervisor.core.workers import messages as m
from supervisor.core.workers.build import build_of
from supervisor.core.workers.names import is_name, name_like
from supervisor.core.workers.table import HUNG_S, SILENT_S, Lease, Offer, Worker, changed, is_refused
from supervisor.core.workers.token import BadToken, JoinToken, decode, encode

GPU = m.OfferedDevice("CUDA0", "H100", 80 << 30, 79 << 30)
HELLO = m.Hello(m.PROTOCOL, "1.0", "b1", "here", (GPU,))
TOKENS = st.builds(
    JoinToken,
    host=st.text(min_size=1, max_size=60),
    port=st.integers(1, 65535),
    authority=st.text("0123456789abcdef", min_size=64, max_size=64),
    secret=st.text(min_size=1, max_size=40),
)


@given(TOKENS)
def test_a_token_is_one_word_and_is_read_again(token: JoinToken) -> None:
    text = encode(token)
    assert text.split() == [text]
    assert decode(f" {text}\n") == token


@given(st.one_of(st.text(), st.text().map("supw-".__add__), TOKENS.map(lambda one: encode(one)[:-3])))
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(BadToken):
        decode(text)


def test_a_token_is_bounded() -> None:
    with pytest.raises(BadToken):
        decode("supw-" + "A" * 2000)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(line: bytes) -> None:
    for read in (m.of_worker, m.to_worker, m.of_gateway, m.to_gateway):
        with pytest.raises(NotJson):
            read(line)


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"hello","protocol":1,"program":"1","build":"b","machine":"m","devices":[{"name":"../x"}]}',
        '{"kind":"report","devices":[{"name":"a","description":"","total_bytes":-1,"free_bytes":0}]}',
        '{"kind":"report","cpu_s":{"a":1e400}}',
        '{"kind":"tunnel","number":-1}',
        '{"kind":"join","name":"a/b","protocol":1}',
        '{"kind":"join","name":"","protocol":1}',
        '{"kind":"join","name":"a\\n","protocol":1}',
        '{"kind":"join","name":"' + "a" * 65 + '","protocol":1}',
    ],
)
def test_what_a_worker_may_not_say(text: str) -> None:
    with pytest.raises(NotJson):
        m.of_worker(text.encode())


@pytest.mark.parametrize(
    "line", [b'{"kind":"tunnel","number":"\xff"}', b'{"kind":"join","x":' + b"[" * 60_000, b"\xff"]
)
def test_what_is_no_text_or_endless_is_no_message(line: bytes) -> None:
    for read in (m.of_worker, m.to_worker, m.of_gateway, m.to_gateway):
        with pytest.raises(NotJson):
            read(line)


def test_more_devices_than_there_may_be() -> None:
    with pytest.raises(NotJson):
        m.of_worker(m.line_of(m.Report((GPU,) * (m.MOST_DEVICES + 1))))


def test_what_is_not_known_is_passed_over() -> None:
    assert m.of_worker(b'{"kind":"pong","number":3,"later":[1]}') == m.Pong(3)


def test_another_protocol_is_refused_by_name() -> None:
    assert is_refused(HELLO, m.PROTOCOL) is None
    assert "protocol 2" in (is_refused(msgspec.structs.replace(HELLO, protocol=2), m.PROTOCOL) or "")


def there(now: float = 0.0) -> Worker:
    worker = Worker("studio", 1.0)
    worker.connected(HELLO, "192.0.2.1", now)
    worker.offers["CUDA0"] = Offer(GPU, 5000)
    return worker


def test_a_worker_that_says_nothing_is_silent() -> None:
    worker = there()
    assert not worker.is_silent(SILENT_S)
    assert worker.is_silent(SILENT_S + 0.1)
    worker.reported(m.Report((GPU,)), 5.0)
    assert not worker.is_silent(SILENT_S + 0.1)
    worker.disconnected("gone")
    assert not worker.is_silent(1e9)


def test_figures_are_taken_of_devices_that_were_offered() -> None:
    worker = there()
    worker.reported(m.Report((msgspec.structs.replace(GPU, free_bytes=7), m.OfferedDevice("other", "", 1, 1))), 1.0)
    assert worker.offers["CUDA0"].device.free_bytes == 7
    assert list(worker.offers) == ["CUDA0"]


def test_an_rpc_server_that_owes_an_answer_and_does_nothing_is_hung() -> None:
    worker = there()
    offer = worker.offers["CUDA0"]
    assert not list(worker.hung(1e9)), "nobody uses it"
    offer.lease = Lease(1)
    assert not list(worker.hung(1e9)), "it owes nothing"
    offer.lease.sent(100.0)
    assert not list(worker.hung(100.0 + HUNG_S))
    assert list(worker.hung(100.1 + HUNG_S)) == [offer]
    offer.lease.came()
    assert not list(worker.hung(1e9)), "it has answered"


def test_one_that_computes_is_not_hung_however_long_it_takes() -> None:
    worker = there()
    worker.offers["CUDA0"].lease = lease = Lease(1)
    lease.sent(0.0)
    for now in range(2, 600, 2):
        worker.reported(m.Report((GPU,), {"CUDA0": now * 0.5}), float(now))
        assert not list(worker.hung(float(now)))
    for now in range(600, 700, 2):
        worker.reported(m.Report((GPU,), {"CUDA0": 299.0}), float(now))
    assert list(worker.hung(700.0))


def test_what_is_told_of_a_worker() -> None:
    worker = there()
    worker.trips.extend((0.3, 0.1, 0.2))
    state = worker.state("elsewhere")
    assert (state.connected, state.rtt_s, state.here, state.devices[0].port) == (True, 0.1, False, 5000)
    assert worker.state("here").here
    worker.offers["CUDA0"].lease = Lease(7)
    later = worker.state("elsewhere")
    assert later.devices[0].pid == 7
    assert changed({"a": state}, {"a": later})
    worker.reported(m.Report((msgspec.structs.replace(GPU, free_bytes=7),)), 1.0)
    assert not changed({"a": later}, {"a": worker.state("elsewhere")}), "figures alone wait"


@given(st.text(max_size=100))
def test_a_host_s_name_makes_a_name(host: str) -> None:
    assert is_name(name_like(host))


@pytest.mark.parametrize("text", ["", "-a", "a/b", "a b", "ä", "a" * 65, "a\n"])
def test_what_is_no_name(text: str) -> None:
    assert not is_name(text)


def test_names_of_devices() -> None:
    assert is_lent_processor(lent_name("studio", "CPU"))
    assert not is_lent_processor(lent_name("studio", "CUDA0"))
    assert not is_lent_processor("CPU")


@pytest.mark.parametrize(
    ("able", "text"),
    [
        (Capabilities(11434, "abcdef0123456", "x", {}, ()), "b11434 (abcdef012)"),
        (Capabilities(11434, None, "x", {}, ()), "b11434"),
        (Capabilities(None, None, "version: unknown", {}, ()), "version: unknown"),
    ],
)
def test_a_build_as_text(able: Capabilities, text: str) -> None:
    assert build_of(able) == text
