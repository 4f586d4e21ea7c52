"""Warnings of `explain`: what people know by pain, one kind per file."""
