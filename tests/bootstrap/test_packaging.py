"""The files of packaging/: what their own tools say of them, and that they agree with the program."""

from __future__ import annotations

import argparse
import plistlib
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.cli.main import build_parser
from supervisor.cli.verbs import serve
from supervisor.config import Settings
from supervisor.system.paths import places
from tests.bootstrap.conftest import ROOT
from tests.support import man_page
from tests.support.programs import beside_python

PACKAGING = ROOT / "packaging"
DOCKERFILES = sorted((PACKAGING / "docker").glob("Dockerfile*"))
UNITS = PACKAGING / "systemd"
SERVICE = (UNITS / "llama-supervisor.service").read_text("utf-8")
PORT = Settings().server.port


def serves(words: list[str]) -> None:
    """Fails unless these are words of `serve`."""
    assert words[0] == "serve"
    _, unknown = build_parser("serve").parse_known_args(words)
    assert not unknown


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """Section, key, values."""
    found: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in (UNITS / name).read_text("utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(section, {}).setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_the_dockerfiles_are_clean(path: Path) -> None:
    done = subprocess.run([beside_python("hadolint"), "--no-color", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_check_of_dockerfiles_finds_a_fault(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN cd /x && apt-get install y\n")
    done = subprocess.run([beside_python("hadolint"), bad], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DL3006" in done.stdout


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_runs_the_daemon_as_a_user_of_its_own(path: Path) -> None:
    text = path.read_text("utf-8")
    last = text[text.rindex("\nFROM ") :]
    words = [word for name in ("ENTRYPOINT", "CMD") for word in yaml.safe_load(_instruction(last, name))]
    serves(words[words.index("supervisor") + 1 :])
    assert _instruction(last, "USER") == "10001"
    assert _instruction(last, "EXPOSE") == str(PORT)
    assert f"127.0.0.1:{PORT}/health" in last
    for line in re.findall(r"bin/supervisor (engine .*?) \\", text):
        build_parser("engine").parse_args(shlex.split(line))
    for source in re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE):
        assert (ROOT / source).exists()


def _instruction(text: str, name: str) -> str:
    found = re.search(rf"^{name} (.*)$", text, re.MULTILINE)
    assert found, name
    return found[1]


def test_the_compose_file_points_open_webui_at_the_daemon() -> None:
    compose: dict[str, Any] = yaml.safe_load((PACKAGING / "docker" / "compose.yaml").read_text("utf-8"))
    ours, webui = compose["services"]["supervisor"], compose["services"]["open-webui"]
    assert (PACKAGING / "docker" / ours["build"]["context"]).resolve() == ROOT
    assert (ROOT / ours["build"]["dockerfile"]).is_file()
    assert webui["environment"]["OPENAI_API_BASE_URL"] == f"http://supervisor:{PORT}/v1"
    key = "SUPERVISOR_API_KEY"
    assert webui["environment"]["OPENAI_API_KEY"] == f"${{{key}}}"
    assert ours["environment"][key].startswith(f"${{{key}:?"), "without a key the daemon does not start"
    for service in (ours, webui):
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert {one.partition(":")[0] for one in service["volumes"]} <= compose["volumes"].keys()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_no_fault_with_the_units(tmp_path: Path) -> None:
    """As they are, but for the program, which is not installed here."""
    for path in UNITS.iterdir():
        text = path.read_text("utf-8").replace("/opt/llama-supervisor/bin/supervisor", "/bin/true")
        (tmp_path / path.name).write_text(text.replace("Documentation=man:llama-supervisor(1)\n", ""))
    units = [str(tmp_path / f"llama-supervisor.{kind}") for kind in ("service", "socket")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_service_runs_what_the_program_has() -> None:
    service = unit("llama-supervisor.service")["Service"]
    words = shlex.split(service["ExecStart"][0])
    assert Path(words[0]).name == "supervisor"
    serves(words[1:])
    assert service["Type"] == ["notify"]
    assert float(service["TimeoutStopSec"][0]) > Settings().server.drain + Settings().engine.stop_timeout
    assert int(service["LimitNOFILE"][0]) == 10_240


def test_the_service_may_write_where_the_daemon_writes() -> None:
    service = unit("llama-supervisor.service")["Service"]
    env = dict(one.split("=", 1) for one in service["Environment"])
    where = places(env | {"XDG_RUNTIME_DIR": ""})
    assert str(where.state) == f"/var/lib/{service['StateDirectory'][0]}"
    assert where.engines.is_relative_to(f"/var/cache/{service['CacheDirectory'][0]}")
    assert str(where.config) == f"/etc/{service['ConfigurationDirectory'][0]}"
    assert env["XDG_RUNTIME_DIR"] == f"/run/{service['RuntimeDirectory'][0]}"
    assert env["HOME"] == str(where.state)
    assert "/etc/llama-supervisor/supervisor.yaml" in SERVICE


def test_the_socket_is_one_that_the_daemon_takes() -> None:
    found = unit("llama-supervisor.socket")["Socket"]
    assert found["ListenStream"] == [f"127.0.0.1:{PORT}"]
    assert found["Accept"] == ["no"]


def test_the_agent_of_launchd_runs_what_the_program_has() -> None:
    agent = plistlib.loads((PACKAGING / "launchd" / "llama-supervisor.plist").read_bytes())
    shell, option, line = agent["ProgramArguments"]
    assert (shell, option) == ("/bin/sh", "-c")
    words = shlex.split(line)
    assert words[0] == "exec", "launchd has to know the daemon itself"
    assert Path(words[1]).name == "supervisor"
    serves(words[2 : next(at for at, word in enumerate(words) if word.startswith("2>>"))])
    assert agent["KeepAlive"] == {"SuccessfulExit": False}, "`supervisor stop` ends it for good"
    assert agent["ExitTimeOut"] > Settings().server.drain


def test_the_manual_page_names_every_option_of_serve() -> None:
    text = man_page.PAGE.read_text("utf-8")
    parser = argparse.ArgumentParser(add_help=False)
    serve.add_options(parser)
    options = {name for action in parser._actions for name in action.option_strings}
    assert len(options) > 5
    assert [name for name in options if man_page.escaped(name) not in text] == []


def test_every_line_of_the_manual_page_is_text_or_a_macro_of_man() -> None:
    macros = re.compile(r"""\.(\\"|(TH|SH|SS|TP|PP|B|I|br)\b)""")
    for number, line in enumerate(man_page.PAGE.read_text("utf-8").splitlines(), 1):
        assert line, f"{number}: an empty line"
        assert not line.startswith("'"), number
        assert not line.startswith(".") or macros.match(line), f"{number}: {line}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (".profile", r"\&.profile"),
        ("'x'", r"\(aqx\(aq"),
        ("-m", r"\-m"),
        (r"C:\x", r"C:\ex"),
        ("`a|b` of [cli](cli.md)", "a|b of cli"),
    ],
)
def test_no_letter_of_a_text_is_a_command_of_roff(text: str, shown: str) -> None:
    assert man_page.escaped(text) == shown


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_finds_no_fault_with_the_manual_page() -> None:
    command = ["groff", "-man", "-ww", "-Tutf8", "-z", str(man_page.PAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
