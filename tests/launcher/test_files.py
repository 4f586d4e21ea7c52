"""Program files by content, npz files, output files, seeded inputs."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from shardc.compiler.executable import ArraySpec
from shardc.frontends.load import content_kind, read_file
from shardc.hlo.errors import InputError, ParseError
from shardc.hlo.ir.types import DTYPES, array_shape
from shardc.launcher.run.npz import decode, encode, read_inputs, write_outputs
from shardc.launcher.run.output_files import atomic_output, check_writable, write_text
from shardc.launcher.run.random_inputs import random_arguments


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"HloModule m\n\nENTRY e { ROOT c = f32[] constant(1) }", "hlo"),
        (b"ENTRY e { ROOT c = f32[] constant(1) }", "hlo"),
        (b"// a comment\n%add (x: f32[]) -> f32[] {", "hlo"),
        (b"module @jit_f attributes {mhlo.num_partitions = 4 : i32} {", "mlir"),
        (b"// RUN: x\n\n#loc = loc(unknown)\nmodule {", "mlir"),
        (b"func.func @main() {", "mlir"),
        (b'"builtin.module"() ({', "mlir"),
        (b"sdy.mesh @mesh = <[]>", "mlir"),
        (b"ML\xefR\x0dMLIR", "bytecode"),
        (b"\x30\0\0\0...ML\xefR...", "exported"),
    ],
)
def test_content_decides(data: bytes, kind: str) -> None:
    assert content_kind(data) == kind


def test_inputs_that_lack_an_array_without_a_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", in1=np.zeros(2, np.float32))
    shape = array_shape("f32", 2)
    spec = ArraySpec("", shape, shape, None)
    with pytest.raises(InputError, match=r"lacks in0\n"):
        read_inputs(tmp_path / "in.npz", [spec])
    with pytest.raises(InputError, match="is a folder"):
        read_inputs(tmp_path, [spec])


def test_unreadable_programs(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="has no known binary format"):
        content_kind(b"\x7fELF\0\0\0", "a.out")
    with pytest.raises(InputError, match="there is no file"):
        read_file(tmp_path / "nothing.hlo")
    with pytest.raises(InputError, match="cannot be read"):
        read_file(tmp_path)
    (tmp_path / "empty.hlo").write_text(" \n")
    with pytest.raises(ParseError, match="the file is empty"):
        read_file(tmp_path / "empty.hlo")


def spec(dtype: str, *dims: int) -> ArraySpec:
    shape = array_shape(dtype, *dims)
    return ArraySpec("x", shape, shape, None)


@pytest.mark.parametrize("name", [d.name for d in DTYPES.values() if d.kind not in ("token", "tuple", "opaque")])
def test_every_type_travels(name: str, tmp_path: Path) -> None:
    (value,) = random_arguments([array_shape(name, 3, 4)], 1)
    if name == "s4":
        value = np.array([[-8, 7, -1, 0]] * 3).astype(ml_dtypes.int4)
    write_outputs(tmp_path / "o.npz", [value, value[0, 0]], [DTYPES[name]] * 2)
    with np.load(tmp_path / "o.npz") as file:
        assert file["dtypes"].tolist() == [name, name]
        stored = {"in0": file["out0"], "in1": file["out1"]}
    assert stored["in0"].dtype.isbuiltin == 1
    np.savez(tmp_path / "i.npz", other=np.arange(3), **stored)
    back, scalar = read_inputs(tmp_path / "i.npz", [spec(name, 3, 4), spec(name)])
    assert back.dtype == value.dtype
    assert back.tobytes() == value.tobytes()
    assert scalar.tobytes() == value[0, 0].tobytes()


def test_sub_byte_integers_are_sign_extended() -> None:
    stored = encode(np.array([-8, 7]).astype(ml_dtypes.int4), DTYPES["s4"])
    assert (stored.dtype, stored.tolist()) == (np.dtype(np.int8), [-8, 7])
    with pytest.raises(InputError, match="outside of s4"):
        decode(np.array([8], np.int8), DTYPES["s4"], "in0")


def test_void_arrays_are_read_as_the_parameter(tmp_path: Path) -> None:
    value = np.array([1.5, -2], ml_dtypes.bfloat16)
    np.savez(tmp_path / "i.npz", in0=value.view("V2"))
    (back,) = read_inputs(tmp_path / "i.npz", [spec("bf16", 2)])
    assert back.tolist() == [1.5, -2]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, r"lacks in0 \(x\)[\s\S]*no in\* keys"),
        ({"in0": np.zeros(3, np.float32), "in1": np.zeros(1)}, "has in1, but the program has 1 parameter"),
        ({"in0": np.zeros(4, np.float32)}, r"holds shape \[4\], but the parameter has \[3\]"),
        ({"in0": np.zeros(3)}, r"holds float64, but the parameter is f32"),
        ({"in0": np.array([None] * 3)}, "cannot be read[\\s\\S]*object arrays are never loaded"),
    ],
)
def test_inputs_that_do_not_fit(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "i.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read_inputs(tmp_path / "i.npz", [spec("f32", 3)])


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 broken", b"\x93NUMPY", b"text"])
def test_files_that_are_no_npz(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "i.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"i\.npz (cannot be read|is not an \.npz file)"):
        read_inputs(tmp_path / "i.npz", [spec("f32", 3)])


def test_truncated_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "i.npz", in0=np.zeros(1000, np.float32))
    data = (tmp_path / "i.npz").read_bytes()
    for length in (len(data) // 2, len(data) - 10, 40):
        (tmp_path / "i.npz").write_bytes(data[:length])
        with pytest.raises(InputError):
            read_inputs(tmp_path / "i.npz", [spec("f32", 1000)])


def test_outputs_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "o.txt"
    write_text(path, "first")
    with pytest.raises(RuntimeError), atomic_output(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="does not exist"):
        check_writable(tmp_path / "no" / "o.txt")
    with pytest.raises(InputError, match="is a folder"):
        check_writable(tmp_path)


def test_seeded_inputs() -> None:
    shapes = [array_shape("f32", 100), array_shape("s32", 50), array_shape("u2", 50), array_shape("pred", 50)]
    first, again, other = (random_arguments(shapes, seed) for seed in (0, 0, 1))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))
    assert first[0].tobytes() != other[0].tobytes()
    assert abs(float(first[0].mean())) < 0.5
    assert (int(first[1].min()), int(first[1].max())) == (0, 7)
    assert int(first[2].astype(int).max()) == 3
    assert set(first[3].tolist()) == {True, False}
