"""Configuration of a Data Delay API server; validates completely, opens nothing."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from datadelay.api.databases import check_url
from datadelay.publish import SkewLimits
from teacup.base.config.keys import Duration, as_written
from teacup.http.server.config import BODY, BURST, HELD, RATE, ServerKeys, Within

READ_TOKEN_VARIABLE = "TEACUP_DELAY_READ_TOKEN"
WRITE_TOKEN_VARIABLE = "TEACUP_DELAY_WRITE_TOKEN"

Skew = Annotated[Duration, Field(gt=0)]
"""How far a time may be ahead."""


class DelayServeConfig(ServerKeys):
    """A server's configuration.

    A value is stale if its newest submission is older than `stale_after_intervals` times the interval at which its
    consumer is collected: that of `intervals`, otherwise `interval`.
    """

    token_variables: ClassVar = (READ_TOKEN_VARIABLE, WRITE_TOKEN_VARIABLE)

    database: str = Field(description="`sqlite:////var/lib/teacup/delay.db` or `postgresql://user@host/database`")
    port: int = Field(default=8710, ge=0, le=65535, description="0: any free port, which the log names")

    interval_s: Within = Field(default=as_written("1m"), alias="interval", description="how often the collector runs")
    intervals_s: dict[str, Within] = Field(
        default={}, alias="intervals", description="consumers with another interval: `{hourly-report: 1h}`"
    )
    stale_after_intervals: float = Field(
        default=3.0, ge=1.0, description="a value without a submission for this many intervals is `stale`"
    )

    history_retention_s: Within = Field(
        default=as_written("7d"), alias="history_retention", description="how long submitted values are kept"
    )
    history_max_points: PositiveInt = Field(default=50_000, description="kept for each consumer and topic")

    max_body_bytes: PositiveInt = Field(default=1 << 20, description=BODY)
    max_held_bytes: PositiveInt = Field(default=16 << 20, description=HELD)
    requests_per_s: PositiveFloat = Field(default=2_000.0, description=RATE)
    burst: PositiveInt = Field(default=4_000, description=BURST)

    max_clock_skew_ms: Skew = Field(
        default=as_written("1m"),
        alias="max_clock_skew",
        description="how far a collector's clock may be ahead of the server's",
    )
    max_future_skew_ms: Skew = Field(
        default=as_written("10m"),
        alias="max_future_skew",
        description="how far a submitted value may be ahead of the server's clock",
    )

    @field_validator("database")
    @classmethod
    def _supported(cls, database: str) -> str:
        check_url(database)
        return database

    @property
    def bounds(self) -> SkewLimits:
        """How far ahead of the server's clock a submission may lie."""
        return SkewLimits(clock_skew_ms=self.max_clock_skew_ms, future_skew_ms=self.max_future_skew_ms)

    def stale_after_ms(self, consumer: str) -> int:
        """Returns the age from which a value of `consumer` is stale."""
        interval_s = self.intervals_s.get(consumer, self.interval_s)
        return round(interval_s * self.stale_after_intervals * 1000)
