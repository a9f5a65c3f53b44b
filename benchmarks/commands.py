"""What other kinds of engines cost the relay: one llama-server, as a model in GGUF and as a command, in turn.

    .venv/bin/python -m benchmarks.commands [--rounds N] [--engine PATH] [--before CHECKOUT] [--mlx]

Figures are CPU time of the daemon's process, medians over the rounds. With `--before` the first daemon is that of
another checkout, whose relay knows no kinds of engines. With `--mlx` the second one has mlx-lm with the same text.

    request    a stream of two tokens, connection included
    event      of 8 streams at once that have no end
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from benchmarks.keys import in_turn
from benchmarks.load import Generator, Place
from benchmarks.model import make_model
from benchmarks.servers import MODEL, Server, engine_flags, post, serving, supervisor
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places
from tests.support.scripted_mlx import write_scripted_mlx

_SLOTS = 8


def main(argv: Sequence[str]) -> int:
    """Run everything and print."""
    parser = argparse.ArgumentParser(description="CPU per request and event, of a GGUF model and of a command.")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="(default: 9)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: as the program finds it)")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="whose daemon serves the GGUF model")
    parser.add_argument("--mlx", action="store_true", help="mlx-lm in the place of the command")
    arguments = parser.parse_args(argv)
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    with tempfile.TemporaryDirectory(prefix="cmds-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        model = folder / "bench.gguf"
        make_model(model)
        generator = Generator()
        stack.callback(generator.close)
        other = "mlx" if arguments.mlx else "command"
        for name in ("gguf", other):
            (folder / name).mkdir(mode=0o700)
        first = supervisor(binary, model, folder / "gguf", _SLOTS, arguments.before)
        second = (_for_mlx if arguments.mlx else _commanded)(binary, model, folder / other)
        servers = [stack.enter_context(first), stack.enter_context(second)]
        found = in_turn(servers, generator, arguments.rounds)
    print(f"| CPU per | GGUF [µs] | {other} [µs] | ratio |\n|---|---|---|---|")
    for what, (one, two) in found.items():
        print(f"| {what} | {one:.1f} | {two:.1f} | {two / one:.3f} |")
    print(json.dumps({what: {"gguf": one, other: two} for what, (one, two) in found.items()}))
    return 0


@contextmanager
def _commanded(binary: Path, model: Path, folder: Path) -> Iterator[Server]:
    """The daemon whose engine is the same llama-server, as a command."""
    words = [str(binary), "-m", str(model), "--alias", MODEL, "--embeddings", *engine_flags(_SLOTS)]
    command = {
        "source": "command",
        "command": [*words, "--host", "${SOCKET}"],
        "apis": ["/v1/chat/completions", "/v1/completions"],
        "slots": _SLOTS,
        "memory": {"CPU": "1g"},
    }
    with serving(binary, folder, {"models": {MODEL: command}}) as (process, url):
        status = post(f"{url}/api/v1/models/load", {"target": MODEL})
        arguments = psutil.Process(status["pid"]).cmdline()
        engine = Place(MODEL, socket=arguments[arguments.index("--host") + 1])
        yield Server("command", Place(MODEL, int(url.rpartition(":")[2])), process.pid, engine)


@contextmanager
def _for_mlx(binary: Path, model: Path, folder: Path) -> Iterator[Server]:
    """The daemon whose engine is mlx-lm, with the same table of texts."""
    made = {"file": str(write_scripted_mlx(folder / "model", model)), "parallel": _SLOTS}
    with serving(binary, folder, {"models": {MODEL: made}}) as (process, url):
        status = post(f"{url}/api/v1/models/load", {"target": MODEL})
        arguments = psutil.Process(status["pid"]).cmdline()
        engine = Place(MODEL, socket=arguments[arguments.index("--socket") + 1])
        yield Server("mlx", Place(MODEL, int(url.rpartition(":")[2])), process.pid, engine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
