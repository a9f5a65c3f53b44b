"""`/metrics` for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from supervisor.api.answers import written
from supervisor.api.services import MetricsOf
from supervisor.service.metrics import CONTENT_TYPE

router = APIRouter()


@router.get("/metrics", response_class=Response, **written("application/openmetrics-text"))
async def metrics(metrics: MetricsOf) -> Response:
    """What was counted since the daemon started and what is at the moment, as OpenMetrics (docs/metrics.md)."""
    return Response(await metrics.text(), media_type=CONTENT_TYPE)
