"""Tests of llama.cpp's server whose outcome through us differs, and why."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

_PLAIN = str.maketrans("[]*?", "    ")

KNOWN: Mapping[str, tuple[str, ...]] = {
    "Tools that an engine runs, MCP servers and its proxy for any address are for nobody.": (
        "mcp_servers.py::*",
        "tools_builtin.py::*",
        "proxy.py::*",
        "security.py::test_cors_proxy*",
    ),
    "Another origin than those of `server.allowed_origins` is refused.": ("security.py::test_cors_o*",),
    "The form of Google's cloud (`/predict`) is not served.": ("compat_gcp.py::*",),
    "A model that is idle leaves whole (`ttl`); an engine never sleeps, so `/props` says nothing of it.": (
        "sleep.py::*",
    ),
    "An engine's own figures are below `/upstream/MODEL/metrics`.": ("metrics.py::*",),
    "Engines always serve `/slots`; the daemon and a router's tests have no way to switch it off.": (
        "basic.py::test_server_slots",
    ),
    "`/` is a page of the daemon, whatever an engine's pages are (`--no-ui`).": ("basic.py::test_no_ui",),
    "The built-in model is listed, too.": (
        "basic.py::test_server_models",
        "basic.py::test_server_model_aliases_and_tags",
    ),
    "The list of models has OpenAI's form and the router's, without the `models` of Ollama's.": (
        "vision_api.py::test_*models_supports_multimodal_capability*",
    ),
    "The test reads llama-server's own log, which is in the engine's log here.": ("kv_keep_only_active.py::*",),
    "Decision models are below `/upstream/MODEL/v1/systemone`; there is no stand-in for them.": ("systemone.py::*",),
    "With keys the daemon's pages need one, too. An engine that was built without its pages has none.": (
        "security.py::test_access_static_assets_without_api_key",
    ),
    "Streams that outlive their client are below `/upstream/MODEL/v1/stream`.": ("stream.py::*",),
    "`/props` without a model is that of the only one, not of a router.": ("router.py::test_router_props",),
    "Memory decides how many models are loaded, not a number (`--models-max`).": (
        "router.py::test_router_models_max*",
        "router.py::test_router_queue*",
    ),
    "A request always loads its model (`--no-models-autoload`).": ("router.py::test_router_no_models_autoload*",),
    "There is no hub to download from; the daemon says so at once, a router once it has tried.": (
        "router.py::test_router_download_model",
        "router.py::test_router_delete_model",
    ),
    "Models come from the configuration, which is read again by itself; a router's presets are imported once.": (
        "router.py::test_router_reload_models",
        "router.py::test_router_dedup_cache_models",
        "router.py::test_router_remote_preset",
    ),
}
"""Reasons, a sentence each, and the tests: patterns of their names, in which parameters have no brackets."""

SOMETIMES: Mapping[str, tuple[str, ...]] = {
    "Directly the question for `/slots` fails unnoticed; the stand-in may have answered before the test asks.": (
        "completion.py::test_completion_parallel_slots*",
    ),
}
"""Likewise, where it depends on how fast the machine is."""


def reason_of(test: str, known: Mapping[str, tuple[str, ...]] = {**KNOWN, **SOMETIMES}) -> str | None:
    """Return why a test differs; None if that is not known."""
    return next((why for why, names in known.items() if any(is_meant(test, one) for one in names)), None)


def is_meant(test: str, name: str) -> bool:
    """Return whether a pattern of tests is that of this one."""
    return fnmatchcase(test.translate(_PLAIN), name)
