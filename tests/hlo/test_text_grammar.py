"""What HLO text may say, by parts of the grammar: read or refused as XLA's own parser does, and printed back."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from xla_judge import judge

from shardc.hlo.errors import Location, ShardcError
from shardc.hlo.text.equal import difference
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo


@dataclass(frozen=True)
class Part:
    """``frame`` is a module's text with ``@`` where the part stands; rows of ``good`` and ``bad`` stand there."""

    frame: str
    good: str
    bad: str

    def texts(self) -> dict[str, tuple[str, bool]]:
        rows = [(row, True) for row in self.good.strip().split("\n")]
        rows += [(row, False) for row in self.bad.strip().split("\n")]
        return {row.strip(): (self.frame.replace("@", row.strip()), wanted) for row, wanted in rows}


PARTS = {
    "names": Part(
        r"""
HloModule m

ENTRY e {
  ROOT @ f32[] parameter(0)
}
""",
        r"""
x =
%x=
%inf =
%manual =
tuple =
a-b.c_ =
_ =
""",
        r"""
x=
inf =
f32 =
%f32 =
%token =
manual =
ROOT =
__x =
1a =
%1a =
=
""",
    ),
    "signatures": Part(
        r"""
HloModule m

ENTRY @ ROOT a = f32[2] parameter(0)
}
""",
        r"""
e {
%e (a: f32[2]) -> f32[2] {
e (a f32[2]) -> f32[2]{0}{
e (%a f32[2])->f32[2]{
%true {
""",
        r"""
e (%a: f32[2]) -> f32[2] {
e (a : f32[2]) -> f32[2] {
e (a: f32[2],) -> f32[2] {
e (a: f32[2]) -> f32[3] {
true {
{
""",
    ),
    "shapes": Part(
        r"""
HloModule m

ENTRY e {
  ROOT x = @ parameter(0)
}
""",
        r"""
f32[2,3]{0,1}
f32 [2,3] {1,0}
f32[2,3]{1,0:T(8,128)(2,1)L(4)E(32)S(5)SC(0:1)}
f32[2,3]{1,0:T(*,128)}
f32[2,3]{1,0:}
f32[2,3]{1,0:M(64)}
f32[2]{0:#(u32)*(u16)}
f32[<=2,<= 3]
f32[?,3]
f32[]{:T(128)}
token[]
opaque[]
()
((f32[]), ())
b(f32[2]{0:S(1)})
(b(f32[2]), f32[])
""",
        r"""
f32[2,3]{1}
f32[2,3]{}
f32[2,3]{1,0:S(1)T(8)}
f32[2,3]{1,0:X(1)}
f32[2]{0:P(f32[3])}
f32[<=?]
f32[-1]
f32[2,]
f33[2]
F32[2]
tuple[]
(f32[],)
b(token[])
b(b(f32[2]))
f32[99999999999999999999]
""",
    ),
    "scalars": Part(
        r"""
HloModule m

ENTRY e {
  ROOT x = f32[] constant(@)
}
""",
        r"""
1
1.
-.5
1e3
-1E-3
inf
-inf
nan
-nan
nan(0x1)
-nan(0x7fffff)
1e-50
-0.0
3.4028235e38
""",
        r"""
.5
+1
1e39
nan(0x800000)
nan(0x0)
nan(0X1)
NaN
infinity
0x10
1_0
{1}
1 2
1,
...
{...}
""",
    ),
    "integers": Part(
        r"""
HloModule m

ENTRY e {
  ROOT x = @)
}
""",
        r"""
s64[] constant(18446744073709551615
u64[] constant(-1
s4[] constant(-8
u2[] constant(3
pred[] constant(2
f8e5m2[] constant(60000
f4e2m1fn[] constant(7
f8e4m3fn[] constant(464
f8e8m0fnu[] constant(2
""",
        r"""
s32[] constant(1.0
s32[] constant(2147483648
u32[] constant(-1
u8[] constant(256
s4[] constant(8
u64[] constant(18446744073709551616
f8e5m2[] constant(70000
f8e4m3fn[] constant(500
f8e8m0fnu[] constant(0
f8e4m3b11fnuz[] constant(nan(0x1)
pred[] constant(1.0
c64[] constant(1
token[] constant(1
""",
    ),
    "arrays": Part(
        r"""
HloModule m

ENTRY e {
  ROOT x = f32[2,2] constant(@)
}
""",
        r"""
{{1,2},{3,4}}
{{1 2} {3 4}}
{ {1,2,}, /*i=1*/ {3,4} }
{...}
{{1,2}, ...}
5
""",
        r"""
{{1,2},{3}}
{1,2,3,4}
{{1,2},{3,4},{5,6}}
{{...},{1,2}}
{..., {1,2}}
{{1,{2}},{3,4}}
{{1,2},{3,4}}}
""",
    ),
    "windows": Part(
        r"""
HloModule m

ENTRY e {
  x = f32[1,4,4,1] parameter(0)
  k = f32[1,1,1,1] parameter(1)
  ROOT c = f32[1,4,4,1] convolution(x, k), window={@}, dim_labels=b01f_01io->b01f
}
""",
        r"""
size=1x1
size=1x1 stride=1x1 pad=0_0x-1_1 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x1
""",
        r"""
size=1x1,stride=1x1
size=1x1 stride=2
size=1x1 pad=0_0
size=1x1 pad=0_0_0x1_1_0
stride=1x1
size=1x1 size=1x1
size=1x1 foo=1x1
size=1x-1
size =1x1
""",
    ),
    "labels": Part(
        r"""
HloModule m

ENTRY e {
  x = f32[1,4,4,1] parameter(0)
  k = f32[1,1,1,1] parameter(1)
  ROOT c = f32[1,4,4,1] convolution(x, k), window={size=1x1}, dim_labels=@
}
""",
        r"""
b01f_01io->b01f
bf01_oi01->01bf
?b01f_01?io->?b01f
""",
        r"""
b01f_01io->b0f
bb1f_01io->b01f
b01f_01io
bf_i->bf
""",
    ),
    "padding": Part(
        r"""
HloModule m

ENTRY e {
  x = f32[4,4] parameter(0)
  z = f32[] parameter(1)
  ROOT p = f32[9,9] pad(x, z), padding=@
}
""",
        r"""
0_1x2_3
-1_1_2x0_0
""",
        r"""
0x0
0_1_-1x0_0
1_1x
0
""",
    ),
    "words": Part(
        r"""
HloModule m

ENTRY e {
  x = f32[4,4] parameter(0)
  y = f32[4,4] parameter(1)
  ROOT c = @
}
""",
        r"""
pred[4,4] compare(x, y), direction=GE, type=TOTALORDER
f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_f32_x6
f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={HIGHEST,default}
f32[4,4] triangular-solve(x, y), transpose_a=ADJOINT
f32[4,4] fusion(x), kind=kLoop, calls={ROOT x = f32[4,4] parameter(0)}
""",
        r"""
pred[4,4] compare(x, y), direction=GEQ
pred[4,4] compare(x, y), direction=GE, type=ORDER
f32[4,4] dot(x, y), algorithm=dot_f32
f32[4,4] dot(x, y), operand_precision={highest,most}
f32[4,4] triangular-solve(x, y), transpose_a=YES
f32[4,4] fft(x), fft_type=fft, fft_length={4}
f32[4,4] fusion(x), kind=kMine, calls={ROOT x = f32[4,4] parameter(0)}
f32[4,4] rng(x, y), distribution=normal
""",
    ),
    "operands": Part(
        r"""
HloModule m

ENTRY e {
  x = f32[4,4] parameter(0)
  y = f32[4,4] parameter(1)
  ROOT c = @
}
""",
        r"""
f32[4,4] add(x, f32[4,4] negate(y))
add(%x, f32[4,4]{1,0} %y)
f32[4,4] add(x, y,)
(f32[4,4]) tuple(x)
tuple(x, y)
transpose(x), dimensions={1,0}
f32[4] dynamic-slice(f32[4] constant({1,2,3,4}), s32[] constant(0)), dynamic_slice_sizes={4}
""",
        r"""
f32[4,4] add(x)
f32[4,4] add(x, z)
f32[4,4] add(f32[4] x, y)
f32[4,4] negate(f32[4,4] broadcast(x), dimensions={0,1})
(f32[4,4], f32[4,4]) tuple(x,)
f32[16] reshape(x), dimensions={0}
f32[17] reshape(x), sharding={replicated}
reshape(x)
f32[4,4] reduce(x, y, x), dimensions={}, to_apply={a = f32[] parameter(0)}
f32[4,4] dynamic-slice(x, s32[] constant(0)), dynamic_slice_sizes={4,4}
f32[4,4] nothing(x)
slice(x), slice={[0:2],[0:4]}
convert(x)
""",
    ),
    "metadata": Part(
        r"""
HloModule m

ENTRY e {
  x = f32[4,4] parameter(0)
  ROOT c = f32[4,4] exponential(x), metadata={@}
}
""",
        r"""
op_name="a" op_type='b'
op_name="a",source_line=3
,op_name="a"
profile_type={1,3} scheduling_name="s"
source_line=-1
""",
        r"""
op_name="a" op_name="b"
op_name=a
op_name=3
source_line="3"
source_line=99999999999
op_name="a",
profile_type={9}
color="red"
op_name="a\q"
""",
    ),
    "texts": Part(
        r"""
HloModule m

ENTRY e {
  x = f32[2]{0} parameter(0)
  ROOT c = f32[2]{0} custom-call(x), custom_call_target="t", @
}
""",
        r"""
backend_config="a\n\303\251\x41\u00e9\""
backend_config={"a":[1,{"b":"}/*"}]}
frontend_attributes={a="b",c={d e}}
output_to_operand_aliasing={{}: (0, {})}
literal=(s32[2]{0} {1,2}, f32[] 3)
schedule=SCHEDULE_LATEST
api_version=API_VERSION_TYPED_FFI
operand_layout_constraints={f32[2]{0}}
origin={{"x" {0}}}
origin={[synthetic_call]}
statistics={visualizing_index=0,a-1=1.5}
""",
        r"""
backend_config="\q"
backend_config=a
backend_config={a
frontend_attributes={a="b",}
frontend_attributes={a = "b"}
frontend_attributes={a=b}
output_to_operand_aliasing={{}: 0}
schedule=LATER
api_version=API_VERSION_UNSPECIFIED
operand_layout_constraints={f32[3]{0}}
operand_layout_constraints={}
parameter_replication={maybe}
origin={x}
statistics={a=1,b=x}
color="red"
schedule =SCHEDULE_LATEST
control-predecessors={}
custom_call_target="again"
""",
    ),
    "accuracy": Part(
        r"""
HloModule m

ENTRY e {
  x = f32[4,4] parameter(0)
  ROOT c = f32[4,4] exponential(x), result_accuracy=@
}
""",
        r"""
{mode=highest}
{tolerance={rtol=0.5, atol=1.0, ulps=2}}
{tolerance={}}
""",
        r"""
{mode=best}
{tolerance={error=1}}
highest
{}
{tolerance={ulps=2,}}
""",
    ),
    "headers": Part(
        r"""
HloModule m, @

ENTRY e {
  x = (f32[2], f32[2]) parameter(0)
  ROOT y = f32[2] get-tuple-element(x), index=0
}
""",
        r"""
is_scheduled=true
replica_count=2, num_partitions=4
input_output_alias={ {}: (0, {0}, must-alias), }
buffer_donor={ (0, {1}), (0, {0}) }
allow_spmd_sharding_propagation_to_output=true
allow_spmd_sharding_propagation_to_parameters={true,false}
frontend_attributes={a={b}}
alias_passthrough_params=true
entry_computation_layout={((f32[2]{0}, f32[2]{0}))->f32[2]{0}}
""",
        r"""
is_scheduled=1
replica_count=x
input_output_alias={ {}: (0) }
input_output_alias={ {}: 0 }
input_output_alias={ {1}: (0, {}) }
input_output_alias={ {}: (0, {}, always) }
buffer_donor={ (0) }
allow_spmd_sharding_propagation_to_output={x}
color=red
is_scheduled=true, is_scheduled=true
is_scheduled =true
""",
    ),
    "groups": Part(
        r"""
HloModule m, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  x = f32[8] parameter(0)
  ROOT r = f32[8] all-reduce(x), to_apply=add, @
}
""",
        r"""
replica_groups={}
replica_groups={{}}
replica_groups={{0,1},{2,3}}
replica_groups=[2,4]<=[8]
replica_groups=[2,4]<=[4,2]T(1,0)
replica_groups=mesh['x'=2,'y'=4] {'y'}
replica_groups=mesh['x'=2,'y'=4], device_ids=(7,6,5,4,3,2,1,0) {'y':(2)2}
use_global_device_ids=true, channel_id=1
""",
        r"""
replica_groups={{0,1},{2,3},}
replica_groups={0,1}
replica_groups=[8]<=[8]
replica_groups=[2,4]<=[2,4]
replica_groups=[4,2]<=[8]T(0)
replica_groups={}, replica_groups={}
use_global_device_ids=true
mode=all
dimensions={0}
""",
    ),
    "asynchronous": Part(
        r"""
HloModule m

w {
  p = f32[2] parameter(0)
  ROOT n = f32[2] custom-call(p), custom_call_target="t"
}

ENTRY e {
  x = f32[2] parameter(0)
  s = ((f32[2]), f32[2], s32[]) async-start(x), async_execution_thread="q", calls=w
  ROOT d = @
}
""",
        r"""
f32[2] async-done(s)
f32[2] async-done(s), async_execution_thread="q", calls=w
f32[2] custom-call-done(s)
((f32[2]), f32[2], s32[]) async-update(s)
((f32[2]), f32[2], u32[]) negate-start(x)
""",
        r"""
f32[2] async-done(s), async_execution_thread="r"
f32[2] negate-done(s)
(f32[2], f32[2], u32[]) negate-start(x)
((f32[2])) negate-start(x)
((f32[2]), f32[2], s32[]) custom-call-start(x)
""",
    ),
    "tables": Part(
        r"""
HloModule m

FileNames
1 "a.py"

FunctionNames
1 "f"

FileLocations
@

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e {
  ROOT x = f32[] parameter(0)
}
""",
        r"""
1 {file_name_id=1 function_name_id=1 line=3 end_line=4 column=5 end_column=6}
7 {line=3, end_line=4 column=5, end_column=6 file_name_id=1 function_name_id=1}
""",
        r"""
1 {file_name_id=1 function_name_id=1 line=3 end_line=4 column=5}
1 {file_name_id=1 function_name_id=1 line=3 line=3 end_line=4 column=5 end_column=6}
1 {file_name_id=1 function_name_id=1 line=99999999999 end_line=4 column=5 end_column=6}
1 a.py
""",
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_part(part: str) -> None:
    for row, (text, wanted) in PARTS[part].texts().items():
        if not wanted:
            with pytest.raises(ShardcError) as caught:
                read_hlo(text)
                pytest.fail(f"{row!r} is read")
            assert isinstance(caught.value.where, Location) and caught.value.where.line > 0, row
            continue
        module = read_hlo(text)
        found = difference(module, read_hlo(print_module(module)))
        assert found is None, f"{row!r}: {found}"


@pytest.mark.parametrize("part", PARTS)
def test_xla_agrees(part: str) -> None:
    texts = PARTS[part].texts()
    verdicts = judge({row: text for row, (text, _) in texts.items()})
    wrong = {row: v.error or "accepted" for row, v in verdicts.items() if v.accepted != texts[row][1]}
    assert not wrong
    printed = {row: print_module(read_hlo(text)) for row, (text, wanted) in texts.items() if wanted}
    again = judge(printed)
    refused = {row: again[row].error for row in printed if not again[row].accepted}
    assert not refused
