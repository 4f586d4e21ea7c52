/* The products and triangular solves that a compiled program calls, by any CBLAS: link with -lopenblas, -lcblas, ... */
#include <stdint.h>

typedef int32_t n;
typedef const void *in;
typedef void *out;

#define GEMM(LETTER, SCALE) \
  void cblas_##LETTER##gemm(n, n, n, n, n, n, SCALE, in, n, in, n, SCALE, out, n); \
  void scipy_cblas_##LETTER##gemm(n order, n ta, n tb, n m, n k, n l, SCALE alpha, in a, n lda, in b, n ldb, SCALE beta, \
                                  out c, n ldc) { \
    cblas_##LETTER##gemm(order, ta, tb, m, k, l, alpha, a, lda, b, ldb, beta, c, ldc); \
  }
#define TRSM(LETTER, SCALE) \
  void cblas_##LETTER##trsm(n, n, n, n, n, n, n, SCALE, in, n, out, n); \
  void scipy_cblas_##LETTER##trsm(n order, n side, n uplo, n ta, n diagonal, n m, n k, SCALE alpha, in a, n lda, out b, \
                                  n ldb) { \
    cblas_##LETTER##trsm(order, side, uplo, ta, diagonal, m, k, alpha, a, lda, b, ldb); \
  }

GEMM(s, float)
GEMM(d, double)
GEMM(c, in)
GEMM(z, in)
TRSM(s, float)
TRSM(d, double)
TRSM(c, in)
TRSM(z, in)

#include "shardc_omatcopy.inc"
