"""Start; the arguments are those of `engines/mlx/command`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .generation import Generation, Limits
from .life import DIED, NOT_LOADED, end, end_with_parent, say, tell
from .model import Model
from .server import Engine, Server


def main() -> None:
    """Serve until the parent is gone."""
    end_with_parent()
    args = _parser().parse_args()
    limits = Limits(args.parallel, args.prefill_step, args.kv_bits, args.prompt_cache_bytes)

    def load() -> Model:
        return Model(args.model, args.template_args)

    def on_ready(model: Model) -> None:
        engine.model = model
        engine.parallel = generation.parallel
        tell("ready", meta={"n_ctx": args.context}, n_slots=engine.parallel)

    def on_death(error: BaseException, loaded: bool) -> None:
        doing = "mlx: it has ended" if loaded else "mlx: cannot load the model"
        say(f"{doing}: error: {type(error).__name__}: {error}")
        end(DIED if loaded else NOT_LOADED)

    generation = Generation(load, limits, on_ready, on_death)
    engine = Engine(args.name, args.context, args.parallel, generation)
    server = Server(args.socket, engine)
    tell("loading", current="model")
    generation.start()
    server.serve_forever()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="launcher", allow_abbrev=False)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--context", required=True, type=int)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--prefill-step", type=int, default=512)
    parser.add_argument("--prompt-cache-bytes", type=int, default=0)
    parser.add_argument("--kv-bits", type=int, choices=(4, 8))
    parser.add_argument("--template-args", type=json.loads, default={})
    return parser


main()
