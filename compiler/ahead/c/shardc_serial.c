/* In place of shardc_pool.o: parallel parts of kernels run in the calling thread, one piece after another. */
#include <stdint.h>

void shardc_parallel(void (*function)(void *context, int64_t begin, int64_t end), void *context, int64_t count) {
  if (count > 0) function(context, 0, count);
}

void shardc_pool_configure(int32_t workers, int64_t spin_nanoseconds) { (void)workers, (void)spin_nanoseconds; }
