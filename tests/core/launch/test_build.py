"""Command lines, word by word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.core.engine_output.capabilities import Flags, parse_help
from supervisor.core.launch import (
    LaunchOptions,
    LaunchSpec,
    LoraAdapter,
    ModelFacts,
    build_launch,
    check_options,
    child_environment,
)
from supervisor.core.options import Option, Way, options_of
from supervisor.errors import InvalidRequest, OptionNotSupported
from tests.support.option_values import another

HELP = Path(__file__).parents[2] / "llamacpp/data/help-b11434.txt"
FLAGS = parse_help(HELP.read_text(encoding="utf-8"))
BARE = ("/bin/llama-server", "-m", "/m/x.gguf", "--host", "/run/1.sock", "--alias", "x")
OURS = ("--jinja", "--metrics", "--slots", "--no-ui", "--log-prefix", "--log-timestamps")


def without(*flags: str) -> Flags:
    """What an older build knows."""
    return {name: values for name, values in FLAGS.items() if name not in flags}


def launch(
    options: LaunchOptions | None = None,
    facts: ModelFacts | None = None,
    flags: Flags | None = None,
    cores: int | None = None,
) -> LaunchSpec:
    return build_launch(
        "/bin/llama-server",
        "/m/x.gguf",
        "/run/1.sock",
        "x",
        options or LaunchOptions(),
        facts or ModelFacts(),
        flags,
        cores=cores,
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
    older = (*BARE, "--jinja", "--metrics", "--no-webui", *OURS[4:])
    assert launch(flags=without("--no-ui", "--slots")).argv == older
    assert launch(flags={}).argv == BARE


def test_no_build_forgets_the_beginning_of_a_context_unasked() -> None:
    older = without("--context-shift")
    assert launch(flags=older).argv == (*BARE, *OURS, "--no-context-shift")
    assert launch(LaunchOptions(context_shift=True), flags=older).argv == BARE + OURS
    assert launch(LaunchOptions(context_shift=False), flags=older).argv == (*BARE, *OURS, "--no-context-shift")
    assert launch(LaunchOptions(context_shift=True), flags=FLAGS).argv == (*BARE, *OURS, "--context-shift")


def test_the_physical_cores_are_the_threads_where_none_are_asked_for() -> None:
    assert launch(flags=FLAGS, cores=6).argv == (*BARE, *OURS, "--threads", "6")
    assert launch(LaunchOptions(threads=2), flags=FLAGS, cores=6).argv == (*BARE, *OURS, "--threads", "2")
    assert launch(flags=without("--threads"), cores=6).argv == BARE + OURS


def test_templates_are_read_after_the_switch_that_allows_them() -> None:
    options = LaunchOptions(chat_template="{{ x }}", jinja=True)
    assert asked(options) == ("--jinja", "--chat-template", "{{ x }}")
    assert asked(LaunchOptions(swa_full=True, jinja=True)) == ("--jinja", "--swa-full")
    argv = launch(LaunchOptions(jinja=False), flags=FLAGS).argv
    assert "--no-jinja" in argv
    assert "--jinja" not in argv


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
        "--skip-chat-parsing --ctx-size 8192 --parallel 2 --batch-size 1024 --ubatch-size 256 --threads 3"
        " --n-gpu-layers 0 --pooling cls --chat-template-file /t.jinja --embeddings --temp -0.5 --seed -1"
    )
    assert asked(options) == tuple(expected.split())
    assert launch(options, flags=FLAGS).argv == BARE + OURS + tuple(expected.split())
    assert launch(options).env["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"flash_attn": "on", "swa_full": True}, "--swa-full --flash-attn on"),
        ({"kv_unified": False, "kv_offload": True, "repack": False}, "--no-kv-unified --kv-offload --no-repack"),
        ({"device": ()}, "--device none"),
        ({"device": ("CUDA1", "CUDA0"), "tensor_split": (3.0, 1.5)}, "--device CUDA1,CUDA0 --tensor-split 3,1.5"),
        ({"rpc": ("a:1", "b:2"), "device": ("RPC1",)}, "--rpc a:1,b:2 --device RPC1"),
        ({"override_tensor": ("exps=CPU", "x.*=CUDA0")}, "--override-tensor exps=CPU,x.*=CUDA0"),
        ({"load_mode": "mmap+mlock", "fit": "off"}, "--fit off --load-mode mmap+mlock"),
        ({"lora": (LoraAdapter("/a.gguf"), LoraAdapter("/b.gguf"))}, "--lora /a.gguf,/b.gguf"),
        ({"lora": (LoraAdapter("/a.gguf", 0.5), LoraAdapter("/b.gguf"))}, "--lora-scaled /a.gguf:0.5,/b.gguf:1"),
        ({"lora": (LoraAdapter('/a,"b.gguf'),)}, '--lora "/a,""b.gguf"'),
        ({"mmproj": "/p.gguf", "mmproj_offload": False}, "--no-mmproj-offload --mmproj /p.gguf"),
        ({"mmproj": "/p.gguf", "mmproj_auto": False}, ""),
        ({"spec_type": ("default",)}, "--spec-default"),
        ({"spec_type": ("none",)}, ""),
        ({"spec_type": ("ngram-simple", "draft-mtp")}, "--spec-type ngram-simple,draft-mtp"),
        ({"reranking": True}, "--reranking"),
        ({"reasoning": "off", "reasoning_budget": -1}, "--reasoning off --reasoning-budget -1"),
        ({"chat_template_kwargs": {"a": [1, None], "ü": True}}, '--chat-template-kwargs {"a":[1,null],"ü":true}'),
        ({"yarn_ext_factor": -1.0, "rope_freq_base": 1e6}, "--rope-freq-base 1e+06 --yarn-ext-factor -1"),
    ],
)
def test_how_options_are_written(options: dict[str, Any], expected: str) -> None:
    assert asked(LaunchOptions(**options)) == tuple(expected.split())


def test_a_projector_beside_the_model_is_taken_where_it_is_wanted() -> None:
    facts = ModelFacts(projector="/beside.gguf")
    assert asked(LaunchOptions(), facts) == ()
    assert asked(LaunchOptions(mmproj_auto=True), facts) == ("--mmproj", "/beside.gguf")
    assert asked(LaunchOptions(mmproj_auto=True, mmproj="/named.gguf"), facts) == ("--mmproj", "/named.gguf")


OLD = {"--flash-attn": 0, "--mlock": 0, "--no-mmap": 0, "--model-draft": 1, "--draft-max": 1, "--no-kv-offload": 0}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"flash_attn": "on"}, "--flash-attn"),
        ({"flash_attn": "off"}, ""),
        ({"load_mode": "mlock"}, "--no-mmap --mlock"),
        ({"load_mode": "mmap"}, ""),
        ({"spec_draft_model": "/d.gguf", "spec_draft_n_max": 4}, "--model-draft /d.gguf --draft-max 4"),
        ({"kv_offload": False}, "--no-kv-offload"),
        ({"kv_offload": True}, ""),
        ({"swa_full": False}, ""),
    ],
)
def test_how_they_are_written_for_older_builds(options: dict[str, Any], expected: str) -> None:
    assert launch(LaunchOptions(**options), flags=OLD).argv[len(BARE) :] == tuple(expected.split())


SILENT = {"mmproj_auto"}  # it says whether `mmproj` is looked for
ROWS = [row for row in options_of(LaunchOptions) if row.way is not Way.NONE and row.name not in SILENT]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_no_field_is_dropped(row: Option) -> None:
    """Each says something to a build that knows it, and is refused by its name for one that does not."""
    assert FLAGS.keys() & {*row.on, *row.off}, f"{HELP.name}, the recorded help, has none of {row.on}"
    options = LaunchOptions(**{row.name: another(row)})
    argv = launch(options, flags=FLAGS).argv[len(BARE) :]
    assert argv != launch(flags=FLAGS).argv[len(BARE) :]
    assert all(flag in FLAGS for flag in argv if flag.startswith("--"))
    with pytest.raises(OptionNotSupported) as caught:
        launch(options, flags={"--x": 0})
    assert caught.value.param == row.name


@pytest.mark.parametrize(
    "options",
    [
        {"override_tensor": ("exps",)},
        {"override_tensor": ("a{1,2}=CPU",)},
        {"spec_draft_override_tensor": ("=CPU",)},
        {"lora": (LoraAdapter("/a:b.gguf", 0.5),)},
    ],
)
def test_what_no_argument_can_say_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        asked(LaunchOptions(**options))
    assert caught.value.param == next(iter(options))


def test_a_nul_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="NUL"):
        asked(LaunchOptions(chat_template="a\0b"))


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


def test_an_option_of_ours_that_an_old_build_lacks_is_refused_not_dropped() -> None:
    with pytest.raises(OptionNotSupported, match="--skip-chat-parsing") as caught:
        launch(LaunchOptions(skip_chat_parsing=True), flags=without("--skip-chat-parsing", "--no-skip-chat-parsing"))
    assert caught.value.param == "skip_chat_parsing"


def test_without_knowledge_of_the_build_any_option_is_tried() -> None:
    assert asked(LaunchOptions(extra_args=("--brand-new", "1"))) == ("--brand-new", "1")


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
    assert child_environment(inherited, launch(LaunchOptions(env={"OMP_NUM_THREADS": "9"}))) == {
        "PATH": "/bin",
        "HOME": "/root",
        "LLAMA_CACHE": "/cache",
        "OMP_NUM_THREADS": "9",
        "LLAMA_SERVER_ROUTER_PORT": "1",
    }
