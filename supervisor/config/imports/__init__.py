"""Convert configurations of other programs into ours, and list everything that could not be carried over."""

from supervisor.config.imports.carried import Carried
from supervisor.config.imports.llama_swap import from_llama_swap
from supervisor.config.imports.preset import from_preset

__all__ = ["Carried", "from_llama_swap", "from_preset"]
