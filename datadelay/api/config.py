"""Configuration of a Data Delay API server; validates completely, opens nothing."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from datadelay.api.database import parsed
from datadelay.publish import SkewLimits
from httpapi.server.serverkeys import ServerKeys

READ_TOKEN_VARIABLE = "TEACUP_DELAY_READ_TOKEN"
WRITE_TOKEN_VARIABLE = "TEACUP_DELAY_WRITE_TOKEN"


class DelayServeConfig(ServerKeys):
    """A server's configuration.

    A value is stale if its newest submission is older than `stale_after_intervals` times the interval at which its
    consumer is collected: `intervals_s` by consumer, otherwise `interval_s`.
    """

    token_variables: ClassVar = (READ_TOKEN_VARIABLE, WRITE_TOKEN_VARIABLE)

    database: str = Field(description="sqlite:////var/lib/teacup/delay.db or postgresql://user@host/database")
    port: int = Field(default=8710, ge=0, le=65535, description="0: any free port, which the log names")

    interval_s: PositiveFloat = 60.0
    intervals_s: dict[str, PositiveFloat] = Field(default_factory=dict)
    stale_after_intervals: float = Field(default=3.0, ge=1.0)

    history_retention_s: PositiveFloat = 7 * 86_400.0
    history_max_points: PositiveInt = Field(default=50_000, description="kept for each consumer and topic")

    max_body_bytes: PositiveInt = 1 << 20
    max_held_bytes: PositiveInt = 16 << 20
    requests_per_s: PositiveFloat = Field(default=2_000.0, description="by token, or by address without one")
    burst: PositiveInt = 4_000

    max_clock_skew_ms: PositiveInt = 60_000
    max_future_skew_ms: PositiveInt = 600_000

    @field_validator("database")
    @classmethod
    def _supported(cls, database: str) -> str:
        parsed(database)
        return database

    @property
    def bounds(self) -> SkewLimits:
        """How far ahead of the server's clock a submission may lie."""
        return SkewLimits(clock_skew_ms=self.max_clock_skew_ms, future_skew_ms=self.max_future_skew_ms)

    def stale_after_ms(self, consumer: str) -> int:
        """The age from which a value of `consumer` is stale."""
        interval_s = self.intervals_s.get(consumer, self.interval_s)
        return round(interval_s * self.stale_after_intervals * 1000)
