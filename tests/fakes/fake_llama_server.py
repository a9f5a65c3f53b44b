"""A stand-in for llama-server with one knob per misbehaviour; answers /health and /props, generates nothing.

It speaks the state protocol as the real one does: state lines on stdout, the exit line on stdin, exit code 1 on the
end of stdin once it is ready.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

PROPS = {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 2}


def main() -> None:
    """Load, become ready, serve until told to end."""
    knobs = parse_knobs()
    if knobs.fork_child:
        fork_child()
    act_on_signals(knobs)
    log("I srv  llama_server: initializing ...")
    for number in range(knobs.flood):
        log(f"I flood {number}")
    if knobs.long_line:
        log("x" * knobs.long_line)
    ready = threading.Event()
    threading.Thread(target=serve, args=(knobs.host, ready, knobs.hang_health), daemon=True).start()
    load(knobs)
    if knobs.close_stdout:
        os.close(1)
    ready.set()
    log("I srv  llama_server: model loaded")
    if not knobs.no_protocol:
        say("ready", {"id": "fake", "meta": {"n_ctx": 4096}})
    obey(knobs)


def act_on_signals(knobs: argparse.Namespace) -> None:
    """SIGUSR1: leak `--grow` MiB and say `--says`. SIGUSR2: just exit. The test says when.

    A thread waits for them. A handler would run in the main thread, and not before that comes back from a blocking read
    which it entered just after the signal.
    """
    awaited = {signal.SIGUSR1, signal.SIGUSR2, *((signal.SIGTERM,) if knobs.ignore_sigterm else ())}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    threading.Thread(target=wait_for_signals, args=(knobs, awaited), daemon=True).start()


def wait_for_signals(knobs: argparse.Namespace, awaited: set[signal.Signals]) -> None:
    """Do what the signals ask for, one after the other."""
    leaks = []
    while True:
        number = signal.sigwait(awaited)
        if number == signal.SIGUSR2:
            os._exit(knobs.exit_code)
        if number == signal.SIGTERM:
            log("I ignores SIGTERM")
            continue
        leaks.append(bytearray(knobs.grow << 20))
        leaks[-1][::4096] = b"x" * len(leaks[-1][::4096])
        for line in knobs.says:
            log(line)


def parse_knobs() -> argparse.Namespace:
    """The knobs; options of the real llama-server are swallowed."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", required=True)
    parser.add_argument("--load-time", type=float, default=0.0, help="seconds, with progress every tenth of it")
    parser.add_argument("--busy", type=float, default=0.0, help="seconds of loading that show only as CPU time")
    parser.add_argument("--exit-before-ready", action="store_true")
    parser.add_argument("--exit-code", type=int, default=0)
    parser.add_argument("--exit-signal", type=int, default=0, help="end by this signal instead")
    parser.add_argument("--last-words", default="", help="written to stderr before an early exit, without a line end")
    parser.add_argument("--stall-after", type=float, default=None, help="seconds after which loading stands still")
    parser.add_argument("--no-protocol", action="store_true")
    parser.add_argument("--hang-health", action="store_true", help="take connections, never answer")
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--ignore-exit-line", action="store_true", help="nor mind the end of stdin")
    parser.add_argument("--fork-child", action="store_true", help="leave a grandchild behind that holds the pipes")
    parser.add_argument("--flood", type=int, default=0, help="lines of output at the start")
    parser.add_argument("--long-line", type=int, default=0, help="bytes")
    parser.add_argument("--close-stdout", action="store_true")
    parser.add_argument("--grow", type=int, default=0, help="MiB taken at SIGUSR1")
    parser.add_argument("--says", action="append", default=[], help="a line said at SIGUSR1")
    return parser.parse_known_args()[0]


def load(knobs: argparse.Namespace) -> None:
    """Pretend to load; may end or stand still here."""
    for step in range(10):
        if not knobs.no_protocol:
            say("loading", {"stages": ["text_model"], "current": "text_model", "value": step / 10})
        time.sleep(knobs.load_time / 10)
    end = time.monotonic() + knobs.busy
    while time.monotonic() < end:
        pass
    if knobs.exit_before_ready:
        sys.stderr.write(knobs.last_words)
        sys.stderr.flush()
        if knobs.exit_signal:
            os.kill(os.getpid(), knobs.exit_signal)
        os._exit(knobs.exit_code)
    if knobs.stall_after is not None:
        time.sleep(knobs.stall_after)
        threading.Event().wait()


def obey(knobs: argparse.Namespace) -> None:
    """Wait for the exit line or the end of stdin; without the protocol, for ever."""
    if knobs.no_protocol:
        wait_for_ever()
    for line in sys.stdin:
        if "cmd_router_to_child:exit" in line:
            if knobs.ignore_exit_line:
                log("I ignores the exit line")
            else:
                os._exit(knobs.exit_code)
    if knobs.ignore_exit_line:
        wait_for_ever()
    os._exit(1)


def wait_for_ever() -> None:
    """Do nothing, until a signal ends the process."""
    threading.Event().wait()


def fork_child() -> None:
    """Start a process that outlives a plain kill of this one; its pid goes to the log."""
    child = subprocess.Popen(["sleep", "600"], process_group=0)
    log(f"I forked {child.pid}")


def serve(path: str, ready: threading.Event, hang: bool) -> None:
    """Answer on the Unix socket, one short-lived connection at a time."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        held = []
        while True:
            connection, _ = listener.accept()
            if hang:
                held.append(connection)
                continue
            with connection:
                answer(connection, ready.is_set())


def answer(connection: socket.socket, ready: bool) -> None:
    """One request, one answer, connection closed."""
    path = connection.recv(65536).split(b" ", 2)[1]
    known = path in (b"/health", b"/props")
    status = "200 OK" if ready and known else "503 Loading" if known else "404 Not Found"
    body = json.dumps(PROPS if path == b"/props" else {"status": "ok"}).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close"
    connection.sendall(head.encode() + b"\r\n\r\n" + body)


def say(state: str, payload: dict[str, object]) -> None:
    """One state line."""
    sys.stdout.write("cmd_child_to_router:state:" + json.dumps({"state": state, "payload": payload}) + "\n")
    sys.stdout.flush()


def log(line: str) -> None:
    """One log line."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
