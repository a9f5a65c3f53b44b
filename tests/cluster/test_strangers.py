"""Who has no certificate of a cluster takes nothing from its nodes, however many connections they open."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from supervisor.workers.authority import Authority, new_request
from tests.cluster.stage import cluster_of
from tests.support.daemon import RunningDaemon
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

BEGUN = b"POST /cluster/join HTTP/1.1\r\nhost: node\r\ncontent-length: 100\r\n\r\n{"


@pytest.mark.parametrize("known", [False, True], ids=["no certificate", "a certificate of no node"])
def test_strangers_without_end_take_no_place_of_a_node(
    engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path, known: bool
) -> None:
    far = {"file": str(scripted_model("one two.", n_ctx=2048)), "ctx_size": 2048, "parallel": 1, "cache_ram": 0}
    few = {"server": {"max_connections": 8}}
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with (
        cluster_of(engine_binary, one={}, two={**few, "models": {"far": far}}) as (one, two),
        contextlib.ExitStack() as held,
    ):
        assert said(one.daemon) == "one two."
        if known:  # as a host that was removed has one
            key, request = new_request()
            certificate, _ = Authority(one.home / "cluster").sign_node(request, "gone", "127.0.0.1")
            (tmp_path / "gone.pem").write_bytes(key + certificate.encode())
            stranger.load_cert_chain(tmp_path / "gone.pem")
        for _ in range(100):
            plain = held.enter_context(socket.create_connection(("127.0.0.1", two.port), PATIENCE))
            with contextlib.suppress(OSError):
                held.enter_context(stranger.wrap_socket(plain)).sendall(BEGUN)
        answers = [said(one.daemon) for _ in range(20)]
        assert answers == ["one two."] * 20
        assert "limit=8" not in (two.home / "daemon-output.log").read_text()


def said(daemon: RunningDaemon) -> str:
    answer = daemon.chat("far", "hi")
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text
