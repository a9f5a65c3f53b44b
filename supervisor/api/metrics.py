"""`/metrics` for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST

from supervisor.api.described import written
from supervisor.api.services import MetricsOf

router = APIRouter()


@router.get("/metrics", response_class=Response, **written("application/openmetrics-text"))
async def metrics(metrics: MetricsOf) -> Response:
    """Tell what was counted since the daemon started, and what is at the moment, as OpenMetrics (docs/metrics.md)."""
    return Response(await metrics.text(), media_type=CONTENT_TYPE_LATEST)
