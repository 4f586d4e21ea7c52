"""One rule for names of mesh axes: what a `Mesh` takes, all texts carry there and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc.cli.app import main
from shardc.cli.options import parse_mesh
from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.mesh import Mesh
from shardc.stages.programs import load

HLO = """HloModule t

ENTRY main {
  x = f32[16,16] parameter(0), metadata={op_name="x"}
  y = f32[16,16] parameter(1), metadata={op_name="y"}
  ROOT z = f32[16,16] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
MLIR = """module @t {
  func.func public @main(%arg0: tensor<16x16xf32> loc("x"), %arg1: tensor<16x16xf32> loc("y")) -> tensor<16x16xf32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<16x16xf32>
    return %0 : tensor<16x16xf32>
  }
}
"""
ODD = ("my axis", "it's", "données", "a:b", "a(b)", "x[0]", "#1", "a;b", "a\\b", "<a>", "%d", "@m", "\\n", "(1)2")
REFUSED = ("", " a", "a=b", "a,b", "a+b", 'a"b', "{a}", "a:(1)2", "None", "?", "a\tb", "a\nb", "\u202e")


@pytest.mark.parametrize("name", ODD)
def test_a_name_goes_through_all_texts(name: str, tmp_path: Path) -> None:
    mesh = parse_mesh(f"{name}=2,p=2")
    assert mesh == Mesh({name: 2, "p": 2})
    for suffix, text in (("hlo", HLO), ("mlir", MLIR)):
        file = tmp_path / f"step.{suffix}"
        file.write_text(text)
        source = load(file)
        x, y = source.arg_names
        made = source.annotate({x: f"{name},None", y: f"None,p+{name}"}, mesh=mesh).propagate()
        assert [a.name for a in made.module.parameters[0].sharding.dims[0].axes] == [name]
        file.write_text(made.as_stablehlo() if suffix == "mlir" else made.as_text())
        back = load(file).propagate().module
        assert back.mesh == mesh
        assert [p.sharding for p in back.parameters] == [p.sharding for p in made.module.parameters]
        partitioned = made.partition(machine="h100-dgx")
        file.with_suffix(".device.hlo").write_text(partitioned.as_text())
        load(file.with_suffix(".device.hlo"))
        assert partitioned.simulate("h100-dgx", mapping=f"p,{name}").mesh == {name: 2, "p": 2}
        assert partitioned.explanation("h100-dgx", remedies=0).as_text()


@pytest.mark.parametrize("name", REFUSED)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(AnnotationError, match="a mesh axis cannot be called"):
        Mesh({name: 2})


def test_the_command_line_says_what_the_mesh_says(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(HLO)
    assert main(["propagate", str(file), "--mesh", "my axis=2", "--annotate", "x=my axis"]) == 0
    assert "devices=[2,1]" in capfd.readouterr().out
    assert main(["propagate", str(file), "--mesh", "a b=2", "--annotate", "x=a b c"]) == 2
    assert "separate entries by commas" in capfd.readouterr().err
    assert main(["propagate", str(file), "--mesh", "None=2"]) == 2
    assert "--mesh" in capfd.readouterr().err
