"""What holds for every plan: for any model on record, machine, policy and company."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import assume, given
from hypothesis import strategies as st

from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate
from supervisor.core.plan import (
    Budget,
    Budgets,
    DoesNotFit,
    Explicit,
    Learned,
    Placement,
    PlanRequest,
    Policy,
    Resident,
    plan,
)
from tests.core.plan.support import breaches, spec_of
from tests.evidence.subjects import recorded_subjects

KNOWN = [name for name in recorded_subjects() if "/" not in name]
SUBJECTS = [
    name for name in recorded_subjects() if isinstance(estimate(spec_of(name), EstimateOptions()), MemoryEstimate)
]
subjects = st.sampled_from(KNOWN) | st.sampled_from(SUBJECTS)
shares = st.integers(0, 130).map(lambda percent: percent / 100)


def size_of(subject: str) -> int:
    """What the model takes with a middling context on one device: the measure of machines."""
    found = estimate(spec_of(subject), EstimateOptions(ctx_size=min(16384, spec_of(subject).n_ctx_train)))
    assert isinstance(found, MemoryEstimate)
    return found.total_bytes


@st.composite
def machines(draw: st.DrawFn, size: int, crowded: bool) -> Budgets:
    backends = draw(st.sampled_from((("cuda",), ("vulkan",), ("cuda", "vulkan", "rpc"))))
    kinds = draw(st.lists(st.sampled_from(backends), min_size=int(crowded), max_size=4))
    budgets = [device(f"GPU{number}", kind, int((crowded + draw(shares)) * size)) for number, kind in enumerate(kinds)]
    if budgets and draw(st.integers(0, 4)) == 0:
        budgets[-1] = replace(budgets[-1], shares_host=True)
    host = int(size * draw(st.integers(5, 150)) / 100)
    return Budgets(tuple(budgets), Budget("CPU", "cpu", host, host, size // 100))


def device(name: str, backend: str, usable: int) -> Budget:
    return Budget(name, backend, usable, usable, usable // 50)


@st.composite
def companies(draw: st.DrawFn, budgets: Budgets, crowded: bool) -> list[Resident]:
    names = [budget.name for budget in budgets.devices]
    found = []
    for number in range(draw(st.integers(2 if crowded else 0, 5))):
        used = {}
        for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []:
            usable = next(budget.usable_bytes for budget in budgets.devices if budget.name == name)
            used[name] = usable * draw(st.integers(5, 60 if crowded else 40)) // 100
        used["CPU"] = budgets.host.usable_bytes * draw(st.integers(0, 20)) // 100
        found.append(
            Resident(
                engine=number + 1,
                model=f"model-{number + 1}",
                used_bytes=used,
                evictable=draw(st.booleans()),
                reload_seconds=draw(st.integers(1, 60)),
                idle_seconds=draw(st.integers(0, 3600)),
                priority=draw(st.integers(-1, 2)),
            )
        )
    return found


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    return Policy(
        context_target=draw(st.sampled_from((512, 8192, 32768, 100_000))),
        context_min=draw(st.sampled_from((256, 4096))),
        growth_share=draw(st.sampled_from((0.0, 0.25, 1.0))),
        kv_types=draw(st.sampled_from((("f16",), ("f16", "q8_0"), ("q8_0", "q4_0")))),
        cpu_moe=draw(st.booleans()),
        partial_offload=draw(st.booleans()),
        overcommit=draw(st.sampled_from(("off", "off", "mmap"))),
    )


@st.composite
def starts(draw: st.DrawFn) -> EstimateOptions:
    return EstimateOptions(
        parallel=draw(st.none() | st.integers(1, 6)),
        kv_unified=draw(st.booleans()),
        ubatch_size=draw(st.sampled_from((128, 512))),
        offload_kv=draw(st.sampled_from((True, True, True, False))),
    )


@st.composite
def learnings(draw: st.DrawFn) -> Learned | None:
    if draw(st.integers(0, 3)):
        return None
    names = ("GPU0", "GPU1", "CPU")
    compute = draw(st.dictionaries(st.sampled_from(names), st.floats(0.5, 1.5)))
    return Learned(compute, draw(st.dictionaries(st.sampled_from(names), st.integers(0, 1 << 20))))


@dataclass(frozen=True)
class Situation:
    """A question to the planner, whose printed form is short enough to read."""

    subject: str
    options: EstimateOptions
    projector_bytes: int
    drafts: bool
    learned: Learned | None
    budgets: Budgets
    residents: tuple[Resident, ...]
    policy: Policy

    def request(self, explicit: Explicit | None = None) -> PlanRequest:
        return PlanRequest(
            self.subject,
            spec_of(self.subject),
            options=self.options,
            explicit=explicit or Explicit(),
            projector_bytes=self.projector_bytes,
            draft=spec_of("llama/wide") if self.drafts else None,
            learned=self.learned,
        )

    def parts(self) -> tuple[PlanRequest, Budgets, tuple[Resident, ...], Policy]:
        return self.request(), self.budgets, self.residents, self.policy

    def answer(self, explicit: Explicit | None = None) -> Placement | DoesNotFit:
        return plan(self.request(explicit), self.budgets, self.residents, self.policy)


@st.composite
def situations(draw: st.DrawFn, crowded: bool = False) -> Situation:
    subject = draw(subjects)
    size = size_of(subject)
    budgets = draw(machines(size, crowded))
    return Situation(
        subject,
        options=draw(starts()),
        projector_bytes=draw(st.sampled_from((0, 0, size // 20))),
        drafts=draw(st.integers(0, 4)) == 0,
        learned=draw(learnings()),
        budgets=budgets,
        residents=tuple(draw(companies(budgets, crowded))),
        policy=draw(policies()),
    )


def rank(found: Placement, request: PlanRequest, policy: Policy) -> tuple[int, ...]:
    """The step of the ladder, as far as a plan shows it."""
    total = request.spec.n_layer_all + 1
    reached = found.estimate.n_ctx_seq >= found.wanted_ctx
    if not found.devices:
        family = 4
    elif found.n_gpu_layers < total:
        family = 3
    else:
        family = 2 if found.n_cpu_moe else 0 if reached else 1
    kv = [*policy.kv_types, *(found.options.cache_type_k,)].index(found.options.cache_type_k)
    moved = found.n_cpu_moe if family == 3 else 0
    again = not found.options.repack  # down the ladder a second time
    return again, family, kv if family in {0, 4} and reached else 9, -moved, 0 if reached or family == 1 else 1


@given(situations())
def test_no_budget_is_exceeded(situation: Situation) -> None:
    request, budgets, residents, policy = situation.parts()
    found = situation.answer()
    if isinstance(found, Placement):
        assert breaches(found, request, budgets, residents) == []
        assert all(part.left_bytes >= 0 for part in found.parts)
        assert sum(part.layers for part in found.parts) == request.spec.n_layer_all + 1
        assert all(part.layers for part in found.parts[:-1])  # nobody asked for a device that holds none
        assert found.options.ctx_size is not None
        assert found.estimate.n_ctx_seq >= min(policy.context_min, policy.context_target, found.native_ctx)
        assert found.fitting_ctx <= found.native_ctx
    else:
        assert found.message
        assert found.later == bool(found.blockers)


@given(situations())
def test_the_same_question_has_the_same_answer(situation: Situation) -> None:
    request, budgets, residents, policy = situation.parts()
    found = situation.answer()
    assert found == plan(replace(request), budgets, residents[::-1], policy)


@given(situations(), st.data())
def test_more_of_a_machine_is_never_worse(situation: Situation, data: st.DataObject) -> None:
    """It still fits, on no later step of the ladder: so a wanted context that was reached is still reached."""
    request, budgets, residents, policy = situation.parts()
    found = situation.answer()
    if isinstance(found, DoesNotFit):
        return
    size = size_of(request.model)
    devices = list(budgets.devices)
    host = budgets.host
    what = data.draw(st.sampled_from(("device", "memory", "host")))
    if what == "device":
        assume(devices or policy.partial_offload)
        kind = data.draw(st.sampled_from(("cuda", "vulkan", "rpc")))
        more = device("MORE", kind, int(data.draw(shares) * size))
        devices.insert(data.draw(st.integers(0, len(devices))), more)
    elif what == "memory" and devices:
        at = data.draw(st.integers(0, len(devices) - 1))
        more_bytes = int(data.draw(shares) * size)
        devices[at] = replace(devices[at], usable_bytes=devices[at].usable_bytes + more_bytes)
    else:
        host = replace(host, usable_bytes=host.usable_bytes + int(data.draw(shares) * size))
    after = plan(request, Budgets(tuple(devices), host), residents, policy)
    assert isinstance(after, Placement), after
    assert rank(after, request, policy) <= rank(found, request, policy)


@given(situations())
def test_fewer_residents_are_never_worse(situation: Situation) -> None:
    request, budgets, residents, policy = situation.parts()
    found = situation.answer()
    if isinstance(found, DoesNotFit) or not residents:
        return
    after = plan(request, budgets, residents[1:], policy)
    assert isinstance(after, Placement), after
    assert rank(after, request, policy) <= rank(found, request, policy)


@given(situations(crowded=True))
def test_nobody_leaves_in_vain(situation: Situation) -> None:
    """All who leave may leave; were one of them to stay, the plan would be of a later step."""
    request, budgets, residents, policy = situation.parts()
    found = situation.answer()
    if isinstance(found, DoesNotFit):
        return
    assert breaches(found, request, budgets, residents) == []
    assert all(resident.evictable for resident in residents if resident.engine in found.evict)
    for kept in found.evict:
        company = [
            replace(resident, evictable=resident.engine in found.evict and resident.engine != kept)
            for resident in residents
        ]
        without = plan(request, budgets, company, policy)
        assert isinstance(without, DoesNotFit) or rank(without, request, policy) > rank(found, request, policy)


@given(situations(), st.data())
def test_what_the_user_says_comes_out_unchanged(situation: Situation, data: st.DataObject) -> None:
    request, budgets, residents, policy = situation.parts()
    names = [budget.name for budget in budgets.devices]
    listed = data.draw(st.none() | st.permutations(names).map(tuple)) if names else None
    count = len(names if listed is None else listed)
    explicit = Explicit(
        ctx_size=data.draw(st.none() | st.integers(1, 40_000)),
        devices=listed,
        tensor_split=data.draw(st.none() | st.tuples(*[st.integers(1, 9).map(float)] * count)) if count > 1 else None,
        split_mode=data.draw(st.sampled_from((None, None, "layer", "none"))),
        main_gpu=data.draw(st.none() | st.integers(0, count - 1)) if count else None,
        n_gpu_layers=data.draw(st.none() | st.integers(-1, request.spec.n_layer_all + 3)),
        n_cpu_moe=data.draw(st.none() | st.integers(0, request.spec.n_layer_all)),
        cache_type_k=data.draw(st.sampled_from((None, "f16", "q8_0"))),
        cache_type_v=data.draw(st.sampled_from((None, "f16", "q8_0"))),
    )
    request = replace(request, explicit=explicit)
    found = plan(request, budgets, residents, policy)
    if isinstance(found, DoesNotFit):
        return
    assert breaches(found, request, budgets, residents) == []
    wanted = explicit.devices if explicit.devices is None or found.n_gpu_layers else ()  # without layers: no device
    shown = (
        (explicit.ctx_size, found.options.ctx_size),
        (wanted, found.devices),
        (explicit.split_mode, found.split_mode),
        (explicit.n_gpu_layers, found.n_gpu_layers),
        (explicit.n_cpu_moe, found.n_cpu_moe),
        (explicit.cache_type_k, found.options.cache_type_k),
        (explicit.cache_type_v, found.options.cache_type_v),
    )
    assert [pair for pair in shown if pair[0] is not None and pair[0] != pair[1]] == []
    if explicit.main_gpu is not None:
        assert found.main_gpu == explicit.main_gpu
    if explicit.tensor_split and found.n_gpu_layers and found.split_mode == "layer":
        assert found.options.tensor_split == explicit.tensor_split


@given(situations(), st.integers(1, 400), st.integers(0, 400))
def test_a_larger_context_never_costs_less(situation: Situation, steps: int, more: int) -> None:
    """Of the same cache type with all on devices; and where the larger fits, so does the smaller.

    It takes no more devices of the same kinds; a kind that is tried first may need more than the next one.
    """
    request, budgets, _, policy = situation.parts()
    assume(budgets.devices)
    policy = replace(policy, cpu_moe=False, partial_offload=False, kv_types=policy.kv_types[:1])
    unit = 256 * (request.options.parallel or 1)
    less, greater = (
        plan(replace(request, explicit=Explicit(ctx_size=count * unit)), budgets, (), policy)
        for count in (steps, steps + more)
    )
    if isinstance(greater, Placement):
        assert isinstance(less, Placement), less
        if less.devices == greater.devices:
            assert sum(less.used_bytes.values()) <= sum(greater.used_bytes.values())
        kinds = {budget.name: (budget.backend, budget.shares_host) for budget in budgets.devices}
        if {kinds[name] for name in less.devices} == {kinds[name] for name in greater.devices}:
            assert len(less.devices) <= len(greater.devices)
