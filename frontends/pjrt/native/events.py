"""Events: made, completed once, waited for.

Who completes an event has a reference of its own until it has done so, because a client may destroy the event within
its callback. The event of all that is complete from the beginning (`done_event`) is never released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.frontends.pjrt.abi.base import (
    EventAwaitArgs,
    EventCreateArgs,
    EventDestroyArgs,
    EventErrorArgs,
    EventIsReadyArgs,
    EventOnReadyArgs,
    EventSetArgs,
)
from shardc.frontends.pjrt.native.errors import (
    keep_error,
    make_error,
    no_memory,
    release_error,
)
from shardc.frontends.pjrt.native.memory_pool import allocate, class_of, give_back
from shardc.frontends.pjrt.native.records import (
    CLOSED,
    IMMORTAL,
    ErrorRecord,
    EventRecord,
    OnReadyCall,
    WaiterRecord,
)
from shardc.native.lowlevel.builtins import as_i64, as_u8, exported, fill_memory, local, static
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import ACQ_REL, ACQUIRE, RELAXED, address_of
from shardc.native.threads.meeting import arrive, wait

__all__ = [
    "EVENT_FUNCTIONS", "FOREVER", "await_event", "await_event_until", "call_when_done", "complete_event",
    "create_event", "destroy_event", "done_event", "error_of_event", "event_await", "event_error", "is_done",
    "is_event_ready", "keep_event", "keep_event_for", "make_event", "on_event_ready", "release_event", "set_event",
]  # fmt: skip

#: The end of a wait without one, and how long a wait watches before it sleeps, in nanoseconds.
FOREVER = (1 << 63) - 1
_SPIN = 20_000

_DONE = static(EventRecord, "shardc_pjrt_done", references=IMMORTAL, waiters=CLOSED)
_EVENT_BYTES, _WAITER_BYTES = 40, 24
_CALL = EventOnReadyArgs.offset_of("callback")


@exported("shardc_pjrt_done_event")
def done_event() -> address:
    """The event that is complete from the beginning; it needs no releases."""
    return address_of(_DONE)


@exported("shardc_pjrt_make_event")
def make_event(references: i32) -> address:
    """An event that is not complete; null where there is no memory."""
    at = allocate(class_of(_EVENT_BYTES))
    if at != 0:
        fill_memory(at, 0, _EVENT_BYTES)
        EventRecord.at(at).references.store(references, RELAXED)
    return at


def keep_event(event: EventRecord) -> address:
    """One reference more, and the event."""
    if event.references.load(RELAXED) >= 0:
        event.references.add(1, RELAXED)
    return address_of(event)


def keep_event_for(event: EventRecord, count: i32) -> None:
    """So many references more."""
    if event.references.load(RELAXED) >= 0:
        event.references.add(count, RELAXED)


@exported("shardc_pjrt_release_event")
def release_event(at: address) -> None:
    """One reference less; null is none."""
    if at == 0:
        return
    event = EventRecord.at(at)
    if event.references.load(RELAXED) >= 0 and event.references.add(-1, ACQ_REL) == 1:
        release_error(address_of(event.error))
        give_back(at, class_of(_EVENT_BYTES))


def is_done(event: EventRecord) -> bool:
    return as_i64(event.waiters.load(ACQUIRE)) == CLOSED


@exported("shardc_pjrt_error_of_event")
def error_of_event(event: EventRecord) -> address:
    """The error of a complete event, with a reference for the caller; null where there is none."""
    error = event.error
    if error is None:
        return 0
    keep_error(error)
    return address_of(error)


@exported("shardc_pjrt_complete_event")
def complete_event(at: address, error: address) -> None:
    """Complete an event, which happens once; the caller gives up a reference to it, and its error (or null)."""
    event = EventRecord.at(at)
    if error != 0:
        event.error = ErrorRecord.at(error)
    closed: address = 0
    latest = event.waiters.exchange(closed + CLOSED, ACQ_REL)
    arrive(event.done, 1)
    first: address = 0
    while latest != 0:  # the latest leads to the one before
        waiter = WaiterRecord.at(latest)
        following = waiter.next
        waiter.next = first
        first = latest
        latest = following
    while first != 0:
        waiter = WaiterRecord.at(first)
        following = waiter.next
        call = local(OnReadyCall)
        call.function = waiter.call.function
        call.argument = waiter.call.argument
        give_back(first, class_of(_WAITER_BYTES))
        call.function(error_of_event(event), call.argument)
        first = following
    release_event(at)


@exported("shardc_pjrt_await_event")
def await_event(event: EventRecord) -> None:
    """Wait for an event."""
    if not is_done(event):
        wait(event.done, 1, _SPIN, FOREVER)


def await_event_until(event: EventRecord, end: i64) -> bool:
    """Wait for an event, no longer than to ``end``. Returns whether it is complete."""
    return is_done(event) or wait(event.done, 1, _SPIN, end)


@exported("shardc_pjrt_event_destroy")
def destroy_event(args: EventDestroyArgs) -> address:
    release_event(args.event)
    return 0


@exported("shardc_pjrt_event_is_ready")
def is_event_ready(args: EventIsReadyArgs) -> address:
    args.is_ready = as_u8(is_done(EventRecord.at(args.event)))
    return 0


@exported("shardc_pjrt_event_error")
def event_error(args: EventErrorArgs) -> address:
    event = EventRecord.at(args.event)
    return error_of_event(event) if is_done(event) else 0


@exported("shardc_pjrt_event_await")
def event_await(args: EventAwaitArgs) -> address:
    event = EventRecord.at(args.event)
    await_event(event)
    return error_of_event(event)


def call_when_done(event: EventRecord, call: OnReadyCall) -> address:
    """Call back when the event is complete, at once if it is; an error where there is no memory."""
    if is_done(event):
        call.function(error_of_event(event), call.argument)
        return 0
    at = allocate(class_of(_WAITER_BYTES))
    if at == 0:
        return no_memory()
    waiter = WaiterRecord.at(at)
    waiter.call = call
    latest = event.waiters.load(ACQUIRE)
    while as_i64(latest) != CLOSED:
        waiter.next = latest
        seen = event.waiters.compare_exchange(latest, at, ACQ_REL)
        if seen == latest:
            return 0
        latest = seen
    give_back(at, class_of(_WAITER_BYTES))
    call.function(error_of_event(event), call.argument)
    return 0


@exported("shardc_pjrt_event_on_ready")
def on_event_ready(args: EventOnReadyArgs) -> address:
    return call_when_done(EventRecord.at(args.event), OnReadyCall.at(address_of(args) + _CALL))


@exported("shardc_pjrt_event_create")
def create_event(args: EventCreateArgs) -> address:
    """An event of the client's own: it has a reference, and `set_event` one."""
    args.event = make_event(2)
    return no_memory() if args.event == 0 else 0


@exported("shardc_pjrt_event_set")
def set_event(args: EventSetArgs) -> address:
    """Complete an event that the client made."""
    error: address = 0
    if args.error_code != 0:
        error = make_error(args.error_code, args.error_message, args.error_message_size)
    complete_event(args.event, error)
    return 0


#: By PJRT's names.
EVENT_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "Event_Destroy": destroy_event,
    "Event_IsReady": is_event_ready,
    "Event_Error": event_error,
    "Event_Await": event_await,
    "Event_OnReady": on_event_ready,
    "Event_Create": create_event,
    "Event_Set": set_event,
}
