"""Two command lines with daemons of their own, at once after the same file in one cache."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from filelock import FileLock, Timeout

from tests.cli.conftest import Cli
from tests.hub.conftest import SAID
from tests.support.daemon import wait_until
from tests.support.hub import Fault, LocalHub
from tests.support.hub.server import Seen
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

RATE = 2e6


@pytest.fixture
def clis(tmp_path: Path, engine_binary: Path, hub: LocalHub) -> Iterator[tuple[Cli, Cli]]:
    """Two users of one cache; a daemon of each runs."""
    both = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        env = hub.environment(tmp_path / "hf")
        both.append(Cli(tmp_path / name, SUPERVISOR_LLAMA_SERVER=str(engine_binary), **env))
    try:
        for cli in both:
            assert cli("load", "demo", "--port", "0").code == 0
        yield both[0], both[1]
    finally:
        for cli in both:
            cli("stop")


@pytest.fixture
def model(hub: LocalHub, talker: Path) -> bytes:
    """A model on a slow hub: three seconds of download."""
    data = talker.read_bytes() + bytes(int(3 * RATE))
    hub.add("a/b", {"m-Q4_0.gguf": data})
    hub.spoil(Fault("/storage/", method="GET", rate=RATE))
    return data


def downloads(hub: LocalHub) -> list[Seen]:
    """Requests for the content, without those of a range at its beginning, which read the header."""
    return [one for one in hub.requests("/storage/", "GET") if not (one.range or "").startswith("bytes=0-")]


def held(cli: Cli) -> list[Path]:
    """Locks of the cache that somebody has; their files stay, which is the client's way."""
    found = []
    for path in (cli.folder.parent / "hf").rglob("*.lock"):
        try:
            with FileLock(path, timeout=0):
                pass
        except Timeout:
            found.append(path)
    return found


def unfinished(cli: Cli) -> list[Path]:
    return list((cli.folder.parent / "hf").rglob("*.incomplete"))


def end(running: Popen[str]) -> None:
    out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, out + err


@pytest.mark.parametrize("verbs", [("load", "load"), ("pull", "load")], ids=str)
def test_both_have_the_file_and_the_hub_sent_it_once(
    verbs: tuple[str, str], clis: tuple[Cli, Cli], hub: LocalHub, model: bytes
) -> None:
    running = [cli.start(verb, "a/b:Q4_0") for cli, verb in zip(clis, verbs, strict=True)]
    for one in running:
        end(one)
    [got] = downloads(hub)
    assert (got.range, got.sent) == (None, len(model))
    for cli in clis:
        [disk] = cli("models", "--json").json()["disk"]
        assert hashlib.sha256(Path(disk["path"]).read_bytes()).digest() == hashlib.sha256(model).digest()
        assert cli("verify", "--json").json()["models"][0]["problems"] == []
    assert cli("chat", "a/b:Q4_0", "-m", "Hello?").out.strip() == SAID
    assert unfinished(cli) == held(cli) == []


def test_when_one_is_called_off_the_other_goes_on_where_it_was(
    clis: tuple[Cli, Cli], hub: LocalHub, model: bytes
) -> None:
    (slow,) = hub.faults
    slow.rate = RATE / 20
    first = clis[0].start("pull", "a/b:Q4_0")
    wait_until(lambda: any(path.stat().st_size for path in unfinished(clis[0])), "bytes arrive")
    looked = len(hub.requests("/resolve/", "HEAD"))
    second = clis[1].start("pull", "a/b:Q4_0")
    wait_until(lambda: len(hub.requests("/resolve/", "HEAD")) > looked, "the second process is there")
    hub.faults.clear()
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=PATIENCE)
    assert first.returncode == 130
    end(second)
    begun, rest = downloads(hub)
    assert begun.range is None
    assert rest.range is not None
    arrived = int(rest.range.removeprefix("bytes=").removesuffix("-"))
    assert 0 < arrived < len(model)
    assert rest.sent == len(model) - arrived
    [disk] = clis[1]("models", "--json").json()["disk"]
    assert Path(disk["path"]).read_bytes() == model
    assert unfinished(clis[1]) == []
