"""`serve`: the daemon in the foreground."""

from __future__ import annotations

import argparse

from supervisor.cli.options import Subparsers, add_common, port
