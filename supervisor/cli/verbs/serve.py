"""`serve`: the daemon in the foreground."""

from __future__ import annotations

import argparse
import gc
import sys
from types import ModuleType
from typing import cast

from supervisor.cli.options import port
from supervisor.cli.registry import Verb
from supervisor.core.text.loglevel import FORMATS, LEVELS

VERB = Verb(
    summary="run the daemon in the foreground",
    order=20,
    description="Run the daemon here until Ctrl-C or `stop`.",
    examples=(
        ("serve", "on 127.0.0.1:8686, with the configuration that is found"),
        ("serve --config models.yaml --port 9000", "with another configuration and port"),
        ("serve --log-format json", "with a log for programs"),
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="the configuration file (default: see docs/cli.md)")
    parser.add_argument("--host", metavar="ADDRESS", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, metavar="N", help="the port (default: 8686; 0: any free one)")
    parser.add_argument("--engine", metavar="PATH", help="the llama-server to use")
    parser.add_argument("--insecure", action="store_true", help="listen beyond this machine without a key")
    parser.add_argument("--log-format", choices=FORMATS, help="of the log (default: server.log_format, else text)")
    parser.add_argument("--log-level", choices=LEVELS, help="of the log (default: server.log_level, else info)")


def run(args: argparse.Namespace) -> int:
    """Run the daemon until it is told to stop."""
    gc.disable()  # a tenth of the start would go into looking at modules, of which nothing becomes garbage
    try:
        _import_unadorned()
        from supervisor.daemon.run import DaemonOptions, run_daemon  # noqa: PLC0415 - half a second that `serve --help` can spare
    finally:
        gc.enable()
    return run_daemon(
        DaemonOptions(
            config=args.config,
            host=args.host,
            port=args.port,
            engine=args.engine,
            insecure=args.insecure,
            log_format=args.log_format,
            log_level=args.log_level,
        )
    )


def _import_unadorned() -> None:
    """Import structlog and httpx without what they draw with on terminals, where it is installed.

    They take it along at once: 5 MiB of the daemon, and a twentieth of its start. The daemon draws nothing.
    """
    unwanted = {"rich", "pygments"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(unwanted, cast(ModuleType, None)))  # importing these fails, as if they were absent
    try:
        import httpx  # noqa: F401, PLC0415 - they stay imported, for whoever imports them next
        import structlog  # noqa: F401, PLC0415 - as above
    finally:
        for name in unwanted:
            del sys.modules[name]
