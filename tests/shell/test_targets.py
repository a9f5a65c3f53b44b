"""What a configuration comes to: entries with their options, policies and files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.config import load_settings
from supervisor.core.models.registry import Registry, Source
from supervisor.core.schedule import ModelPolicy
from supervisor.errors import ModelFileError
from supervisor.models.configured import configured_models
from supervisor.models.targets import resolve_target


def registry(folder: Path, text: str) -> Registry:
    path = folder / "supervisor.yaml"
    path.write_text(text)
    return configured_models(load_settings(path, {}))


def test_every_kind_of_source(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    for name in ("dir/m.gguf", "dir/mmproj.gguf", "dir/mtp-x.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    models = registry(
        tmp_path,
        """models:
          folder: {source: ./dir}
          text-only: {source: ./dir, mmproj_auto: false}
          file: {source: x.gguf}
          odd: {file: o/r}
          hub: {source: o/r:Q4_K_M}
          twin: {source: demo, ctx_size: 512}
        """,
    )
    found = {entry.id: entry for entry in models}
    assert list(found) == ["folder", "text-only", "file", "odd", "hub", "twin", "demo"]
    assert found["folder"].path == str(tmp_path / "dir/m.gguf")
    assert found["folder"].options.mmproj == str(tmp_path / "dir/mmproj.gguf")
    assert found["folder"].options.spec_draft_model == str(tmp_path / "dir/mtp-x.gguf")
    assert found["text-only"].options.mmproj is None
    assert (found["file"].path, found["odd"].path) == (str(tmp_path / "x.gguf"), str(tmp_path / "o/r"))
    assert (found["hub"].source, found["hub"].path, found["hub"].hub) == (Source.HUB, None, "o/r:Q4_K_M")
    assert (found["twin"].source, found["twin"].options.ctx_size) == (Source.DEMO, 512)


def test_models_of_the_folder_get_the_defaults_and_may_be_set_by_name(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / "shelf" / name).write_bytes(b"GGUF")
    text = "models_dir: shelf\ndefaults: {ctx_size: 9, ttl: 5}\nmodels: {b: {ttl: null}, gone: {parallel: 2}}"
    found = {entry.id: entry for entry in registry(tmp_path, text)}
    assert set(found) == {"a", "b", "gone", "demo"}
    assert (found["a"].options.ctx_size, found["a"].policy.ttl) == (9, 5)
    assert (found["b"].path, found["b"].policy.ttl) == (str(tmp_path / "shelf/b.gguf"), None)
    assert found["gone"].path == str(tmp_path / "shelf/gone.gguf"), "loading it says that it is not there"
    assert found["demo"].options.ctx_size is None


def test_a_name_that_names_nothing_keeps_the_other_models_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    for name in (b"bad\xff.gguf", b"a.gguf", b" .gguf", b"x\x1b[2J.gguf"):
        (tmp_path / "shelf" / os.fsdecode(name)).write_bytes(b"GGUF")
    models = registry(tmp_path, "models_dir: shelf")
    assert {entry.id for entry in models} == {"a", "demo"}
    with pytest.raises(ModelFileError, match="is not UTF-8"):
        resolve_target(models, str(tmp_path / "shelf" / os.fsdecode(b"bad\xff.gguf")))


def test_what_is_set_for_a_model_reaches_its_policy(tmp_path: Path) -> None:
    models = registry(
        tmp_path,
        """
        defaults: {env: {A: "1", B: "1"}, filters: {set: {x: 1}, strip: [s]}, priority: 3}
        models:
          m: {file: m, env: {B: "2"}, filters: {set: {y: 2}}, pin: true, preload: true, replicas: 2..4, concurrency: 7}
          n: {file: n, priority: 1}
        groups: {g: {members: [m, n]}, solo: {members: [n], rule: alone}}
        """,
    )
    m, n = models.find("m"), models.find("n")
    assert m.policy == ModelPolicy(None, True, True, 3, 2, 4, 7, frozenset({"g"}), False)
    assert n.policy == ModelPolicy(priority=1, groups=frozenset({"g"}), alone=True)
    assert m.options.env == {"A": "1", "B": "2"}
    assert m.filters.set == {"x": 1, "y": 2}
    assert m.filters.strip == {"s", "x", "y"}
    assert models.policy_of("m") is m.policy
    assert models.policy_of("of nobody") == ModelPolicy(priority=3)
