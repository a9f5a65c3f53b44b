"""What the hub costs before anything is downloaded: bytes and seconds of remote headers, and of a repository's plan.

    python -m benchmarks.hub [--latency 0.02] [--json FILE]

The headers have a vocabulary of 262,144 tokens with scores and types, and 1,000 tensors; that of `merges` has 514,906
merges too, that of `scores`, of Gemma 3's kind, has none. They are read from a hub on this machine that answers after
`--latency` seconds, and compared with fetching the whole file. The repository has 40 files, of which 20 are
quantisations of one model; the plan is that of `load owner/repo` for a machine with one 24 GB GPU. The last line says
whether the goal (the plan within 2 s) is met; so does the exit status.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import httpx

from benchmarks.header import write_model
from supervisor.config import Settings
from supervisor.core.repository import ORDER, parse_reference
from supervisor.files.header_cache import HeaderCache
from supervisor.hub.access import hub_access
from supervisor.hub.models import HubModels
from supervisor.models.fetch import hub_models
from supervisor.pool.living import NOBODY
from supervisor.probe.profiles import load_profile
from supervisor.service.build import without_daemon
from supervisor.service.resolve import Asked
from supervisor.system.paths import places
from tests.support.hub import LocalHub, local_hub

_GOAL_SECONDS = 2.0
_GIB = 1 << 30
_SIZES = {"16": 16.0, "8": 8.5, "6": 6.6, "5": 5.7, "4": 4.8, "3": 3.8, "2": 3.0, "1": 2.0}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.02, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, local_hub() as hub:
        hub.latency = args.latency
        found: dict[str, float | int] = {"latency_seconds": args.latency}
        for kind, file in _write_models(Path(name)).items():
            found |= {f"{kind}_{what}": value for what, value in _header(hub, file).items()}
        found |= _plan(hub, Path(name))
    for key, value in found.items():
        print(f"{key:<28} {value:,.3f}" if isinstance(value, float) else f"{key:<28} {value:,}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    met = found["plan_seconds"] <= _GOAL_SECONDS
    print(f"goal {'met' if met else 'missed'}: the plan of a repository within {_GOAL_SECONDS:g} s")
    return 0 if met else 1


def _env(hub: LocalHub, folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "SUPERVISOR_HOME": str(folder / "state"), **hub.environment(folder / "hf")}


def _models(hub: LocalHub, folder: Path) -> HubModels:
    env = _env(hub, folder)
    where = places(env)
    return hub_models(hub_access(env), where, HeaderCache(where.cache / "headers"))


def _write_models(folder: Path) -> dict[str, Path]:
    """The files whose headers are read, by the kind of their vocabulary."""
    files = {kind: folder / f"{kind}.gguf" for kind in ("merges", "scores")}
    for kind, file in files.items():
        write_model(file, merges=kind == "merges")
    return files


def _header(hub: LocalHub, file: Path) -> dict[str, float | int]:
    repo = f"bench/{file.stem}"
    hub.add(repo, {"m-Q4_K_M.gguf": file})
    reference = parse_reference(f"{repo}:Q4_K_M")
    assert reference is not None
    before, asked = hub.sent_bytes("/storage/"), len(hub.seen)
    with closing(_models(hub, file.parent)) as models:
        begun = time.perf_counter()
        found = models.look(reference)
        header = models.model(found.choice(found.candidates[0])).header
        seconds = time.perf_counter() - begun
        sent, requests = hub.sent_bytes("/storage/") - before, len(hub.seen) - asked
    url = f"{hub.url}/{repo}/resolve/main/m-Q4_K_M.gguf"
    begun = time.perf_counter()
    with httpx.stream("GET", url, follow_redirects=True, timeout=60) as answer:
        fetched = sum(len(chunk) for chunk in answer.iter_raw())
    return {
        "header_bytes": header.data_offset,
        "header_fetched_bytes": sent,
        "header_requests": requests,
        "header_seconds": seconds,
        "whole_bytes": fetched,
        "whole_seconds": time.perf_counter() - begun,
    }


def _plan(hub: LocalHub, folder: Path) -> dict[str, float | int]:
    data = (folder / "merges.gguf").read_bytes()
    quants = [quant for quant in ORDER if quant not in {"F32", "F64"}][::2][:20]
    files: dict[str, bytes] = {f"m-{quant}.gguf": data for quant in quants}
    files |= {f"note-{number}.md": b"text" for number in range(40 - len(files))}
    repo = hub.add("bench/plan", files)
    bits = {quant: next((digit for digit in quant if digit.isdigit()), "4") for quant in quants}
    sizes = {quant: _SIZES["16" if quant in {"BF16", "F16"} else bits[quant]] for quant in quants}
    repo.says_size |= {f"m-{quant}.gguf": int(size * _GIB) for quant, size in sizes.items()}
    env = _env(hub, folder / "plan")  # with a cache of its own, so that the header is read again
    with without_daemon(Settings(), places(env), env, load_profile("1x24gb")) as parts:
        begun = time.perf_counter()
        answer = asyncio.run(parts.resolver(NOBODY).resolve(Asked("bench/plan")))
        seconds = time.perf_counter() - begun
    return {"plan_files": len(files), "plan_variants": len(answer.table), "plan_seconds": seconds}


if __name__ == "__main__":
    sys.exit(main())
