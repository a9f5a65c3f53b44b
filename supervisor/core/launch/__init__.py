"""Make the command of one engine from typed options, further arguments, a plan and the environment.

Pure: what the binary knows, what the machine has and where libraries lie are arguments.
"""

from supervisor.core.launch.build import LaunchSpec, build_launch, check_options, child_environment, lacking
from supervisor.core.launch.convert import estimate_options, explicit_of
from supervisor.core.launch.environment import LibraryPath, has_runtime, library_path, with_libraries
from supervisor.core.launch.extra import Trust, check_extra
from supervisor.core.launch.facts import ModelFacts, facts_of, projector_of
from supervisor.core.launch.placed import Placed
from supervisor.core.options import LaunchOptions, LoraAdapter

__all__ = [
    "LaunchOptions",
    "LaunchSpec",
    "LibraryPath",
    "LoraAdapter",
    "ModelFacts",
    "Placed",
    "Trust",
    "build_launch",
    "check_extra",
    "check_options",
    "child_environment",
    "estimate_options",
    "explicit_of",
    "facts_of",
    "has_runtime",
    "lacking",
    "library_path",
    "projector_of",
    "with_libraries",
]
