"""What pip prints while it installs, as progress."""

from __future__ import annotations

from supervisor.llamacpp.progress import Progress
from supervisor.llamacpp.wheels import PipLines

SAID = """\
Collecting cmake
  Downloading cmake-4.1.0-py3-none-manylinux2014_x86_64.whl (29.7 MB)
Progress 0 of 29700000
Progress 14850000 of 29700000
Progress 29700000 of 29700000
Processing /wheels/ninja-1.13.0-py3-none-any.whl
Progress made of 3
Installing collected packages: ninja, cmake
Successfully installed cmake-4.1.0 ninja-1.13.0
"""


def test_pip_says_what_it_downloads_and_how_much_is_there() -> None:
    heard, told = PipLines(), list[Progress]()
    for line in SAID.splitlines():
        heard.tell(line, told.append)
    cmake = "cmake-4.1.0-py3-none-manylinux2014_x86_64.whl (29.7 MB)"
    assert told == [
        Progress("download", None, cmake),
        Progress("download", 0.0, cmake),
        Progress("download", 0.5, cmake),
        Progress("download", 1.0, cmake),
        Progress("download", None, "ninja-1.13.0-py3-none-any.whl"),
        Progress("install", None, "ninja, cmake"),
    ]
