"""The API does what its OpenAPI description says, for requests that nobody would think of.

Schemathesis generates valid and invalid requests from the description, and checks statuses, content types, bodies, and
refusals of wrong data and of missing tokens against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings

from datadelay.model import PartitionReport, Submission
from datadelay.wire import SubmissionBody
from tests.support.api import NOON_MS, error_types
from tests.support.delay_server import RunningServer, running_server
from tests.support.profiles import share

if TYPE_CHECKING:  # takes a second to import, at the start of every run
    import schemathesis
    from schemathesis.specs.openapi.schemas import OpenApiSchema

MANY = 10**9
TOO_LARGE = 413
PROBES = ["GET /livez", "GET /readyz", "GET /metrics"]
OPERATIONS = [
    "GET /v1/delays",
    "GET /v1/delays/{consumer}/{topic}",
    "PUT /v1/delays/{consumer}/{topic}",
    "DELETE /v1/delays/{consumer}/{topic}",
    "GET /v1/delays/{consumer}/{topic}/history",
    "POST /v1/delays/{consumer}/{topic}/rewind",
]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Runs one server for all requests, with a delay at /v1/delays/0/0 and without a rate limit."""
    with running_server(tmp_path_factory.mktemp("fuzzed"), requests_per_s=MANY, burst=MANY) as running:
        reports = (PartitionReport(0, 5, NOON_MS), PartitionReport(1, None, None, "gone"))
        running.client().submit(
            Submission(
                consumer="0",
                topic="0",
                listed_ms=NOON_MS,
                consumed_until_ms=None,
                reason="gone",
                partitions=reports,
                generation="g",
            )
        )
        yield running


@pytest.fixture(scope="module")
def description(fuzzed: RunningServer) -> OpenApiSchema:
    """Returns the API's description, as the server sends it."""
    import schemathesis

    return schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json", wait_for_schema=20)


@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_as_described(fuzzed: RunningServer, description: OpenApiSchema, operation: str, mode: str) -> None:
    """Valid and invalid requests.

    A schema cannot express that a submission contradicts itself: 422 is allowed. A request that is invalid only because
    of its missing token or an unknown query parameter is accepted: it gets a token, and the parameter is ignored. A
    body that is too large is refused before it is looked at.
    """
    from schemathesis import GenerationMode
    from schemathesis.core.parameters import ParameterLocation
    from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

    method, path = operation.split()

    @given(case=description[path][method].as_strategy(generation_mode=GenerationMode(mode)))
    @settings(max_examples=share(2), suppress_health_check=list(HealthCheck))
    def fuzz(case: schemathesis.Case) -> None:
        body = case.meta.components.get(ParameterLocation.BODY) if case.meta else None
        excluded = [positive_data_acceptance] if method == "PUT" else []
        if body is None or body.mode is GenerationMode.POSITIVE:
            excluded.append(negative_data_rejection)
        answer = case.call(headers=fuzzed.headers("writer"), timeout=10)
        if answer.status_code == TOO_LARGE:
            excluded.append(negative_data_rejection)
        case.validate_response(answer, excluded_checks=excluded)

    fuzz()


@pytest.mark.parametrize("state", ["ok", "unknown"])
@pytest.mark.parametrize("operation", [each for each in OPERATIONS if not each.startswith("DELETE")])
def test_successful_answers_are_as_described(
    fuzzed: RunningServer, description: OpenApiSchema, operation: str, state: str
) -> None:
    """Random requests seldom find a delay: here is one per operation that does, with and without a value."""
    method, path = operation.split()
    value_ms, reason = (NOON_MS, None) if state == "ok" else (None, "gone")
    submission = Submission(
        consumer="described",
        topic=f"{method}-{state}",
        listed_ms=NOON_MS,
        consumed_until_ms=value_ms,
        reason=reason,
        partitions=(PartitionReport(0, 5, value_ms, reason),),
        generation="g",
    )
    fuzzed.client().submit(submission)
    bodies = {"PUT": SubmissionBody.of(submission).model_dump(mode="json"), "POST": {"note": "ada"}}
    case = description[path][method].Case(
        path_parameters={"consumer": "described", "topic": submission.topic} if "{" in path else {},
        **({"body": bodies[method], "media_type": "application/json"} if method in bodies else {}),
    )

    response = case.call_and_validate(headers=fuzzed.headers("writer"), timeout=10)

    assert response.status_code == 200


def test_describes_every_route_with_its_security(fuzzed: RunningServer, description: OpenApiSchema) -> None:
    """Operations on delays need a token, probes do not; problems are described as such."""
    paths = description.raw_schema["paths"]

    open_ones = {
        f"{method} {path}" for path, item in paths.items() for method, each in item.items() if "security" not in each
    }
    assert open_ones == {"get /livez", "get /readyz"}
    assert error_types(paths) == {"application/problem+json"}
    assert {f"{method.upper()} {path}" for path, item in paths.items() for method in item} == {*OPERATIONS, *PROBES}
