"""The values that attributes may have: members of enumerations, and the syntax of values that are kept as text.

XLA's parser refuses any other word or form, and so does the reader. The packages above know what a value *means*.
Words of newer releases of XLA are known too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from shardc.hlo.errors import ParseError
from shardc.hlo.text.notations.tiles import parse_sharding
from shardc.hlo.text.scanner import STRING, Scanner

__all__ = ["check_vocabulary"]

_PRECISIONS = "default high highest"
_DOT_ALGORITHMS = (
    "unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 dot_bf16_bf16_bf16 "
    "dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9 dot_bf16_bf16_fp8x3 "
    "dot_bf16_bf16_fp8x4 dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64"
)

#: Attribute, or opcode and attribute -> its words.
_WORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        name: frozenset(words.split())
        for name, words in {
            "direction": "EQ NE GE GT LE LT",
            "type": "FLOAT TOTALORDER SIGNED UNSIGNED",
            "order": "TOTAL PARTIAL",
            "fft_type": "FFT IFFT RFFT IRFFT",
            "distribution": "rng_uniform rng_normal rng_invalid",
            "algorithm": _DOT_ALGORITHMS,
            "rng-bit-generator algorithm": "rng_default rng_three_fry rng_philox",
            "operand_precision": _PRECISIONS,
            "padding_type": "PADDING_INVALID PADDING_VALID PADDING_SAME",
            "api_version": "API_VERSION_UNSPECIFIED API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING "
            "API_VERSION_STATUS_RETURNING_UNIFIED API_VERSION_TYPED_FFI",
            "schedule": "SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST",
            "transpose_a": "TRANSPOSE_INVALID NO_TRANSPOSE TRANSPOSE ADJOINT",
            "mode": "cross_replica cross_partition cross_replica_and_partition flattened_id",
            "kind": "kLoop kInput kOutput kCustom",
            "convolution_kind": "fprop wgrad dgrad unset",
            "is_associative": "true false",
        }.items()
    }
)
#: Attributes whose words XLA reads in either case.
_ANY_CASE = frozenset({"distribution", "algorithm", "operand_precision"})

_INDEX = r"\{\s*(?:-?\d+\s*(?:,\s*-?\d+\s*)*,?\s*)?\}"
_ALIASED = rf"{_INDEX}\s*:\s*\(\s*-?\d+\s*,\s*{_INDEX}\s*\)\s*"
_BOOLEAN = r"(?:true|false)\s*"
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*"
_INTS = r"\{\s*(?:-?\d+\s*(?:,\s*-?\d+\s*)*)?\}\s*"
_QUOTED = r'"(?:[^"\\]|\\.)*"\s*'
_ORIGINAL = rf"\{{\s*(?:{_QUOTED}(?:{_INDEX}\s*)?)?\}}\s*"
_LIMIT = rf"(?:rtol|atol|ulps)=\s*{_NUMBER}"


def _domain(text: str) -> bool:
    """``{kind="sharding", entry={..}, exit={..}}``, in any order."""
    scanner = Scanner(text)
    scanner.expect("{")
    seen: dict[str, str] = {}
    while (found := scanner.match(_DOMAIN_PART)) is not None and found.group(1) not in seen:
        name = found.group(1)
        seen[name] = scanner.take(STRING, "a string").group() if name == "kind" else scanner.take_bracketed()
        if name != "kind":
            parse_sharding(seen[name])
    return scanner.accept("}") and len(seen) == 3 and seen["kind"] in ('"sharding"', "'sharding'")


_DOMAIN_PART = re.compile(r"\s*,?\s*(kind|entry|exit)=\s*")


def _full(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern + r"\s*", re.S)
    return lambda text: compiled.fullmatch(text) is not None


#: Attributes that are kept as text -> whether this text is well-formed. Others may say anything in brackets or quotes.
_FORMS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "output_to_operand_aliasing": _full(rf"\{{\s*(?:{_ALIASED}(?:,\s*{_ALIASED})*,?\s*)?\}}"),
        "statistics": _full(rf"\{{\s*(?:[\w.\-]+=\s*-?\d+\s*(?:,\s*[\w.\-]+=\s*{_NUMBER})*)?\}}"),
        "parameter_replication": _full(rf"\{{\s*(?:{_BOOLEAN}(?:,\s*{_BOOLEAN})*)?\}}"),
        "slice_sizes": _full(rf"\{{\s*(?:{_INTS}(?:,\s*{_INTS})*)?\}}"),
        "origin": _full(rf"\{{\s*(?:\[\s*synthetic_call\s*\]\s*|(?:[(),]\s*|{_ORIGINAL})*)\}}"),
        "origin_recovery_table": _full(rf"\{{\s*(?:{_ORIGINAL}:\s*{_ORIGINAL}(?:,\s*{_QUOTED})?)*\}}"),
        "infeed_config": _full(STRING.pattern),
        "outfeed_config": _full(STRING.pattern),
        "result_accuracy": _full(
            rf"\{{\s*(?:mode=\s*(?i:default|highest)|tolerance=\s*\{{\s*(?:{_LIMIT}(?:,\s*{_LIMIT})*)?\}})\s*\}}"
        ),
        "domain": _domain,
    }
)


@lru_cache(maxsize=16384)
def _problem(opcode: str, name: str, words: str | tuple[str, ...], *, is_text: bool) -> str | None:
    """What is wrong with a value, or None."""
    if is_text:
        form = _FORMS.get(name)
        try:
            good = form is None or form(str(words))
        except ParseError:
            good = False
        return None if good else f"malformed {name}={words}"
    known = _WORDS.get(f"{opcode} {name}") or _WORDS.get(name)
    for word in (words,) if isinstance(words, str) else words:
        if known is not None and word not in known:
            return f"{name} cannot be {word!r}, it is one of {', '.join(sorted(known))}"
    return None


def check_vocabulary(
    scanner: Scanner, opcode: str, name: str, value: str | tuple[str, ...], at: int, *, is_text: bool = False
) -> str | tuple[str, ...]:
    """The value of attribute ``name``, read at ``at``; ParseError when XLA knows no such word or form."""
    if not is_text and name in _ANY_CASE:
        value = value.lower() if isinstance(value, str) else tuple(w.lower() for w in value)
    wrong = _problem(opcode, name, value, is_text=is_text)
    if wrong is not None:
        raise scanner.error(wrong, at=at)
    return value
