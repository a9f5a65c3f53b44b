"""Regenerates the evidence. `python -m tests.evidence -h`

tensors   asks the libraries beside llama-server which tensors each subject has (after adding subjects)
measure   starts the server for every subject and setting, prints what changed, and replaces the record
compare   prints where the estimate and the record differ
          with --backend NAME, on the devices of that back end instead (see tests/evidence/backends.py)
report    writes docs/memory-accuracy.md from the record and the estimate
placement writes docs/placement.md: where well-known models go on the machines of the shipped profiles
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.evidence import backends, known_models, matrix, placement, report
from tests.evidence.architectures import fixtures_of
from tests.evidence.discover import tensors_of
from tests.evidence.make import write_model
from tests.evidence.measure import Measurement, Server
from tests.evidence.subjects import (
    DATA,
    KNOWN,
    TINY,
    kind_of,
    metadata_of,
    pack_tensors,
    read_lines,
    recorded_subjects,
    write_lines,
)
from tests.support.engine_binary import find_engine_binary

NOT_MADE = DATA / "not-made.jsonl"
REPORT = Path(__file__).parents[2] / "docs" / "memory-accuracy.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("tensors", "measure", *_QUICK))
    parser.add_argument("--only", default="", help="only subjects that match this regular expression")
    parser.add_argument("--engine", type=Path, help="llama-server (default: the one the program would use)")
    parser.add_argument("--backend", default="", help="measure on this back end's devices, such as vulkan or cuda")
    options = parser.parse_args()
    if options.command in _QUICK:
        return _QUICK[options.command]()
    engine = (options.engine or find_engine_binary(os.environ)).resolve()
    only = re.compile(options.only)
    if options.command == "tensors":
        return _tensors(engine, only)
    return _measure_on(options.backend, engine, only) if options.backend else _measure(engine, only)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _tensors(engine: Path, only: re.Pattern[str]) -> int:
    from supervisor.core.spec import ARCHITECTURES  # noqa: PLC0415 - the other commands do without

    names = [fixture.name for architecture in sorted(ARCHITECTURES) for fixture in fixtures_of(architecture)]
    records = {kind: {record["subject"]: record for record in read_lines(_tensor_file(kind))} for kind in (TINY, KNOWN)}
    refused = {record["subject"]: record for record in read_lines(NOT_MADE)}
    order = [*names, *known_models.BY_NAME]
    for name in filter(only.search, order):
        records[kind_of(name)].pop(name, None)
        refused.pop(name, None)
        with tempfile.TemporaryDirectory(prefix="evidence-") as folder:
            header = Path(folder) / "header.gguf"
            write_model(header, metadata_of(name), ())
            tensors = tensors_of(engine.parent, header)
        if isinstance(tensors, str):
            say(f"{name}: {tensors}")
            refused[name] = {"subject": name, "reason": tensors}
        else:
            records[kind_of(name)][name] = {"subject": name, "tensors": pack_tensors(name, tensors)}
    for kind, lines in records.items():
        write_lines(_tensor_file(kind), [lines[name] for name in order if name in lines])
    write_lines(NOT_MADE, [refused[name] for name in order if name in refused])
    return 0


def _tensor_file(kind: str) -> Path:
    return DATA / f"{kind}-tensors.jsonl"


def _measure(engine: Path, only: re.Pattern[str]) -> int:
    server = Server(engine)
    wanted = [subject for subject in recorded_subjects() if only.search(subject)]
    matrix.save(
        server.build(), _merge(server, matrix.recorded(), wanted, matrix.run(server, wanted, matrix.settings_of))
    )
    return 0


def _measure_on(backend: str, engine: Path, only: re.Pattern[str]) -> int:
    server = Server(engine)
    devices = server.devices(backend)
    if not devices:
        say(f"{engine} lists no device of {backend}")
        return 1
    wanted = [subject for subject in backends.subjects() if only.search(subject)]
    old = backends.recorded(backend)
    backends.save(backend, server, _merge(server, old, wanted, backends.run(server, backend, wanted)))
    return 0


def _merge(
    server: Server, old: Sequence[Measurement], wanted: Sequence[str], run: Iterable[Measurement]
) -> list[Measurement]:
    """The record with the new measurements in place of the old ones of these subjects; says what changed."""
    new = {}
    for done, measurement in enumerate(run):
        new[measurement.subject, measurement.setting] = measurement
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{done + 1} {measurement.subject:40}")
    kept = {(one.subject, one.setting): one for one in old if one.subject not in set(wanted)}
    merged = {**kept, **new}
    order = {subject: place for place, subject in enumerate(recorded_subjects())}
    everything = sorted((one for one in merged.values() if one.subject in order), key=lambda one: order[one.subject])
    changes = list(matrix.differences(old, everything))
    for change in changes:
        say(change)
    say(f"{len(new)} starts of llama-server {server.build()}; {len(changes)} changes")
    return everything


def _compare() -> int:
    for line in report.mismatches(report.compare_all()):
        say(line)
    return 0


def _report() -> int:
    REPORT.write_text(report.text(report.compare_all()), "utf-8")
    say(f"wrote {REPORT.name}")
    return 0


def _placement() -> int:
    placement.PAGE.write_text(placement.text(), "utf-8")
    say(f"wrote {placement.PAGE.name}")
    return 0


_QUICK = {"compare": _compare, "report": _report, "placement": _placement}  # these need no engine

if __name__ == "__main__":
    sys.exit(main())
