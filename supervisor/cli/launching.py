"""The options that say how a model is launched, by llama-server's own names; used by `load`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from supervisor.cli.client import Json
from supervisor.cli.options import count, positive, tokens
from supervisor.core.gguf import CACHE_TYPES
from supervisor.errors import UsageError

_FIELDS = (
    *("ctx_size", "parallel", "kv_unified", "batch_size", "ubatch_size", "cache_type_k", "cache_type_v", "flash_attn"),
    *("swa_full", "threads", "device", "n_gpu_layers", "tensor_split", "cpu_moe", "n_cpu_moe", "embeddings"),
    *("reasoning", "chat_template_kwargs", "mmproj_auto", "spec_type"),
)


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add options whose names are fields of the REST interface's `options`."""
    group = parser.add_argument_group("how it is launched (llama-server's own options)")
    add = group.add_argument
    add(
        "-c",
        "--ctx-size",
        type=tokens,
        metavar="N",
        help="context of all slots in tokens, such as 8k (0: the model's own)",
    )
    add("-np", "--parallel", type=positive, metavar="N", help="slots: requests answered side by side")
    add("-kvu", "--kv-unified", action=argparse.BooleanOptionalAction, help="one cache for all slots")
    add("-b", "--batch-size", type=tokens, metavar="N", help="logical batch")
    add("-ub", "--ubatch-size", type=tokens, metavar="N", help="physical batch")
    add("-ctk", "--cache-type-k", choices=CACHE_TYPES, metavar="TYPE", help=f"of keys: {', '.join(CACHE_TYPES)}")
    add("-ctv", "--cache-type-v", choices=CACHE_TYPES, metavar="TYPE", help="of values")
    add("-fa", "--flash-attn", choices=("auto", "on", "off"), help="flash attention")
    add("--swa-full", action="store_true", default=None, help="full-size caches for sliding windows")
    add("-t", "--threads", type=positive, metavar="N", help="threads on the CPU (default: the physical cores)")
    add("-dev", "--device", type=_names, metavar="A,B", help="devices, as the engine names them; none: the CPU alone")
    add("-ngl", "--n-gpu-layers", type=count, metavar="N", help="layers on devices")
    add("-ts", "--tensor-split", type=_shares, metavar="A,B", help="shares of the devices")
    add("-cmoe", "--cpu-moe", action="store_true", default=None, help="all experts stay with the CPU")
    add("-ncmoe", "--n-cpu-moe", type=count, metavar="N", help="experts of the first N layers stay with the CPU")
    add("--embeddings", choices=("auto", "on", "off"), help="serve embeddings instead of text")
    add("--reasoning", choices=("auto", "on", "off"), help="thinking, for requests that do not say")
    add(
        "--chat-template-kwargs",
        type=_object,
        metavar="JSON",
        help='what the template reads: {"enable_thinking": false}',
    )
    add("--mmproj-auto", action=argparse.BooleanOptionalAction, help="look for a projector beside the model")
    add("--spec-type", type=_names, metavar="A,B", help="speculative decoding: default, ngram-mod, draft-mtp, …")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="any other option: --set cache_ram=0")
    add("--extra-arg", action="append", metavar="ARG", help="one more argument for the engine: --extra-arg=--no-warmup")


def launch_options(args: argparse.Namespace) -> Json:
    """Return what was given, as `options` of a load. Raises UsageError for a `--set` that is not NAME=VALUE."""
    given: Json = {name: getattr(args, name) for name in _FIELDS if getattr(args, name) is not None}
    given.update(map(_assignment, args.set))
    return given if args.extra_arg is None else {**given, "extra_args": args.extra_arg}


def _assignment(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE; the value is read as JSON if it is that, else taken as text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--set {text}: write NAME=VALUE, e.g. --set cache_ram=0", param="set")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), value


def _names(text: str) -> list[str]:
    return [] if text in {"", "none"} else text.split(",")


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 3,1") from None


def _object(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return found
