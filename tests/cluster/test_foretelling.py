"""Where a request would go, as one node tells it: from offers that come, that are no offers, and that do not come."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from supervisor.api.app import framework
from supervisor.api.services import Services
from supervisor.cluster.foretelling import Foretelling
from supervisor.cluster.peers import offer_of
from supervisor.core.cluster.directory import Directory
from supervisor.core.cluster.messages import Claim, Running
from supervisor.core.cluster.placing import Offer
from supervisor.errors import ClusterUnavailable, ModelNotFound, NodeLost, SupervisorError
from tests.core.test_cluster import ME, MODEL, directory, runs
from tests.support.schemas import faults

pytestmark = pytest.mark.anyio

GOOD: Mapping[str, Any] = {"fits": True, "evict": [], "evict_models": [], "request_ctx": 4096, "speed": None}


def plan(**more: Any) -> Mapping[str, Any]:
    """A node's plan."""
    return {**GOOD, **more}


def foretelling(
    known: Directory, offers: Mapping[str, Offer | SupervisorError], running: Running | None = None
) -> Foretelling:
    """One that gets these offers."""

    async def offer(model: str, name: str) -> Offer | SupervisorError:
        assert model == MODEL
        return offers[name]

    async def own(target: str) -> Mapping[str, Any]:
        raise ModelNotFound(f"No model {target}.")

    return Foretelling(known, lambda _: running, known.id_of, offer, own, lambda: 0.0)


def of(name: str, **more: Any) -> Offer:
    return offer_of(name, plan(**more))


async def test_the_best_offer_is_chosen_and_every_answer_is_shown() -> None:
    lost = NodeLost("The node c cannot be reached.")
    told = {"message": "It does not fit.", "blocking_models": ["big"]}
    offers: dict[str, Offer | SupervisorError] = {
        ME: of(ME, evict=[1], evict_models=["x"]),
        "b": of("b", speed={"decode_tokens_per_second": {"0": 7.5}}),
        "c": lost,
        "d": offer_of("d", {"fits": False, **told}),
    }
    found = await foretelling(directory(), offers).plan(f"{MODEL}-alias")
    assert (found.node, found.why) == ("b", "fewer models have to leave there")
    assert found.plan == offers["b"].plan  # type: ignore[union-attr]  # it is an offer
    assert found.foreign
    shown = {one.node: one for one in found.offers}
    assert {name: one.fits for name, one in shown.items()} == {ME: True, "b": True, "c": None, "d": False}
    assert [name for name, one in shown.items() if one.chosen] == ["b"]
    assert [name for name, one in shown.items() if one.here] == [ME]
    assert shown[ME].evict_models == ("x",)
    assert (shown["b"].tokens_per_second, shown["b"].request_ctx) == (7.5, 4096)
    assert (shown["c"].why, shown["d"].why) == (lost.message, "It does not fit.")
    assert shown["d"].evict_models == ("big",)


async def test_where_it_fits_nowhere_the_refusal_of_this_node_is_shown() -> None:
    refused = {name: offer_of(name, {"fits": False, "message": name}) for name in (ME, "b")}
    found = await foretelling(directory("b"), refused).plan(MODEL)
    assert (found.node, found.why, found.foreign) == (None, "it fits on no node now", False)
    assert found.plan == refused[ME].plan


async def test_where_nobody_answers_it_is_an_error() -> None:
    with pytest.raises(NodeLost):
        await foretelling(directory("b"), {ME: NodeLost("x"), "b": NodeLost("y")}).plan(MODEL)
    with pytest.raises(ModelNotFound):
        await foretelling(directory("b"), {}).plan("nowhere")
    alone = directory("b")
    alone.disconnect()
    with pytest.raises(ClusterUnavailable):
        await foretelling(alone, {}).plan(MODEL)


async def test_a_model_that_is_there_already_is_answered_there() -> None:
    known = directory("b")
    runs(known, "b")
    found = await foretelling(known, {"b": of("b")}).plan(MODEL)
    assert (found.node, found.why) == ("b", "it has it loaded")
    here = await foretelling(directory("b"), {ME: of(ME)}, Running("loading")).plan(MODEL)
    assert (here.node, here.why, here.foreign) == (ME, "it is loading it", False)


async def test_a_model_that_is_claimed_is_answered_by_who_has_the_claim() -> None:
    known = directory("b")
    known.claimed(Claim(MODEL, "b"), 1, 0.0)
    found = await foretelling(known, {"b": of("b")}).plan(MODEL)
    assert (found.node, found.why) == ("b", "it has claimed it, and is about to load it")
    known.unreachable("b", 0.0, gone=False)
    away = await foretelling(known, {}).plan(MODEL)
    assert (away.node, away.offers) == (None, [])
    assert "b may have loaded it" in away.why


@pytest.mark.parametrize(
    "said",
    [{"evict_models": [7]}, {"evict_models": "m"}, {"request_ctx": -1}, {"request_ctx": 1 << 80}, {"message": []}],
)
async def test_a_plan_that_is_none_is_not_shown(said: dict[str, Any]) -> None:
    found = await foretelling(directory("b"), {ME: NodeLost("x"), "b": of("b", **said)}).plan(MODEL)
    shown = {one.node: one for one in found.offers}
    assert (shown["b"].fits, shown["b"].evict_models) == (None, ())
    assert "not understood" in str(shown["b"].why)


@pytest.mark.parametrize("speed", [1e300, -1.0, "fast", None, [], 10**400, True])
def test_a_speed_that_cannot_be_is_none(speed: Any) -> None:
    found = offer_of("b", plan(speed={"decode_tokens_per_second": {"0": speed}}))
    assert found.tokens_per_second is None or 0 <= found.tokens_per_second <= 1


async def test_of_another_node_s_plan_nothing_is_told_that_is_not_one() -> None:
    found = await foretelling(directory("b"), {ME: NodeLost("x"), "b": of("b", evil="\x1b[2J")}).plan(MODEL)

    async def told(target: str) -> Any:
        return found

    app = framework(cast(Services, SimpleNamespace(cluster=SimpleNamespace(plan=told))))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://node") as client:
        answer = (await client.post("/api/v1/cluster/plan", json={"target": MODEL})).json()
    assert faults(answer, "post", "/api/v1/cluster/plan") == []
    assert (answer["node"], answer["plan"]) == ("b", None)
