"""`estimate TARGET`: the bytes that llama-server would allocate, from the header alone."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace

from supervisor.cli.bars import print_estimate
from supervisor.cli.exits import FAILED, OK
from supervisor.cli.options import count, positive, require, tokens
from supervisor.cli.reading import reader
from supervisor.cli.registry import Verb
from supervisor.cli.render import note, print_json, print_json_line
from supervisor.core.gguf import CACHE_TYPES
from supervisor.core.memory import EstimateOptions
from supervisor.errors import InvalidRequest, SupervisorError
from supervisor.models.reader import ModelReader
from supervisor.planning.estimates import NAMES, estimate_options, estimated

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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", metavar="TARGET", help="a path, demo, or the id of a configured model")
    parser.add_argument("--jsonl", action="store_true", help=_JSONL)
    parser.add_argument("--config", metavar="FILE", help="the configuration file in which ids are looked up")
    _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-c", "--ctx-size", type=_contexts, metavar="N[,N…]", help="context in tokens (default and 0: the model's own)")
    add("-np", "--parallel", type=positive, metavar="N", help="slots (default: 4 in one unified cache)")
    add("-b", "--batch-size", type=tokens, metavar="N", help="logical batch (default: 2048)")
    add("-ub", "--ubatch-size", type=tokens, metavar="N", help="physical batch (default: 512)")
    add("-ctk", "--cache-type-k", choices=CACHE_TYPES, metavar="TYPE", help=f"of keys: {', '.join(CACHE_TYPES)}")
    add("-ctv", "--cache-type-v", choices=CACHE_TYPES, metavar="TYPE", help="of values")
    add("--swa-full", action="store_true", default=None, help="full-size caches for sliding windows")
    add("-kvu", "--kv-unified", action=argparse.BooleanOptionalAction, help="one cache for all slots")
    add("-fa", "--flash-attn", choices=("auto", "on", "off"), help="flash attention (default: auto)")
    add("-ngl", "--n-gpu-layers", type=count, metavar="N", help="layers on GPUs (default: all)")
    add("-ts", "--tensor-split", type=_split, metavar="A,B,…", help="shares of the GPUs")
    add("-ncmoe", "--n-cpu-moe", type=count, metavar="N", help="experts of the first N layers on the CPU")
    add("--mmproj", metavar="FILE", help="a projector for images or sound")
    add("--embeddings", action="store_true", default=None, help="serve embeddings")


def run(args: argparse.Namespace) -> int:
    """Estimate once per context, or once per line."""
    if args.jsonl:
        return _run_lines(args)
    require(args.target, "Name a model: `estimate TARGET`, or give --jsonl.")
    source = reader(args, args.target)
    spec = source.spec(args.target)
    given = {name: value for name, value in vars(args).items() if name in NAMES and value is not None}
    contexts = given.pop("ctx_size", (None,))
    options = _with_projector(estimate_options(given), source, args.target)
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


def _run_lines(args: argparse.Namespace) -> int:
    code = OK
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            print_json_line(_answer(args, line))
        except SupervisorError as error:
            print_json_line({"error": {"code": error.code, "message": error.message}})
            code = FAILED
    return code


def _answer(args: argparse.Namespace, line: str) -> Mapping[str, object]:
    try:
        asked = json.loads(line)
        target, given = asked["target"], dict(asked.get("options") or {})
    except (ValueError, LookupError, TypeError):
        raise InvalidRequest('A line must be a JSON object with "target", and "options" where wanted.') from None
    if not isinstance(target, str):
        raise InvalidRequest('"target" must be a text.', param="target")
    source = reader(args, target)
    options = _with_projector(estimate_options(given), source, target)
    return estimated(source.spec(target), options).to_json()


def _with_projector(options: EstimateOptions, source: ModelReader, target: str) -> EstimateOptions:
    """Add the projector of a target of the hub, unless one is named."""
    return options if options.mmproj else replace(options, mmproj=source.projector_bytes(target) or None)


def _contexts(text: str) -> tuple[int, ...]:
    return tuple(tokens(part) for part in text.split(","))


def _split(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of shares such as 3,1") from None
