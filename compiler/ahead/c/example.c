/* Example: one step of @name@, without Python.
 *
 * @name@_main DIR reads argument i from DIR/ini.bin (raw elements, row-major) and writes result i to DIR/outi.bin.
 * Without DIR the arguments are zeros.
 */
#include <stdio.h>
#include <stdlib.h>

#include "@name@.h"
@threads_declaration@
static void *block(size_t nbytes) {
  void *place = aligned_alloc(64, (nbytes + 64) & ~(size_t)63);
  if (!place) exit((fprintf(stderr, "out of memory\n"), 1));
  return place;
}

static void transfer(const char *folder, const char *prefix, int number, int write, void *data, size_t nbytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s%d.bin", folder, prefix, number);
  FILE *file = fopen(path, write ? "wb" : "rb");
  size_t done = !file ? 0 : write ? fwrite(data, 1, nbytes, file) : fread(data, 1, nbytes, file);
  if (!file || done != nbytes || fclose(file)) exit((fprintf(stderr, "%s: not %zu bytes\n", path, nbytes), 2));
}

int main(int argc, char **argv) {
  void *args[@NAME@_ARGS + 1], *results[@NAME@_RESULTS + 1];
@threads@  for (int i = 0; i < @NAME@_ARGS; i++) {
    args[i] = block(@name@_arg_bytes[i]);
    for (size_t k = 0; k < @name@_arg_bytes[i]; k++) ((char *)args[i])[k] = 0;
    if (argc > 1) transfer(argv[1], "in", i, 0, args[i], @name@_arg_bytes[i]);
  }
  for (int i = 0; i < @NAME@_RESULTS; i++) results[i] = block(@name@_result_bytes[i]);
  int code = @name@_run(args, results, block(@name@_workspace_bytes()));
  if (code) fprintf(stderr, "%s\n", @name@_message(code));
  for (int i = 0; i < @NAME@_RESULTS && !code; i++) {
    if (argc > 1) transfer(argv[1], "out", i, 1, results[i], @name@_result_bytes[i]);
    else printf("result %d %s: %zu bytes\n", i, @name@_result_names[i], @name@_result_bytes[i]);
  }
  return code != 0;
}
