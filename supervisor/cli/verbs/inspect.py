"""`inspect TARGET`: what a model's header says."""

from __future__ import annotations

import argparse

from supervisor.cli.exits import OK
from supervisor.cli.reading import reader
from supervisor.cli.registry import Verb
from supervisor.cli.render import bold, dim, print_json, print_table, size
from supervisor.core.mlx.describe import describe as describe_mlx
from supervisor.core.spec import describe, merge_labels, plain_metadata, read_spec, tensor_summary
from supervisor.errors import UsageError
from supervisor.files.mlx_folder import MlxModel
from supervisor.files.model_file import ModelFile

VERB = Verb(
    summary="show what a model's header says",
    order=160,
    description="""Show what a model's header says; nothing is loaded. TARGET is the path of a .gguf file (any part of a
split one), a folder with a model for MLX, `demo`, or the id of a configured model.""",
    examples=(
        ("inspect models/qwen3-8b.gguf", "a file"),
        ("inspect owner/repo:Q4_K_M", "a model from the hub; a few MB are fetched"),
        ("inspect demo --keys --tensors", "all of it"),
    ),
    aliases=("show",),
)

_KEY_WIDTH = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="a path, demo, or the id of a configured model")
    parser.add_argument("--keys", action="store_true", help="every key of the metadata as it stands in the file")
    parser.add_argument("--tensors", action="store_true", help="tensors and bytes by layer and type")
    parser.add_argument("--config", metavar="FILE", help="the configuration file in which ids are looked up")


def run(args: argparse.Namespace) -> int:
    """Read the header and show it."""
    source = reader(args, args.target)
    mlx = source.mlx(args.target)
    if mlx is not None:
        return _run_mlx(args, mlx)
    model = source.open(args.target)
    facts = _facts(model)
    keys = plain_metadata(model.header) if args.keys else None
    tensors = tensor_summary(model.header) if args.tensors else None
    if args.json:
        more = {"keys": keys, "tensors": tensors}
        print_json({**facts, **{name: value for name, value in more.items() if value is not None}})
        return OK
    _print_facts(facts)
    if keys is not None:
        print()
        for key, value in keys.items():
            print(f"{bold(key)}  {_one_line(value)}")
    if tensors is not None:
        print()
        rows = [_tensor_row(row) for row in tensors]
        print_table(("LAYER", "TYPE", "TENSORS", "SIZE"), rows)
    return OK


def _run_mlx(args: argparse.Namespace, model: MlxModel) -> int:
    if args.keys or args.tensors:
        raise UsageError("--keys and --tensors are about GGUF files, and this is a model for MLX; leave them out.")
    where = {"path": str(model.folder), "parts": len(model.files), "file_bytes": model.size_bytes}
    facts = {**where, **describe_mlx(model.facts)}
    if args.json:
        print_json(facts)
    else:
        _print_facts(facts)
    return OK


def _facts(model: ModelFile) -> dict[str, object]:
    where = {"path": str(model.path), "parts": len(model.parts), "file_bytes": model.size_bytes}
    return {**where, **describe(model.header, read_spec(model.header))}


def _print_facts(facts: dict[str, object]) -> None:
    shown = {**facts}
    for key in ("file_bytes", "tensor_bytes"):
        value = shown.get(key)
        if isinstance(value, int):
            shown[key] = size(value)
    labels = merge_labels(shown)
    width = max(len(label) for label, _ in labels)
    for label, text in labels:
        print(f"{dim(label.ljust(width))}  {text}")


def _tensor_row(row: dict[str, object]) -> tuple[str, str, str, str]:
    layer, count = row["layer"], row["bytes"]
    return (
        "-" if layer is None else str(layer),
        str(row["type"]),
        str(row["tensors"]),
        size(count if isinstance(count, int) else None),
    )


def _one_line(value: object) -> str:
    text = str(value).replace("\n", "\\n")
    return text if len(text) <= _KEY_WIDTH else f"{text[:_KEY_WIDTH]}…"
