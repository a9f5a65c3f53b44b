"""Build the command of one engine: from model, options, plan and the binary's flags to argv and environment.

- What the user asked for is passed on or refused by name, never dropped.
- What we add for our own sake (metrics, no web page, log levels) is left out where the build lacks it.
- What is not asked for and not planned stays llama-server's own default; but small models of some families, which were
  not made to reason unasked, do not.
- What would take the engine out of our hands (another address, a key, another model) is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from supervisor.core.engine_output.capabilities import Flags
from supervisor.core.engine_output.statelines import ENV_SPEAK
from supervisor.core.environment import for_engines
from supervisor.core.launch.emit import typed_arguments
from supervisor.core.launch.environment import LibraryPath, with_libraries, without_settings
from supervisor.core.launch.extra import check_env, check_extra
from supervisor.core.launch.facts import ModelFacts
from supervisor.core.launch.placed import Placed, merged_env, planned
from supervisor.core.options import LaunchOptions
from supervisor.errors import InvalidRequest, OptionNotSupported


@dataclass(frozen=True)
class LaunchSpec:
    """A complete command: `env` and `libraries` are additions to the environment, `socket` is where it will listen.

    `names`: the engine's name of a device → the plan's, where they differ.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    socket: str
    libraries: LibraryPath = field(default_factory=LibraryPath)
    names: Mapping[str, str] = field(default_factory=dict)


# For our own sake, each the first spelling that the build has
_OURS = (
    ("--jinja",),
    ("--metrics",),
    ("--slots",),
    ("--no-ui", "--no-webui"),
    ("--log-prefix",),
    ("--log-timestamps",),
)


def build_launch(  # noqa: PLR0913 - one plain value per thing that a command line is made of
    binary: str,
    model_path: str,
    socket: str,
    alias: str,
    options: LaunchOptions,
    facts: ModelFacts,
    flags: Flags | None = None,
    *,
    placed: Placed | None = None,
    cores: int | None = None,
    libraries: LibraryPath | None = None,
) -> LaunchSpec:
    """Return the command for one engine.

    Args:
        binary: path of llama-server.
        model_path: the GGUF file, the first one of a split model.
        socket: path of the Unix socket to listen on; must end in `.sock`, by which llama-server tells it from a host.
        alias: the name that the engine gives itself in its answers.
        options: what was asked for.
        facts: what the model's header says.
        flags: every option the binary knows (`--help`); None where that is not known: then nothing of ours is added.
        placed: what a plan decided about memory; None: llama-server decides what is not asked for.
        cores: physical ones that we may use: the threads where none are asked for.
        libraries: folders that the binary needs.

    Raises:
        InvalidRequest: an option takes the engine out of our hands, or cannot be an argument.
        OptionNotSupported: the binary lacks an option that was asked for.
    """
    wanted = options if placed is None else planned(options, placed, flags)
    asked = _asked(_with_reasoning(_with_threads(wanted, cores, flags), facts, flags), facts, flags)
    env = options.env if placed is None else merged_env(options, placed)
    argv = (binary, "-m", model_path, "--host", socket, "--alias", alias, *_ours(options, flags), *asked)
    names = {} if placed is None else {theirs: name for name, theirs in placed.names.items() if theirs != name}
    return LaunchSpec(argv, {**env, ENV_SPEAK: "1"}, socket, libraries or LibraryPath(), names)


def check_options(options: LaunchOptions, flags: Flags | None = None) -> None:
    """Raise what `build_launch` would raise for these options."""
    _asked(options, ModelFacts(), flags)


def lacking(options: LaunchOptions, flags: Flags) -> list[OptionNotSupported]:
    """Return one error for every field that needs an option which the binary lacks."""
    found, plain = [], LaunchOptions()
    for name in (one.name for one in fields(LaunchOptions)):
        value = getattr(options, name)
        if value != getattr(plain, name):
            try:
                check_options(replace(plain, **{name: value}), flags)
            except OptionNotSupported as error:
                found.append(error)
            except InvalidRequest:
                pass  # what is wrong for every binary is not told here
    return found


def child_environment(inherited: Mapping[str, str], launch: LaunchSpec) -> dict[str, str]:
    """Return the engine's whole environment: the variables of ours that it needs, and those that the launch adds.

    llama.cpp's own settings are not among it, keys and tokens neither.
    """
    return with_libraries({**without_settings(for_engines(inherited)), **launch.env}, launch.libraries)


def _asked(options: LaunchOptions, facts: ModelFacts, flags: Flags | None) -> list[str]:
    """Return the arguments of the options that were asked for, checked."""
    check_extra(options.extra_args, flags)
    check_env(options.env)
    return [*typed_arguments(options, facts, flags), *options.extra_args]


def _with_threads(options: LaunchOptions, cores: int | None, flags: Flags | None) -> LaunchOptions:
    """Return the options with one thread per core, unless something else is asked for.

    Batches take as many by themselves.
    """
    if options.threads is not None or cores is None or flags is None or "--threads" not in flags:
        return options
    return replace(options, threads=cores)


def _with_reasoning(options: LaunchOptions, facts: ModelFacts, flags: Flags | None) -> LaunchOptions:
    """Return the options with reasoning off for a model that was not made for it, unless something of it is set."""
    said = (options.reasoning, options.reasoning_effort, options.reasoning_budget, options.chat_template_file)
    given = any(one is not None for one in said) or options.chat_template is not None or options.chat_template_kwargs
    if facts.thinks is not False or given or "--reasoning" not in (flags or {}):
        return options
    return replace(options, reasoning="off")


def _ours(options: LaunchOptions, flags: Flags | None) -> list[str]:
    known = flags or {}
    found = [next((flag for flag in spellings if flag in known), None) for spellings in _OURS]
    wanted = [flag for flag in found if flag is not None and not (flag == "--jinja" and options.jinja is not None)]
    shifts = "--context-shift" not in known and "--no-context-shift" in known and options.context_shift is None
    return [*wanted, *(["--no-context-shift"] if shifts else [])]
