"""IR that pool and drive loop share: a table of `shardc.native.threads.pool.Row`, one call of the step function for
each.
"""

from __future__ import annotations

__all__ = ["ROWS"]

ROWS = """
%row = type { ptr, ptr, ptr, ptr, i64, i64 }

; The devices of rows begin to end to their next stop, one after the other on this thread.
define internal void @in_turn(ptr %step, ptr %rows, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %k = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %row = getelementptr %row, ptr %rows, i64 %k
  %arguments.p = getelementptr %row, ptr %row, i64 0, i32 1
  %results.p = getelementptr %row, ptr %row, i64 0, i32 2
  %constants.p = getelementptr %row, ptr %row, i64 0, i32 3
  %device.p = getelementptr %row, ptr %row, i64 0, i32 4
  %answer.p = getelementptr %row, ptr %row, i64 0, i32 5
  %arena = load ptr, ptr %row, align 8
  %arguments = load ptr, ptr %arguments.p, align 8
  %results = load ptr, ptr %results.p, align 8
  %constants = load ptr, ptr %constants.p, align 8
  %device = load i64, ptr %device.p, align 8
  %number = trunc i64 %device to i32
  %answer = call i32 %step(ptr %arena, ptr %arguments, ptr %results, ptr %constants, i32 %number)
  %wide = sext i32 %answer to i64
  store i64 %wide, ptr %answer.p, align 8
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
