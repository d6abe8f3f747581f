"""The API does what its OpenAPI description says, for requests that nobody would think of.

Schemathesis makes valid and invalid requests from the description, in JSON and in Arrow, and compares statuses, content
types, bodies, refusals of wrong data and of missing tokens with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from teacup.storage.codecs.arrow import ArrowCodec
from teacup.storage.codecs.json import JsonCodec
from tests.support.api import NOON_MS, error_types
from tests.support.dictbackend import DictBackend
from tests.support.profiles import share
from tests.support.storage_server import RunningServer, item, running_server

if TYPE_CHECKING:  # takes a second to import, at the start of every run
    import schemathesis
    from schemathesis.specs.openapi.schemas import OpenApiSchema

MANY = 10**9
TOO_LARGE = 413
ONE = "/v1/namespaces/{namespace}"
PROBES = ["GET /livez", "GET /readyz", "GET /metrics"]
BATCHES = [f"POST {ONE}/items:{operation}" for operation in ("write", "read", "delete")]
OPERATIONS = [
    "GET /v1/namespaces",
    f"GET {ONE}",
    f"PUT {ONE}/retained_from",
    *BATCHES,
    *(f"{method} {ONE}/items/{{key}}" for method in ("PUT", "GET", "DELETE")),
]
VALUE = {"version": 1, "tag": "", "value": "AAEC", "expires_at_ms": NOON_MS + 1_000}


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[RunningServer]:
    """Serves all requests from one server, without a limit on the rate, with an item to be found."""
    with running_server(DictBackend(), requests_per_s=MANY, burst=MANY, namespaces=[{"name": "0"}]) as running:
        running.client().write("0", [item(b"\x00")])
        yield running


@pytest.fixture(scope="module")
def description(fuzzed: RunningServer) -> OpenApiSchema:
    """Returns the description as the server gives it."""
    import schemathesis

    schemathesis.openapi.media_type(
        ArrowCodec.media_type,
        st.lists(st.binary(max_size=4), max_size=3).map(ArrowCodec().encode_keys)
        | st.just(ArrowCodec().encode_items([item()]))
        | st.binary(max_size=60),
    )
    return schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json", wait_for_schema=20)


@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_as_described(fuzzed: RunningServer, description: OpenApiSchema, operation: str, mode: str) -> None:
    """Valid and invalid requests.

    Whether bytes are an Arrow stream of the right columns cannot be said by a schema. A request that is invalid only
    by its missing token or by an unknown parameter of the query is accepted: it gets a token, the query is ignored. A
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
        excluded: list[Any] = []
        if case.media_type == ArrowCodec.media_type:
            excluded += [positive_data_acceptance, negative_data_rejection]
        if body is None or body.mode is GenerationMode.POSITIVE:
            excluded.append(negative_data_rejection)
        answer = case.call(headers=fuzzed.headers("writer"), timeout=10)
        if answer.status_code == TOO_LARGE:
            excluded.append(negative_data_rejection)
        case.validate_response(answer, excluded_checks=excluded)

    fuzz()


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if not each.startswith("DELETE")])
def test_successful_answers_are_as_described(fuzzed: RunningServer, description: OpenApiSchema, operation: str) -> None:
    """Random requests seldom find an item: here is one for each operation that does."""
    method, path = operation.split()
    fuzzed.client().write("0", [item(b"\x01", 1)])
    bodies: dict[str, Any] = {
        "items:write": {"items": [{**VALUE, "key": "AQ=="}]},
        "items:read": {"keys": ["AQ=="]},
        "items:delete": {"keys": ["Ag=="]},
        "retained_from": {"retained_from": 5},
        "{key}": VALUE,
    }
    body = bodies.get(path.rsplit("/", 1)[1]) if method != "GET" else None
    case = description[path][method].Case(
        path_parameters={name: value for name, value in (("namespace", "0"), ("key", "AQ")) if f"{{{name}}}" in path},
        **({} if body is None else {"body": body, "media_type": JsonCodec.media_type}),
    )

    response = case.call_and_validate(headers=fuzzed.headers("writer"), timeout=10)

    assert response.status_code == 200


def test_describes_every_route_with_its_security(fuzzed: RunningServer, description: OpenApiSchema) -> None:
    """What touches items needs a token, probes do not; batches come in both media types; problems are problems."""
    paths = description.raw_schema["paths"]
    operations = {f"{method.upper()} {path}": each for path, item in paths.items() for method, each in item.items()}

    media_types = {
        tuple(sorted(part["content"]))
        for name in BATCHES
        for part in (operations[name]["requestBody"], operations[name]["responses"]["200"])
    }
    assert {name for name, each in operations.items() if "security" not in each} == {"GET /livez", "GET /readyz"}
    assert media_types == {(JsonCodec.media_type, ArrowCodec.media_type)}
    assert error_types(paths) == {"application/problem+json"}
    assert set(operations) == {*OPERATIONS, *PROBES}
