"""The directory of a cluster's nodes, the choice of one, and what nodes tell each other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.cluster import messages as m
from supervisor.core.cluster.choice import Choice, Go, Nowhere, Place, Spill, Wait, Wanted, choose
from supervisor.core.cluster.directory import CLAIM_S, SILENT_S, Directory
from supervisor.core.cluster.placing import Offer, best, why_best
from supervisor.core.cluster.running import running_of
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.core.schedule.view import EngineView, ModelView

ME, OTHERS = "a", ("b", "c", "d")
MODEL = "m"


def node(name: str, *models: str) -> m.Node:
    """A node that knows these models."""
    return m.Node(name, "127.0.0.1", 1, "1", {model: (f"{model}-alias",) for model in models or (MODEL,)})


def load(name: str, number: int = 1, **more: object) -> m.Load:
    """What a node does."""
    return msgspec.convert({"node": name, "number": number, "started_at": 1.0, "free_bytes": 1 << 30, **more}, m.Load)


def directory(*names: str) -> Directory:
    """A directory of nodes that were all heard at 0."""
    found = Directory(ME, connected=True)
    for name in (ME, *(names or OTHERS)):
        found.put(node(name))
        found.hear(load(name), 0.0)
    return found


def runs(found: Directory, name: str, number: int = 2, now: float = 0.0, **running: object) -> None:
    """Have a node tell that the model runs there."""
    found.hear(load(name, number, models={MODEL: {"state": "ready", "slots": 2, **running}}), now)


def test_names_lead_to_the_same_model_everywhere() -> None:
    found = Directory(ME)
    found.put(node("b", "x", "y"))
    found.put(node("c", "y"))
    assert found.id_of("x") == found.id_of("x-alias") == "x"
    assert found.id_of("z") is None
    assert set(found.models()) == {"x", "y"}
    found.remove("b")
    assert found.id_of("x") is None


def test_an_id_of_one_node_counts_before_an_alias_of_another() -> None:
    found = Directory(ME)
    found.put(m.Node("b", "h", 1, "1", {"big": ("small",)}))
    found.put(m.Node("c", "h", 1, "1", {"small": ()}))
    assert found.id_of("small") == "small"


def test_a_load_that_is_older_than_the_last_one_is_passed_over() -> None:
    found = directory()
    assert found.hear(load("b", 5), 1.0)
    assert not found.hear(load("b", 4), 2.0)
    assert found.hear(load("b", 1, started_at=0.5), 3.0)  # it was started again, and its clock was set back
    assert not found.hear(load("unknown", 1), 3.0)


def test_a_model_that_runs_is_answered_where_it_runs() -> None:
    found = directory()
    runs(found, "c")
    assert choose(found, Wanted(MODEL), 0.0) == Go("c")


def test_a_free_slot_here_is_preferred_and_then_the_shortest_queue() -> None:
    found = directory()
    runs(found, "b", busy=1)
    here = m.Running("ready", 1, 0, 0)
    assert choose(found, Wanted(MODEL, here=here), 0.0) == Go(ME)
    assert choose(found, Wanted(MODEL, here=m.Running("ready", 1, 1, 0)), 0.0) == Go("b")
    runs(found, "b", 3, busy=2, waiting=4)
    assert choose(found, Wanted(MODEL, here=m.Running("ready", 1, 1, 1)), 0.0) == Go(ME)


def test_a_conversation_stays_where_it_was_until_too_many_wait_there() -> None:
    found = directory()
    for name in OTHERS:
        runs(found, name)
    chosen = {key: choose(found, Wanted(MODEL, key), 0.0) for key in map(str, range(40))}
    assert {one.node for one in chosen.values() if isinstance(one, Go)} == set(OTHERS)
    full = chosen["0"]
    assert isinstance(full, Go)
    runs(found, full.node, 3, busy=2, waiting=2)
    assert choose(found, Wanted(MODEL, "0"), 0.0) != full
    found.remove(next(name for name in OTHERS if Go(name) not in {full, chosen["1"]}))
    assert choose(found, Wanted(MODEL, "1"), 0.0) == chosen["1"] or chosen["1"] == full


def test_a_model_that_comes_up_is_waited_for_there() -> None:
    found = directory()
    runs(found, "d", state="loading", slots=0)
    assert choose(found, Wanted(MODEL), 0.0) == Go("d")


def test_who_has_claimed_a_model_gets_its_requests() -> None:
    found = directory()
    found.claimed(m.Claim(MODEL, "b"), 7, 0.0)
    assert choose(found, Wanted(MODEL), 1.0) == Go("b")
    assert choose(found, Wanted(MODEL, tried=frozenset({"b"})), 1.0) == Go("b")  # nobody else may load it


def test_a_claim_of_a_node_that_cannot_be_reached_is_waited_for_to_its_end() -> None:
    found = directory()
    found.claimed(m.Claim(MODEL, "b"), 7, 0.0)
    found.unreachable("b", 1.0, gone=False)
    assert isinstance(choose(found, Wanted(MODEL), 1.0), Wait)
    for name in (ME, "c", "d"):
        found.hear(load(name, 2), CLAIM_S)
    ended = choose(found, Wanted(MODEL), CLAIM_S)
    assert isinstance(ended, Place)
    assert "b" not in ended.nodes


def test_a_claim_of_a_node_whose_daemon_has_ended_is_taken_over_at_once() -> None:
    found = directory()
    found.claimed(m.Claim(MODEL, "b"), 7, 0.0)
    found.unreachable("b", 1.0, gone=True)
    chosen = choose(found, Wanted(MODEL), 1.0)
    assert isinstance(chosen, Place)
    assert chosen.over is not None
    assert chosen.over.revision == 7


def test_who_is_silent_gets_nothing_new() -> None:
    found = directory()
    runs(found, "b")
    for name in (ME, "c", "d"):
        found.hear(load(name, 9), SILENT_S)
    assert isinstance(choose(found, Wanted(MODEL), SILENT_S), Place)
    found.disconnect()  # then nobody is heard, which says nothing of the others
    assert choose(found, Wanted(MODEL), SILENT_S) == Go("b")


def test_nobody_was_silent_who_could_not_be_heard() -> None:
    found = directory()
    runs(found, "b")
    found.disconnect()
    found.connect(SILENT_S * 2)
    assert choose(found, Wanted(MODEL), SILENT_S * 2) == Go("b")
    seen = found.node("b")
    assert seen is not None
    assert not found.is_silent(seen, SILENT_S * 2)
    assert found.is_silent(seen, SILENT_S * 3)


def test_without_a_connection_nothing_is_placed() -> None:
    found = directory()
    found.disconnect()
    assert isinstance(choose(found, Wanted(MODEL), 0.0), Nowhere)


def test_who_drains_is_not_asked_and_most_memory_is_asked_first() -> None:
    found = directory()
    found.hear(load("b", 2, draining=True), 0.0)
    found.hear(load("c", 2, free_bytes=4 << 30), 0.0)
    chosen = choose(found, Wanted(MODEL), 0.0)
    assert isinstance(chosen, Place)
    assert chosen.nodes == ("c", ME, "d")


def test_an_older_claim_does_not_replace_a_newer_one() -> None:
    found = directory()
    found.claimed(m.Claim(MODEL, "b"), 7, 0.0)
    found.claimed(m.Claim(MODEL, "c"), 6, 0.0)
    found.unclaimed(m.key_of(MODEL), 6)
    (claim,) = found.claims(MODEL, 0.0)
    assert claim.claim.node == "b"
    found.unclaimed(m.key_of(MODEL), 8)
    assert not found.claims(MODEL, 0.0)


def test_each_copy_of_a_model_has_a_claim_of_its_own() -> None:
    found = directory()
    found.claimed(m.Claim(MODEL, "b"), 7, 0.0)
    found.claimed(m.Claim(MODEL, "c", replica=2), 8, 5.0)
    assert [one.claim.node for one in found.claims(MODEL, 5.0)] == ["b", "c"]
    assert found.claim(MODEL, "c", 5.0) == found.claims(MODEL, 5.0)[1]
    assert found.claim(MODEL, "d", 5.0) is None
    assert found.free_replica(MODEL, 5.0) == 1
    assert found.free_replica(MODEL, CLAIM_S) == 0  # the first one has ended
    assert found.claims_of("b", 5.0) == [MODEL]
    assert found.claims_of("b", CLAIM_S) == []
    found.unclaimed(m.key_of(MODEL, 1), 9)  # nobody has it
    found.unclaimed(m.key_of(MODEL, 2), 9)
    assert [one.claim.node for one in found.claims(MODEL, 5.0)] == ["b"]


def test_nothing_is_kept_of_claims_that_have_ended() -> None:
    found = directory()
    for number in range(1000):
        found.claimed(m.Claim(f"model-{number}", "b"), number + 1, 0.0)
    found.claimed(m.Claim(MODEL, "c"), 2000, 5.0)
    found.end_claims(CLAIM_S)
    assert [one.claim.node for one in found.claims(MODEL, CLAIM_S)] == ["c"]
    assert len(found._claims) == len(found._claim_keys) == 1
    found.unclaimed(m.key_of("model-1"), 3000)  # told of late
    found.unclaimed(m.key_of(MODEL), 3000)
    assert not found._claims
    assert not found._claim_keys


def test_of_several_claims_the_one_that_can_be_reached_counts() -> None:
    found = directory()
    found.claimed(m.Claim(MODEL, "b"), 7, 0.0)
    found.claimed(m.Claim(MODEL, "c", replica=1), 8, 0.0)
    found.unreachable("b", 1.0, gone=False)
    assert choose(found, Wanted(MODEL), 1.0) == Go("c")
    found.unreachable("c", 1.0, gone=True)
    assert isinstance(choose(found, Wanted(MODEL), 1.0), Wait)
    found.unreachable("b", 1.0, gone=True)
    chosen = choose(found, Wanted(MODEL), 1.0)
    assert isinstance(chosen, Place)
    assert chosen.over == found.claims(MODEL, 1.0)[0]


BEHIND: dict[str, Any] = {"busy": 2, "waiting": 4, "wait_s": 30.0, "load_s": 5.0}


def test_where_requests_wait_longer_than_a_load_takes_one_more_node_may_load_the_model() -> None:
    found = directory()
    runs(found, "b", **BEHIND)
    found.claimed(m.Claim(MODEL, "b"), 7, 0.0)
    found.hear(load("d", 2, free_bytes=8 << 30), 0.0)
    assert choose(found, Wanted(MODEL, spills=True), 0.0) == Spill("b", Place(("d", ME, "c"), replica=1))
    assert choose(found, Wanted(MODEL, spills=False), 0.0) == Go("b")
    assert choose(found, Wanted(MODEL, tried=frozenset({"d"}), spills=True), 0.0) == Spill(
        "b", Place((ME, "c"), replica=1)
    )


@pytest.mark.parametrize(
    "running",
    [
        {**BEHIND, "wait_s": 5.0},  # no longer than a load takes
        {**BEHIND, "wait_s": 1.9, "load_s": 0.1},  # not worth it, however fast it loads
        {"busy": 1, "wait_s": 30.0, "load_s": 5.0},  # a slot is free
        {**BEHIND, "state": "loading"},
    ],
)
def test_no_other_copy_is_wanted(running: dict[str, Any]) -> None:
    found = directory()
    runs(found, "b", **running)
    assert choose(found, Wanted(MODEL, spills=True), 0.0) == Go("b")


def test_one_copy_comes_up_at_a_time() -> None:
    found = directory()
    runs(found, "b", **BEHIND)
    found.claimed(m.Claim(MODEL, "b"), 7, 0.0)
    found.claimed(m.Claim(MODEL, "c", replica=1), 8, 0.0)  # nobody has heard yet that it loads
    assert choose(found, Wanted(MODEL, spills=True), 0.0) == Go("b")
    runs(found, "c", state="loading", wait_s=5.0, load_s=5.0)
    assert choose(found, Wanted(MODEL, spills=True), 0.0) == Go("c")  # sooner than at the other one
    runs(found, "c", 3, state="loading", waiting=40, wait_s=40.0, load_s=5.0)
    assert choose(found, Wanted(MODEL, spills=True), 0.0) == Go("b")
    runs(found, "c", 4, **BEHIND)
    chosen = choose(found, Wanted(MODEL, spills=True), 0.0)
    assert isinstance(chosen, Spill)
    assert chosen.place == Place((ME, "d"), replica=2)
    found.disconnect()
    assert isinstance(choose(found, Wanted(MODEL, spills=True), 0.0), Go)


def view(state: EngineState, *, waits_since: float | None = None, **more: Any) -> ModelView:
    """A model with one engine of two slots, whose loads take 5 s and whose requests take 4 s."""
    leases = more.pop("leases", 0)
    engine = EngineView(1, state, leases, 2, None)
    return ModelView(
        state, 1, leases, failure=None, engines=(engine,), waits_since=waits_since,
        **{"waiting": 0, "load_seconds": 5.0, "lease_seconds": 4.0, **more},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (view(EngineState.READY, leases=1), m.Running("ready", 2, 1, 0, 0.0, 5.0)),
        (view(EngineState.READY, leases=2), m.Running("ready", 2, 2, 0, 2.0, 5.0)),
        (view(EngineState.READY, leases=2, waiting=3, waits_since=9.0), m.Running("ready", 2, 2, 3, 8.0, 5.0)),
        (view(EngineState.READY, leases=2, waiting=1, waits_since=-9.0), m.Running("ready", 2, 2, 1, 19.0, 5.0)),
        (view(EngineState.READY, leases=2, lease_seconds=None), m.Running("ready", 2, 2, 0, 0.0, 5.0)),
        (view(EngineState.LOADING, waiting=3, waits_since=9.0), m.Running("loading", 0, 0, 3, 9.0, 5.0)),
        (view(EngineState.RESERVED, lease_seconds=None), m.Running("loading", 0, 0, 0, 5.0, 5.0)),
        (view(EngineState.DRAINING, leases=2), None),
        (view(EngineState.LOADING, waiting=1, waits_since=9.0, leaves=True), None),
    ],
)
def test_how_long_a_request_would_wait_is_told(seen: ModelView, told: m.Running | None) -> None:
    assert running_of(seen, 10.0) == told


STATES = st.builds(
    m.Running, st.sampled_from(("loading", "ready")), *[st.integers(0, 4)] * 3, *[st.sampled_from((0.0, 3.0, 9.0))] * 2
)
REPLICAS = st.integers(0, 2)
EVENTS = st.one_of(
    st.tuples(st.just("hear"), st.sampled_from((ME, *OTHERS)), st.none() | STATES, st.booleans()),
    st.tuples(st.just("claim"), st.sampled_from((ME, *OTHERS)), REPLICAS, st.integers(1, 9)),
    st.tuples(st.just("unclaim"), REPLICAS, st.integers(1, 9)),
    st.tuples(st.just("gone"), st.sampled_from(OTHERS), st.booleans()),
    st.tuples(st.just("remove"), st.sampled_from(OTHERS)),
    st.tuples(st.just("connected"), st.booleans()),
)


@given(st.lists(st.tuples(EVENTS, st.floats(0, 8))), st.none() | STATES, st.sets(st.sampled_from((ME, *OTHERS))))
def test_a_choice_is_always_one_that_can_be_followed(
    told: list[tuple[tuple[object, ...], float]], here: m.Running | None, tried: set[str]
) -> None:
    found, now = directory(), 0.0
    for number, (event, passed) in enumerate(told, 2):
        now += passed
        happens(found, event, number, now)
    chosen = choose(found, Wanted(MODEL, None, frozenset(tried), here, spills=True), now)
    check(found, chosen, now, tried)


def happens(found: Directory, event: tuple[object, ...], number: int, now: float) -> None:
    """Have one of the events happen."""
    match event:
        case ("hear", str(name), running, draining):
            models = {} if running is None else {MODEL: msgspec.to_builtins(running)}
            found.hear(load(name, number, models=models, draining=draining), now)
        case ("claim", str(name), int(replica), int(revision)):
            found.claimed(m.Claim(MODEL, name, replica=replica), revision, now)
        case ("unclaim", int(replica), int(revision)):
            found.unclaimed(m.key_of(MODEL, replica), revision)
        case ("gone", str(name), bool(gone)):
            found.unreachable(name, now, gone=gone)
        case ("remove", str(name)):
            found.remove(name)
        case ("connected", bool(connected)):
            found.connect(now) if connected else found.disconnect()


def check(found: Directory, chosen: Choice, now: float, tried: set[str]) -> None:
    """Nobody is chosen who cannot be reached, nor anybody while another one may have the model loaded."""
    claims = found.claims(MODEL, now)
    match chosen:
        case Go(name):
            seen = found.node(name)
            assert name == ME or (seen is not None and found.alive(seen, now))
        case Place(nodes, over, replica):
            can_load(found, nodes, now, tried)
            owners = [found.node(one.claim.node) for one in claims]
            assert all(owner is None or owner.gone for owner in owners)
            assert not found.having(MODEL, now)
            assert not found.untold(now)
            assert over is (claims[0] if claims else None)
            assert replica == (over.claim.replica if over is not None else 0)
        case Spill(back, place):
            check(found, Go(back), now, tried)
            can_load(found, place.nodes, now, tried)
            assert place.over is None
            assert place.replica not in {one.claim.replica for one in claims}
            assert not {one.claim.node for one in claims} & set(place.nodes)
            assert not {seen.node.name for seen, _ in found.running(MODEL, now)} & set(place.nodes) - {ME}
        case Wait(waited):
            having = [seen for seen in found.having(MODEL, now) if not found.alive(seen, now)]
            assert waited in claims if waited is not None else having or found.untold(now)
        case Nowhere(why):
            assert why


def can_load(found: Directory, nodes: tuple[str, ...], now: float, tried: set[str]) -> None:
    """These may be asked to load the model."""
    assert nodes
    assert found.connected
    assert not set(nodes) & tried
    assert all(found.alive(seen, now) for name in nodes if (seen := found.node(name)) is not None)


@pytest.mark.parametrize(
    ("offers", "wanted"),
    [
        ([Offer("a", fits=False)], None),
        ([Offer("a", fits=False, later=True), Offer("b", fits=False)], "a"),
        ([Offer("a", fits=False, later=True, evicts=2), Offer("b", fits=False, later=True, evicts=1)], "b"),
        ([Offer("a", fits=False, later=True), Offer("b", fits=True, evicts=2)], "b"),
        ([Offer("a", fits=True, evicts=1), Offer("b", fits=True)], "b"),
        ([Offer("a", fits=True, tokens_per_second=5.0), Offer("b", fits=True, tokens_per_second=50.0)], "b"),
        ([Offer("a", fits=True, tokens_per_second=50.0, here=False), Offer("b", fits=True)], "b"),
        ([Offer("a", fits=True), Offer("b", fits=True)], "b"),
    ],
)
def test_the_best_offer(offers: list[Offer], wanted: str | None) -> None:
    found = best(offers, ("b", "a"))
    assert (None if found is None else found.node) == wanted


@pytest.mark.parametrize(
    ("offers", "why"),
    [
        ([Offer("a", fits=True), Offer("b", fits=False)], "no other node"),
        ([Offer("a", fits=True, evicts=1), Offer("b", fits=True)], "fewer models"),
        ([Offer("a", fits=True, here=False), Offer("b", fits=True)], "files"),
        ([Offer("a", fits=True, tokens_per_second=5.0), Offer("b", fits=True, tokens_per_second=50.0)], "fastest"),
        ([Offer("a", fits=True), Offer("b", fits=True)], "most free memory"),
    ],
)
def test_it_is_said_what_makes_an_offer_the_best(offers: list[Offer], why: str) -> None:
    assert why in why_best(offers, ("b", "a"))


@pytest.mark.parametrize(
    "said", [node("b"), load("b"), m.Claim(MODEL, "b"), m.Config(1, "b", 1.0, "")], ids=lambda one: type(one).__name__
)
def test_nodes_of_neighbouring_versions_understand_each_other(said: Any) -> None:
    fields = {**msgspec.to_builtins(said), "of a later version": {"any": [1]}}
    for protocol in (m.PROTOCOL, m.PROTOCOL - 1):
        heard = m.read(msgspec.json.encode({**fields, "protocol": protocol}), type(said))
        assert heard == msgspec.structs.replace(said, protocol=protocol)
    for protocol in (m.PROTOCOL + 1, m.PROTOCOL - 2):
        with pytest.raises(m.NotUnderstood):
            m.read(msgspec.json.encode({**fields, "protocol": protocol}), type(said))


def test_a_node_and_a_claim_are_understood_after_years() -> None:
    """A busy node tells its load twice a second, and a claim is renewed every few."""
    told = 2 * 365 * 86400 * 20
    late, claim = load("b", told), m.Claim(MODEL, "b", told)
    assert m.read(m.bytes_of(late), m.Load) == late
    assert m.read(m.bytes_of(claim), m.Claim) == claim


def test_messages_are_bounded_and_of_a_version_that_is_spoken() -> None:
    told = load("b", models={MODEL: {"state": "ready"}})
    assert m.read(m.bytes_of(told), m.Load) == told
    newer = msgspec.json.encode({**msgspec.to_builtins(told), "more": [1]})
    assert m.read(newer, m.Load) == told
    for damaged in (
        *(b"", b"[]", b"{}", b"[" * 100_000, b'{"node":"../x"}', b'{"node":"\xff"}', b'{"x":' + b"[" * 100_000),
        msgspec.json.encode({**msgspec.to_builtins(told), "node": "b\n"}),
        msgspec.json.encode({**msgspec.to_builtins(told), "protocol": m.PROTOCOL + 1}),
        msgspec.json.encode({**msgspec.to_builtins(told), "free_bytes": -1}),
        msgspec.json.encode({**msgspec.to_builtins(told), "free_bytes": 1 << 60}),
        m.bytes_of(told) + b" " * m.MOST_BYTES,
    ):
        with pytest.raises(m.NotUnderstood):
            m.read(damaged, m.Load)
    for name, host in (("b\n", "10.0.0.1"), ("b", "10.0.0.1\n"), ("b", "a b")):
        said = msgspec.json.encode({**msgspec.to_builtins(node("b")), "name": name, "host": host})
        with pytest.raises(m.NotUnderstood):
            m.read(said, m.Node)
    with pytest.raises(ValueError, match="larger"):
        m.bytes_of(node("b", *(f"{number:04}" * 250 for number in range(1000))))


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({"number": 9}, True),
        ({"free_bytes": (1 << 30) + (255 << 20)}, True),
        ({"free_bytes": (1 << 30) - (256 << 20)}, False),
        ({"draining": True}, False),
        ({"models": {MODEL: {"state": "ready"}}}, False),
    ],
)
def test_a_load_is_told_where_it_says_something_new(more: dict[str, Any], same: bool) -> None:
    assert load("b", **more).says_the_same_as(load("b")) is same


def test_a_key_of_any_model_is_one_that_a_store_takes() -> None:
    models = ("a/b:Q4", "a b", "ü*>", "x" * 1000, ".")
    keys = {m.key_of(model, replica) for model in models for replica in (0, 255)}
    assert len(keys) == 10
    assert all(key.replace("-", "").isalnum() for key in keys)


@pytest.mark.parametrize(
    ("offer", "free"),
    [
        (Offer("a", fits=True), True),
        (Offer("a", fits=False), False),
        (Offer("a", fits=True, evicts=1), False),
        (Offer("a", fits=True, here=False), False),
    ],
)
def test_an_offer_of_free_room_disturbs_nobody(offer: Offer, free: bool) -> None:
    assert offer.is_free is free
