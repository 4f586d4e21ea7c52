"""Smaller programs of the same meaning: identities, constants, values computed once. Needs no target."""
