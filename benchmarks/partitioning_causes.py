"""Why single programs need more than XLA's: what is known of each, by figure and program."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CAUSES"]

CAUSES: Mapping[str, Mapping[str, str]] = {
    "wire_bytes": {},
    "peak_bytes": {},
    "flops": {
        "shortest paths": "a row of a split matrix is masked and added up over devices, where XLA gathers the matrix",
        "k-means, one-hot, points x coordinates": "XLA takes the minimum from the arg-minimum that it computes anyway",
        "k-means, segment sums, points x coordinates": "XLA takes the minimum from the arg-minimum that it computes "
        "anyway, and knows that an arg-minimum is not negative",
        "MLP, FSDP, bf16 and Adam": "factors of moments whose product would round twice in another type stay apart",
        "Newton's method, logistic": "an identity matrix is scaled element by element in every iteration",
        "page rank": "indices of the loop's gather are wrapped in every iteration",
        "subspace iteration with QR": "two scalar operations on indices",
        "matrix chain": "two scalar operations on indices",
    },
}
