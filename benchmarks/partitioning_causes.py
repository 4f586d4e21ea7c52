"""Why single programs need more than XLA's: what is known of each, by figure and program."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CAUSES"]

CAUSES: Mapping[str, Mapping[str, str]] = {
    "wire_bytes": {},
    "peak_bytes": {
        "gradient through a gradient step": "activations are kept where XLA's fusions compute them again",
        "two experts by capacity, training": "activations are kept where XLA's fusions compute them again",
        "waves to fourth order": "two shifted copies are stored, because their borders are sent from them",
        "shallow water on a torus": "two products are stored, because their borders are sent from them",
        "pipeline by shifting": "the last gather, along an inner dimension, is transposed from a buffer of its own",
        "low-rank adapters, data x tensor": "alignment of small buffers",
    },
    "flops": {
        "shortest paths": "a row of a split matrix is masked and added up over devices, where XLA gathers the matrix",
        "k-means, one-hot, points x coordinates": "XLA takes the minimum from the arg-minimum that it computes anyway",
        "k-means, segment sums, points x coordinates": "XLA takes the minimum from the arg-minimum that it computes "
        "anyway, and knows that an arg-minimum is not negative",
        "Newton's method, logistic": "a scaled identity matrix is made in every iteration",
        "page rank": "ten scalar operations, on positions of shards, among few others",
    },
}
