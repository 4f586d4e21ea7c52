"""Errors, events and buffers of the plug-in, as a client calls them."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pjrt_calls import Caller, PjrtProblem, caller

from shardc.frontends.pjrt.abi.base import EventErrorArgs, EventOnReadyArgs
from shardc.frontends.pjrt.abi.functions import FUNCTIONS, MINOR
from shardc.frontends.pjrt.native import library as library_module
from shardc.frontends.pjrt.native.errors import FAILED_PRECONDITION, INTERNAL, INVALID_ARGUMENT, UNIMPLEMENTED
from shardc.frontends.pjrt.native.library import error_code_of, library, library_ir
from shardc.hlo.errors import EnvironmentProblem, InputError, UnsupportedError
from shardc.native.llvm.jit import compile_ir
from shardc.native.llvm.target import Target

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def test_the_table_says_its_version_and_size() -> None:
    words = list(caller().api.table)
    assert words[0] == 8 * (5 + len(FUNCTIONS)) == 8 * len(words)
    assert words[2:5] == [24, 0, MINOR << 32]
    assert all(words[5:])


def test_what_nobody_has_written_says_so() -> None:
    with pytest.raises(PjrtProblem, match="PJRT_Client_DmaMap is not implemented by shardc") as found:
        caller().call("Client_DmaMap")
    assert found.value.code == UNIMPLEMENTED


def test_an_older_clients_structure_is_refused_and_not_written() -> None:
    client = caller()
    buffer, _ = client.put(np.arange(3, dtype="f4"))
    args = type(client.call("Buffer_Dimensions", buffer=buffer))(struct_size=32, buffer=buffer, num_dims=77)
    with pytest.raises(PjrtProblem, match=r"Buffer_Dimensions.*older than version 0\.112") as found:
        client.check(client.functions["Buffer_Dimensions"](ctypes.addressof(args)))
    assert found.value.code == INVALID_ARGUMENT
    assert args.num_dims == 77
    client.destroy(buffer)


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (UnsupportedError("no such op", where="%a", fix="leave it out"), UNIMPLEMENTED, "%a\n  fix: leave it out"),
        (InputError("too small"), INVALID_ARGUMENT, "too small"),
        (EnvironmentProblem("no MPI"), FAILED_PRECONDITION, "no MPI"),
        (KeyError("x"), INTERNAL, "KeyError: 'x'"),
    ],
)
def test_an_exception_of_python_is_the_clients_error(problem: Exception, code: int, message: str) -> None:
    def create(args: Any) -> None:
        raise problem

    with pytest.raises(PjrtProblem) as found:
        Caller({"Client_Create": create}).call("Client_Create")
    assert found.value.code == code == error_code_of(problem)
    assert str(found.value).endswith(message)


def test_a_waiter_comes_back_when_the_event_is_complete() -> None:
    client = caller()
    event = client.library.make_event()
    assert client.call("Event_IsReady", event=event).is_ready == 0
    waiter = threading.Thread(target=lambda: client.call("Event_Await", event=event))
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    client.library.complete_event(event)
    waiter.join(10)
    assert not waiter.is_alive()
    assert client.call("Event_IsReady", event=event).is_ready == 1
    client.release_event(event)


@pytest.mark.parametrize("is_late", [False, True])
def test_callbacks_get_errors_of_their_own_and_may_destroy_the_event(is_late: bool) -> None:
    client = caller()
    event = client.library.make_event(references=3)
    seen: list[tuple[str, int]] = []

    def heard(error: int, argument: int) -> None:
        with pytest.raises(PjrtProblem) as found:
            client.check(error)
        seen.append((str(found.value), argument))
        client.release_event(event)

    callback = _CALLBACK(heard)
    if is_late:
        client.library.complete_event(event, InputError("wrong"))
    for argument in (1, 2):
        function = ctypes.cast(callback, ctypes.c_void_p).value
        client.check(client.raw("Event_OnReady", EventOnReadyArgs(event=event, callback=function, user_arg=argument)))
        assert len(seen) == (argument if is_late else 0)
    if not is_late:
        client.library.complete_event(event, InputError("wrong"))
    assert seen == [("wrong", 1), ("wrong", 2)]


def test_a_client_makes_and_sets_events() -> None:
    client = caller()
    event = client.call("Event_Create").event
    text = ctypes.create_string_buffer(b"lost it")
    client.call("Event_Set", event=event, error_code=14, error_message=ctypes.addressof(text), error_message_size=7)
    for name in ("Event_Await", "Event_Error", "Event_Error"):
        with pytest.raises(PjrtProblem, match="lost it") as found:
            client.call(name, event=event)
        assert found.value.code == 14
    client.release_event(event)
    client.release_event(client.library.done_event)
    assert client.raw("Event_Error", EventErrorArgs(event=client.library.done_event)) == 0


def test_getters_of_a_buffer() -> None:
    client = caller()
    value = np.arange(24, dtype="i2").reshape(2, 3, 4)
    buffer, _ = client.put(value, device=1)
    assert client.call("Buffer_ElementType", buffer=buffer).type == 3
    assert client.call("Buffer_OnDeviceSizeInBytes", buffer=buffer).on_device_size_in_bytes == 48
    assert client.call("Buffer_Device", buffer=buffer).device == ctypes.addressof(client.devices[1])
    assert client.call("Buffer_Memory", buffer=buffer).memory == client.devices[1].default_memory
    assert client.call("Buffer_IsOnCpu", buffer=buffer).is_on_cpu == 1
    assert client.call("Buffer_UnpaddedDimensions", buffer=buffer).num_dims == 3
    layout = client.call("Buffer_GetMemoryLayout", buffer=buffer).layout
    order = [ctypes.c_int64.from_address(layout.u.minor_to_major + 8 * k).value for k in range(3)]
    assert (layout.type, layout.u.minor_to_major_size, layout.u.num_tiles, order) == (0, 3, 0, [2, 1, 0])
    event = client.call("Buffer_ReadyEvent", buffer=buffer).event
    assert client.call("Event_IsReady", event=event).is_ready == 1
    at = client.call("Buffer_UnsafePointer", buffer=buffer).buffer_pointer
    assert at % 64 == 0
    assert ctypes.string_at(at, 48) == value.tobytes()
    assert client.call("Buffer_OpaqueDeviceMemoryDataPointer", buffer=buffer).device_memory_ptr == at
    with pytest.raises(PjrtProblem, match="DynamicDimensionIndices is not implemented"):
        client.call("Buffer_DynamicDimensionIndices", buffer=buffer)
    client.destroy(buffer, 0)


def test_a_deleted_buffer_says_so_and_views_outlive_it() -> None:
    client, before = caller(), caller().in_use()
    buffer, _ = client.put(np.arange(1000, dtype="f8"))
    at = client.call("Buffer_UnsafePointer", buffer=buffer).buffer_pointer
    client.call("Buffer_IncreaseExternalReferenceCount", buffer=buffer)
    client.call("Buffer_Delete", buffer=buffer)
    client.call("Buffer_Delete", buffer=buffer)
    assert client.call("Buffer_IsDeleted", buffer=buffer).is_deleted == 1
    assert client.in_use() == before + 8000
    assert client.call("Buffer_OpaqueDeviceMemoryDataPointer", buffer=buffer).device_memory_ptr == at
    with pytest.raises(PjrtProblem, match="deleted or donated"):
        client.get(buffer)
    client.call("Buffer_DecreaseExternalReferenceCount", buffer=buffer)
    assert client.in_use() == before
    for name in ("Buffer_UnsafePointer", "Buffer_IncreaseExternalReferenceCount"):
        with pytest.raises(PjrtProblem, match="deleted or donated"):
            client.call(name, buffer=buffer)
    with pytest.raises(PjrtProblem, match="released twice"):
        client.call("Buffer_DecreaseExternalReferenceCount", buffer=buffer)
    client.destroy(buffer)


def test_views_that_are_left_end_with_the_buffer() -> None:
    client, before = caller(), caller().in_use()
    buffer, _ = client.put(np.arange(1000, dtype="f8"))
    for _ in range(3):
        client.call("Buffer_IncreaseExternalReferenceCount", buffer=buffer)
    client.destroy(buffer)
    assert client.in_use() == before


def test_memory_statistics_of_a_device() -> None:
    client = Caller()
    device = ctypes.addressof(client.devices[0])
    buffers = [client.put(np.zeros(n, "f4"))[0] for n in (10, 1000, 100)]
    client.destroy(*buffers[:2])
    found = client.call("Device_MemoryStats", device=device)
    assert (found.bytes_in_use, found.peak_bytes_in_use, found.num_allocs, found.largest_alloc_size) == (
        400, 4440, 3, 4000
    )  # fmt: skip
    assert (found.peak_bytes_in_use_is_set, found.num_allocs_is_set, found.bytes_limit_is_set) == (1, 1, 0)
    assert (found.pool_bytes_is_set, found.peak_pool_bytes_is_set, found.bytes_reserved_is_set) == (0, 0, 0)
    client.call("Device_ClearMemoryStats", device=device)
    found = client.call("Device_MemoryStats", device=device)
    assert (found.bytes_in_use, found.peak_bytes_in_use, found.num_allocs) == (400, 400, 0)
    client.destroy(buffers[2])


def test_nothing_is_left_of_5000_arrays() -> None:
    client = Caller()
    rng = np.random.default_rng(7)
    live: list[int] = []
    for n in range(5000):
        live.append(client.put(np.zeros(int(rng.integers(0, 9000)), "i1"), device=n % 2)[0])
        if len(live) > 20:
            client.destroy(live.pop(int(rng.integers(len(live)))))
    client.destroy(*live)
    assert (client.in_use(0), client.in_use(1)) == (0, 0)


def test_threads_make_and_destroy_arrays_on_real_cores() -> None:
    client, problems = Caller(), []
    pieces = client.library.pieces_in_use()

    def work(number: int) -> None:
        value = np.full(50 + number, number, "f4")
        try:
            for _ in range(1500):
                buffers = [client.put(value)[0] for _ in range(3)]
                copy = client.call("Buffer_CopyToDevice", buffer=buffers[1], dst_device=client.devices[1]).dst_buffer
                client.destroy(*buffers)
                np.testing.assert_array_equal(client.get(copy), value)
                client.destroy(copy)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert problems == []
    assert (client.in_use(), client.library.pieces_in_use()) == (0, pieces)


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-darwin23"])
def test_the_native_part_compiles_for_every_platform(triple: str) -> None:
    target = Target(triple, "generic", "")
    assert compile_ir(library_ir(target), target)


def test_a_later_process_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = library.__wrapped__(tmp_path)
    monkeypatch.setattr(library_module, "library_ir", lambda target: pytest.fail("it is compiled again"))
    again = library.__wrapped__(tmp_path)
    assert again.address("shardc_pjrt_make_error") != first.address("shardc_pjrt_make_error")
