"""Requests made up from the server's own OpenAPI description: none of them is answered with a server error."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

NAMES = {"name": "man0", "entity": "woman1", "head": "man0", "tail": "a1", "relation": "parent"}
UNSAID: Any = [positive_data_acceptance]
"""OpenAPI cannot say that two of head, relation and tail are needed."""
BOUNDED = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def test_no_request_makes_the_server_fail(address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    answered: dict[str, set[int]] = {}
    operations: Any = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    for operation in operations:
        # without a parameter there is nothing to get wrong
        for mode in GenerationMode if len(operation.query) else [GenerationMode.POSITIVE]:

            @BOUNDED
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                codes = answered.setdefault(case.path, set())
                codes.add(case.call_and_validate(excluded_checks=UNSAID).status_code)
                for key in NAMES.keys() & set(case.query):  # names that the graph holds lead further
                    case.query[key] = NAMES[key]
                codes.add(case.call_and_validate(excluded_checks=UNSAID).status_code)

            ask()
    assert len(answered) == 10
    assert all(200 in codes for codes in answered.values())
    assert {code for codes in answered.values() for code in codes} <= {200, 404, 405, 422}
