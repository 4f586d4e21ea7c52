"""The program: data structures, readers, printers, the evaluator that defines its meaning, and simplification.

Start with `ir.ir` and `ir.opset`; `text` and `stablehlo` read programs, `evaluate` runs them in NumPy, `passes` runs
passes.
"""
