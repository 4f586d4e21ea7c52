/* Example: one step of @name@ on its devices, without Python: over MPI ranks when compiled by mpicc with -DSHARDC_MPI,
 * otherwise all devices in this process.
 *
 * @name@_main DIR reads argument i of device d from DIR/ini.d.bin (raw elements of the device's part, row-major), or
 * from DIR/ini.bin where that file is missing, and writes result i to DIR/outi.d.bin. Without DIR arguments are zeros.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "@name@.h"
@threads_declaration@
static void fail(int code, const char *what) {
  fprintf(stderr, "%s\n", what);
#ifdef SHARDC_MPI
  MPI_Abort(MPI_COMM_WORLD, code);
#endif
  exit(code);
}

static void *block(size_t nbytes) {
  void *place = aligned_alloc(64, (nbytes + 64) & ~(size_t)63);
  if (!place) fail(1, "out of memory");
  return memset(place, 0, nbytes);
}

static void transfer(const char *folder, const char *prefix, int number, int device, int write, void *data,
                     size_t nbytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s%d.%d.bin", folder, prefix, number, device);
  FILE *file = fopen(path, write ? "wb" : "rb");
  if (!file && !write) {
    snprintf(path, sizeof path, "%s/%s%d.bin", folder, prefix, number);
    file = fopen(path, "rb");
  }
  size_t done = !file ? 0 : write ? fwrite(data, 1, nbytes, file) : fread(data, 1, nbytes, file);
  if (!file || done != nbytes || fclose(file)) fail(2, path);
}

int main(int argc, char **argv) {
  int rank = 0, ranks = 1;
#ifdef SHARDC_MPI
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > @NAME@_DEVICES) fail(2, "more ranks than devices");
#endif
  const char *folder = argc > 1 ? argv[1] : NULL;
  int first = shardc_first_device(&@name@_program, rank, ranks);
  int count = shardc_first_device(&@name@_program, rank + 1, ranks) - first;
  void ***args = block(count * sizeof(void **)), ***results = block(count * sizeof(void **));
@threads@  for (int d = 0; d < count; d++) {
    args[d] = block((@NAME@_ARGS + 1) * sizeof(void *));
    results[d] = block((@NAME@_RESULTS + 1) * sizeof(void *));
    for (int i = 0; i < @NAME@_ARGS; i++) {
      args[d][i] = block(@name@_arg_bytes[i]);
      if (folder) transfer(folder, "in", i, first + d, 0, args[d][i], @name@_arg_bytes[i]);
    }
    for (int i = 0; i < @NAME@_RESULTS; i++) results[d][i] = block(@name@_result_bytes[i]);
  }
  void *workspace = block(@name@_workspace_bytes(rank, ranks));
#ifdef SHARDC_MPI
  int code = @name@_run_mpi(MPI_COMM_WORLD, (void *const *const *)args, (void *const *const *)results, workspace);
#else
  int code = @name@_run((void *const *const *)args, (void *const *const *)results, workspace);
#endif
  if (code) fail(1, @name@_message(code));
  for (int d = 0; d < count && folder; d++)
    for (int i = 0; i < @NAME@_RESULTS; i++)
      transfer(folder, "out", i, first + d, 1, results[d][i], @name@_result_bytes[i]);
  if (!rank && !folder) printf("@name@: done on %d devices, %d ranks\n", @NAME@_DEVICES, ranks);
#ifdef SHARDC_MPI
  MPI_Finalize();
#endif
  return 0;
}
