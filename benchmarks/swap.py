"""What it costs that models take turns in memory: this program against llama-server's router, the same clients.

    .venv/bin/python -m benchmarks.swap [--size MIB] [--requests N] [--rounds N] [--mixes a,b] [--engine PATH]

The weights are noise, written once; a load reads them from the page cache into memory of its own (`--load-mode none`).
All models of a size are links to one file. The mixes:

    one room      6 clients, each going round 3 models in turn with some thinking in between; room for 1
    any of three  the same, but each request is for one of the three by chance
    three rooms   8 clients over 6 models by chance, room for 3
    in turn       1 client, A B C A B C …; room for 1: nobody can do better than a load for each request
    by bytes      6 clients over 2 models and, one time in twenty, a third one that needs the room of both.
                  The router counts: with more than 1 it would have a small and the large one in memory together
    kept slots    2 conversations with a model each, taking turns; room for 1: how much of a conversation is processed
                  again after a swap, with `keep_kv`, without it, and by the router

The room of this program is set by `devices.limit_mib`, that of the router by `--models-max`. A swap is one engine
started. Both servers are fresh for every mix and answer the same requests; the tables go to stdout, and after them one
line of JSON. Where `SWAP_LOGS` names a folder, the servers' logs are kept there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.heavy import write_heavy_gguf
from benchmarks.report import percentile
from benchmarks.servers import post, routing, serving
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places

_SLOTS = 8
_THINK_S = (0.1, 0.6)
_LARGE_SHARE = 1 / 20
_STARTED = {"supervisor": "engine_start", "router": "spawning server instance with name="}
_LIMIT_S = 600.0

KEPT = "kept slots"
_KEEPERS = {"keep_kv": ("supervisor", {"keep_kv": True}), "without": ("supervisor", {}), "router": ("router", {})}
_CONVERSATION = 1500  # bytes that a conversation begins with; each is a token

Choice = Callable[[int, int, random.Random], str]
"""Client, number of its request, its own dice → the model."""


@dataclass(frozen=True)
class Mix:
    """What is asked. `sizes`: models and their share of the full size; `room`: of how many full sizes there is room."""

    name: str
    clients: int
    sizes: dict[str, float]
    room: float
    models_max: int
    choose: Choice
    requests: float = 1.0  # of the number asked for, per client
    options: Mapping[str, object] = field(default_factory=dict)  # of every model, for this program alone


@dataclass
class Result:
    """One mix on one server: seconds."""

    waits: list[float] = field(default_factory=list)
    seconds: float = 0.0
    loads: int = 0
    failed: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """By measure."""
        return {
            "swaps": float(self.loads),
            "total [s]": self.seconds,
            "p95 wait [s]": percentile(self.waits, 95),
            "longest wait [s]": max(self.waits),
        }


def _round(names: Sequence[str]) -> Choice:
    return lambda client, number, _: names[(client + number) % len(names)]


def _by_bytes(_client: int, _number: int, dice: random.Random) -> str:
    return "large" if dice.random() < _LARGE_SHARE else f"small{dice.randrange(2)}"


def _mixes() -> list[Mix]:
    three, six = ("a", "b", "c"), ("a", "b", "c", "d", "e", "f")
    return [
        Mix("one room", 6, dict.fromkeys(three, 1.0), 1, 1, _round(three)),
        Mix("any of three", 6, dict.fromkeys(three, 1.0), 1, 1, lambda _c, _n, dice: dice.choice(three)),
        Mix("three rooms", 8, dict.fromkeys(six, 1.0), 3, 3, lambda _c, _n, dice: dice.choice(six)),
        Mix("in turn", 1, dict.fromkeys(three, 1.0), 1, 1, _round(three), 1.5),
        Mix("by bytes", 6, {"small0": 1.0, "small1": 1.0, "large": 2.0}, 2, 1, _by_bytes, 2),
    ]


class Bench:
    """The files, and how each server is started on them."""

    def __init__(self, binary: Path, folder: Path, size_mib: int) -> None:
        self.binary, self.folder, self.size_mib = binary, folder, size_mib
        self._files: dict[float, Path] = {}

    def file(self, name: str, share: float) -> Path:
        """A model's file: a link of its own."""
        if share not in self._files:
            self._files[share] = self.folder / f"weights-{share}.gguf"
            write_heavy_gguf(self._files[share], round(self.size_mib * share))
        link = self.folder / f"{name}-{share}.gguf"
        if not link.exists():
            os.link(self._files[share], link)
        return link

    def warm(self, mix: Mix) -> None:
        """Read the files, so that no load waits for the disk."""
        for share in set(mix.sizes.values()):
            with self.file("warm", share).open("rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass

    @contextmanager
    def server(self, which: str, mix: Mix) -> Iterator[tuple[str, Path]]:
        """A fresh server with the mix's models and room: its URL and its log."""
        with tempfile.TemporaryDirectory(prefix="swap-", dir=self.folder) as name:
            folder = Path(name)
            start = self._supervisor if which == "supervisor" else self._router
            with start(mix, folder) as url:
                yield url, folder / f"{which}.log"

    @contextmanager
    def _router(self, mix: Mix, folder: Path) -> Iterator[str]:
        preset = "\n".join(f"[{name}]\nmodel = {self.file(name, share)}\n" for name, share in mix.sizes.items())
        sizes = ["--parallel", str(_SLOTS), "--kv-unified", "--ctx-size", "4096", "--cache-ram", "0", "--threads", "1"]
        flags = [*sizes, "--load-mode", "none", "--models-max", str(mix.models_max)]
        with routing(self.binary, folder, preset, flags) as (_, url):
            yield url

    @contextmanager
    def _supervisor(self, mix: Mix, folder: Path) -> Iterator[str]:
        common = {"parallel": _SLOTS, "kv_unified": True, "ctx_size": 4096, "cache_ram": 0, "threads": 1}
        models = {
            name: {
                "file": str(self.file(name, share)),
                "load_mode": "none",
                "embeddings": "off",
                **common,
                **mix.options,
            }
            for name, share in mix.sizes.items()
        }
        with serving(self.binary, folder, {"models": models}) as (_, url):
            largest = max(mix.sizes, key=lambda name: mix.sizes[name])
            (part,) = post(f"{url}/api/v1/plan", {"target": largest})["parts"]
        limit = part["total_bytes"] * (mix.room / mix.sizes[largest] + 0.3)
        (folder / "endpoint.json").unlink(missing_ok=True)
        settings = {"models": models, "devices": {"limit_mib": {"cpu": int(limit) >> 20}}}
        with serving(self.binary, folder, settings) as (_, url):
            yield url


def run(mix: Mix, url: str, requests: int) -> Result:
    """All clients to their end."""
    result = Result()
    clients = [
        threading.Thread(target=_client, args=(mix, number, url, requests, result)) for number in range(mix.clients)
    ]
    begun = time.perf_counter()
    for client in clients:
        client.start()
    for client in clients:
        client.join(_LIMIT_S)
    result.seconds = time.perf_counter() - begun
    return result


def _client(mix: Mix, client: int, url: str, requests: int, result: Result) -> None:
    dice = random.Random(client)
    for number in range(requests):
        model = mix.choose(client, number, dice)
        body = {"model": model, "messages": [{"role": "user", "content": "Go on"}], "max_tokens": 4}
        begun = time.perf_counter()
        try:
            post(f"{url}/v1/chat/completions", body)
        except OSError as error:
            result.failed.append(f"{model}: {error}")
        result.waits.append(time.perf_counter() - begun)
        time.sleep(dice.uniform(*_THINK_S))


def main(argv: Sequence[str]) -> int:
    """Run everything and print."""
    arguments = _parser().parse_args(argv)
    binary = locate(places(os.environ), os.environ, arguments.engine).path
    found: dict[str, dict[str, list[Result]]] = {}
    with tempfile.TemporaryDirectory(prefix="swap-", dir=arguments.folder) as folder:
        bench = Bench(binary, Path(folder), arguments.size)
        chosen = [mix for mix in _mixes() if not arguments.mixes or mix.name in arguments.mixes.split(",")]
        for mix in chosen * arguments.rounds:
            for which in _STARTED:
                found.setdefault(mix.name, {}).setdefault(which, []).append(
                    _measure(bench, mix, which, arguments.requests)
                )
        kept = _kept(bench, arguments.requests) if not arguments.mixes or KEPT in arguments.mixes.split(",") else {}
    print("\n".join([*(_table(found) if found else ()), *(_kept_table(kept) if kept else ())]))
    medians = {mix: {which: _medians(results) for which, results in by.items()} for mix, by in found.items()}
    print(json.dumps(medians | ({KEPT: kept} if kept else {})))
    return 1 if any(one.failed for by in found.values() for results in by.values() for one in results) else 0


def _measure(bench: Bench, mix: Mix, which: str, requests: int) -> Result:
    for name, share in mix.sizes.items():
        bench.file(name, share)
    bench.warm(mix)
    load = os.getloadavg()[0]
    with bench.server(which, mix) as (url, log):
        result = run(mix, url, round(requests * mix.requests))
        result.loads = log.read_text(errors="replace").count(_STARTED[which])
        if os.environ.get("SWAP_LOGS"):
            Path(os.environ["SWAP_LOGS"], f"{which}-{mix.name.replace(' ', '-')}.log").write_bytes(log.read_bytes())
    shown = ", ".join(f"{measure} {value:.1f}" for measure, value in result.figures().items())
    print(f"{mix.name}, {which}: {shown} (load average {load:.1f})", file=sys.stderr, flush=True)
    for failure in result.failed[:3]:
        print(f"  {failure}", file=sys.stderr)
    return result


def _kept(bench: Bench, turns: int) -> dict[str, dict[str, float]]:
    """What the turns of two conversations cost, by who has the slots."""
    found = {}
    for name, (which, options) in _KEEPERS.items():
        mix = Mix(KEPT, 1, {"a": 1.0, "b": 1.25}, 1.25, 1, _round("ab"), options=options)
        for model, share in mix.sizes.items():
            bench.file(model, share)
        bench.warm(mix)
        with bench.server(which, mix) as (url, log):
            found[name] = converse(url, turns)
            found[name]["swaps"] = float(log.read_text(errors="replace").count(_STARTED[which]))
        shown = ", ".join(f"{measure} {value:.1f}" for measure, value in found[name].items())
        print(f"{KEPT}, {name}: {shown} (load average {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
    return found


def converse(url: str, turns: int) -> dict[str, float]:
    """Medians over all turns but each conversation's first, every one of them after a swap."""
    dice = random.Random(1)
    texts = {model: "".join(dice.choices("abcdefgh ", k=_CONVERSATION)) for model in "ab"}
    measured: list[tuple[float, float, float, float]] = []
    for turn in range(turns):
        for model, text in texts.items():
            said = f" And then, {turn}?" if turn else ""
            texts[model] = text + said
            body = {"model": model, "messages": [{"role": "user", "content": texts[model]}], "max_tokens": 4}
            begun = time.perf_counter()
            timings = post(f"{url}/v1/chat/completions", body)["timings"]
            seconds = time.perf_counter() - begun
            if turn:
                measured.append((len(texts[model]), len(said), timings["prompt_n"], seconds))
    names = ("prompt tokens", "of them new", "processed after a swap", "wait [s]")
    return {name: statistics.median(values) for name, values in zip(names, zip(*measured, strict=True), strict=True)}


def _kept_table(kept: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield f"\n| {KEPT} | {' | '.join(kept)} |"
    yield "|---" * (1 + len(kept)) + "|"
    for measure in next(iter(kept.values())):
        yield f"| {measure} | {' | '.join(f'{figures[measure]:.4g}' for figures in kept.values())} |"


def _medians(results: Sequence[Result]) -> dict[str, float]:
    measures = [one.figures() for one in results]
    return {name: statistics.median(each[name] for each in measures) for name in measures[0]}


def _table(found: dict[str, dict[str, list[Result]]]) -> Iterator[str]:
    yield "| mix | measure | supervisor | router | supervisor/router |"
    yield "|---|---|---|---|---|"
    for mix, by in found.items():
        ours, other = _medians(by["supervisor"]), _medians(by["router"])
        for name, value in ours.items():
            yield f"| {mix} | {name} | {value:.3g} | {other[name]:.3g} | {value / other[name]:.2f} |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Models that take turns in memory.")
    parser.add_argument("--size", type=int, default=2048, metavar="MIB", help="of a model's weights (default: 2048)")
    parser.add_argument("--requests", type=int, default=16, metavar="N", help="per client (default: 16)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="(default: 1)")
    parser.add_argument("--mixes", metavar="NAME,…", help="only these (default: all)")
    parser.add_argument("--folder", metavar="PATH", help="for the weights (default: the temporary folder)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use (default: the program's own)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
