"""Programs, sources and servers that behave as the real ones in what matters to finding and installing an engine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil

from supervisor.llamacpp.progress import Progress
from supervisor.system.paths import Places

API = "/repos/ggml-org/llama.cpp/releases/tags/b11434"
ASSET = "llama-b11434-bin-ubuntu-x64.tar.gz"

_SERVER_SCRIPT = """#!/bin/sh
echo "$1" >> "{calls}"
case "$1" in
  --version) echo "version: 0.6.0-dev (build {build}, commit abc1234)" >&2 ;;
  --help) echo "-m,    --model FNAME    model path"; echo "-c,    --ctx-size N    context" ;;
  --list-devices) echo "Available devices:"; echo "  CUDA0: Fake (10 MiB, 9 MiB free)" ;;
esac
"""

_CMAKE_LISTS = """cmake_minimum_required(VERSION 3.14)
project(fake CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(ggml-cpu SHARED library.cpp)
add_executable(llama-server main.cpp)
target_link_libraries(llama-server ggml-cpu)
add_custom_target(ggml DEPENDS ggml-cpu)
if(GGML_VULKAN)
    add_library(ggml-vulkan SHARED library.cpp)
    add_dependencies(ggml ggml-vulkan)
    add_dependencies(llama-server ggml-vulkan)
endif()
target_compile_definitions(llama-server PRIVATE BUILD=${LLAMA_BUILD_NUMBER} COMMIT="${LLAMA_BUILD_COMMIT}")
add_subdirectory(tools/rpc)
"""

_MAIN = r"""
#include <cstdio>
#include <cstring>
int from_library();
int main(int argc, char ** argv) {
    const char * option = argc > 1 ? argv[1] : "";
    if (!strcmp(option, "--version")) fprintf(stderr, "version: 0.1 (build %d, commit %s)\n", BUILD, COMMIT);
    if (!strcmp(option, "--help")) puts("-m, --model FNAME   model");
    return from_library();
}
"""


def silent(_: Progress) -> None:
    """A report that nobody hears."""


def make_places(root: Path) -> Places:
    """Folders of a fresh installation."""
    names = ("state", "cache", "engines", "runtime", "config")
    return Places(**{name: root / name for name in names})


def make_server(folder: Path, build: int = 11434, *, text: str | None = None) -> Path:
    """A script that answers as llama-server does; it notes how it was called in `calls` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "llama-server"
    path.write_text(text or _SERVER_SCRIPT.format(build=build, calls=folder / "calls"), encoding="utf-8")
    path.chmod(0o755)
    return path


def calls_of(server: Path) -> list[str]:
    """The options that `make_server`'s script was called with."""
    path = server.parent / "calls"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def make_source(folder: Path, main: str = _MAIN) -> Path:
    """A source tree with the targets of llama.cpp, compiled in a second."""
    (folder / "tools" / "rpc").mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(_CMAKE_LISTS, encoding="utf-8")
    (folder / "main.cpp").write_text(main, encoding="utf-8")
    (folder / "library.cpp").write_text("int from_library() { return 0; }\n", encoding="utf-8")
    rpc = "set(TARGET ggml-rpc-server)\nadd_executable(${TARGET} worker.cpp)\n"
    (folder / "tools" / "rpc" / "CMakeLists.txt").write_text(rpc, encoding="utf-8")
    (folder / "tools" / "rpc" / "worker.cpp").write_text("int main() { return 0; }\n", encoding="utf-8")
    return folder


def make_vulkan_sdk(folder: Path, patch: int = 999) -> Path:
    """A folder in which cmake finds all that a build for Vulkan needs, with headers of the version 1.3.PATCH."""
    texts = {
        "include/vulkan/vulkan.h": "",
        "include/vulkan/vulkan_core.h": vulkan_header(patch),
        "lib/libvulkan.so": "",
        "bin/glslc": "#!/bin/sh\n",
        "share/cmake/SPIRV-Headers/SPIRV-HeadersConfig.cmake": "",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "bin" / "glslc").chmod(0o755)
    return folder


def vulkan_header(patch: int, make: str = "VK_MAKE_API_VERSION(0, 1, 3, VK_HEADER_VERSION)") -> str:
    """The lines of a vulkan_core.h that tell its version."""
    return f"""// Version of this file
#define VK_HEADER_VERSION {patch}

// Complete version of this file
#define VK_HEADER_VERSION_COMPLETE {make}
"""


def make_hanging_source(folder: Path) -> tuple[Path, Path]:
    """A source whose compiler hangs, and a pipe from which its pid is to be read."""
    source, started, compiler = make_source(folder / "source"), folder / "started", folder / "compiler"
    os.mkfifo(started)
    compiler.write_text(f'#!/bin/sh\necho $$ > "{started}"\nexec sleep 1000\n', encoding="utf-8")
    compiler.chmod(0o755)
    with (source / "CMakeLists.txt").open("a", encoding="utf-8") as stream:
        stream.write(f"add_custom_target(slow ALL COMMAND {compiler})\nadd_dependencies(llama-server slow)\n")
    return source, started


def is_running(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet reaped does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


@dataclass(frozen=True)
class Reply:
    """What the web server answers.

    promised: the length it claims, when it then sends less. endless: zero bytes follow as long as somebody reads.
    dribble: of the head comes only ever one more byte.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    promised: int | None = None
    endless: bool = False
    dribble: bool = False


@dataclass
class WebServer:
    """A server on 127.0.0.1 with a reply per path; `requests` is what it was asked, with the headers."""

    url: str
    replies: dict[str, Reply]
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)


@contextlib.contextmanager
def web_server() -> Iterator[WebServer]:
    """Serve until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append((self.path, dict(self.headers)))
            reply = site.replies.get(self.path, Reply(status=404))
            with contextlib.suppress(OSError):  # they had enough
                self.answer(reply)

        def answer(self, reply: Reply) -> None:
            while reply.dribble:
                self.wfile.write(b"s")
                time.sleep(0.05)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if not reply.endless:
                self.send_header("Content-Length", str(reply.promised or len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            while reply.endless:
                self.wfile.write(bytes(1 << 16))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site = WebServer(f"http://127.0.0.1:{server.server_port}", {})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def put_release(site: WebServer, programs: Path, folder: Path) -> None:
    """Offer a folder of programs as the official archive is made."""
    packed = folder / "packed.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as tar:
        tar.add(programs, "llama-b11434")
    body = packed.read_bytes()
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    asset = {"name": ASSET, "browser_download_url": f"{site.url}/{ASSET}", "digest": digest}
    site.replies[API] = Reply(json.dumps({"assets": [asset]}).encode())
    site.replies[f"/{ASSET}"] = Reply(body)
