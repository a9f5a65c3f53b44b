"""A new error is one class: a scratch one is found by its package, in the tree, in the table and in answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLASS = '''

class Scratched(DaemonError):
    """Somebody scratched the daemon."""

    code = "scratched"
    status = 418
    transient = True
'''
ASKED = """
import json
from supervisor import errors
from supervisor.api.errors import error_response, headers_of
from tests.support.error_table import table, tree

found = errors.Scratched("Polish it.")
answer = error_response(found, "/v1/messages")
print(json.dumps({
    "status": answer.status_code,
    "said": json.loads(answer.body)["error"]["code"],
    "final": "x-should-retry" in headers_of(found),
    "row": [line for line in table().splitlines() if "scratched" in line],
    "drawn": [line for line in tree() if "Scratched" in line],
}))
"""


def test_one_class_is_enough(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "supervisor", tmp_path / "supervisor", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "supervisor/errors/daemon.py").open("a", encoding="utf-8") as module:
        module.write(CLASS)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", ASKED]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["status"], found["said"], found["final"]) == (418, "scratched", False)
    assert found["row"] == ["| `scratched` | 418 | Somebody scratched the daemon. |"]
    assert [line.split()[-2:] for line in found["drawn"]] == [["Scratched", "scratched"]]
