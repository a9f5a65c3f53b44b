"""The weights that get allocated, by layer and by device.

The input layer stays on the host. Repeating tensors go with their layer, those without a number with the first; rope
tables are copied once to every device that holds layers. The output layer has a place of its own; where it is tied to
the input and on a device, the token embedding is allocated a second time. Overrides send tensors elsewhere by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from supervisor.core.gguf import TENSOR_TYPES, TensorInfo, tensor_type
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.patterns import Matcher, matcher
from supervisor.core.memory.scans import DECAY, scans_on_host
from supervisor.core.spec import ModelSpec
from supervisor.core.spec.tensors import TensorBlock

_ALIGNMENT = 32
_CUDA_ALIGNMENT = 128
_CUDA_ROW = 512  # CUDA's kernels read quantised rows in steps of so many elements

_BLOCK = re.compile(r"(?:enc\.|dec\.)?blk\.\d+\.")
_INPUT = frozenset({"token_embd", "position_embd", "token_types", "per_layer_token_embd"})
_OUTPUT = re.compile(
    r"output|cls\b|decision|dense_\d|altup_|(?:enc|dec)\.output|fc\.|d2t|markov_|selector_|conf_proj|nextn\.post"
)
_COPIED = re.compile(r"rope_(?:freqs|factors_\w+)\.weight")
_UNUSED = re.compile(r"masked_embd_|mask_embd")

_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")  # llama.cpp's own, of `--cpu-moe`
_ALL = 1 << 30

_REPACKED = frozenset(
    tensor_type(name).id for name in ("q2_K", "q4_0", "q4_K", "q5_K", "q6_K", "q8_0", "q1_0", "iq4_nl", "mxfp4")
)


@dataclass(frozen=True, slots=True)
class Part:
    """Tensors that go to one place together, and their bytes by alignment."""

    tensors: tuple[TensorInfo, ...] = ()
    n_bytes: int = 0
    cuda_bytes: int = 0
    repackable: int = 0
    largest: int = 0

    def bytes_on(self, device: int, cuda: bool) -> int:
        """Return the bytes on a device, or on the host (-1), which never aligns as CUDA does."""
        return self.cuda_bytes if cuda and device >= 0 else self.n_bytes


@dataclass(frozen=True, slots=True)
class LayerPart:
    """The tensors of one layer: its experts, the rest, and both together."""

    rest: Part
    experts: Part
    whole: Part


@dataclass(frozen=True)
class Weights:
    """The tensors of a model by their place; `layers` has those of the NextN blocks too.

    Attributes:
        blocks: the tensors by layer, each under its own name.
        copied: one copy per device that holds layers.
        tied: what is allocated again as the output.
        kept: what is loaded of NextN blocks even where nothing drafts.
    """

    input: Part
    blocks: Sequence[TensorBlock]
    layers: tuple[LayerPart, ...]
    output: Part
    copied: Part
    tied: Part
    kept: dict[int, LayerPart]

    @cached_property
    def named_layers(self) -> tuple[LayerPart, ...]:
        """The layers with the names of their own tensors, which overrides look at."""
        return (*self.layers[:1], *(_layer_part(block.tensors) for block in self.blocks[1:]))


@dataclass(slots=True)
class PlacedWeights:
    """Bytes per device (the host last), per layer, and outside of layers.

    Attributes:
        host_expert: bytes of the largest tensor of experts that stays on the host though its layer does not.
        repackable: bytes on the host that its kernels may want in another order.
    """

    devices: list[int]
    layers: list[int]
    outside: int = 0
    host_expert: int = 0
    repackable: int = 0

    def add(self, part: Part, device: int, cuda: bool) -> int:
        size = part.bytes_on(device, cuda)
        self.devices[device] += size
        if device < 0:
            self.repackable += part.repackable
        return size


def sort_weights(spec: ModelSpec) -> Weights:
    """Sort every tensor into its place; drop those that llama.cpp leaves unread."""
    places: dict[str, list[TensorInfo]] = {}
    for tensor in spec.groups.loose:
        places.setdefault(_place(spec, tensor.name), []).append(tensor)
    inputs = places.get("input", [])
    tied = [tensor for tensor in inputs if spec.tied_embeddings and tensor.name == "token_embd.weight"]
    return Weights(
        input=_input_part(inputs),
        blocks=spec.groups.blocks,
        layers=_layer_parts(spec, places.get("first", [])),
        output=_part(places.get("output", [])),
        copied=_part(places.get("copied", [])),
        tied=_input_part(tied),
        kept={layer: _kept(spec, layer) for layer in range(spec.n_layer, spec.n_layer_all)},
    )


def _layer_parts(spec: ModelSpec, with_first: Sequence[TensorInfo]) -> tuple[LayerPart, ...]:
    """Return one part per layer.

    Layers that are alike share theirs, whose tensors have the names of the first of them.
    """
    blocks = spec.groups.blocks
    parts = {number: _layer_part(block.tensors) for number, block in enumerate(blocks) if block.like == number}
    found = [parts[block.like] for block in blocks]
    if with_first and found:
        found[0] = _layer_part((*blocks[0].tensors, *with_first))
    return tuple(found)


def _kept(spec: ModelSpec, layer: int) -> LayerPart:
    pattern = spec.architecture.kept_nextn
    tensors = spec.groups.blocks[layer].tensors
    return _layer_part([tensor for tensor in tensors if pattern and pattern.search(tensor.name)])


def _place(spec: ModelSpec, name: str) -> str:
    """Return the place of a tensor that belongs to no layer."""
    if _BLOCK.match(name):  # blocks that are no layers belong to a head
        return "output"
    if _COPIED.fullmatch(name):
        return "copied"
    stem = name.partition(".")[0]
    if stem in _INPUT:
        return "input"
    if _OUTPUT.match(name) or (stem == "token_embd_norm" and spec.shortconv_l_cache):  # LFM2 calls its norm so
        return "output"
    return "unused" if _UNUSED.match(name) else "first"


def _layer_part(tensors: Sequence[TensorInfo]) -> LayerPart:
    sorted_: tuple[list[TensorInfo], list[TensorInfo]] = ([], [])
    for tensor in tensors:
        is_expert = "exps" in tensor.name and _EXPERTS.search(tensor.name) is not None
        sorted_[is_expert].append(tensor)
    rest, experts = map(_part, sorted_)
    return LayerPart(rest, experts, _joined(rest, experts))


def _part(tensors: Sequence[TensorInfo]) -> Part:
    sums = _sums(tuple([(tensor.type, tensor.shape, tensor.n_bytes or 0) for tensor in tensors]))
    return Part(tuple(tensors), *sums)


def _input_part(tensors: Sequence[TensorInfo]) -> Part:
    """Return the input part. The embedding is only looked up, so its kernels need no other layout."""
    part = _part(tensors)
    looked_up = _part([tensor for tensor in tensors if tensor.name.startswith("token_embd")])
    return replace(part, repackable=part.repackable - looked_up.repackable)


@lru_cache(maxsize=1024)
def _sums(tensors: tuple[tuple[int, tuple[int, ...], int], ...]) -> tuple[int, int, int, int]:
    """Return the numbers of a `Part`, from types, shapes and bytes. Layers are alike, so most are known."""
    sizes = [_sizes(*tensor) for tensor in tensors]
    matrices = [
        size
        for (type_, shape, _), (size, _) in zip(tensors, sizes, strict=True)
        if type_ in _REPACKED and len(shape) > 1
    ]
    plain = [size for size, _ in sizes]
    return sum(plain), sum(cuda for _, cuda in sizes), sum(matrices), max(plain, default=0)


def _joined(one: Part, other: Part) -> Part:
    return Part(
        one.tensors + other.tensors,
        one.n_bytes + other.n_bytes,
        one.cuda_bytes + other.cuda_bytes,
        one.repackable + other.repackable,
        max(one.largest, other.largest),
    )


def _sizes(type_: int, shape: tuple[int, ...], n_bytes: int) -> tuple[int, int]:
    """Return the bytes of a tensor in a buffer, and in one of CUDA's."""
    plain = n_bytes + -n_bytes % _ALIGNMENT
    rest = shape[0] % _CUDA_ROW if shape else 0
    if rest:
        known = TENSOR_TYPES.get(type_)
        n_bytes += known.bytes_for(_CUDA_ROW - rest) if known and known.quantized else 0
    return plain, n_bytes + -n_bytes % _CUDA_ALIGNMENT


_NOTHING = LayerPart(Part(), Part(), Part())


def loaded_layers(spec: ModelSpec, weights: Weights, options: EstimateOptions) -> list[LayerPart]:
    """Return the loaded tensors of each layer, under the layer's own names where overrides look at them."""
    count = len(weights.layers) if options.drafts and spec.architecture.mtp else spec.n_layer
    layers = weights.named_layers if options.override_tensors else weights.layers
    kept = (weights.kept.get(layer, _NOTHING) for layer in range(count, len(weights.layers)))
    return [*layers[:count], *kept]


def place_weights(spec: ModelSpec, weights: Weights, options: EstimateOptions, places: Sequence[int]) -> PlacedWeights:
    """Return the bytes of the weights; `places` as `place_layers` gives them."""
    found = PlacedWeights([0] * (len(options.devices) + 1), [])
    route = router(options, spec)
    for layer, parts in enumerate(loaded_layers(spec, weights, options)):
        found.layers.append(_add_layer(found, parts, layer, places[layer], route))
    outside = [(weights.input, -1), (weights.output, places[-1])]
    outside += [(weights.copied, device) for device in set(places[: spec.n_layer])]
    if places[-1] >= 0:
        outside.append((weights.tied, places[-1]))
    for part, device in outside:
        found.outside += sum(found.add(piece, target, route.cuda) for piece, target in route.split(part, device))
    return found


def _add_layer(found: PlacedWeights, parts: LayerPart, layer: int, device: int, route: Router) -> int:
    experts = -1 if layer < route.host_experts else device
    if experts == device and route.is_whole(parts.whole):
        return found.add(parts.whole, device, route.cuda)
    if experts != device:
        found.host_expert = max(found.host_expert, parts.experts.largest)
    pieces = [*route.split(parts.rest, device), *route.split(parts.experts, experts)]
    return sum(found.add(piece, target, route.cuda) for piece, target in pieces)


@dataclass(frozen=True, slots=True)
class Router:
    """The targets of overridden tensors: the user's patterns first, then experts of the first layers to the host."""

    patterns: Matcher | None
    targets: tuple[int, ...]
    host_experts: int
    cuda: bool
    largest: int | None = None
    decay: str = ""

    def is_whole(self, part: Part) -> bool:
        """Return whether all of a part goes to one place."""
        return self.patterns is None and not any(self._stays(tensor) for tensor in self._suspects(part))

    def _suspects(self, part: Part) -> tuple[TensorInfo, ...]:
        too_large = self.largest is not None and part.largest > self.largest
        return part.tensors if too_large or self.decay else ()

    def _stays(self, tensor: TensorInfo) -> bool:
        """Return whether a tensor is on the host since the back end cannot take it, or not compute with it."""
        if self.decay and tensor.name.endswith(self.decay):
            return True
        return self.largest is not None and (tensor.n_bytes or 0) > self.largest

    def split(self, part: Part, device: int) -> Iterable[tuple[Part, int]]:
        """Return the part, in pieces where patterns split it."""
        if self.is_whole(part) or not part.tensors:
            return ((part, device),)
        targets: dict[int, list[TensorInfo]] = {}
        for tensor in part.tensors:
            found = self.patterns.first(tensor.name) if self.patterns else None
            target = device if found is None else self.targets[found]
            targets.setdefault(-1 if self._stays(tensor) else target, []).append(tensor)
        if len(targets) == 1:  # as of most layers
            return ((part, next(iter(targets))),)
        return [(_part(tensors), target) for target, tensors in targets.items()]


def router(options: EstimateOptions, spec: ModelSpec) -> Router:
    """Return the router for the overrides of these options, and for what their back end cannot take."""
    given, devices = options.override_tensors, options.devices
    patterns = matcher(tuple(pattern for pattern, _ in given)) if given else None
    targets = tuple(devices.index(place) if place in devices else -1 for _, place in given)
    padded = options.traits.pads_weights
    experts = _ALL if options.cpu_moe else options.n_cpu_moe
    decay = DECAY if devices and scans_on_host(spec, options.traits) else ""
    return Router(patterns, targets, experts, padded, options.traits.largest if devices else None, decay)
