"""Elementwise arithmetic on LLVM values. Start with `elementwise`; `registers` says what values are."""
