"""Further arguments: which there are, who may give them, how they are written."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine_output.capabilities import Flags, parse_help
from supervisor.core.launch import LaunchOptions, check_extra, check_options
from supervisor.core.launch.extra import Trust, spelled
from supervisor.core.launch.rules import NEWER, RULES, rule_of
from supervisor.core.options import Way, options_of
from supervisor.errors import InvalidRequest, OptionNotSupported, SupervisorError

HELP = Path(__file__).parents[2] / "llamacpp/data/help-b11434.txt"
FLAGS = parse_help(HELP.read_text(encoding="utf-8"))
FIELDS = {field.name for field in fields(LaunchOptions)}

# In RULES, but not in b11434: spellings of older builds, which are known so that they are treated as their successors.
OLDER = {"--mmap", "--no-mmap", "--mlock", "--direct-io", "--no-direct-io", "-dio", "-ndio"}


@pytest.mark.parametrize("flag", sorted(FLAGS))
def test_every_option_of_the_build_is_classified(flag: str) -> None:
    assert flag in RULES, "decide in supervisor/core/launch/rules.py: a field, never, configuration, anybody"


def test_the_classes_say_what_they_mean() -> None:
    unknown = RULES.keys() - FLAGS.keys() - OLDER
    assert not unknown, f"not in the recorded help ({HELP.name}): {sorted(unknown)}; is the spelling llama-server's?"
    assert RULES.keys() - FLAGS.keys() >= OLDER
    assert {rule.text for rule in RULES.values() if rule.level == "field"} <= FIELDS
    assert all(rule.text for rule in RULES.values() if rule.level != "anybody")


def test_every_field_has_an_option() -> None:
    ours = {row.name for row in options_of(LaunchOptions) if row.way is Way.NONE}
    assert FIELDS - ours == {rule.text for rule in RULES.values() if rule.level == "field"}


def refused(args: tuple[str, ...], trust: Trust = "configuration", flags: Flags | None = FLAGS) -> str:
    """The message."""
    with pytest.raises(InvalidRequest) as caught:
        check_extra(args, flags, trust)
    assert caught.value.param == "extra_args"
    return caught.value.message


@pytest.mark.parametrize(
    "args",
    [
        ("--host", "0.0.0.0"),
        ("--host=0.0.0.0",),
        ("--port", "80"),
        ("--api_key", "x"),
        ("--api-key-file", "x"),
        ("-m", "other.gguf"),
        ("-hf", "a/b"),
        ("-a", "y"),
        ("--no-models-autoload",),
        ("--help",),
        ("--log-jsonl",),
        ("--log-file", "/etc/x"),
        ("--temp", "0", "--ssl-key-file", "k"),
        ("--mcp-servers-json", "{}"),
        ("--docker-repo", "gemma3"),
        ("--agent",),
        ("--tools", "all"),
        ("--fim-qwen-1.5b-default",),
        ("--grammar", "--host", "0.0.0.0"),  # as the value of another
    ],
)
@pytest.mark.parametrize("flags", [None, FLAGS], ids=["unknown build", "known build"])
def test_what_takes_the_engine_out_of_our_hands_is_refused(args: tuple[str, ...], flags: Flags | None) -> None:
    assert " cannot be given: " in refused(args, flags=flags)


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("--ctx-size", "ctx_size"),
        ("-c", "ctx_size"),
        ("--ctx_size", "ctx_size"),
        ("-ngl", "n_gpu_layers"),
        ("--mlock", "load_mode"),
        ("--no-kv-offload", "kv_offload"),
        ("--no-mmproj", "mmproj_auto"),
        ("--spec-default", "spec_type"),
        ("--lora-scaled", "lora in the configuration file"),
        ("--rpc", "rpc in the configuration file"),
    ],
)
def test_what_has_a_field_must_use_it(flag: str, field: str) -> None:
    assert refused((flag, "1")).endswith(f"use the option {field}")


@pytest.mark.parametrize(
    "args",
    [
        ("--media-path", "/"),
        ("--grammar-file", "/etc/passwd"),
        ("--control-vector", "/x"),
        ("--log-prompts-dir", "/tmp"),
        ("--prio", "3"),
        ("-lv", "5"),
        ("--threads-http", "100000"),
    ],
)
@pytest.mark.parametrize("flags", [None, FLAGS], ids=["unknown build", "known build"])
def test_what_reaches_the_machine_is_not_for_clients(args: tuple[str, ...], flags: Flags | None) -> None:
    check_extra(args, flags)
    assert "configuration file only" in refused(args, "client", flags)


def test_options_of_newer_builds_are_not_for_clients() -> None:
    newer = {**FLAGS, "--brand-new": 1}
    check_extra(("--brand-new", "x"), newer)
    assert "configuration file only" in refused(("--brand-new", "x"), "client", newer)
    assert "configuration file only" in refused(("--brand-new", "x"), "client", None)
    assert rule_of("--no-brand-new") is NEWER
    assert rule_of("--no-host").level == "configuration", "an option of its own, not the negative of --host"


@pytest.mark.parametrize("trust", ["configuration", "client"])
@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--temp", "-0.5", "--seed", "-1"),
        ("--no-warmup", "--top_k", "5"),
        ("--grammar", 'root ::= "--x"'),
        ("--reverse-prompt", "- a dash"),
        ("--reverse-prompt", "-"),
        ("--tags", ""),
        ("--logit-bias", "5+1"),
    ],
)
@pytest.mark.parametrize("flags", [None, FLAGS], ids=["unknown build", "known build"])
def test_all_else_is_for_everybody(args: tuple[str, ...], trust: Trust, flags: Flags | None) -> None:
    check_extra(args, flags, trust)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--temp",), "--temp needs 1 value"),
        (("--temp", "--seed", "1"), "the option --seed follows"),
        (("--control-vector-layer-range", "1"), "needs 2 values"),
        (("--no-warmup", "1"), "'1' is not an option"),
        (("0.5", "--temp"), "'0.5' is not an option"),
        (("--temp=0.5",), "as two arguments"),
        (("--temp", "1\0"), "NUL"),
    ],
)
def test_values_that_are_missing_or_too_many_are_found(args: tuple[str, ...], told: str) -> None:
    assert told in refused(args)


def test_an_option_that_the_build_lacks_is_named_with_the_nearest_it_has() -> None:
    with pytest.raises(OptionNotSupported, match=r"no option --tmp; did you mean --temp\?") as caught:
        check_extra(("--tmp", "1"), FLAGS)
    assert caught.value.param == "extra_args"
    check_extra(("--tmp", "1"), None)


@pytest.mark.parametrize("name", ["LLAMA_API_KEY", "LLAMA_ARG_HOST", "LLAMA_ARG_BATCH", "LLAMA_SERVER_ROUTER_PORT"])
def test_variables_are_no_way_around(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        check_options(LaunchOptions(env={name: "x"}))
    assert caught.value.param == "env"


TOKENS = st.sampled_from(sorted(FLAGS)) | st.sampled_from(["0", "-1", "x", "--nonsense", "-", ""]) | st.text(max_size=4)


@given(st.lists(TOKENS, max_size=5))
def test_what_passes_is_what_llama_server_would_read(args: list[str]) -> None:
    """Read once more as its parser does (b11434, common/arg.cpp): nothing refused is among the options."""
    try:
        check_extra(args, FLAGS, "client")
    except SupervisorError:
        return
    position = 0
    while position < len(args):
        name = args[position].replace("_", "-") if args[position].startswith("--") else args[position]
        assert RULES[name].level == "anybody"
        position += 1 + FLAGS[name]
    assert position == len(args)


@given(st.text(max_size=12))
def test_any_token_is_a_flag_or_a_value(token: str) -> None:
    flag = spelled(token)
    assert flag is None or flag.startswith("-")
