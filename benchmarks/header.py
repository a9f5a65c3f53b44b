"""How fast is a header read, and with how much memory, compared with the gguf package's GGUFReader?

    python -m benchmarks.header [--rounds 3] [--json FILE]

The file has a vocabulary of 262,144 tokens with scores, types and 514,906 merges, and 1,000 tensors whose data is a
hole. Every reading is the first of a process of its own, the two readers in turn; reading times exclude starting
Python and importing. The last line says whether the goal (20 times faster, 60 MB) is met; so does the exit status.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

_TOKENS = 262_144
_MERGES = 514_906
_TENSORS = 1000
_FASTER = 20
_MEGABYTES = 60

_OURS = """
from supervisor.core.gguf import read_header
def read(path):
    with open(path, "rb") as stream:
        return read_header(stream, os.path.getsize(path))
"""
_THEIRS = """
from gguf import GGUFReader as read
"""
_MEASURE = """
import json, os, resource, sys, time
{reader}
def peak_bytes():
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/status") as status:  # getrusage counts what the parent had when it forked
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
before = peak_bytes()
begun = time.perf_counter()
header = read(sys.argv[1])
seconds = time.perf_counter() - begun
peak = peak_bytes()
assert len(header.tensors) == {tensors}
print(json.dumps(dict(seconds=seconds, peak_megabytes=peak / 1e6, added_megabytes=(peak - before) / 1e6)))
"""


def write_model(path: Path, *, merges: bool = True) -> None:
    """The file to be read; its tensors' data is a hole.

    Without `merges` the vocabulary is of Gemma's kind: scores and types say how texts are cut.
    """
    writer = gguf.GGUFWriter(path, "llama" if merges else "gemma3")
    writer.add_block_count(100)
    writer.add_context_length(131_072)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(256)
    writer.add_head_count(8)
    writer.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}" * 50)
    tokens = [f"▁{number:x}"[: 2 + number % 7] + f"{number:x}" for number in range(_TOKENS)]
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * _TOKENS)
    writer.add_token_types([1] * _TOKENS)
    if merges:
        writer.add_token_merges([f"{tokens[n % _TOKENS]} {tokens[n * 7 % _TOKENS]}" for n in range(_MERGES)])
    for number in range(_TENSORS):
        name = f"blk.{number % 100}.part_{number // 100}.weight"
        writer.add_tensor_info(name, [256, 256], np.dtype(np.float32), 256 * 256 * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as stream:
        size = stream.seek(0, 2)
        stream.truncate(size + 32 + _TENSORS * 256 * 256 * 4)


def measure(reader: str, path: Path) -> dict[str, float]:
    """One reading in a process of its own."""
    script = _MEASURE.format(reader=reader, tensors=_TENSORS)
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path)
        samples = [(measure(_OURS, path), measure(_THEIRS, path)) for _ in range(options.rounds)]
    rows = {
        name: {what: statistics.median(sample[place][what] for sample in samples) for what in samples[0][place]}
        for place, name in enumerate(("read_header", "GGUFReader"))
    }
    print("| reader | s | peak MB of the process | of these for reading |\n|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['seconds']:.3f} | {row['peak_megabytes']:.0f} | {row['added_megabytes']:.1f} |")
    faster = rows["GGUFReader"]["seconds"] / rows["read_header"]["seconds"]
    met = faster >= _FASTER and rows["read_header"]["peak_megabytes"] <= _MEGABYTES
    print(f"{faster:.0f} times faster; goal {'met' if met else 'missed'}")
    if options.json:
        options.json.write_text(json.dumps({**rows, "times_faster": faster, "met": met}, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
