"""What the benchmarks start is what the program takes: a refused option would be found only when somebody measures."""

from __future__ import annotations

from benchmarks.servers import engine_flags, engine_options
from supervisor.config.options import launch_options
from supervisor.config.settings import ModelSettings
from supervisor.core.launch import LaunchOptions, check_options


def test_engines_of_the_benchmarks_are_configured_as_the_program_wants() -> None:
    options = launch_options(ModelSettings.model_validate({"file": "/m.gguf", **engine_options(8)}))
    check_options(options, None)
    assert (options.parallel, options.kv_unified, options.cache_ram) == (8, True, 0)
    assert options != LaunchOptions()


def test_llama_server_itself_gets_the_same() -> None:
    assert engine_flags(8)[:3] == ["--parallel", "8", "--kv-unified"]
