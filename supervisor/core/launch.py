"""What to type for one engine: model, options and the binary's flags in, argv and environment out.

- What the user asked for is passed on or refused by name, never dropped.
- What we add for our own sake (metrics, no web page, log levels) is left out where the build lacks it.
- What is not asked for stays llama-server's own default.
- What would take the engine out of our hands (another address, a key, another model) is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from supervisor.core.gguf import GgufHeader
from supervisor.core.statelines import ENV_SPEAK
from supervisor.errors import InvalidRequest, OptionNotSupported

Embeddings = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class LaunchOptions:
    """What can be chosen per model; None = llama-server's default. Sizes are tokens, `threads` are threads.

    `embeddings="auto"`: on for models that are made for it. `env` is added to the engine's environment.
    """

    ctx_size: int | None = None
    parallel: int | None = None
    batch_size: int | None = None
    ubatch_size: int | None = None
    n_gpu_layers: int | None = None
    threads: int | None = None
    embeddings: Embeddings = "auto"
    pooling: str | None = None
    chat_template_file: str | None = None
    skip_chat_parsing: bool = False
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFacts:
    """What a launch must know of the model's header: whether it names a pooling, whether it is an encoder."""

    pooling: bool = False
    encoder: bool = False


def facts_of(header: GgufHeader) -> ModelFacts:
    """What the header says; pooling type 0 is "none" (llama.cpp's `llama_pooling_type`)."""
    return ModelFacts(pooling=bool(header.pooling_type), encoder=header.architecture in _ENCODERS)


@dataclass(frozen=True)
class LaunchSpec:
    """A ready-made command: `env` is what to add to the environment, `socket` the path it will listen on."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    socket: str


# Architectures that only embed: llama.cpp gives them no cache
_ENCODERS = frozenset(
    {"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert", "eurobert", "modern-bert"}
    | {"gemma-embedding"}
)

# field of LaunchOptions -> flag with one value
_VALUED = {
    "ctx_size": "--ctx-size",
    "parallel": "--parallel",
    "batch_size": "--batch-size",
    "ubatch_size": "--ubatch-size",
    "n_gpu_layers": "--n-gpu-layers",
    "threads": "--threads",
    "pooling": "--pooling",
    "chat_template_file": "--chat-template-file",
}

# For our own sake, each the first spelling that the build has
_OURS = (
    ("--jinja",),
    ("--metrics",),
    ("--slots",),
    ("--no-ui", "--no-webui"),
    ("--log-prefix",),
    ("--log-timestamps",),
)

_ADDRESS = "the supervisor chooses the address; clients use the supervisor's"
_SECRET = "the engine can be reached by the supervisor alone; keys and TLS belong in front of it"
_MODEL = "the supervisor chooses the model; load another one instead"
_ENDS = "it makes the engine print something and exit"
_RUNS = "it lets the engine run programs or read files for clients, who cannot reach that through the supervisor"
_LOG = "the supervisor reads and keeps the engine's log"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("--host", "--port", "--reuse-port", "--api-prefix"), _ADDRESS),
    **dict.fromkeys(("--api-key", "--api-key-file", "--ssl-key-file", "--ssl-cert-file"), _SECRET),
    **dict.fromkeys(("-m", "--model", "-mu", "--model-url", "-a", "--alias"), _MODEL),
    **dict.fromkeys(("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-dr", "--docker-repo"), _MODEL),
    **dict.fromkeys(("--models-dir", "--models-preset", "--models-max", "--models-autoload"), _MODEL),
    **dict.fromkeys(("-h", "--help", "--usage", "--version", "-cl", "--cache-list", "--list-devices"), _ENDS),
    **dict.fromkeys(("--completion-bash",), _ENDS),
    **dict.fromkeys(("-ag", "--agent", "--tools", "--tools-runtime"), _RUNS),
    **dict.fromkeys(("--mcp-servers-config", "--mcp-servers-json", "--ui-mcp-proxy", "--webui-mcp-proxy"), _RUNS),
    **dict.fromkeys(("--log-disable", "--log-file", "--log-jsonl"), _LOG),
    **dict.fromkeys(("--sleep-idle-seconds",), "the supervisor decides when a model leaves memory"),
}
_REFUSED_ENV = frozenset(
    {"LLAMA_API_KEY", ENV_SPEAK, "LLAMA_SERVER_CHILD_MODE"}
    | {"LLAMA_ARG_" + flag[2:].replace("-", "_").upper() for flag in _REFUSED if flag.startswith("--")}
)
_INHERITED_SETTING = re.compile(r"LLAMA_(?:ARG|SERVER)_|LLAMA_API_KEY$")
_FLAG = re.compile(r"(--?[A-Za-z][\w-]*)(?:=.*)?", re.DOTALL)


def build_launch(  # noqa: PLR0913 - one plain value per thing that a command line is made of
    binary: str,
    model_path: str,
    socket: str,
    alias: str,
    options: LaunchOptions,
    facts: ModelFacts,
    flags: frozenset[str] | None = None,
) -> LaunchSpec:
    """The command for one engine.

    Args:
        binary: path of llama-server.
        model_path: the GGUF file, the first one of a split model.
        socket: path of the Unix socket to listen on; must end in `.sock`, by which llama-server tells it from a host.
        alias: the name that the engine gives itself in its answers.
        options: what was asked for.
        facts: what the model's header says.
        flags: every flag the binary knows (`--help`); None where that is not known: then nothing of ours is added.

    Raises:
        InvalidRequest: an option takes the engine out of our hands.
        OptionNotSupported: the binary lacks an option that was asked for.
    """
    asked = _asked(options, facts, flags)
    argv = (binary, "-m", model_path, "--host", socket, "--alias", alias, *_ours(flags), *asked)
    return LaunchSpec(argv, {**options.env, ENV_SPEAK: "1"}, socket)


def check_options(options: LaunchOptions, flags: frozenset[str] | None = None) -> None:
    """Whether `build_launch` would take these options: raises what it would."""
    _asked(options, ModelFacts(), flags)


def child_environment(inherited: Mapping[str, str], launch: LaunchSpec) -> dict[str, str]:
    """The engine's whole environment: ours without llama.cpp's own settings, plus what the launch adds.

    llama-server reads every option from `LLAMA_ARG_*` too; one left in a shell's profile would silently change every
    engine, and a key there would lock us out.
    """
    kept = {name: value for name, value in inherited.items() if not _INHERITED_SETTING.match(name)}
    return {**kept, **launch.env}


def _asked(options: LaunchOptions, facts: ModelFacts, flags: frozenset[str] | None) -> list[str]:
    """The arguments that were asked for, checked."""
    _check_extra(options.extra_args, flags)
    _check_env(options.env)
    asked = [*_valued(options), *_embeddings(options, facts)]
    if options.skip_chat_parsing:
        asked.append("--skip-chat-parsing")
    _check_known(asked, flags)
    return [*asked, *options.extra_args]


def _valued(options: LaunchOptions) -> list[str]:
    asked: list[str] = []
    for name, flag in _VALUED.items():
        value = getattr(options, name)
        if value is not None:
            asked += [flag, str(value)]
    return asked


def _embeddings(options: LaunchOptions, facts: ModelFacts) -> list[str]:
    made_for_it = facts.pooling or facts.encoder or options.pooling is not None
    if options.embeddings == "off" or (options.embeddings == "auto" and not made_for_it):
        return []
    given = facts.pooling or options.pooling is not None
    return ["--embeddings"] if given else ["--embeddings", "--pooling", "mean"]


def _ours(flags: frozenset[str] | None) -> list[str]:
    known = flags or frozenset()
    found = (next((flag for flag in spellings if flag in known), None) for spellings in _OURS)
    return [flag for flag in found if flag is not None]


def _check_extra(extra: Sequence[str], flags: frozenset[str] | None) -> None:
    if any("\0" in argument for argument in extra):
        raise InvalidRequest("an argument cannot hold a NUL character", param="extra_args")
    for flag in _flags_in(extra):
        reason = _REFUSED.get(flag) or _REFUSED.get(flag.replace("--no-", "--", 1))
        if reason is not None:
            raise InvalidRequest(f"{flag} cannot be given: {reason}", param="extra_args")
    _check_known(extra, flags, param="extra_args")


def _check_known(args: Sequence[str], flags: frozenset[str] | None, param: str | None = None) -> None:
    if flags is None:
        return
    for flag in _flags_in(args):
        if flag not in flags:
            near = difflib.get_close_matches(flag, sorted(flags), n=1)
            hint = f"; did you mean {near[0]}?" if near else "; see `llama-server --help` or use a newer engine"
            raise OptionNotSupported(f"this llama-server has no option {flag}{hint}", param=param or _field_of(flag))


def _check_env(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequest(f"{name!r} cannot be set: not a variable's name and value", param="env")
        if name in _REFUSED_ENV:
            raise InvalidRequest(f"{name} cannot be set: the supervisor would lose its engine", param="env")


def _flags_in(args: Iterable[str]) -> list[str]:
    """The tokens that are flags, spelled as llama-server does: it takes `_` for `-` in long ones."""
    found = (_FLAG.fullmatch(token) for token in args)
    names = [match[1] for match in found if match is not None]
    return [name.replace("_", "-") if name.startswith("--") else name for name in names]


def _field_of(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
