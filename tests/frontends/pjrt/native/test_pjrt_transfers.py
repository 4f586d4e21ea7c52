"""Arrays between the host and the plug-in: any strides, layouts and promises about the host's memory."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest
from pjrt_calls import ELEMENTS, Caller, PjrtProblem, caller

from shardc.frontends.pjrt.abi.buffers import PjrtBufferMemoryLayout, PjrtBufferMemoryLayoutStrides
from shardc.frontends.pjrt.native.errors import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED
from shardc.native.lowlevel.records import address_of

DURING_CALL, UNTIL_DONE, ZERO_COPY, MUTABLE_ZERO_COPY = range(4)
_ON_DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def aligned(value: Any) -> Any:
    """The same array at a multiple of 64 bytes."""
    space = np.empty(value.nbytes + 64, "u1")
    start = -space.ctypes.data % 64
    out = space[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    out[...] = value
    return out


def tiled(order: tuple[int, ...], tiles: int = 0) -> PjrtBufferMemoryLayout:
    """A layout by its order from minor to major; it keeps that."""
    numbers = (ctypes.c_int64 * max(1, len(order)))(*order)
    layout = PjrtBufferMemoryLayout(type=0)
    layout.u.minor_to_major, layout.u.minor_to_major_size = ctypes.addressof(numbers), len(order)
    layout.u.num_tiles = tiles
    layout.numbers = numbers
    return layout


@pytest.mark.parametrize("dtype", sorted(ELEMENTS))
def test_arrays_come_and_go_in_any_strides(dtype: str) -> None:
    client, rng = caller(), np.random.default_rng(3)
    shapes = [(), (1,), (0,), (7,), (1, 5), (3, 1, 4), (33, 18), (5, 19, 34), (2, 3, 1, 2, 5)]
    for shape in shapes:
        whole = np.array(rng.integers(0, 100, shape), dtype)
        views = [whole, whole.T, *([whole[::-1], whole[..., ::2]] if shape else [])]
        views += [np.broadcast_to(whole, (3, *shape)), np.array(whole, order="F")]
        for value in views:
            buffer, done = client.put(value)
            client.release_event(done)
            np.testing.assert_array_equal(client.get(buffer), value)
            client.destroy(buffer)


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "c16"])
def test_drawn_views_come_and_go_in_any_layout(dtype: str, record_property: Any) -> None:
    seed = 20
    record_property("seed", seed)
    client, rng = caller(), np.random.default_rng(seed)
    for _ in range(25):
        rank = int(rng.integers(1, 5))
        most = {1: 5000, 2: 150, 3: 40, 4: 12}[rank]
        whole = np.array(rng.integers(0, 100, rng.integers(1, most, rank)), dtype)
        if rank == 2 and rng.integers(2):  # whole cache lines
            whole = np.array(rng.integers(0, 100, rng.integers(1, 4, 2) * 64), dtype)
        steps = tuple(slice(int(rng.integers(0, 2)), None, int(rng.choice([1, 1, 1, 2, -1]))) for _ in range(rank))
        value = whole.transpose(rng.permutation(rank))[steps]
        case = f"{dtype} {value.shape} in strides {value.strides}"
        buffer, done = client.put(value)
        client.release_event(done)
        np.testing.assert_array_equal(client.get(buffer), value, case)
        major = tuple(int(d) for d in rng.permutation(rank))
        into = np.empty([value.shape[d] for d in major], dtype)
        client.get(buffer, tiled(major[::-1]), into)
        np.testing.assert_array_equal(into, value.transpose(major), f"{case} to {major}")
        client.destroy(buffer)


def test_a_large_transposition_is_written_past_the_caches() -> None:
    client, rng = caller(), np.random.default_rng(5)
    value = rng.integers(0, 1000, (1984, 1100), "i4").T  # rows of whole cache lines, with columns beside the last block
    assert value.nbytes > 8 << 20
    buffer, done = client.put(value)
    client.release_event(done)
    np.testing.assert_array_equal(client.get(buffer), value)
    client.destroy(buffer)


def test_the_host_says_how_it_wants_an_array() -> None:
    client, rng = caller(), np.random.default_rng(4)
    value = rng.integers(0, 1000, (3, 17, 20), "i4")
    buffer, _ = client.put(value)
    for order in itertools.permutations(range(3)):
        major = tuple(reversed(order))
        into = np.empty([value.shape[d] for d in major], "i4")
        client.get(buffer, tiled(order), into)
        np.testing.assert_array_equal(into, value.transpose(major))
    into = np.zeros((3, 17, 40), "i4")
    strides = (ctypes.c_int64 * 3)(*into[:, :, ::2].strides)
    layout = PjrtBufferMemoryLayout(type=1)
    given = PjrtBufferMemoryLayoutStrides.at(address_of(layout.u))
    given.byte_strides, given.num_byte_strides = ctypes.addressof(strides), 3
    client.get(buffer, layout, into)
    np.testing.assert_array_equal(into[:, :, ::2], value)
    assert not into[:, :, 1::2].any()
    with pytest.raises(PjrtProblem, match="in tiles") as found:
        client.get(buffer, tiled((2, 1, 0), tiles=1), into)
    assert found.value.code == UNIMPLEMENTED
    with pytest.raises(PjrtProblem, match="smaller than the array"):
        client.get(buffer, None, into[:1, :1])
    assert client.call("Buffer_ToHostBuffer", src=buffer).dst_size == value.nbytes
    client.destroy(buffer)


@pytest.mark.parametrize("semantics", range(4))
@pytest.mark.parametrize("is_aligned", [False, True])
def test_memory_of_the_host_is_taken_where_that_is_allowed(semantics: int, is_aligned: bool) -> None:
    client, before = caller(), caller().in_use()
    value = aligned(np.arange(4096, dtype="f4"))
    value = value if is_aligned else value[1:]
    buffer, done = client.put(value, semantics)
    at = client.call("Buffer_UnsafePointer", buffer=buffer).buffer_pointer
    shared = is_aligned and semantics >= ZERO_COPY
    assert (at == value.ctypes.data) == shared
    assert client.call("Event_IsReady", event=done).is_ready == (not shared)
    assert client.in_use() - before == (0 if shared else value.nbytes)
    client.call("Buffer_IncreaseExternalReferenceCount", buffer=buffer)
    client.call("Buffer_Delete", buffer=buffer)
    assert client.call("Event_IsReady", event=done).is_ready == (not shared)
    client.call("Buffer_DecreaseExternalReferenceCount", buffer=buffer)
    assert client.call("Event_IsReady", event=done).is_ready == 1
    client.release_event(done)
    client.destroy(buffer)


def test_only_row_by_row_lies_on_a_device() -> None:
    client, value = caller(), np.zeros((2, 3), "f4")
    client.destroy(client.put(value, device_layout=tiled((1, 0)))[0])
    with pytest.raises(PjrtProblem, match="not row by row") as found:
        client.put(value, device_layout=tiled((0, 1)))
    assert found.value.code == UNIMPLEMENTED


def test_memory_of_others_is_viewed_and_given_back() -> None:
    client, value = caller(), aligned(np.arange(6, dtype="i8").reshape(2, 3))
    dims, returned = (ctypes.c_int64 * 2)(2, 3), []
    callback = _ON_DELETE(lambda data, argument: returned.append((data, argument)))
    fields = {
        "dims": dims, "num_dims": 2, "element_type": 5, "device": client.devices[0], "on_delete_callback_arg": 99,
        "on_delete_callback": ctypes.cast(callback, ctypes.c_void_p).value,
    }  # fmt: skip
    buffer = client.call("Client_CreateViewOfDeviceBuffer", device_buffer_ptr=value.ctypes.data, **fields).buffer
    value[1, 1] = -5
    np.testing.assert_array_equal(client.get(buffer), value)
    assert returned == []
    client.destroy(buffer)
    assert returned == [(value.ctypes.data, 99)]
    with pytest.raises(PjrtProblem, match="is not aligned to") as found:
        client.call("Client_CreateViewOfDeviceBuffer", device_buffer_ptr=value.ctypes.data + 4, **fields)
    assert found.value.code == INVALID_ARGUMENT


def test_other_devices_share_what_is_the_plug_ins_own() -> None:
    client, value = Caller(), np.arange(1000, dtype="f4")

    def pointer(buffer: int) -> int:
        return int(client.call("Buffer_UnsafePointer", buffer=buffer).buffer_pointer)

    own, _ = client.put(value)
    host = aligned(value)
    lent, done = client.put(host, ZERO_COPY)
    there = client.devices[1].default_memory
    other = client.call("Buffer_CopyToMemory", buffer=own, dst_memory=there).dst_buffer
    same = client.call("Buffer_CopyToDevice", buffer=own, dst_device=client.devices[0]).dst_buffer
    copy = client.call("Buffer_CopyToMemory", buffer=lent, dst_memory=there).dst_buffer
    assert pointer(other) == pointer(own)
    assert len({pointer(b) for b in (own, same, lent, copy)}) == 4
    assert client.call("Buffer_Device", buffer=other).device == ctypes.addressof(client.devices[1])
    client.destroy(own, lent)
    assert client.call("Event_IsReady", event=done).is_ready == 1
    for buffer in (other, same, copy):
        np.testing.assert_array_equal(client.get(buffer), value)
        client.destroy(buffer)
    assert (client.in_use(0), client.in_use(1)) == (0, 0)


def test_what_is_not_computed_yet_is_copied_when_it_is() -> None:
    client, native = Caller(), caller().library
    device = client.devices[0]
    for fails in (False, True):
        block = native.make_block(ctypes.addressof(device), 400)
        ready = native.make_event()
        buffer = native.make_buffer(ctypes.addressof(device), device.default_memory, 4, (100,), block, ready)
        into = np.zeros(100, "i4")
        asked = client.call("Buffer_ToHostBuffer", src=buffer, dst=into.ctypes.data, dst_size=400).event
        raw = np.zeros(2, "i4")
        part = client.call("Buffer_CopyRawToHost", buffer=buffer, dst=raw.ctypes.data, offset=8, transfer_size=8).event
        copy = client.call("Buffer_CopyToMemory", buffer=buffer, dst_memory=device.default_memory).dst_buffer
        at = client.call("Buffer_UnsafePointer", buffer=buffer).buffer_pointer
        client.call("Buffer_Delete", buffer=buffer)
        assert [client.call("Event_IsReady", event=e).is_ready for e in (asked, part)] == [0, 0]
        (ctypes.c_int32 * 100).from_address(at)[:] = range(100)
        native.complete_event(ready, ValueError("the step failed") if fails else 0)
        if fails:
            with pytest.raises(PjrtProblem, match="the step failed"):
                client.call("Event_Await", event=asked)
            with pytest.raises(PjrtProblem, match="the step failed"):
                client.get(copy)
        else:
            np.testing.assert_array_equal(into, np.arange(100))
            np.testing.assert_array_equal(raw, [2, 3])
            np.testing.assert_array_equal(client.get(copy), np.arange(100))
        for event in (asked, part):
            client.release_event(event)
        client.destroy(buffer, copy)
        assert client.in_use() == 0


@pytest.mark.parametrize("count", [1 << 50, 123_456_789_012_345, 10**17])
def test_too_large_an_array_is_an_error_that_says_so(count: int) -> None:
    client, dims = caller(), (ctypes.c_int64 * 1)(count)
    with pytest.raises(PjrtProblem, match=f"^Out of memory allocating {2 * count} bytes$") as found:
        client.call(
            "Client_CreateUninitializedBuffer", shape_dims=dims, shape_num_dims=1, shape_element_type=3,
            device=client.devices[0],
        )  # fmt: skip
    assert found.value.code == RESOURCE_EXHAUSTED
    assert client.in_use() == 0
