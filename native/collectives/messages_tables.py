"""The IR of `shardc.native.collectives.messages`, second part: places, and what is done to them."""

from __future__ import annotations

__all__ = ["TABLES"]

TABLES = """
define internal ptr @place(ptr %base, i64 %offset) {
  %pointer = load ptr, ptr %base, align 8
  %place = getelementptr i8, ptr %pointer, i64 %offset
  ret ptr %place
}

; Where a table's cells are now.
define internal void @resolve(ptr %table) {
entry:
  %sources.p = getelementptr %table, ptr %table, i64 0, i32 1
  %sources = load i64, ptr %sources.p, align 8
  %targets.p = getelementptr %table, ptr %table, i64 0, i32 2
  %targets = load i64, ptr %targets.p, align 8
  %cells.p = getelementptr %table, ptr %table, i64 0, i32 5
  %cells = load ptr, ptr %cells.p, align 8
  %pointers.p = getelementptr %table, ptr %table, i64 0, i32 6
  %pointers = load ptr, ptr %pointers.p, align 8
  %all = add i64 %sources, %targets
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %look ]
  %left = icmp ult i64 %k, %all
  br i1 %left, label %look, label %done
look:
  %base.p = getelementptr { ptr, i64 }, ptr %cells, i64 %k, i32 0
  %base = load ptr, ptr %base.p, align 8
  %offset.p = getelementptr { ptr, i64 }, ptr %cells, i64 %k, i32 1
  %offset = load i64, ptr %offset.p, align 8
  %here = call ptr @place(ptr %base, i64 %offset)
  %entry.p = getelementptr ptr, ptr %pointers, i64 %k
  store ptr %here, ptr %entry.p, align 8
  %k.next = add i64 %k, 1
  br label %next
done:
  ret void
}

; Pieces ``begin`` to ``end`` of a table's elements.
define internal void @reduce_piece(ptr %table, i64 %begin, i64 %end) {
entry:
  %function.p = getelementptr %table, ptr %table, i64 0, i32 0
  %function = load ptr, ptr %function.p, align 8
  %sources.p = getelementptr %table, ptr %table, i64 0, i32 1
  %sources = load i64, ptr %sources.p, align 8
  %targets.p = getelementptr %table, ptr %table, i64 0, i32 2
  %targets = load i64, ptr %targets.p, align 8
  %elements.p = getelementptr %table, ptr %table, i64 0, i32 3
  %elements = load i64, ptr %elements.p, align 8
  %item.p = getelementptr %table, ptr %table, i64 0, i32 4
  %item = load i64, ptr %item.p, align 8
  %pointers.p = getelementptr %table, ptr %table, i64 0, i32 6
  %pointers = load ptr, ptr %pointers.p, align 8
  %results = getelementptr ptr, ptr %pointers, i64 %sources
  %piece = udiv i64 $PIECE$, %item
  %lo = mul i64 %begin, %piece
  %beyond = mul i64 %end, %piece
  %over = icmp ugt i64 %beyond, %elements
  %hi = select i1 %over, i64 %elements, i64 %beyond
  %count = sub i64 %hi, %lo
  %offset = mul i64 %lo, %item
  call void %function(ptr %pointers, i64 %sources, i64 %offset, ptr %results, i64 %targets, i64 %offset, i64 %count,
                      i1 false)
  ret void
}

; The same for a copy: to every target that is neither the source nor the target before.
define internal void @copy_piece(ptr %table, i64 %begin, i64 %end) {
entry:
  %function.p = getelementptr %table, ptr %table, i64 0, i32 0
  %function = load ptr, ptr %function.p, align 8
  %targets.p = getelementptr %table, ptr %table, i64 0, i32 2
  %targets = load i64, ptr %targets.p, align 8
  %elements.p = getelementptr %table, ptr %table, i64 0, i32 3
  %elements = load i64, ptr %elements.p, align 8
  %pointers.p = getelementptr %table, ptr %table, i64 0, i32 6
  %pointers = load ptr, ptr %pointers.p, align 8
  %source = load ptr, ptr %pointers, align 8
  %lo = mul i64 %begin, $PIECE$
  %beyond = mul i64 %end, $PIECE$
  %over = icmp ugt i64 %beyond, %elements
  %hi = select i1 %over, i64 %elements, i64 %beyond
  %count = sub i64 %hi, %lo
  %from = getelementptr i8, ptr %source, i64 %lo
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %following, %more ]
  %left = icmp ult i64 %k, %targets
  br i1 %left, label %look, label %done
look:
  %following = add i64 %k, 1
  %target.p = getelementptr ptr, ptr %pointers, i64 %following
  %target = load ptr, ptr %target.p, align 8
  %before.p = getelementptr ptr, ptr %pointers, i64 %k
  %before = load ptr, ptr %before.p, align 8
  %itself = icmp eq ptr %target, %source
  %again = icmp eq ptr %target, %before
  %known = or i1 %itself, %again
  br i1 %known, label %more, label %copy
copy:
  %to = getelementptr i8, ptr %target, i64 %lo
  call void %function(ptr %to, ptr %from, i64 %count, i64 0)
  br label %more
more:
  br label %next
done:
  ret void
}

; All pieces, on the pool's threads where it pays.
define internal void @all_pieces(ptr %state, ptr %table, ptr %piece) {
entry:
  call void @resolve(ptr %table)
  %sources.p = getelementptr %table, ptr %table, i64 0, i32 1
  %sources = load i64, ptr %sources.p, align 8
  %targets.p = getelementptr %table, ptr %table, i64 0, i32 2
  %targets = load i64, ptr %targets.p, align 8
  %elements.p = getelementptr %table, ptr %table, i64 0, i32 3
  %elements = load i64, ptr %elements.p, align 8
  %item.p = getelementptr %table, ptr %table, i64 0, i32 4
  %item = load i64, ptr %item.p, align 8
  %nbytes = mul i64 %elements, %item
  %each = udiv i64 $PIECE$, %item
  %more = sub i64 %each, 1
  %up = add i64 %elements, %more
  %pieces = udiv i64 %up, %each
  %parts = add i64 %sources, %targets
  %moved = mul i64 %nbytes, %parts
  %large = icmp ugt i64 %moved, $PARALLEL$
  br i1 %large, label %shared, label %alone
alone:
  call void %piece(ptr %table, i64 0, i64 %pieces)
  ret void
shared:
  %parallel.p = getelementptr %state, ptr %state, i64 0, i32 3
  %parallel = load ptr, ptr %parallel.p, align 8
  %nanoseconds = udiv i64 %moved, 10
  call void %parallel(ptr %piece, ptr %table, i64 %pieces, i64 %nanoseconds)
  ret void
}
"""
