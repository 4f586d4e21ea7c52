/* The products and triangular solves that a compiled program calls, in plain C: no library is needed.
 *
 * Products go by blocks that stay in the cache, sums in the order of the contracted dimension. An optimised BLAS is
 * several times faster: link shardc_blas_cblas.c with one instead.
 */
#include <stdint.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, CONJ_TRANS = 113, UPPER = 121, UNIT = 132, LEFT = 141 };
enum { ROWS = 4, DEPTH = 128, COLUMNS = 64 };

typedef struct { float re, im; } c64;
typedef struct { double re, im; } c128;
typedef const void *in;

#define REAL_MULTIPLY_ADD(x, y, z) ((x) * (y) + (z))
#define REAL_MULTIPLY(x, y) ((x) * (y))
#define REAL_SUBTRACT(x, y) ((x) - (y))
#define REAL_DIVIDE(x, y) ((x) / (y))
#define REAL_CONJUGATE(x) (x)
#define REAL_IS_ZERO(x) ((x) == 0)
#define COMPLEX_MULTIPLY_ADD(x, y, z) \
  ((T){(x).re * (y).re - (x).im * (y).im + (z).re, (x).re * (y).im + (x).im * (y).re + (z).im})
#define COMPLEX_MULTIPLY(x, y) ((T){(x).re * (y).re - (x).im * (y).im, (x).re * (y).im + (x).im * (y).re})
#define COMPLEX_SUBTRACT(x, y) ((T){(x).re - (y).re, (x).im - (y).im})
#define COMPLEX_DIVIDE(x, y) divide(x, y)
#define COMPLEX_CONJUGATE(x) ((T){(x).re, -(x).im})
#define COMPLEX_IS_ZERO(x) ((x).re == 0 && (x).im == 0)

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

#define LETTER s
#define T float
#define SCALE float
#define VALUE(x) (x)
#define KIND(name) REAL_##name
#include "shardc_blas_builtin.inc"

#define LETTER d
#define T double
#define SCALE double
#define VALUE(x) (x)
#define KIND(name) REAL_##name
#include "shardc_blas_builtin.inc"

#define LETTER c
#define T c64
#define SCALE in
#define VALUE(x) (*(const c64 *)(x))
#define KIND(name) COMPLEX_##name
#define PART float
#include "shardc_blas_builtin.inc"

#define LETTER z
#define T c128
#define SCALE in
#define VALUE(x) (*(const c128 *)(x))
#define KIND(name) COMPLEX_##name
#define PART double
#include "shardc_blas_builtin.inc"

#include "shardc_omatcopy.inc"
