"""Checkouts to run bin/supervisor in, with one tiny locked package, and an index that can be made to wait."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]

# What the small checkout runs instead of the program: enough to see which code answered and what it was given.
PROGRAM = """
import os, sys
import tiny
print(tiny.VERSION, os.path.dirname(os.path.abspath(__file__)), *sys.argv[1:], sep="|")
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Checkout:
    """A copy of bin/ with a program and lock of its own, and the environment variables to run it with."""

    root: Path
    env: dict[str, str]

    @property
    def command(self) -> Path:
        return self.root / "bin" / "supervisor"

    @property
    def lock(self) -> Path:
        return self.root / "requirements" / "runtime.txt"

    def run(self, *args: str, command: Path | str | None = None, cwd: Path | None = None, **env: str) -> Result:
        done = subprocess.run(
            [str(command or self.command), *args],
            env=self.env | env,
            cwd=cwd or self.root,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def start(self) -> subprocess.Popen[str]:
        """A run of its own process group, stderr to be read from."""
        return subprocess.Popen(
            [str(self.command)],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def greeting(self, version: str = "1.0") -> str:
        return f"{version}|{self.root / 'supervisor'}"


@dataclass
class Index:
    """A package index on loopback with the tiny package; while `open` is unset it keeps every client waiting."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: threading.Event = field(default_factory=threading.Event)
    open: threading.Event = field(default_factory=threading.Event)

    def lock_text(self, version: str) -> str:
        wheel = self.files[_wheel_name(version)]
        return f"tiny=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel).hexdigest()}\n"


def _wheel_name(version: str) -> str:
    return f"tiny-{version}-py3-none-any.whl"


def _make_wheel(path: Path, version: str) -> bytes:
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny.py", f"VERSION = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path.read_bytes()


def _handler(index: Index) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.head()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # clients are killed here on purpose
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.head()

        def head(self) -> bytes:
            index.asked.set()
            index.open.wait(PATIENCE)
            links = "".join(f'<a href="/files/{name}">{name}</a>' for name in index.files)
            pages = {"/simple/tiny/": ("text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode())}
            pages |= {f"/files/{name}": ("application/zip", content) for name, content in index.files.items()}
            kind, body = pages.get(self.path, ("text/plain", b""))
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return body

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the tests read what the client saw."""

    return Handler


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    found = Index()
    for version in ("1.0", "2.0.1"):  # of different lengths: old bytecode is told from new by the size
        found.files[_wheel_name(version)] = _make_wheel(tmp_path / _wheel_name(version), version)
    found.open.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    found.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield found
    found.open.set()
    server.shutdown()
    thread.join()
    server.server_close()


def uv_folder() -> Path:
    """The folder of a uv to test with: the locked one, or else one on PATH."""
    beside = Path(sys.prefix, "bin", "uv")
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        pytest.fail("uv is one of the locked development packages; run bin/test to install them")
    return Path(found).parent


def isolated_environment(folder: Path, index_url: str) -> dict[str, str]:
    """Variables for an installer that knows one index and nothing of this user's settings and caches."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
    for name in ("VIRTUAL_ENV", "SUPERVISOR_PYTHON", "SUPERVISOR_NO_UV"):
        env.pop(name, None)
    return env | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index_url,
        "PIP_CACHE_DIR": str(folder / "pip-cache"),
        "PIP_RETRIES": "1",
        "UV_NO_CONFIG": "1",
        "UV_INDEX_URL": index_url,
        "UV_CACHE_DIR": str(folder / "uv-cache"),
        "UV_HTTP_RETRIES": "0",
        "UV_PYTHON_DOWNLOADS": "never",
        "SUPERVISOR_PYTHON": base_python(),
    }


def base_python() -> str:
    """The Python below the tests' own environment."""
    return str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))


def make_checkout(folder: Path, index: Index, env: Mapping[str, str]) -> Checkout:
    shutil.copytree(ROOT / "bin", folder / "bin", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "requirements").mkdir()
    for kind in ("runtime", "dev"):
        (folder / "requirements" / f"{kind}.txt").write_text(index.lock_text("1.0"))
    (folder / "supervisor").mkdir()
    (folder / "supervisor" / "__init__.py").touch()
    (folder / "supervisor" / "__main__.py").write_text(PROGRAM)
    return Checkout(folder.resolve(), dict(env))


@pytest.fixture
def pip_checkout(tmp_path: Path, index: Index) -> Checkout:
    """A small checkout without an environment, to be made with venv and pip."""
    env = isolated_environment(tmp_path, index.url) | {"SUPERVISOR_NO_UV": "1"}
    return make_checkout(tmp_path / "a checkout", index, env)


@pytest.fixture
def uv_checkout(tmp_path: Path, index: Index) -> Checkout:
    """The same, to be made with uv."""
    env = isolated_environment(tmp_path, index.url)
    return make_checkout(tmp_path / "a checkout", index, env | {"PATH": f"{uv_folder()}:{env['PATH']}"})


@pytest.fixture(params=["uv_checkout", pytest.param("pip_checkout", marks=pytest.mark.full)])
def checkout(request: pytest.FixtureRequest) -> Checkout:
    """A test with this one runs once for each installer."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Checkout)
    return found


def path_with(folder: Path, tools: Sequence[str], scripts: Mapping[str, str]) -> str:
    """A PATH of one folder: the named tools of this machine, and some scripts of ours."""
    folder.mkdir()
    for tool in tools:
        found = shutil.which(tool)
        assert found, f"{tool} is one of the tools that every POSIX system has"
        (folder / tool).symlink_to(found)
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return str(folder)
