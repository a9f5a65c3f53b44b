"""`estimate TARGET`: the bytes that llama-server would allocate, from the header alone."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import get_args

from supervisor.cli.bars import print_estimate, print_mlx_estimate
from supervisor.cli.exits import OK
from supervisor.cli.launching import add_flag
from supervisor.cli.lines import answer_lines
from supervisor.cli.options import require, tokens
from supervisor.cli.reading import reader
from supervisor.cli.registry import Verb
from supervisor.cli.render import note, print_json
from supervisor.core.memory import EstimateOptions
from supervisor.core.memory.backends import BackendName
from supervisor.core.mlx.describe import estimate_json
from supervisor.core.mlx.facts import MlxFacts
from supervisor.core.mlx.memory import estimate as estimate_mlx
from supervisor.core.mlx.settings import FUSED
from supervisor.core.options import LaunchOptions, options_of
from supervisor.errors import EngineNotFound, EngineUnusable, InvalidRequest
from supervisor.llamacpp.locate import search
from supervisor.models.reader import ModelReader
from supervisor.planning.estimates import NAMES, estimate_options, estimated
from supervisor.planning.mlx_estimates import mlx_settings
from supervisor.system.paths import places

VERB = Verb(
    summary="compute the memory a model would take",
    order=170,
    description="""Say what llama-server would allocate for a model, from the header alone: weights, caches, states,
compute and output buffers. Nothing is loaded, no GPU is needed. Options and defaults are llama-server's own.""",
    examples=(
        ("estimate demo", "with llama-server's defaults"),
        ("estimate owner/repo:Q4_K_M -c 8k,32k", "at two contexts, before any download"),
        ("estimate model.gguf -ngl 0 --json", "on the CPU, for a program"),
    ),
    exits=((1, "with --jsonl: the answer to a line was an error"),),
)

_JSONL = """Read lines `{"target", "options": {"ctx_size", "parallel", …}}` from standard input and write an estimate,
or `{"error": {"code", "message"}}`, for each."""


_BACKEND = "what the devices are (default: what the engine of this machine lists)"


def _contexts(text: str) -> tuple[int, ...]:
    return tuple(tokens(part) for part in text.split(","))


# Options of a launch that change an estimate, and what is said of them here
_FLAGS: Mapping[str, dict[str, object]] = {
    "ctx_size": {"type": _contexts, "metavar": "N[,N…]", "help": "context in tokens (default and 0: the model's own)"},
    "parallel": {"help": "slots (default: 4 in one unified cache)"},
    "batch_size": {"help": "logical batch in tokens (default: 2048)"},
    "ubatch_size": {"help": "physical batch in tokens (default: 512)"},
    "cache_type_k": {},
    "cache_type_v": {},
    "swa_full": {},
    "kv_unified": {},
    "flash_attn": {"help": "flash attention (default: auto)"},
    "n_gpu_layers": {"help": "layers on GPUs (default: all)"},
    "tensor_split": {"help": "shares of the GPUs"},
    "n_cpu_moe": {},
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", metavar="TARGET", help="a path, demo, or the id of a configured model")
    parser.add_argument("--jsonl", action="store_true", help=_JSONL)
    parser.add_argument("--config", metavar="FILE", help="the configuration file in which ids are looked up")
    _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    rows = {row.name: row for row in options_of(LaunchOptions)}
    for name, instead in _FLAGS.items():
        add_flag(parser, rows[name], **instead)
    parser.add_argument("--backend", choices=get_args(BackendName), help=_BACKEND)
    parser.add_argument("--mmproj", metavar="FILE", help="a projector for images or sound")
    parser.add_argument("--embeddings", action="store_true", default=None, help="serve embeddings")


def run(args: argparse.Namespace) -> int:
    """Estimate once per context, or once per line."""
    if args.jsonl:
        return answer_lines(partial(_answer, args))
    require(args.target, "Name a model: `estimate TARGET`, or give --jsonl.")
    source = reader(args, args.target)
    given = {name: value for name, value in vars(args).items() if name in NAMES and value is not None}
    mlx = source.mlx(args.target)
    if mlx is not None:
        return _run_mlx(args, mlx.facts, given)
    spec = source.spec(args.target)
    contexts = given.pop("ctx_size", (None,))
    options = _with_projector(estimate_options(given, _backend()), source, args.target)
    found = [estimated(spec, replace(options, ctx_size=context)) for context in contexts]
    if args.json:
        print_json([one.to_json() for one in found] if len(found) > 1 else found[0].to_json())
    else:
        for number, one in enumerate(found):
            if number:
                print()
            print_estimate(spec, one, options)
        if options.devices == EstimateOptions().devices and options.n_gpu_layers != 0:
            note("as if on one GPU, whether there is one or not; -ngl 0: the CPU alone; `plan` says where it goes here")
    return OK


def _run_mlx(args: argparse.Namespace, facts: MlxFacts, given: dict[str, object]) -> int:
    contexts = given.pop("ctx_size", (None,))
    assert isinstance(contexts, tuple)  # what `_contexts` makes
    settings = [mlx_settings(facts, {**given, "ctx_size": context}, fused=FUSED) for context in contexts]
    if args.json:
        found = [estimate_json(facts, one, estimate_mlx(facts, one)) for one in settings]
        print_json(found if len(found) > 1 else found[0])
        return OK
    print_mlx_estimate(facts, settings)
    return OK


def _answer(args: argparse.Namespace, line: str) -> Mapping[str, object]:
    try:
        asked = json.loads(line)
        target, given = asked["target"], dict(asked.get("options") or {})
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InvalidRequest('A line must be a JSON object with "target", and "options" where wanted.') from None
    if not isinstance(target, str):
        raise InvalidRequest('"target" must be a text.', param="target")
    source = reader(args, target)
    mlx = source.mlx(target)
    if mlx is not None:
        settings = mlx_settings(mlx.facts, given, fused=FUSED)
        return estimate_json(mlx.facts, settings, estimate_mlx(mlx.facts, settings))
    options = _with_projector(estimate_options(given, _backend()), source, target)
    return estimated(source.spec(target), options).to_json()


@cache
def _backend() -> str:
    """Return the back ends of the devices that the engine lists; empty without an engine, or without devices."""
    try:
        found = search(places(os.environ), os.environ, None).capabilities
    except (EngineNotFound, EngineUnusable):
        return ""
    return ",".join(sorted(set(found.backends) - {"cpu", "rpc"})) if found else ""


def _with_projector(options: EstimateOptions, source: ModelReader, target: str) -> EstimateOptions:
    """Add the projector of a target of the hub, unless one is named."""
    return options if options.mmproj else replace(options, mmproj=source.projector_bytes(target) or None)
