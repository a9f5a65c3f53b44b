"""The table of launch options: a row for each, from which settings, checks, pages, flags and arguments are made.

LaunchOptions          what can be chosen for an engine: its fields are the rows
options_of(table)      the rows of such a class, as data
option(…)              a row, as the default of a field
Mark, Way              what is true of an option; how it becomes arguments
names_file(kind)       whether values of a kind name files of the machine
"""

from supervisor.core.options.kinds import LoraAdapter, names_file
from supervisor.core.options.launch import LaunchOptions
from supervisor.core.options.table import Mark, Option, Way, option, options_of

__all__ = ["LaunchOptions", "LoraAdapter", "Mark", "Option", "Way", "names_file", "option", "options_of"]
