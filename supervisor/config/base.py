"""What every part of the configuration is made of: unknown keys are errors, values do not change."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """One mapping of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Positive = Annotated[int, Field(ge=1)]
Patience = Annotated[float, Field(gt=0, le=86_400)]  # seconds; how long somebody else may take
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
