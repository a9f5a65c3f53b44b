"""The result of an estimate: bytes by part, by layer and by device, or a refusal."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class LayerEstimate:
    """A layer. `kind`: attention, window, latent, recurrent, parallel (both at once), feed-forward, nextn."""

    index: int
    kind: str
    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceEstimate:
    """The bytes on one device, or on the host as `CPU`."""

    name: str
    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    compute_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.recurrent_bytes + self.compute_bytes


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory of the host that grows while the engine serves, up to this worst case; None: without limit."""

    name: str
    max_bytes: int | None


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """All memory that llama-server allocates when it starts.

    Attributes:
        n_ctx: tokens of all slots together, as the engine will report them.
        n_ctx_seq: tokens of one slot.
        weights_bytes: every tensor that gets allocated, the second copy of tied embeddings included.
        kv_bytes: caches, of the draft too.
        recurrent_bytes: recurrent states, and the compressor states of DeepSeek-4.
        compute_bytes: compute buffers of the devices that hold layers, all devices together; where none does, the
            CPU's.
        host_compute_bytes: the compute buffer of the host beside devices.
        output_bytes: logits, and embeddings where they are asked for.
        total_bytes: the sum of the seven; `host_growth` is not in it.
        layers: their bytes and `non_layer_weights_bytes` are the weights, caches and states again.
        devices: weights, caches, states and compute buffers again; the last one is the host, `CPU`.
        notes: what the numbers do not say by themselves.
    """

    arch: str
    n_ctx: int
    n_ctx_seq: int
    n_seq: int
    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    compute_bytes: int
    host_compute_bytes: int
    output_bytes: int
    projector_bytes: int
    layers: tuple[LayerEstimate, ...]
    non_layer_weights_bytes: int
    host_growth: tuple[Growth, ...]
    devices: tuple[DeviceEstimate, ...]
    notes: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        return (
            self.weights_bytes
            + self.kv_bytes
            + self.recurrent_bytes
            + self.compute_bytes
            + self.host_compute_bytes
            + self.output_bytes
            + self.projector_bytes
        )

    def to_json(self) -> dict[str, object]:
        """Return the object of `estimate --json`."""
        found = asdict(self)
        names = list(found)
        after = names.index("projector_bytes") + 1
        ordered = {name: found[name] for name in names[:after]}
        return ordered | {"total_bytes": self.total_bytes} | {name: found[name] for name in names[after:]}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why llama-server would not start like this: a stable code and a sentence."""

    code: str
    message: str
