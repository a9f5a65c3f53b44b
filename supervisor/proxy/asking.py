"""Ask an engine for an answer, and give the client what comes: whole, as a stream, or folded."""

from __future__ import annotations

from supervisor.core.recovery import AskAgain
from supervisor.engines.client import EngineResponse
from supervisor.pool.pool import Lease
from supervisor.proxy.answers import Filter, fold, folded, pass_as_it_is, pass_whole, stream_through
from supervisor.proxy.asgi import Responder
from supervisor.proxy.job import Job
from supervisor.proxy.media import check_ending
from supervisor.proxy.metered import metered
from supervisor.proxy.timelimit import Limit


async def ask(job: Job, lease: Lease, responder: Responder) -> None:
    """Answer from the leased engine, within the time that the model allows.

    Raises EngineUnreachable, StreamBroken, EngineStreamInvalid, AskAgain, TooLong, TimeLimit.
    """
    await (_asked if job.limit is None else _within)(job, lease, responder)


async def _asked(job: Job, lease: Lease, responder: Responder) -> None:
    if job.prepared.native:
        await check_ending(lease.client, job.prepared.path, job.body)
    path, payload = await job.question(lease.client)
    filtered = job.new_filter()
    with metered(job.account, job.prepared.asked, job.prepared.path, job.body.size) as meter:
        job.request.is_heard_by(meter.so_far)
        async with job.sent(lease.client, path, payload) as upstream:
            answer = meter.hears(upstream, native=job.prepared.native)
            if job.limit is not None:
                job.limit.watches(answer)
            await _answer(job, answer, filtered, responder)


async def _within(job: Job, lease: Lease, responder: Responder) -> None:
    """Answer, but not for longer than the model allows. Raise TimeLimit where there is nothing to be ended."""
    assert job.limit is not None  # who has none is not asked within it
    try:
        async with job.limit.running():
            await _asked(job, lease, responder)
    except TimeoutError:
        if not responder.ended:
            await _cut(job, job.limit, responder)


async def _cut(job: Job, limit: Limit, responder: Responder) -> None:
    """End an answer in the middle."""
    ending, way = limit.end(), job.prepared.way
    filtered = job.filtered or job.new_filter()
    filtered.cut()
    folding = job.folding = job.folding or job.plan.new_fold()
    if folding is None:
        await responder.comment(limit.why)
        await responder.write(filtered.feed(ending))
        await responder.end()
    else:
        folding.cut()
        folding.feed(filtered.feed(ending) if way.looks else ending)
        await folded(folding, responder, way.said)


async def _answer(job: Job, upstream: EngineResponse, filtered: Filter, responder: Responder) -> None:
    way = job.prepared.way
    if job.folding is None:
        job.folding = job.plan.new_fold()
    is_stream = upstream.status == 200 and upstream.content_type == "text/event-stream"
    if not is_stream and not job.prepared.native:
        await pass_as_it_is(upstream, responder)
    elif not is_stream:
        judge = None if job.shortening is None else job.shortening.judge
        await pass_whole(upstream, responder, way.answer if way.rewrites else None, judge)
    elif job.folding is None:
        through = job.unframed() if upstream.ends_with_connection else filtered
        await stream_through(upstream, through, responder, job.heard)
    else:
        await fold(upstream, job.folding, responder, filtered if way.looks else None, way.said)


async def keep(job: Job, why: AskAgain, responder: Responder) -> None:
    """Keep what the client keeps of an answer that is asked for once more."""
    if not why.keeps:
        job.folding = None
    elif job.folding is not None:
        job.folding.feed(why.before)
        job.has_kept = True
    elif why.before:
        await responder.write(why.before)
    job.prepared.way.again(why, goes_on=responder.said or job.has_kept)
