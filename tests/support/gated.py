"""A llama-server whose loads wait until a test lets them go on."""

from __future__ import annotations

from pathlib import Path

# Says how far it is, then loads once the gate is open; a gate with something in it is a load that fails
_SCRIPT = """#!/bin/sh
case "$*" in
*--host*)
    echo 'cmd_child_to_router:state:{{"state":"loading","payload":{{"stages":["text_model"],"current":"text_model","value":0.42}}}}'
    for i in $(seq 600); do [ -e {gate} ] && break; sleep 0.1; done
    if [ -s {gate} ]; then echo "error: invalid argument: --nonsense" >&2; exit 1; fi;;
esac
exec {engine} "$@"
"""  # noqa: E501 - one line of the protocol


class Gate:
    """What the loads of `engine` wait for; the program to start is below `folder`."""

    def __init__(self, folder: Path, engine: Path) -> None:
        self._gate = folder / "gate"
        self.engine = folder / "bin" / "llama-server"
        self.engine.parent.mkdir()
        self.engine.write_text(_SCRIPT.format(gate=self._gate, engine=engine))
        self.engine.chmod(0o755)

    def open(self, *, fail: bool = False) -> None:
        """Let loads go on; `fail`: to their failure."""
        made = self._gate.with_name("made")
        made.write_text("fail" if fail else "")
        made.rename(self._gate)

    def close(self) -> None:
        """Let further loads wait again."""
        self._gate.unlink(missing_ok=True)
