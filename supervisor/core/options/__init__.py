"""The launch options as data: a row for each, of which everything that knows options is made."""

from supervisor.core.options.kinds import LoraAdapter, names_file
from supervisor.core.options.launch import LaunchOptions
from supervisor.core.options.table import Mark, Option, Way, option, options_of

__all__ = ["LaunchOptions", "LoraAdapter", "Mark", "Option", "Way", "names_file", "option", "options_of"]
