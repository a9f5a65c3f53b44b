"""A daemon at several addresses: each has the rules of its own reach."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.config.settings import ServerSettings
from supervisor.core.requests.access import AccessRules, RulesByAddress
from tests.support.daemon import environment, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE

NOWHERE = Path("/nonexistent")
KEY = "key-for-several"
EVIL = {"host": "evil.example"}


def urls(home: Path) -> list[str]:
    """Every address that the daemon says it is at, the main one first."""
    output = home / "daemon-output.log"
    wait_until(lambda: "daemon_ready" in output.read_text(), "the daemon's addresses")
    line = next(line for line in output.read_text().splitlines() if "daemon_ready" in line)
    return re.findall(r"http://[\d.:]+", line.partition("urls=")[2])


def test_every_address_answers_and_the_first_one_is_told() -> None:
    settings = {"server": {"listen": ["127.0.0.1:0", "127.0.0.1:0"]}}
    with scratch_home() as home, running_daemon(home, NOWHERE, settings) as daemon:
        found = urls(home)
        assert (len(set(found)), found[0]) == (3, daemon.url)
        for url in found:
            assert httpx.get(f"{url}/health").json() == {"status": "ok"}
            assert httpx.get(f"{url}/v1/models", headers=EVIL).json()["error"]["code"] == "host_not_allowed"


def test_names_count_at_the_loopback_address_alone_where_another_one_asks_for_a_key() -> None:
    settings = {"server": {"listen": ["0.0.0.0:0"], "api_keys": [KEY]}}
    with scratch_home() as home, running_daemon(home, NOWHERE, settings) as daemon:
        main, public = urls(home)
        assert main == daemon.url
        key = {"authorization": f"Bearer {KEY}"}
        for url in (main, public):
            assert httpx.get(f"{url}/v1/models").status_code == 401
            assert httpx.get(f"{url}/v1/models", headers=key).status_code == 200
        assert httpx.get(f"{public}/v1/models", headers={**EVIL, **key}).status_code == 200
        assert httpx.get(f"{main}/v1/models", headers={**EVIL, **key}).status_code == 403


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"listen": ["127.0.0.1:1", "0.0.0.0:8687"]}, "server.listen.1: 0.0.0.0 can be reached from other machines"),
        ({"listen": ["127.0.0.1"]}, "server.listen.0"),
        ({"listen": ["127.0.0.1:70000"]}, "has a port above 65535"),
    ],
)
def test_an_address_that_cannot_be_is_a_fault_of_the_configuration(server: dict[str, Any], said: str) -> None:
    with scratch_home() as home:
        assert said in failed_start(home, server)


def test_a_further_address_that_is_taken_ends_the_start() -> None:
    with scratch_home() as home, socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"{address} is taken by another program" in failed_start(home, {"listen": [address]})


def failed_start(home: Path, server: dict[str, Any]) -> str:
    """What a daemon says that does not start."""
    (home / "supervisor.yaml").write_text(f"server: {server}")
    command = [sys.executable, "-P", "-m", "supervisor", "serve", "--port", "0", "--config", "supervisor.yaml"]
    env = environment(home, NOWHERE)
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0
    return done.stderr


def test_a_reload_says_that_a_restart_is_needed() -> None:
    with scratch_home() as home, running_daemon(home, NOWHERE, {"server": {"watch_config": False}}) as daemon:
        (home / "test.yaml").write_text('server: {watch_config: false, listen: ["127.0.0.1:0"]}')
        assert daemon.http.post("/api/v1/config/reload").json()["restart_needed"] == ["server.listen"]


LOOPBACK, PUBLIC, OTHER = AccessRules(), AccessRules(check_host=False), AccessRules(any_address=True)


def test_the_address_of_a_connection_decides_and_any_address_goes_by_its_port() -> None:
    rules = RulesByAddress(LOOPBACK, {("127.0.0.1", 1): LOOPBACK, (None, 2): PUBLIC, ("192.0.2.7", 1): OTHER})
    assert rules.at(("192.0.2.7", 1)) is OTHER
    assert rules.at(("192.0.2.9", 2)) is PUBLIC
    assert [rules.at(one) for one in (("127.0.0.1", 1), ("127.0.0.1", 3), None)] == [LOOPBACK] * 3


def test_an_address_has_two_parts() -> None:
    server = ServerSettings(host="a", port=1, listen=("[::1]:80", "b:0"))
    assert server.addresses() == (("a", 1), ("::1", 80), ("b", 0))
