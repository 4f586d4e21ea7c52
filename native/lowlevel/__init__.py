"""The low-level language: a typed subset of Python for what runs without Python, such as waiting, queues and protocols.

Start with `module.compile_functions`, which makes LLVM's text of functions, and with a user:
`shardc.native.threads.meeting`. The same functions run as plain Python over the same memory (`records`), so that a
test can step through the orders of their threads (`simulation`).

**Functions** have a type for every parameter and the result, take arguments by position, and call each other, C
(`builtins.external`), or values of a ``Callable`` type. `builtins.exported` gives one a name for the linker, under
which other modules call it; `builtins.inline` puts one into its callers.

**Types** are ordinary annotations. Numbers: ``i32 i64 u8 u32 u64``, ``address`` (a byte's place in memory), ``bool``.
References: a `Record` class, ``Array[T]``, ``Atomic[T]``, ``Callable[[...], T]``; ``T | None`` where it may be none.
A field of a record is a number, another record or an atomic (which lie inside), a ``Pointer[...]`` to one, an
``Array`` (a pointer to its elements; with ``Count(n)`` the elements), or a ``Callable``; ``OwnLine[...]`` starts a
cache line. Fields lie as ctypes puts them. Assigning to a field that is a record copies; all other assignments are of
references.

**Variables** have the type of their first value (a plain number is an i64), or what ``x: T = ...`` says, and must
have a value on every way to where they are read.

**Statements**: assignments (``=``, ``+=``...), calls, ``if``, ``while``, ``for k in range(...)`` with a positive
constant step, ``break``, ``continue``, ``return``, ``pass``. An ``if`` whose condition is constant compiles one
branch only; the fields of `platform.platform` are constants.

**Expressions**: constants (also names of the module), variables, fields, elements, ``x if c else y``; ``and or not``
of truth values; one comparison of numbers or addresses, ``is None``, ``in`` a tuple of constants; ``+ - * // % & | ^
~ << >>``; ``min max``. A number becomes one of a type with all values of its own by itself, of another by
``as_i32(...)`` and its like, which wrap around. ``+ - * // << >>`` and signs are done in 64 bits. A result must fit
64 bits, unless it goes straight into a conversion; division rounds down, as in Python. To an address numbers may be
added; two have a difference. ``address_of(reference)``, ``SomeRecord.at(address)`` and ``array.behind(n)`` go from
one to the other.

**Memory**: ``local(SomeRecord)`` and ``local_array(bits, count)`` are the function's until it returns,
``static(SomeRecord, name)`` the program's, ``static_text(name, text)`` characters; ``fill_memory``, ``copy_memory``.
Nothing checks bounds or lifetimes.

**Atomics** have ``load``, ``store``, ``exchange``, ``compare_exchange`` (which gives what was there before) and
``add``, each with a memory order: ``RELAXED ACQUIRE RELEASE ACQ_REL SEQ_CST``; and there is ``fence``.

What is not of the language is a `sources.LanguageError` that names file, line and what to write instead.
"""
