"""Dispatch, errors, exit codes, and what a start costs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor import __version__
from supervisor.cli.main import build_parser
from supervisor.cli.registry import VERBS
from tests.cli.conftest import Cli
from tests.fakes.fake_daemon import FakeDaemon, model
from tests.support.patience import PATIENCE


def test_help_names_every_verb(cli: Cli) -> None:
    shown = cli("--help")
    assert shown.code == 0
    assert set(VERBS.records) <= set(re.findall(r"^    ([\w-]+)(?: |$)", shown.out, re.MULTILINE))


@pytest.mark.parametrize("verb", VERBS.records)
def test_every_verb_has_the_words_of_the_list_and_knows_the_common_options(verb: str) -> None:
    subparsers = build_parser(verb)._subparsers
    assert subparsers is not None
    [group] = subparsers._group_actions
    [words] = group._choices_actions  # type: ignore[attr-defined]  # what --help lists
    assert (words.dest, words.help) == (verb, VERBS.records[verb].summary)
    if verb not in {
        "captures",
        "cluster",
        "engine",
        "config",
        "keys",
        "toolcalls",
    }:  # groups of verbs, each with its own
        parser = group.choices[verb]  # type: ignore[index]  # a dict of parsers
        assert {"--json", "--url", "--api-key"} <= set(parser._option_string_actions)


@pytest.mark.parametrize("arguments", [["--json", "ps"], ["--url", "x", "ps"], ["--nonsense"]])
def test_options_before_the_verb_are_told_where_they_belong(cli: Cli, arguments: list[str]) -> None:
    shown = cli(*arguments)
    assert shown.code == 2
    assert "The verb comes first" in shown.out + shown.err


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"llama-supervisor {__version__}\n"


def test_no_verb_shows_help_and_is_a_usage_error(cli: Cli) -> None:
    shown = cli()
    assert shown.code == 2
    assert shown.out == ""
    assert "demo" in shown.err


@pytest.mark.parametrize(("word", "verb"), VERBS.aliases.items())
def test_words_of_other_programs_are_understood(cli: Cli, word: str, verb: str) -> None:
    assert cli(word, "--help").out == cli(verb, "--help").out
    assert f"{word} ({verb})" in " ".join(cli("--help").out.split())


def test_help_is_a_verb_too(cli: Cli) -> None:
    assert cli("help").out == cli("--help").out
    assert cli("help", "load").out == cli("load", "--help").out
    assert cli("help", "status").out == cli("ps", "--help").out


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["load"], ["ps", "--nonsense"], ["load", "demo", "--parallel", "0"], ["unload"]]
)
def test_usage_errors_in_both_forms(cli: Cli, arguments: list[str]) -> None:
    plain = cli(*arguments)
    assert (plain.code, plain.out) == (2, "")
    assert re.fullmatch(r"error: .+ \[usage\]\n", plain.err)
    coded = cli(*arguments, "--json")
    assert (coded.code, coded.err) == (2, "")
    assert coded.json()["error"]["code"] == "usage"


def test_the_command_is_called_what_the_user_typed(cli: Cli) -> None:
    named = Cli(cli.folder, SUPERVISOR_COMMAND="bin/supervisor")
    assert "`bin/supervisor load demo`" in named("ps").err
    assert "usage: bin/supervisor ps" in named("ps", "--help").out


def test_no_daemon_is_exit_3(cli: Cli) -> None:
    assert cli("ps").code == 3
    assert cli("ps", "--json").json()["error"]["code"] == "daemon_unreachable"
    assert cli("ps", "--url", "http://127.0.0.1:1").code == 3


def test_a_url_that_is_none_is_usage(cli: Cli) -> None:
    for url in ("localhost", "ftp://x", "http://", "http://x:99999"):
        assert cli("ps", "--url", url).code == 2, url


def test_a_key_is_sent_and_asked_for(cli: Cli) -> None:
    with FakeDaemon(key="secret-key") as fake:
        fake.write_endpoint(cli.state)
        refused = cli("ps")
        assert refused.code == 1
        assert refused.err.endswith("give it with --api-key or in SUPERVISOR_API_KEY. [unauthorized]\n")
        assert cli("ps", "--api-key", "secret-key").code == 0
        assert Cli(cli.folder, SUPERVISOR_API_KEY="secret-key", SUPERVISOR_URL=fake.url)("ps").code == 0


def test_a_bug_is_one_sentence_and_a_file(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models["bad"] = {"state": "ready"}  # no id: a daemon would have to be broken to say this
    shown = cli("ps")
    assert shown.code == 1
    assert re.fullmatch(r"error: This is a bug .+KeyError.+ The traceback is in .+\. \[internal_error\]\n", shown.err)
    assert "Traceback" in (cli.state / "logs" / "cli-errors.log").read_text()


def test_what_is_misspelt_is_told_with_what_was_meant(cli: Cli) -> None:
    assert cli("laod", "demo").err == (
        "error: There is no verb 'laod'; did you mean load? `supervisor --help` lists them all. [usage]\n"
    )
    assert "no verb 'xyzzy'. `supervisor --help`" in cli("xyzzy").err
    assert "no verb 'kill'. `supervisor --help`" in cli("kill").err, "a word like no verb gets no suggestion"
    assert cli("ps", "--bogus").err == "error: Unrecognized arguments: --bogus. Try `supervisor ps --help`. [usage]\n"


@pytest.mark.parametrize("verb", [("load", "demo"), ("serve",), ("estimate", "demo")])
def test_folders_that_cannot_be_written_are_said_in_a_sentence(tmp_path: Path, verb: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    done = Cli(tmp_path, SUPERVISOR_HOME=str(tmp_path / "file" / "home"))(*verb)
    assert done.code == 1
    told = done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    assert "Make it writable for you, or choose another folder (SUPERVISOR_HOME" in told
    assert told.endswith("[system_refused]")


def test_no_daemon_is_started_for_an_engine_that_cannot_be_used(cli: Cli) -> None:
    for engine, code in (("/absent", "engine_not_found"), (sys.executable, "engine_unusable")):
        assert cli("load", "demo", "--engine", engine).err.endswith(f"[{code}]\n")
    assert cli("ps").code == 3


def test_doctor_looks_at_everything_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = Cli(tmp_path, SUPERVISOR_HOME=str(tmp_path / "file" / "home"))("doctor")
    assert "fail  folder state" in done.out
    assert "open files" in done.out


def test_a_reader_that_leaves_is_no_error(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.logs = ["x" * 1000] * 2000
    process = cli.start("logs", "-n", "2000")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 1


def test_ctrl_c_is_130_without_words(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.chat = lambda _: [FakeDaemon.WAIT]
    process = cli.start("chat", "-m", "hello")
    assert daemon.reached.wait(PATIENCE)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_foreign_server_is_told_apart(cli: Cli) -> None:
    with FakeDaemon() as fake:
        assert cli("ps", "--url", f"{fake.url}/elsewhere").err.endswith("[route_not_found]\n")


def test_ps_imports_nothing_heavy(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models["a"] = model("a", "ready")
    probe = "import sys; from supervisor.cli.main import main; main(['ps']); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", probe], env=cli.env, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "supervisor.cli.verbs.ps" in imported
    assert imported.isdisjoint({"asyncio", "httpx", "psutil", "rich", "subprocess"})
    assert imported.isdisjoint({"fastapi", "gguf", "numpy", "pydantic", "structlog", "yaml"})


def test_the_daemon_imports_nothing_that_draws(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("models: 1\n", encoding="utf-8")
    told = ["serve", "--config", str(tmp_path / "broken.yaml")]
    probe = f"import sys; from supervisor.cli.main import main; main({told}); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", probe], env=cli.env, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert {"supervisor.daemon.run", "structlog", "httpx"} <= imported, done.stderr
    assert imported.isdisjoint({"rich", "pygments"})


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", [("clean", "--dry-run"), ("run", "demo")])
def test_closed_streams_are_no_bug(cli: Cli, closed: str, words: tuple[str, ...]) -> None:
    """A service manager or a script may start the program without any of them."""
    command = ["/bin/sh", "-c", f'exec "$0" "$@" {closed}', *cli.argv(*words)]
    done = subprocess.run(command, env=cli.env, cwd=cli.folder, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode in {0, 2}, done.stderr  # there is no prompt
    assert not (cli.state / "logs" / "cli-errors.log").exists()


def test_no_file_of_ours_becomes_a_closed_stream(cli: Cli) -> None:
    code = """
from supervisor.system.terminal import guard_streams
guard_streams()
with open("told", "w") as told:
    told.write(str(told.fileno()))
"""
    command = ["/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', sys.executable, "-P", "-c", code]
    subprocess.run(command, env=cli.env, cwd=cli.folder, timeout=PATIENCE, check=True)
    assert int((cli.folder / "told").read_text()) > 2


def test_a_pipe_without_end_ends_the_command_not_the_machine(cli: Cli) -> None:
    with Path("/dev/zero").open("rb") as endless:
        command = cli.argv("run", "demo")
        done = subprocess.run(
            command, stdin=endless, env=cli.env, cwd=cli.folder, capture_output=True, timeout=PATIENCE, check=False
        )
    assert done.returncode == 2
    assert b"longer than 32 MiB" in done.stderr
