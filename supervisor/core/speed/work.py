"""Count the work of a token by kind and device, from a header and a placement.

Kinds, by name; those of a prompt end with `_many`, since many tokens go through a layer together:

    read:TYPE             bytes of weights of a type that a token reads: of experts, those of the ones in use
    read_experts          of these, bytes of experts
    multiply_many:TYPE    multiplications by weights of a type
    experts_many:TYPE     of these, by experts
    values_many           values that go into matrices and come out of them
    read_many             bytes of weights, once per micro-batch
    attend, attend_many   multiplications of queries by keys, and of weights by values
    attend_rest           of these, in what a head has beyond a multiple of 128 elements
    cache, cache_many     bytes of the cache that are read
    state, state_many     bytes of recurrent states, read and written
    copy                  bytes of weights on the host that a device gets to compute with, once per micro-batch
    layer, layer_many     layers that are run; of a prompt, once per micro-batch
    trip, trip_many       passes through layers of another host's device, over the network
    token, request        one per token, one per prompt
    vocabulary            tokens of the vocabulary, among which one is sampled
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from supervisor.core.devices import is_lent
from supervisor.core.gguf import TensorInfo, row_bytes, type_name
from supervisor.core.memory import EstimateOptions, place_layers
from supervisor.core.memory.cache import CacheLayer, CacheRule
from supervisor.core.memory.facts import Facts, facts_of
from supervisor.core.memory.placement import HOST
from supervisor.core.memory.weights import Part, loaded_layers, router
from supervisor.core.spec import ModelSpec

Work: TypeAlias = Mapping[str, Mapping[str, float]]
"""Amounts by device name and kind."""

_LENT_TOKENS = 32  # llama.cpp's: in smaller batches the host computes with its weights itself
_PADDED = 256  # llama.cpp's: a graph sees so many cells, or a multiple
_DIVIDED = 512  # ggml's: from so many on, the host's threads share a token's cells and no longer its heads
_VECTOR = 128  # elements, of the widest vectors that ggml's loops over a head use
_DIVIDED_TYPES = frozenset({"f16", "f32"})

_Sums: TypeAlias = defaultdict[str, defaultdict[str, float]]


def decode_work(spec: ModelSpec, options: EstimateOptions, depth: int, threads: int = 1) -> Work:
    """Return the work of one generated token behind `depth` others. threads: of the host.

    Where threads wait for one of them that has more cells than the others, what it has counts for all.
    """
    counted = _Counter(spec, options)
    for tensor, share, device, is_output in counted.matrices():
        size = (tensor.n_bytes or 0) * share
        counted.add(device, f"read:{type_name(tensor.type)}", size)
        counted.add(device, "read_experts", size if share < 1 and not is_output else 0.0)
    counted.add_attention("", lambda reach: float(min(depth, reach) + 1), 1.0, threads)
    counted.add_layers("", 1)
    counted.add(counted.last, "token", 1.0)
    counted.add(HOST, "vocabulary", float(spec.n_vocab))
    return counted.sums


def prefill_work(spec: ModelSpec, options: EstimateOptions, tokens: int, depth: int = 0) -> Work:
    """Return the work of a prompt of so many tokens behind `depth` others; only its last token is put out."""
    counted = _Counter(spec, options)
    passes = -(-tokens // max(1, options.ubatch_size))
    lent = options.devices[0] if options.devices and options.op_offload and tokens >= _LENT_TOKENS else HOST
    for tensor, share, home, is_output in counted.matrices():
        times = 1 if is_output else tokens
        device = home if is_output or home != HOST else lent
        size = float(tensor.n_bytes or 0) * passes
        counted.add(device, "copy", size if device != home else 0.0)
        counted.add(device, "read_many", size * min(1.0, share * min(tokens, options.ubatch_size)))
        counted.add(device, f"multiply_many:{type_name(tensor.type)}", tensor.n_elements * share * times)
        counted.add(device, f"experts_many:{type_name(tensor.type)}", tensor.n_elements * share * times * (share < 1))
        counted.add(device, "values_many", _values(tensor) * share * times)
    counted.add_attention("_many", lambda reach: _seen(tokens, depth, reach), float(tokens))
    counted.add_layers("_many", passes)
    counted.add(counted.last, "request", 1.0)
    return counted.sums


def _values(tensor: TensorInfo) -> float:
    """Return how many values go into a matrix, or into all of several experts, and come out."""
    width, height, *count = tensor.shape
    return float((width + height) * math.prod(count))


def _seen(tokens: int, depth: int, reach: float) -> float:
    """Return the sum of what each token of a prompt sees: all before it, at most `reach`."""
    last = depth + tokens
    if reach >= last:
        return tokens * (depth + last + 1) / 2
    grows = max(0.0, reach - depth)
    return grows * (depth + reach + 1) / 2 + (tokens - grows) * reach


def _of_the_slowest(cells: float, threads: int) -> float:
    """Return the cells that the threads would have seen if each had as many as the first.

    A thread gets as many cells as the others, those beyond the last token included, which it passes over (ggml's
    `flash_attn_ext` on the CPU, for a single token).
    """
    padded = -(-cells // _PADDED) * _PADDED
    return threads * min(cells, -(-padded // threads)) if padded >= _DIVIDED else cells


class _Counter:
    def __init__(self, spec: ModelSpec, options: EstimateOptions) -> None:
        self.sums: _Sums = defaultdict(lambda: defaultdict(float))
        self._spec, self._options = spec, options
        self._facts: Facts = facts_of(spec)
        self._places = place_layers(spec, options)
        self._homes = self._places if options.offload_kv else (-1,) * len(self._places)
        self.last = self._name(self._places[-1])

    def add(self, device: str, kind: str, amount: float) -> None:
        if amount:
            self.sums[device][kind] += amount

    def matrices(self) -> Iterator[tuple[TensorInfo, float, str, bool]]:
        """Yield every matrix that a token meets, the share of it in use, its device, whether it makes the output."""
        weights = self._facts.weights
        route = router(self._options, self._spec)
        for layer, parts in enumerate(loaded_layers(self._spec, weights, self._options)[: self._spec.n_layer]):
            home = self._places[layer]
            experts = -1 if layer < route.host_experts else home
            for part, place in (*route.split(parts.rest, home), *route.split(parts.experts, experts)):
                yield from self._of(part, place, self._share(layer), is_output=False)
        output = weights.output if _has_matrix(weights.output) else weights.input
        yield from self._of(output, self._places[-1], 1.0, is_output=True)

    def _of(
        self, part: Part, place: int, share: float, *, is_output: bool
    ) -> Iterable[tuple[TensorInfo, float, str, bool]]:
        name = self._name(place)
        for tensor in part.tensors:
            if len(tensor.shape) > 1 and not (is_output and not _makes_output(tensor)):
                yield tensor, share if len(tensor.shape) > 2 else 1.0, name, is_output

    def _share(self, layer: int) -> float:
        """Return the share of a layer's experts that a token uses."""
        experts = self._spec.experts
        used = experts.used[layer] if experts and layer < len(experts.used) else 0
        return used / experts.count if experts and experts.count and used else 1.0

    def add_attention(self, suffix: str, seen: Callable[[float], float], tokens: float, threads: int = 1) -> None:
        """Add what attention costs; `seen` gives the cells that all tokens together see, at most so many each."""
        types = {self._options.cache_type_k, self._options.cache_type_v}
        divided = len(types) == 1 and types <= _DIVIDED_TYPES
        for rule in self._facts.caches:
            found = seen(self._reach(rule)) / rule.ratio
            for row in rule.layers:
                device = self._name(self._homes[row.layer])
                cells = _of_the_slowest(found, threads) if device == HOST and divided else found
                amount = self._multiplications(row) * cells
                self.add(device, f"attend{suffix}", amount)
                self.add(device, "attend_rest", 0.0 if suffix else amount * self._rest(row))
                self.add(device, f"cache{suffix}", self._cell_bytes(row) * cells / (tokens if suffix else 1.0))
        for layer, size in enumerate(self._facts.states[: self._spec.n_layer]):
            self.add(self._name(self._homes[layer]), f"state{suffix}", 2.0 * size * tokens)

    def add_layers(self, suffix: str, times: int) -> None:
        for layer in range(self._spec.n_layer):
            self.add(self._name(self._places[layer]), f"layer{suffix}", float(times))
        for device in set(map(self._name, self._places)):
            self.add(device, f"trip{suffix}", float(times) if is_lent(device) else 0.0)

    def _reach(self, rule: CacheRule) -> float:
        if self._spec.indexer and rule.name == "attention":
            return float(self._spec.indexer.top_k or 1 << 40)
        return float(rule.window or 1 << 40)

    def _multiplications(self, row: CacheLayer) -> float:
        heads, kv = self._spec.n_head[row.layer], self._spec.n_head_kv[row.layer]
        if self._spec.mla:
            return float(heads * (row.k_width + self._spec.kv_lora_rank))
        return (row.k_width + row.v_width) * heads / max(1, kv)

    def _rest(self, row: CacheLayer) -> float:
        """Return the share of a head's elements that vector code of some processors takes one by one.

        With AVX512-FP16 ggml's loops over halves take 128 elements at a time.
        """
        width = row.k_width // max(1, self._spec.n_head_kv[row.layer])
        return width % _VECTOR / width if width else 0.0

    def _cell_bytes(self, row: CacheLayer) -> float:
        keys = row_bytes(self._options.cache_type_k, row.k_width)
        return float(keys + row_bytes(self._options.cache_type_v, row.v_width))

    def _name(self, place: int) -> str:
        return HOST if place < 0 else self._options.devices[place]


def _has_matrix(part: Part) -> bool:
    return any(_makes_output(tensor) for tensor in part.tensors)


def _makes_output(tensor: TensorInfo) -> bool:
    return len(tensor.shape) > 1 and tensor.name in {"output.weight", "token_embd.weight"}
