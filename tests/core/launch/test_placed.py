"""What a plan decided, word by word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.core.capabilities import Flags, parse_help
from supervisor.core.launch import LaunchOptions, ModelFacts, Placed, build_launch
from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate
from supervisor.core.plan import Placement
from supervisor.errors import InvalidRequest, OptionNotSupported
from tests.core.memory.support import llama_spec

FLAGS = parse_help((Path(__file__).parents[2] / "llamacpp/data/help-b11434.txt").read_text(encoding="utf-8"))
