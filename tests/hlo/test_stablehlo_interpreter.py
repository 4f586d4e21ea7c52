"""The dialects of StableHLO's interpreter: checks with limits, probes, programs side by side; and transfers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jaxlib")

from shardc.hlo.errors import RunError, VerificationError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.text.equal import difference
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify


def read(text: str) -> Module:
    module = read_stablehlo(text, "case.mlir")
    verify(module)
    assert difference(module, read_hlo(print_module(module))) is None
    return module


def check(actual: str, kind: str, attributes: str, expected: str = "") -> str:
    """A program that checks one scalar; ``actual`` and ``expected`` are MLIR values with their types."""
    type_ = "tensor<" + actual.split(" : ")[1] + ">"
    value, other = (f"dense<{v.split(' : ')[0]}> : {type_}" for v in (actual, expected or actual))
    if kind.endswith("_const"):
        entries = ", ".join(e for e in (f"value = {other}", attributes) if e)
        call = f'"check.{kind}"(%a) {{{entries}}} : ({type_}) -> ()'
    else:
        call = f'"check.{kind}"(%a, %b) {{{attributes}}} : ({type_}, {type_}) -> ()'
    return f"func.func @main() {{\n%a = stablehlo.constant {value}\n%b = stablehlo.constant {other}\n{call}\nreturn }}"


@pytest.mark.parametrize(
    ("kind", "attributes", "actual", "near", "far"),
    [
        ("expect_eq", "", "3 : i64", "3 : i64", "4 : i64"),
        ("expect_eq_const", "", "3 : i64", "3 : i64", "4 : i64"),
        ("expect_eq_const", "", "(1.0, 2.0) : complex<f32>", "(1.0, 2.0) : complex<f32>", "(1.0, 3.0) : complex<f32>"),
        ("expect_almost_eq", "", "5.0 : f64", "5.00009 : f64", "5.0002 : f64"),
        ("expect_almost_eq_const", "tolerance = 0.1 : f64", "5.0 : f64", "5.09 : f64", "5.2 : f64"),
        ("expect_almost_eq", "", "0x7F800000 : f32", "0x7F800000 : f32", "1.0 : f32"),
        ("expect_close", "max_ulp_difference = 3 : ui64", "5.0 : f16", "5.010 : f16", "5.03 : f16"),
        (
            "expect_close",
            "max_ulp_difference = 9 : ui64, min_ulp_difference = 2 : ui64",
            "5.0 : f16",
            "5.01 : f16",
            "5.0 : f16",
        ),
    ],
)
def test_checks(kind: str, attributes: str, actual: str, near: str, far: str) -> None:
    evaluate(read(check(actual, kind, attributes, near)), [])
    with pytest.raises(RunError, match=r"check\.expect_.* is false at \[\]"):
        evaluate(read(check(actual, kind, attributes, far)), [])


PROBE = """
func.func @main(%n: tensor<i64>) -> tensor<i64> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %expected = stablehlo.constant dense<EXPECTED> : tensor<i64>
  %end:2 = stablehlo.while(%i = %zero, %s = %zero) : tensor<i64>, tensor<i64>
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i64>
    %sum = stablehlo.add %s, %next : tensor<i64>
    %seen = "interpreter.probe"(%sum) {probe_id = "sum/1"} : (tensor<i64>) -> tensor<i64>
    "interpreter.print"(%sum) : (tensor<i64>) -> ()
    stablehlo.return %next, %seen : tensor<i64>, tensor<i64>
  }
  "check.expect_serialized_eq"(%expected) {probe_id = "sum/1", iteration = 2 : ui32} : (tensor<i64>) -> ()
  return %end#1 : tensor<i64>
}
"""


def test_probes_remember_what_they_saw() -> None:
    assert evaluate(read(PROBE.replace("EXPECTED", "6")), [np.int64(4)])[0] == 10
    with pytest.raises(RunError, match="6 is not 7"):
        evaluate(read(PROBE.replace("EXPECTED", "7")), [np.int64(4)])
    with pytest.raises(RunError, match="recorded 2 values, not 3"):
        evaluate(read(PROBE.replace("EXPECTED", "6")), [np.int64(2)])


TRANSFER = """
func.func private @send(%x: tensor<2xi64>, %t: !stablehlo.token) -> !stablehlo.token {
  %0 = "stablehlo.send"(%x, %t) {
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true
  } : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
  return %0 : !stablehlo.token
}
func.func private @recv(%t: !stablehlo.token) -> (tensor<2xi64>, !stablehlo.token) {
  %0:2 = "stablehlo.recv"(%t) {
    channel_handle = #stablehlo.channel_handle<handle = CHANNEL, type = 3>, is_host_transfer = true
  } : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
  return %0#0, %0#1 : tensor<2xi64>, !stablehlo.token
}
func.func @main(%x: tensor<2xi64>) -> tensor<2xi64> {
  %t = stablehlo.after_all : !stablehlo.token
  %r:3 = "interpreter.run_parallel"(%t, %x, %t) {programs = [[@recv], [@send]]}
    : (!stablehlo.token, tensor<2xi64>, !stablehlo.token) -> (tensor<2xi64>, !stablehlo.token, !stablehlo.token)
  return %r#0 : tensor<2xi64>
}
"""


def test_a_receiver_waits_for_its_sender() -> None:
    x = np.array([3, 4])
    np.testing.assert_array_equal(evaluate(read(TRANSFER.replace("CHANNEL", "1")), [x])[0], x)


def test_a_receiver_that_nobody_sends_to_is_named() -> None:
    with pytest.raises(RunError, match="waits on channel 2, but no device sends") as caught:
        evaluate(read(TRANSFER.replace("CHANNEL", "2")), [np.array([3, 4])])
    assert "recv" in str(caught.value.where)


FEED = """
func.func private @first() -> (tensor<2xi64>, tensor<f32>) {
  %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %1 = stablehlo.constant dense<0.5> : tensor<f32>
  return %0, %1 : tensor<2xi64>, tensor<f32>
}
func.func private @program(%t: !stablehlo.token) -> (tensor<2xi64>, tensor<f32>) {
  %0:3 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> (tensor<2xi64>, tensor<f32>, !stablehlo.token)
  %1 = "stablehlo.outfeed"(%0#0, %0#1, %0#2) : (tensor<2xi64>, tensor<f32>, !stablehlo.token) -> !stablehlo.token
  return %0#0, %0#1 : tensor<2xi64>, tensor<f32>
}
func.func @main() -> (tensor<2xi64>, tensor<f32>) {
  %t = stablehlo.after_all : !stablehlo.token
  %r:2 = "interpreter.run_parallel"(%t) {infeed = [FEEDS], programs = [[@program]]}
    : (!stablehlo.token) -> (tensor<2xi64>, tensor<f32>)
  return %r#0, %r#1 : tensor<2xi64>, tensor<f32>
}
"""


def test_infeeds_take_from_the_queue() -> None:
    numbers, half = evaluate(read(FEED.replace("FEEDS", "@first")), [])
    assert numbers.tolist() == [1, 2] and half == 0.5
    with pytest.raises(RunError, match="infeed has no more"):
        evaluate(read(FEED.replace("FEEDS", "")), [])


GRID = """
func.func private @gather(%x: tensor<1xi64>) -> tensor<COUNTxi64> {
  %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<GROUPS>, ATTRS}
    : (tensor<1xi64>) -> tensor<COUNTxi64>
  return %0 : tensor<COUNTxi64>
}
func.func @main(%a: tensor<1xi64>, %b: tensor<1xi64>, %c: tensor<1xi64>, %d: tensor<1xi64>) -> tensor<COUNTxi64> {
  %r:4 = "interpreter.run_parallel"(%a, %b, %c, %d) {programs = [[@gather, @gather], [@gather, @gather]]}
    : (tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>)
    -> (tensor<COUNTxi64>, tensor<COUNTxi64>, tensor<COUNTxi64>, tensor<COUNTxi64>)
  return %r#3 : tensor<COUNTxi64>
}
"""
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>"


@pytest.mark.parametrize(
    ("groups", "attributes", "expected"),
    [
        ("[[0, 1]]> : tensor<1x2xi64", CHANNEL.format(0), [1, 3]),  # replicas of one partition
        ("[[0, 1]]> : tensor<1x2xi64", CHANNEL.format(1), [0, 2, 1, 3]),  # replicas, of all partitions
        ("[[3, 0, 1, 2]]> : tensor<1x4xi64", CHANNEL.format(1) + ", use_global_device_ids", [3, 0, 1, 2]),
        ("[[0, 2], [3, 1]]> : tensor<2x2xi64", CHANNEL.format(1) + ", use_global_device_ids", [3, 1]),
    ],
    ids=["replicas", "both", "all devices", "devices"],
)
def test_groups_of_a_grid(groups: str, attributes: str, expected: list[int]) -> None:
    text = GRID.replace("GROUPS", groups).replace("ATTRS", attributes).replace("COUNT", str(len(expected)))
    assert evaluate(read(text), [np.array([k]) for k in range(4)])[0].tolist() == expected


def test_asynchronous_collectives() -> None:
    module = read("""
func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.async_start"(%a) ({
  ^bb0(%x: tensor<2xf32>):
    %1 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}
      : (tensor<2xf32>) -> tensor<2xf32>
    stablehlo.return %1 : tensor<2xf32>
  }) : (tensor<2xf32>) -> !stablehlo.future<tensor<2xf32>>
  %2 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<2xf32>>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}""")
    assert [i.opcode for i in module.entry] == ["parameter", "async-start", "async-done", "tuple"]
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(evaluate(module, [x])[0], x)


def test_bits_of_booleans() -> None:
    module = read("""
func.func @main(%a: tensor<2x8xi1>, %b: tensor<3xf16>) -> (tensor<2xi8>, tensor<3x16xi1>) {
  %0 = stablehlo.bitcast_convert %a : (tensor<2x8xi1>) -> tensor<2xi8>
  %1 = stablehlo.bitcast_convert %b : (tensor<3xf16>) -> tensor<3x16xi1>
  return %0, %1 : tensor<2xi8>, tensor<3x16xi1>
}""")
    r = np.random.default_rng(0)
    bits, halves = r.integers(0, 2, (2, 8)).astype(bool), r.standard_normal(3).astype(np.float16)
    packed, spread = evaluate(module, [bits, halves])
    np.testing.assert_array_equal(packed, np.packbits(bits, axis=1, bitorder="little")[:, 0].view(np.int8))
    wanted = np.unpackbits(halves.view(np.uint8).reshape(3, 2), axis=1, bitorder="little").astype(bool)
    np.testing.assert_array_equal(spread, wanted)


def test_a_function_that_calls_itself_is_refused() -> None:
    with pytest.raises(VerificationError, match="@f calls itself"):
        read_stablehlo("""
func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = call @f(%a) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @f(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = call @f(%a) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}""")
