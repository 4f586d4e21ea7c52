"""Requests drawn from the service's own description: valid ones are accepted, others refused, all answers as described.

Schemathesis reads /v1/openapi.json and compares status, headers, media type and body of every answer with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import CHECKS
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.generation.case import Case

from tests.service.service_harness import TOKEN, Service
from tests.service.service_programs import small

#: A seed of each test's own, always the same; what schemathesis finds it prints as a command of curl.
CHECKED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
SHORT, FULL = settings(CHECKED, max_examples=6), settings(CHECKED, max_examples=300)
#: Which bytes are a program, no description can say.
UPLOAD = "POST /v1/programs"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = ("--time-limit", "20", "--max-upload", "1M", "--memory-limit", "4G")
    with Service(tmp_path_factory.mktemp("described"), workers=2, options=options) as service:
        yield service


@pytest.fixture(scope="module")
def described(service: Service) -> Any:
    config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
    return schemathesis.openapi.from_url(f"{service.url}/v1/openapi.json", headers=AUTHORIZED, config=config)


@pytest.fixture(scope="module")
def program(service: Service) -> str:
    with service.caller() as caller:
        return caller.upload(small(7))


def conforms(operation: Any, mode: GenerationMode, amount: settings) -> str:
    """What is wrong with the answers to requests of this mode; empty for nothing."""
    left_out = (
        CHECKS.get_by_names(["positive_data_acceptance", "negative_data_rejection"])
        if operation.label == UPLOAD
        else []
    )

    @amount
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case) -> None:
        case.call_and_validate(headers=AUTHORIZED, excluded_checks=left_out)

    try:
        check()
    except Unsatisfiable:
        return ""  # nothing can be wrong about a request that has no parts
    except (Exception, FailureGroup) as e:
        told = "; ".join(str(part) for part in getattr(e, "exceptions", ()))
        return f"{operation.label}, {mode.value}: {e} {told}"
    return ""


def answers_conform(described: Any, amount: settings) -> None:
    """Every operation with requests that its description allows, and with others; all that fail are told."""
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) >= 12
    wrong = [conforms(operation, mode, amount) for operation in operations for mode in GenerationMode]
    assert not any(wrong), "\n\n".join(filter(None, wrong))


def test_answers_are_as_described(described: Any) -> None:
    answers_conform(described, SHORT)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_many_answers_are_as_described(described: Any) -> None:
    answers_conform(described, FULL)


def orders_end(service: Service, described: Any, program: str, amount: settings) -> None:
    """Any valid order about a real program ends in a result or in an error of the library's own."""
    with service.caller() as caller:

        @amount
        @given(case=described["/v1/jobs"]["POST"].as_strategy())
        def check(case: Case) -> None:
            if not isinstance(case.body, dict):
                return
            order = {**case.body, "program": program}
            answer = caller.http.post("/v1/jobs", json=order)
            assert answer.status_code in (200, 202, 404, 422), answer.text
            if answer.status_code in (404, 422):
                said = answer.json()
                assert said["error"] in ("InputError", "AnnotationError", "UnsupportedError"), said
                return
            job = caller.over(answer.json())
            if job["state"] == "failed":
                problem = job["problem"]
                assert problem["what"], job
                assert "Traceback" not in str(problem), job
                assert problem["error"] != "ShardcError", job
                told = f"{problem['what']} ({problem['where']}) of {order}"
                assert "nobody expected" not in problem["what"], told
            else:
                assert job["state"] == "done", job
                assert job["entry"]["artifacts"]

        check()


def test_orders_end(service: Service, described: Any, program: str) -> None:
    orders_end(service, described, program, settings(SHORT, max_examples=12))


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_many_orders_end(service: Service, described: Any, program: str) -> None:
    orders_end(service, described, program, FULL)
