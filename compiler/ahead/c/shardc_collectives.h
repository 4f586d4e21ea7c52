/* Collectives of programs that `shardc compile` made for several devices.
 *
 * A program is one resumable step per device. It runs to its next collective, which is performed here on the buffers
 * of the devices that this process owns, and goes on. Nothing is allocated: all memory is the caller's workspace.
 * Compile with -DSHARDC_MPI (and mpicc) for programs over MPI ranks; without it all devices are in this process.
 */
#ifndef SHARDC_COLLECTIVES_H
#define SHARDC_COLLECTIVES_H

#include <stddef.h>
#include <stdint.h>
#ifdef SHARDC_MPI
#include <mpi.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { SHARDC_ARENA, SHARDC_ARGUMENT, SHARDC_RESULT, SHARDC_CONSTANT };
enum { SHARDC_ALL_REDUCE, SHARDC_ALL_GATHER, SHARDC_REDUCE_SCATTER, SHARDC_ALL_TO_ALL, SHARDC_PERMUTE };
enum { SHARDC_ADD, SHARDC_MULTIPLY, SHARDC_MAXIMUM, SHARDC_MINIMUM, SHARDC_AND, SHARDC_OR };
enum {
  SHARDC_PRED, SHARDC_S2, SHARDC_S4, SHARDC_S8, SHARDC_S16, SHARDC_S32, SHARDC_S64, SHARDC_U2, SHARDC_U4, SHARDC_U8,
  SHARDC_U16, SHARDC_U32, SHARDC_U64, SHARDC_BF16, SHARDC_F16, SHARDC_F32, SHARDC_F64, SHARDC_C64, SHARDC_C128,
  SHARDC_BYTES /* moved only */
};

/* What a run returns: 0 when done, SHARDC_CHECK + n when check n of the program is false, or one of the others. */
enum { SHARDC_DONE = 0, SHARDC_DIVERGED = -1, SHARDC_MPI_FAILED = -2, SHARDC_BAD_RANKS = -3, SHARDC_CHECK = 1 };

/* A range of bytes in a device's memory; `index` is the argument's or result's number. */
typedef struct {
  int32_t space, index;
  int64_t offset, nbytes;
} shardc_place;

/* An operand of a collective and its result; `count` is in elements of the operand, `item` the bytes of one. */
typedef struct {
  shardc_place operand, result;
  int32_t type, item;
  int64_t count;
} shardc_operand;

/* `members` has `groups` rows of `size` device numbers; for SHARDC_PERMUTE the rows are (source, target).
 * Results lie apart from operands, but an all-reduce's may be its operand. */
typedef struct {
  int32_t op, reduction, groups, size, num_operands;
  const int32_t *members;
  const shardc_operand *operands;
} shardc_call;

typedef int32_t shardc_step(void *arena, void *const *arguments, void *const *results, const void *constants,
                            int32_t device);

typedef struct {
  int32_t devices, num_calls;
  int64_t arena_bytes;
  const void *constants;
  const shardc_call *calls;
  shardc_step *step;
} shardc_program;

/* First device of a rank: rank r of n owns devices [first(r), first(r + 1)). */
int32_t shardc_first_device(const shardc_program *program, int rank, int ranks);

/* Bytes of the workspace of one rank; it must be aligned to 64. */
size_t shardc_workspace_bytes(const shardc_program *program, int rank, int ranks);

/* One step with all devices in this process; arguments[device][number], every buffer aligned to 64. */
int shardc_run(const shardc_program *program, void *const *const *arguments, void *const *const *results,
               void *workspace);

#ifdef SHARDC_MPI
/* One step over the ranks of a communicator that nothing else uses meanwhile; arguments[device here][number]. */
int shardc_run_mpi(const shardc_program *program, MPI_Comm comm, void *const *const *arguments,
                   void *const *const *results, void *workspace);
#endif

#ifdef __cplusplus
}
#endif
#endif
