"""A real daemon whose plans are compared with what real engines then hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.core.engine_output.footprint import Footprint
from supervisor.core.learn.identity import model_identity
from supervisor.files.model_file import open_model
from supervisor.store import Database, Footprints
from supervisor.system.paths import places
from tests.evidence.make import write_model
from tests.evidence.subjects import metadata_of, tensors_of
from tests.support.daemon import RunningDaemon, environment, wait_until
from tests.support.patience import PATIENCE

Parts = dict[str, dict[str, int]]
"""The parts of a plan by device, `CPU` included."""


@dataclass(frozen=True)
class Bench:
    """A daemon, the engine it drives, and a folder for the models made for it."""

    daemon: RunningDaemon
    binary: Path
    folder: Path

    def model(self, subject: str, title: str | None = None) -> Path:
        """The file of a fixture or a known model, by its name in the evidence.

        Under a title it is a model of its own, of which nothing was learned from those that are called otherwise.
        """
        title = title or subject
        path = self.folder / f"{re.sub('[^a-z0-9.+]+', '-', title.lower())}.gguf"
        write_model(path, {**metadata_of(subject), "general.name": title}, tensors_of(subject))
        return path

    def plan(self, target: Path | str, **options: Any) -> dict[str, Any]:
        return self._ask("plan", target, options)

    def load(self, target: Path | str, file: Path | None = None, **options: Any) -> Footprint:
        """Load, unload; what the engine said that it held, as it was kept. `file`: of a target that is a name."""
        status, found = self.load_and_stay(target, file, **options)
        self.unload(status["id"])
        return found

    def load_and_stay(
        self, target: Path | str, file: Path | None = None, **options: Any
    ) -> tuple[dict[str, Any], Footprint]:
        """Load; the model's status, and what the engine said that it held, as it was kept."""
        model = file or Path(target)
        before = len(self.kept(model))
        status = self._ask("models/load", target, options)
        wait_until(lambda: len(self.kept(model)) > before, "the start is kept")
        found = self.kept(model)[0]
        assert status["footprint"] == found.used_bytes
        return status, found

    def refused(self, target: Path | str, **options: Any) -> dict[str, Any]:
        """The error with which a plan is refused, as a load is then too: the options are at fault, not the memory."""
        body = {"target": str(target), "options": options, "reset": True}
        answers = [self.daemon.http.post(f"/api/v1/{what}", json=body) for what in ("plan", "models/load")]
        planned, loaded = answers
        assert planned.is_client_error, planned.text
        error: dict[str, Any] = planned.json()["error"]
        assert not loaded.is_success
        assert loaded.json()["error"]["message"] == error["message"]
        return error

    def _ask(self, what: str, target: Path | str, options: Mapping[str, Any]) -> dict[str, Any]:
        """What earlier loads asked for does not count."""
        body = {"target": str(target), "options": options, "reset": True}
        answer = self.daemon.http.post(f"/api/v1/{what}", json=body, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def loaded(self) -> set[str]:
        """The models whose engines are ready."""
        found = self.daemon.http.get("/api/v1/models").json()["models"]
        return {model["id"] for model in found if model["state"] == "ready"}

    def unload(self, *models: str) -> None:
        for model in models:
            self.daemon.http.post("/api/v1/models/unload", json={"model": model})

    def kept(self, target: Path) -> list[Footprint]:
        """What earlier starts of the model held, the newest first."""
        where = places(environment(self.daemon.home, self.binary))
        with Database.read(where.database) as database:
            found = Footprints(database).find(model_identity(open_model(target).header))
        return [one.footprint for one in found]


def by_device(plan: Mapping[str, Any]) -> Parts:
    return {part["name"]: part for part in plan["parts"]}
