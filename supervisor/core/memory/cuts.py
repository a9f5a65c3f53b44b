"""The ways in which a graph is cut between devices and the host, and what every cut adds to a compute buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from supervisor.core.memory.carried import carries
from supervisor.core.memory.context import Context
from supervisor.core.memory.options import EstimateOptions


@dataclass(frozen=True, slots=True)
class Cut:
    """The cut of a graph: copies of the inputs, rows of the residual stream per place, the share of the core.

    Attributes:
        first, others: rows on the first device that is used, and on those after it.
        scans: rows more beside Mamba's layers, on the first device and on those after it.
        amid: of these, rows more after the first of three devices or more. Of some architectures `Graph.scan_rows`
            counts instead of both.
        states: copies of a recurrent state that travel.
        per_layer: copies of the per-layer embeddings that travel.
        device_core, host_core: what is computed there: all, the experts, what is left without them, or nothing.
        lends: the host keeps the caches and lends them to the devices.
    """

    copies: int
    first: int
    others: int
    host: int
    scans: tuple[int, int] = (0, 0)
    amid: int = 0
    states: int = 0
    per_layer: int = 0
    device_core: str = "all"
    host_core: str = ""
    lends: bool = False

    @property
    def is_carried(self) -> bool:
        """Return whether layers of the host are computed on the first device."""
        return self.host_core == "scans"


ON_HOST = Cut(copies=1, first=0, others=0, host=5, host_core="all")
ON_ONE_DEVICE = Cut(copies=1, first=4, others=4, host=4)
CARRIED = Cut(copies=1, first=6, others=6, host=4, scans=(4, 4), per_layer=2, host_core="scans")
CARRIED_EXPERTS = Cut(copies=1, first=5, others=5, host=4, device_core="bare")
CARRIED_SOME = Cut(copies=1, first=9, others=9, host=4)
BOTH = Cut(copies=1, first=6, others=6, host=5, per_layer=2, host_core="all")
HOST_CACHE = Cut(copies=1, first=8, others=8, host=5, states=12, per_layer=5, lends=True)
HOST_CACHE_EXPERTS = replace(HOST_CACHE, host_core="experts")
SOME_EXPERTS = Cut(copies=1, first=9, others=9, host=5, host_core="experts")
NO_EXPERTS = Cut(copies=1, first=9, others=9, host=5, device_core="rest", host_core="experts")
NO_EXPERTS_AHEAD = Cut(copies=1, first=8, others=8, host=5, device_core="rest", host_core="experts")
PIPELINE = Cut(copies=4, first=17, others=12, host=10, scans=(8, 20), amid=6)

_PLAIN = {
    CARRIED: replace(CARRIED, others=2),
    CARRIED_EXPERTS: replace(CARRIED_EXPERTS, others=2),
    CARRIED_SOME: replace(CARRIED_SOME, first=5, others=2),
    HOST_CACHE: replace(HOST_CACHE, first=4, others=3, host=4),
    HOST_CACHE_EXPERTS: replace(HOST_CACHE_EXPERTS, first=4, others=3, host=2),
    SOME_EXPERTS: replace(SOME_EXPERTS, first=4, others=4, host=2),
    NO_EXPERTS: replace(NO_EXPERTS, first=4, others=4, host=2),
    NO_EXPERTS_AHEAD: replace(NO_EXPERTS_AHEAD, first=4, others=4, host=2),
}
"""The same for layers of attention and a feed-forward part, whose rows are known one by one.

What the scheduler copies to a device at the start of its part of the graph is allocated there
(`ggml_backend_sched_split_graph`). On the first device that is the embeddings of tokens and those of images, which one
node joins: a row of it stays (`build_inp_embd`). Beside it are the row that is being made, its norm and the place of
what came in. A later device has the row that arrives, and its norm. On the host the two inputs of the embeddings stay,
and until the devices have them two rows that were looked up.
"""


def cut_of(options: EstimateOptions, context: Context, places: Sequence[int], is_plain: bool = False) -> Cut:
    """Return the cut for a placement; `is_plain` as in `Facts`."""
    found = _cut_of(options, context, places)
    return _PLAIN.get(found, found) if is_plain else found


def _cut_of(options: EstimateOptions, context: Context, places: Sequence[int]) -> Cut:
    if max(places) < 0:
        return ON_HOST
    carried = carries(options, context, places)
    if min(places) < 0:
        return CARRIED if carried else BOTH
    if not options.offload_kv:
        return HOST_CACHE if carried or not _keeps_experts(options) else HOST_CACHE_EXPERTS
    if options.cpu_moe:
        kept = NO_EXPERTS_AHEAD if options.traits.reorders else NO_EXPERTS
        return CARRIED_EXPERTS if carried else kept
    if _keeps_experts(options):
        return CARRIED_SOME if carried else SOME_EXPERTS
    return ON_ONE_DEVICE if len(options.devices) == 1 else PIPELINE


def _keeps_experts(options: EstimateOptions) -> bool:
    """Return whether experts, or what the user names, may stay on the host."""
    return options.cpu_moe or options.n_cpu_moe > 0 or bool(options.override_tensors)
