"""What LocalAI's loader does with a backend: start it or attach, ask for its health, load, ask, free, stop.

The messages are compiled from `backend.proto`; every call opens a connection of its own, as LocalAI's do.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.support.daemon import environment
from tests.support.patience import PATIENCE

PROTO = Path(__file__).parent / "backend.proto"
ROOT = Path(__file__).parents[3]
ALL_LAYERS = 99999999
MOST_MESSAGE = 50 << 20
_LIMITS = (("grpc.max_receive_message_length", MOST_MESSAGE), ("grpc.max_send_message_length", MOST_MESSAGE))

# What LocalAI names in every request, whatever its client says.
ALWAYS: dict[str, Any] = {"Temperature": 0.9, "TopP": 0.95, "TopK": 40, "Seed": 7, "TypicalP": 1.0}
ALWAYS |= {"MirostatTAU": 5.0, "MirostatETA": 0.1, "PromptCacheAll": True}


@cache
def compiled() -> FileDescriptorSet:
    """The messages of `backend.proto`, as protobuf's own compiler reads them."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        argv = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={out}"]
        subprocess.run([*argv, str(PROTO)], check=True)
        return FileDescriptorSet.FromString(out.read_bytes())


@cache
def _service() -> Any:
    pool = DescriptorPool()
    for file in compiled().file:
        pool.Add(file)
    return pool.FindServiceByName("backend.Backend")


def message(name: str) -> Any:
    """The class of a message."""
    pool = _service().file.pool
    return GetMessageClass(pool.FindMessageTypeByName(f"backend.{name}"))


@dataclass
class Client:
    """Calls a backend at an address; `token`: with LocalAI's token."""

    address: str
    token: str = ""
    channels: list[grpc.Channel] = field(default_factory=list)

    def __call__(self, rpc: str, **given: Any) -> Any:
        """The reply to a call."""
        with grpc.insecure_channel(self.address, options=_LIMITS) as channel:
            return self._begun(channel, rpc, given)(timeout=PATIENCE)

    def stream(self, rpc: str, **given: Any) -> Any:
        """The replies to a call, as they come; it can be cancelled."""
        channel = grpc.insecure_channel(self.address, options=_LIMITS)
        self.channels.append(channel)
        return self._begun(channel, rpc, given, streams=True)(timeout=PATIENCE)

    def begin(self, rpc: str, **given: Any) -> Any:
        """A call as a future."""
        channel = grpc.insecure_channel(self.address, options=_LIMITS)
        self.channels.append(channel)
        method, request, metadata = self._method(channel, rpc, given, streams=False)
        return method.future(request, metadata=metadata, timeout=PATIENCE)

    def close(self) -> None:
        for channel in self.channels:
            channel.close()

    def load(self, name: str, file: Path | None = None, **options: Any) -> Any:
        """The result of LoadModel, with what LocalAI always says."""
        where = {"ModelFile": str(file), "ModelPath": str(file.parent)} if file else {"ModelFile": f"/none/{name}"}
        usual = {"ContextSize": 4096, "NBatch": 512, "Threads": 2, "MMap": True, "NGPULayers": ALL_LAYERS}
        return self("LoadModel", Model=name, **where, **{**usual, "FlashAttention": "auto", **options})

    def chat(self, content: str, **more: Any) -> dict[str, Any]:
        """A request for a chat, as PredictOptions."""
        return {**ALWAYS, "UseTokenizerTemplate": True, "Messages": [{"role": "user", "content": content}], **more}

    def error(self, rpc: str, **given: Any) -> tuple[str, str]:
        """The status and the text with which a call fails."""
        try:
            found = self(rpc, **given)
        except grpc.RpcError as error:
            return told(error)
        raise AssertionError(f"{rpc} did not fail: {found}")

    def _begun(self, channel: grpc.Channel, rpc: str, given: Mapping[str, Any], *, streams: bool = False) -> Any:
        method, request, metadata = self._method(channel, rpc, given, streams=streams)
        return lambda timeout: method(request, metadata=metadata, timeout=timeout)

    def _method(self, channel: grpc.Channel, rpc: str, given: Mapping[str, Any], *, streams: bool) -> Any:
        found = _service().methods_by_name[rpc]
        make: Any = channel.unary_stream if streams else channel.unary_unary
        method = make(
            f"/backend.Backend/{rpc}",
            request_serializer=lambda value: value.SerializeToString(),
            response_deserializer=message(found.output_type.name).FromString,
        )
        metadata = (("authorization", f"Bearer {self.token}"),) if self.token else ()
        return method, message(found.input_type.name)(**given), metadata


def told(error: Any) -> tuple[str, str]:
    """The status and the text of an error."""
    return error.code().name, error.details()


@dataclass
class Spawned:
    """A backend's process, and a client of it."""

    process: subprocess.Popen[str]
    client: Client

    def end(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=PATIENCE)


def argv(*more: str) -> Sequence[str]:
    return (sys.executable, "-P", "-m", "supervisor", "localai-backend", "--addr", "127.0.0.1:0", "--json", *more)


@contextlib.contextmanager
def spawned(home: Path, engine: Path, *more: str, env: Mapping[str, str] | None = None) -> Iterator[Spawned]:
    """A backend beside the daemon of this home, which it starts if there is none."""
    process = subprocess.Popen(
        argv(*more),
        env=environment(home, engine, **(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate(timeout=PATIENCE)[1])
    token = (env or {}).get("LOCALAI_GRPC_AUTH_TOKEN", "")
    backend = Spawned(process, Client(f"127.0.0.1:{json.loads(line)['port']}", token))
    try:
        yield backend
    finally:
        backend.end()
