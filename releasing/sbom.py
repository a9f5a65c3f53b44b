"""The bill of materials of a release, in the JSON form of CycloneDX 1.6, made from the lock of the runtime packages."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

NAME = "llama-supervisor"
_PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\\n]+?))?(?: \\)?\n"
    r"(?P<hashes>(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)(?P<via>(?: +#.*\n)*)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Package:
    """A locked package. `via`: the packages that ask for it, or the project's own file."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]
    via: frozenset[str]

    @property
    def purl(self) -> str:
        """Its package URL, by which others know it."""
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(text: str) -> list[Package]:
    """Read a lock as `uv pip compile --generate-hashes` writes it."""
    return [
        Package(
            pin["name"],
            pin["version"],
            pin["marker"],
            tuple(re.findall("[0-9a-f]{64}", pin["hashes"])),
            frozenset(re.findall(r"#(?: +via)? +([A-Za-z0-9._-]+)", pin["via"])),
        )
        for pin in _PIN.finditer(text)
    ]


def bill(version: str, packages: Iterable[Package], when: str) -> Json:
    """Return the bill of the release `version`. when: a time of RFC 3339. The same arguments give the same bill."""
    found = list(packages)
    root = f"pkg:pypi/{NAME}@{version}"
    told = " ".join([root, when, *(one.purl for one in found)])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, told)}",
        "version": 1,
        "metadata": {"timestamp": when, "component": _own(version, root)},
        "components": [_component(one) for one in found],
        "dependencies": _dependencies(root, found),
    }


def _own(version: str, root: str) -> Json:
    return {
        "type": "application",
        "bom-ref": root,
        "name": NAME,
        "version": version,
        "purl": root,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }


def _component(one: Package) -> Json:
    found: Json = {
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        "hashes": [{"alg": "SHA-256", "content": value} for value in one.hashes],
    }
    if one.marker:
        found["properties"] = [{"name": f"{NAME}:marker", "value": one.marker}]
    return found


def _dependencies(root: str, packages: list[Package]) -> list[Json]:
    names = {one.name for one in packages}
    needs: Mapping[str, list[str]] = {
        name: sorted(one.purl for one in packages if name in one.via) for name in sorted(names)
    }
    direct = sorted(one.purl for one in packages if one.via - names)
    return [{"ref": root, "dependsOn": direct}, *({"ref": one.purl, "dependsOn": needs[one.name]} for one in packages)]
