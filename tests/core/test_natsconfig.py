"""The configuration file of a NATS server, as the server itself reads it."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.cluster.identity import Peer
from supervisor.core.cluster.natsconfig import NatsConfig
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE
from tests.support.programs import beside_python

PLAIN = NatsConfig(
    "node-1", "127.0.0.1", 4222, "/x/store", "/x/ca.pem", "/x/node.pem", "/x/node.key", [Peer("one", "1f")], ["nodes"]
)

ODD = (
    *("$HOME", "${HOME}", "a$b", "$2a$11$a", 'a"b', "a'b", "a b", "#a", "a#b", "{", "}", "("),
    *(
        "include x",
        "<%a%>",
        "a\\b",
        "a\\x41",
        '\\"',
        "\\",
        "10MB",
        "true",
        "a,b;c=d:e",
        "[a]",
        "größe",
        "日",
        "🙂",
        "%s",
    ),
)

# What can be a part of a path, and be written into the file
NAMES = st.one_of(
    st.sampled_from(ODD),
    st.text("\"\\$'#{}()[]<>%=:;, anx4160~", min_size=1, max_size=40),
    st.text(st.characters(exclude_characters="/", exclude_categories=("C", "Z")), min_size=1, max_size=40),
).filter(lambda one: one not in (".", ".."))


class Server:
    """The real server, as a reader of configurations."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        authority = Authority(folder)
        self._files = authority.file, *authority.issue("node-1")

    def config(self, name: str) -> NatsConfig:
        """A configuration whose files are there, in a folder of this name."""
        inside = self._folder / "inside" / name
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir(parents=True)
        found = [str(shutil.copy(one, inside / one.name)) for one in self._files]
        return dataclasses.replace(PLAIN, folder=str(inside), authority=found[0], chain=found[1], key=found[2])

    def reads(self, text: str) -> subprocess.CompletedProcess[str]:
        """What it says of a configuration."""
        file = self._folder / "nats.conf"
        file.write_text(text, "utf-8")
        argv = [str(beside_python("nats-server")), "--config", str(file), "-t"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return Server(tmp_path_factory.mktemp("nats"))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "fe80::1%eth0", "node-1.example"])
def test_the_server_takes_it(server: Server, host: str) -> None:
    config = dataclasses.replace(server.config("plain"), host=host)
    done = server.reads(config.text())
    assert done.returncode == 0, done.stderr
    routes = ("127.0.0.1:6222", "[::1]:6222")
    done = server.reads(dataclasses.replace(config, routes=routes, route_port=6222).text())
    assert done.returncode == 0, done.stderr


def test_a_mistake_would_be_seen(server: Server) -> None:
    config = server.config("plain")
    assert server.reads(f"{config.text()}nonsense: 1\n").returncode != 0
    missing = server.reads(dataclasses.replace(config, chain="/nowhere/node.pem").text())
    assert "open /nowhere/node.pem" in missing.stderr


@given(name=NAMES)
@settings(max_examples=60)
def test_every_path_is_read_as_it_is(server: Server, name: str) -> None:
    """The server opens the three files, so it has read their paths as they are."""
    if len(name.encode()) > 200:
        return
    done = server.reads(server.config(name).text())
    assert done.returncode == 0, (name, done.stderr)


@given(name=st.text(st.characters(categories=("Cc", "Cs", "Zl", "Zp", "Cf")), min_size=1, max_size=5))
def test_what_cannot_be_written_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot stand in the configuration"):
        dataclasses.replace(PLAIN, folder=f"/x{name}").text()


@given(text=st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=40))
def test_nothing_that_is_given_becomes_a_line_of_its_own(text: str) -> None:
    config = NatsConfig(text, text, 1, text, text, text, text, [Peer(text, text)], [text], (text,), 2)
    plain = NatsConfig("x", "x", 1, "x", "x", "x", "x", [Peer("x", "x")], ["x"], ("x",), 2)
    try:
        lines = config.text().splitlines()
    except ValueError:
        assert not text.isprintable()
        return
    assert [line.partition('"')[0] for line in lines] == [line.partition('"')[0] for line in plain.text().splitlines()]


def test_connections_need_a_certificate_and_there_is_no_other_way_in() -> None:
    alone = PLAIN.text()
    assert alone.count("verify_and_map: true") == alone.count('min_version: "1.3"') == 1
    assert "cluster" not in alone
    three = dataclasses.replace(PLAIN, routes=("10.0.0.2:6222",), route_port=6222).text()
    assert three.count("verify_and_map: true") == three.count('min_version: "1.3"') == 2
    for word in ("http", "system_account", "leafnodes", "gateway", "websocket", "mqtt", "debug", "trace"):
        assert word not in three
