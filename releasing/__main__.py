"""`bin/release VERSION`: checks, version, changelog, and the files of a release in dist/."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from releasing.sbom import bill, locked
from releasing.version import ReleaseRefused, version_of, with_release, with_version

ROOT = Path(__file__).parents[1]
NEXT = """
Built {files} in {dist}.

What is left is a person's act:
  git add -A && git commit -m "Release {version}"
  git tag -a v{version} -m "{version}"
  git push && git push --tags
  uv publish {dist}/*.whl {dist}/*.tar.gz
"""


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Make a release of the checkout `root`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bin/release", description="Make the files of a release. Publishes nothing.")
    parser.add_argument("version", nargs="?", help="as 1.2.3; without it, what is there is built and nothing changed")
    parser.add_argument("--output", type=Path, default=root / "dist", help="the folder for the files (default: dist)")
    args = parser.parse_args(argv)
    try:
        if args.version:
            _check_clean(root)
            _change(root, args.version, datetime.now(UTC).date().isoformat())
        version = version_of((root / "supervisor" / "__init__.py").read_text("utf-8"))
        files = build(root, args.output, version)
    except ReleaseRefused as refusal:
        print(f"bin/release: {refusal}", file=sys.stderr)
        return 1
    print(NEXT.format(files=", ".join(path.name for path in files), dist=args.output, version=version).strip())
    return 0


def build(root: Path, dist: Path, version: str) -> list[Path]:
    """Write the source archive, the wheel, the bill of materials and the digests of all. Raises ReleaseRefused.

    Times in them are that of the last commit, so the same commit gives the same files.
    """
    dist.mkdir(parents=True, exist_ok=True)
    if any(dist.iterdir()):
        raise ReleaseRefused(f"{dist} is not empty; remove what is in it, or name another folder with --output.")
    seconds = int(_git(root, "log", "-1", "--format=%ct") or "0")
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    command = [sys.executable, "-P", "-m", "hatchling", "build", "--directory", str(dist.absolute())]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseRefused(f"The build failed: {done.stdout}{done.stderr}")
    made = bill(version, locked((root / "requirements" / "runtime.txt").read_text("utf-8")), _rfc3339(seconds))
    (dist / f"llama_supervisor-{version}.cdx.json").write_text(json.dumps(made, indent=2) + "\n", "utf-8")
    files = sorted(dist.iterdir())
    digests = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (dist / "SHA256SUMS").write_text("".join(digests), "utf-8")
    return [*files, dist / "SHA256SUMS"]


def _change(root: Path, version: str, day: str) -> None:
    """Write version and changelog, both or neither."""
    module, changelog = root / "supervisor" / "__init__.py", root / "CHANGELOG.md"
    texts = {
        module: with_version(module.read_text("utf-8"), version),
        changelog: with_release(changelog.read_text("utf-8"), version, day),
    }
    for path, text in texts.items():
        path.write_text(text, "utf-8")


def _check_clean(root: Path) -> None:
    if _git(root, "status", "--porcelain"):
        raise ReleaseRefused("The checkout has changes that are not committed; commit them, or set them aside.")


def _git(root: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseRefused(f"git {args[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


if __name__ == "__main__":
    raise SystemExit(main())
