"""Command lines, word by word."""

from __future__ import annotations

import pytest

from supervisor.core.launch import LaunchOptions, LaunchSpec, ModelFacts, build_launch, check_options, child_environment
from supervisor.errors import InvalidRequest, OptionNotSupported

_FLAGS = (
    "-m --model --host --alias --jinja --metrics --slots --no-ui --no-webui --log-prefix --log-timestamps --ctx-size -c"
    " --parallel --batch-size --ubatch-size --n-gpu-layers --threads --embeddings --pooling --chat-template-file"
    " --skip-chat-parsing --temp --seed -ngl --api-key --port"
)
FLAGS = frozenset(_FLAGS.split())
BARE = ("/bin/llama-server", "-m", "/m/x.gguf", "--host", "/run/1.sock", "--alias", "x")
OURS = ("--jinja", "--metrics", "--slots", "--no-ui", "--log-prefix", "--log-timestamps")


def launch(
    options: LaunchOptions | None = None, facts: ModelFacts | None = None, flags: frozenset[str] | None = None
) -> LaunchSpec:
    return build_launch(
        "/bin/llama-server",
        "/m/x.gguf",
        "/run/1.sock",
        "x",
        options or LaunchOptions(),
        facts or ModelFacts(),
        flags,
    )


def asked(options: LaunchOptions, facts: ModelFacts | None = None) -> tuple[str, ...]:
    return launch(options, facts).argv[len(BARE) :]


def test_nothing_asked_for_means_the_engines_own_defaults() -> None:
    spec = launch()
    assert spec.argv == BARE
    assert spec.socket == "/run/1.sock"
    assert dict(spec.env) == {"LLAMA_SERVER_ROUTER_PORT": "1"}


def test_what_is_for_our_own_sake_is_added_where_the_build_has_it() -> None:
    assert launch(flags=FLAGS).argv == BARE + OURS
    assert launch(flags=FLAGS - {"--no-ui", "--slots"}).argv == (*BARE, "--jinja", "--metrics", "--no-webui", *OURS[4:])
    assert launch(flags=frozenset()).argv == BARE


def test_every_option_is_passed_on() -> None:
    options = LaunchOptions(
        ctx_size=8192,
        parallel=2,
        batch_size=1024,
        ubatch_size=256,
        n_gpu_layers=0,
        threads=3,
        embeddings="on",
        pooling="cls",
        chat_template_file="/t.jinja",
        skip_chat_parsing=True,
        extra_args=("--temp", "-0.5", "--seed", "-1"),
        env={"CUDA_VISIBLE_DEVICES": "1"},
    )
    expected = (
        "--ctx-size 8192 --parallel 2 --batch-size 1024 --ubatch-size 256 --n-gpu-layers 0 --threads 3 --pooling cls"
        " --chat-template-file /t.jinja --embeddings --skip-chat-parsing --temp -0.5 --seed -1"
    )
    assert asked(options) == tuple(expected.split())
    assert launch(options, flags=FLAGS).argv == BARE + OURS + tuple(expected.split())
    assert launch(options).env["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize(
    ("options", "facts", "expected"),
    [
        (LaunchOptions(), ModelFacts(), ""),
        (LaunchOptions(), ModelFacts(pooling=True), "--embeddings"),
        (LaunchOptions(), ModelFacts(encoder=True), "--embeddings --pooling mean"),
        (LaunchOptions(pooling="last"), ModelFacts(), "--pooling last --embeddings"),
        (LaunchOptions(embeddings="on"), ModelFacts(), "--embeddings --pooling mean"),
        (LaunchOptions(embeddings="on"), ModelFacts(pooling=True), "--embeddings"),
        (LaunchOptions(embeddings="off"), ModelFacts(pooling=True, encoder=True), ""),
    ],
)
def test_embeddings(options: LaunchOptions, facts: ModelFacts, expected: str) -> None:
    assert asked(options, facts) == tuple(expected.split())


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
        ("--temp", "0", "--ssl-key-file", "k"),
        ("--mcp-servers-json", "{}"),
        ("--docker-repo", "gemma3"),
        ("--agent",),
    ],
)
@pytest.mark.parametrize("flags", [None, FLAGS])
def test_what_takes_the_engine_out_of_our_hands_is_refused(args: tuple[str, ...], flags: frozenset[str] | None) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be given: \w+") as caught:
        launch(LaunchOptions(extra_args=args), flags=flags)
    assert caught.value.param == "extra_args"


@pytest.mark.parametrize("name", ["LLAMA_API_KEY", "LLAMA_ARG_HOST", "LLAMA_ARG_MODEL_URL", "LLAMA_SERVER_ROUTER_PORT"])
def test_variables_that_would_are_refused_too(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        launch(LaunchOptions(env={name: "x"}))
    assert caught.value.param == "env"


@pytest.mark.parametrize(
    ("options", "param"),
    [
        (LaunchOptions(extra_args=("--host\0", "0.0.0.0")), "extra_args"),
        (LaunchOptions(env={"A\0": "x"}), "env"),
        (LaunchOptions(env={"A": "x\0"}), "env"),
        (LaunchOptions(env={"LLAMA_API_KEY=x": "y"}), "env"),
        (LaunchOptions(env={"": "y"}), "env"),
    ],
)
def test_what_no_process_can_be_given_is_refused(options: LaunchOptions, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        launch(options)
    assert caught.value.param == param


def test_options_are_checked_without_a_model() -> None:
    check_options(LaunchOptions(extra_args=("--temp", "1"), embeddings="on"), FLAGS)
    with pytest.raises(OptionNotSupported, match="--tmp"):
        check_options(LaunchOptions(extra_args=("--tmp", "1")), FLAGS)


def test_an_option_that_the_build_lacks_is_named_with_the_nearest_it_has() -> None:
    with pytest.raises(OptionNotSupported, match=r"no option --tmp; did you mean --temp\?") as caught:
        launch(LaunchOptions(extra_args=("--tmp", "1")), flags=FLAGS)
    assert caught.value.param == "extra_args"


def test_an_option_of_ours_that_an_old_build_lacks_is_refused_not_dropped() -> None:
    with pytest.raises(OptionNotSupported, match="--skip-chat-parsing") as caught:
        launch(LaunchOptions(skip_chat_parsing=True), flags=FLAGS - {"--skip-chat-parsing"})
    assert caught.value.param == "skip_chat_parsing"


def test_without_knowledge_of_the_build_any_option_is_tried() -> None:
    assert asked(LaunchOptions(extra_args=("--brand-new", "1"))) == ("--brand-new", "1")


@pytest.mark.parametrize("value", ["-1", "-0.5", "- a dash", "a=b", "", "-"])
def test_values_are_not_taken_for_flags(value: str) -> None:
    assert asked(LaunchOptions(extra_args=("--temp", value))) == ("--temp", value)
    assert launch(LaunchOptions(extra_args=("--temp", value)), flags=FLAGS).argv[-1] == value


def test_settings_of_the_shell_do_not_reach_the_engine() -> None:
    inherited = {
        "PATH": "/bin",
        "HOME": "/root",
        "LLAMA_ARG_CTX_SIZE": "7",
        "LLAMA_API_KEY": "secret",
        "LLAMA_SERVER_CHILD_MODE": "download",
        "LLAMA_CACHE": "/cache",
        "LLAMA_SERVER_ROUTER_PORT": "99",
    }
    assert child_environment(inherited, launch(LaunchOptions(env={"LLAMA_ARG_CTX_SIZE": "9"}))) == {
        "PATH": "/bin",
        "HOME": "/root",
        "LLAMA_CACHE": "/cache",
        "LLAMA_ARG_CTX_SIZE": "9",
        "LLAMA_SERVER_ROUTER_PORT": "1",
    }
