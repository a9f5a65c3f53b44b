"""Time a loaded model through the daemon: at several depths, and with several requests at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from supervisor.cli.client import Client, Json
from supervisor.cli.loading import parse_target
from supervisor.cli.progress import Report

_SHORT = 16
_FIRST, _SPAN = 48, 64  # ids that every vocabulary has


def at_depths(client: Client, model: str, depths: Sequence[int], tokens: int, report: Report) -> list[Json]:
    """Return prefill and decode in tokens per second behind so many tokens, one request each."""
    _asked(client, model, _SHORT, 2, 0)  # the first takes longer
    found = []
    for number, depth in enumerate(depths):
        report(f"{model}: {depth:,} tokens before", number / len(depths))
        timings = _asked(client, model, max(_SHORT, depth), tokens, number + 1)["timings"]
        found.append({
            "depth": depth,
            "prompt_tokens": timings["prompt_n"],
            "prefill_tokens_per_second": timings["prompt_n"] * 1000 / max(timings["prompt_ms"], 1e-6),
            "decode_tokens_per_second": (timings["predicted_n"] - 1) * 1000 / max(timings["predicted_ms"], 1e-6),
        })
    return found


def at_once(client: Client, model: str, counts: Sequence[int], tokens: int, report: Report) -> list[Json]:
    """Return the tokens per second of all requests together, by how many there are at once."""
    found = []
    for number, count in enumerate(counts):
        report(f"{model}: {count} at once", number / len(counts))
        begun = time.perf_counter()
        with ThreadPoolExecutor(max(1, count)) as pool:
            answers = list(pool.map(lambda seed: _asked(client, model, _SHORT, tokens, seed), range(max(1, count))))
        made = sum(answer["timings"]["predicted_n"] for answer in answers)
        found.append({"requests": count, "tokens_per_second": made / (time.perf_counter() - begun)})
    return found


def foretold(client: Client, target: str) -> Json | None:
    """Return what a plan says of the model's speed; None where it says nothing."""
    found: Json | None = client.post("/api/v1/plan", {"target": parse_target(target)}, timeout=None).get("speed")
    return found


def _asked(client: Client, model: str, prompt: int, tokens: int, seed: int) -> Json:
    ids = [_FIRST + (7 * place + 13 * seed + place // 5) % _SPAN for place in range(prompt)]
    body = {"model": model, "prompt": ids, "n_predict": tokens, "cache_prompt": False, "ignore_eos": True}
    return client.post("/completion", body, timeout=None)
