"""Options of XLA that users of JAX give are taken by name and kind, and others are refused with XLA's words."""

from __future__ import annotations

import pytest

from shardc.frontends.pjrt.compile_options import EVEN_CONSTRAINTS, CompileOptions
from shardc.hlo.errors import InputError

xla_client = pytest.importorskip("jaxlib.xla_client")


def options(**given: object) -> CompileOptions:
    made = xla_client.CompileOptions()
    made.env_option_overrides = list(given.items())
    return CompileOptions.read(made.SerializeAsString())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("xla_embed_ir_in_executable", True),
        ("xla_embed_ir_in_executable", "False"),
        ("xla_dump_max_hlo_modules", 200),
        ("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", 0.5),
        ("xla_dump_to", "/tmp/somewhere"),
        ("xla_gpu_memory_limit_slop_factor", "90"),
    ],
)
def test_what_xla_has_is_taken(name: str, value: object) -> None:
    assert options(**{name: value}).num_devices == 1


def test_our_own_option_is_no_other_program_by_accident() -> None:
    assert options(**{EVEN_CONSTRAINTS: True}).even_constraints
    assert not options(xla_embed_ir_in_executable=True).even_constraints


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("invalid_key", "invalid_value", "No such compile option: 'invalid_key'"),
        ("xla_no_such_thing", True, "No such compile option: 'xla_no_such_thing'"),
        ("xla_embed_ir_in_executable", "invalid_value", "'invalid_value' is not a valid bool value."),
        ("xla_dump_max_hlo_modules", "many", "'many' is not a valid int value."),
    ],
)
def test_what_it_has_not_is_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        options(**{name: value})
