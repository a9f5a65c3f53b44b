"""What does it cost to look for tool calls in an answer?

    python -m benchmarks.toolcalls [--size BYTES] [--json FILE]

Timed is the processor time of the recoverer, fed four characters at a time as tokens come: per token of plain text, per
token inside of a call, and whether hostile text of twice the length takes more than 2.2 times as long. Every hostile
text is one piece over and over, that begins something and never ends it. The exit status says whether it holds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from supervisor.core.toolcalls import Recoverer
from supervisor.core.toolcalls.whole import Request, read_answer

_TOKEN = 4  # characters
_MOST_RATIO = 2.2
_STRING = {"type": "string"}
_SCHEMA = {"type": "object", "properties": {"path": _STRING, "content": _STRING}, "required": ["path"]}
TOOLS = [{"type": "function", "function": {"name": "write_file", "parameters": _SCHEMA}}]

PLAIN = "It was a bright day in April, and the list <b>has</b> three [links](x), `code`, and 5 < 6.\n\n"
BODY = "def f(x):\\n    return x[0] < {1: 'a'}[x]\\n"
HOSTILE: Mapping[str, str] = {
    "<tool_call>": "<tool_call>",
    "[": "[",
    "JSON heads": '{"name": "write_file", "arguments": {',
    "tagged JSON heads": '<tool_call>{"name": "write_file", "arguments": {',
    "tagged strings": '<tool_call>{"name": "write_file", "arguments": {"content": "',
    "parameters": "<function=write_file><parameter=content>",
    "calls in parameters": "<function=write_file><parameter=content>" * 2 + "</parameter></function>",
    "calls and text": "<function=write_file><parameter=content>x</parameter></function> and ",
    "values": "<tool_call>write_file<arg_key>content</arg_key><arg_value>",
    "Python": "<|tool_call_start|>[write_file(content='",
    "closing tags": "</parameter> x",
    "backticks": "`",
    "blanks": " ",
}


def seconds(text: str, piece: int = _TOKEN) -> float:
    """Processor time to recover `text` that arrives in such pieces."""
    recoverer = Recoverer(TOOLS)
    pieces = [text[start : start + piece] for start in range(0, len(text), piece)]
    begun = time.process_time()
    for one in pieces:
        recoverer.feed("content", one)
    recoverer.finish("stop")
    return time.process_time() - begun


def best(work: Callable[[], float], rounds: int = 3) -> float:
    """The least disturbed of a few rounds."""
    return min(work() for _ in range(rounds))


def per_token(text: str) -> float:
    """Microseconds for each token."""
    return best(lambda: seconds(text)) / (len(text) / _TOKEN) * 1e6


def doubling(piece: str, size: int) -> float:
    """How many times as long twice the text takes."""
    half = piece * (size // 2 // len(piece))
    ratios = []
    for _ in range(3):
        ratios.append(best(lambda: seconds(half * 2), 2) / best(lambda: seconds(half), 2))
        if ratios[-1] <= _MOST_RATIO:
            break
    return min(ratios)


def measure(size: int) -> dict[str, float]:
    """All figures."""
    body = BODY * (size // len(BODY))
    call = f'<tool_call>\n{{"name": "write_file", "arguments": {{"path": "a", "content": "{body}"}}}}'
    xml = f"<function=write_file>\n<parameter=content>\n{PLAIN * (size // len(PLAIN))}\n</parameter>\n</function>"
    assert len(read_answer(Request(TOOLS), [call], (), "stop").calls) == 1
    assert len(read_answer(Request(TOOLS), [xml], (), "stop").calls) == 1
    found = {
        "plain text, us per token": per_token(PLAIN * (size // len(PLAIN))),
        "JSON argument, us per token": per_token(call),
        "XML argument, us per token": per_token(xml),
        "one argument in one piece, s": best(lambda: seconds(call, len(call))),
    }
    for name, piece in HOSTILE.items():
        found[f"{name}, s"] = best(lambda piece=piece: seconds(piece * (size // len(piece))), 1)  # type: ignore[misc]  # bound
        found[f"{name}, ratio"] = doubling(piece, size)
    return found


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000, help="characters of each text (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args()
    found = measure(args.size)
    for name, value in found.items():
        print(f"{name:<40} {value:10.3f}")
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2))
    worst = max(value for name, value in found.items() if name.endswith("ratio"))
    print(f"worst ratio {worst:.2f}, at most {_MOST_RATIO}: {'met' if worst <= _MOST_RATIO else 'MISSED'}")
    return 0 if worst <= _MOST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
