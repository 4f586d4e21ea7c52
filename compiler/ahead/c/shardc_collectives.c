/* See shardc_collectives.h.
 *
 * Every rank walks the same groups in the same order, so that messages between two ranks match without tags of their
 * own. Reductions combine members by one fixed tree over group positions, ((0 1) (2 3)) (4 5): neighbours level by
 * level, an odd last member moves up. Hence all members, ranks and transports get the same bits.
 */
#include "shardc_collectives.h"

#include <string.h>

#define ALIGNED(n) (((size_t)(n) + 63) & ~(size_t)63)
/* Elements that a reduction combines at a time, and operands (bytes) that all members get whole. */
enum { BLOCK = 256, SMALL = 4096 };
#define MESSAGE ((size_t)1 << 30)

typedef unsigned char byte;

typedef struct {
  const shardc_program *program;
  int rank, ranks, first, count; /* devices [first, first + count) are here */
  void *const *const *arguments;
  void *const *const *results;
  byte *arenas, *scratch;
  size_t used;
#ifdef SHARDC_MPI
  MPI_Comm comm;
  MPI_Request *requests;
  int pending, failed;
#endif
} state;

int32_t shardc_first_device(const shardc_program *program, int rank, int ranks) {
  return (int32_t)((int64_t)rank * program->devices / ranks);
}

static int owner(const state *s, int device) {
  return (int)((((int64_t)device + 1) * s->ranks - 1) / s->program->devices);
}

static int is_here(const state *s, int device) { return device >= s->first && device < s->first + s->count; }

static byte *at(const state *s, int device, const shardc_place *p) {
  int k = device - s->first;
  switch (p->space) {
    case SHARDC_ARENA: return s->arenas + k * ALIGNED(s->program->arena_bytes) + p->offset;
    case SHARDC_ARGUMENT: return (byte *)s->arguments[k][p->index] + p->offset;
    case SHARDC_RESULT: return (byte *)s->results[k][p->index] + p->offset;
    default: return (byte *)s->program->constants + p->offset;
  }
}

static void *take(state *s, size_t nbytes) {
  void *place = s->scratch + s->used;
  s->used += ALIGNED(nbytes);
  return place;
}

/* Reductions. */

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

static float from_bf16(uint16_t x) { return float_of((uint32_t)x << 16); }

static uint16_t to_bf16(float value) {
  uint32_t bits = bits_of(value);
  if (value != value) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

static float from_f16(uint16_t x) {
  uint32_t magnitude = x & 0x7FFF, sign = (uint32_t)(x & 0x8000) << 16;
  if (magnitude < 0x400) return float_of(sign | bits_of((float)magnitude * 0x1p-24f));
  uint32_t bits = (magnitude << 13) + ((magnitude >= 0x7C00 ? 224u : 112u) << 23);
  return float_of(sign | bits);
}

static uint16_t to_f16(float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7FFFFFFF;
  uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
  if (magnitude > 0x7F800000) return sign | 0x7E00 | (uint16_t)((magnitude >> 13) & 0x3FF);
  if (magnitude >= 0x477FF000) return sign | 0x7C00;
  if (magnitude < 0x38800000) /* denormal: the sum with a half rounds at the right bit */
    return sign | (uint16_t)(bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
  return sign | (uint16_t)((magnitude + 0xFFF + ((magnitude >> 13) & 1) - (112u << 23)) >> 13);
}

typedef struct { float re, im; } c64;
typedef struct { double re, im; } c128;

#define SAME(x) (x)
#define LOW2(x) ((int8_t)((uint8_t)(x) << 6) >> 6)
#define LOW4(x) ((int8_t)((uint8_t)(x) << 4) >> 4)
#define ULOW2(x) ((x) & 3)
#define ULOW4(x) ((x) & 15)
#define GREATER(x, y) (((x) >= (y) || (x) != (x)) ? (x) : (y))
#define SMALLER(x, y) (((x) <= (y) || (x) != (x)) ? (x) : (y))

/* `tree_NAME`: combined elements [start, start + n) of m members, in WIDE; `reduce_NAME` stores them. */
#define EACH(EXPRESSION) \
  for (k = 0; k < n; k++) { WIDE_ x = out[k], y = right[k]; (void)x; (void)y; out[k] = (EXPRESSION); } break
#define REDUCTION(NAME, WIDE, STORED, LOAD, STORE, CASES) \
  static void tree_##NAME(const byte *const *members, int m, int64_t start, int n, int reduction, WIDE *out) { \
    typedef WIDE WIDE_; \
    int k, half = 1; \
    if (m == 1) { \
      const STORED *source = (const STORED *)members[0] + start; \
      for (k = 0; k < n; k++) out[k] = LOAD(source[k]); \
      return; \
    } \
    while (half * 2 < m) half *= 2; \
    WIDE right[BLOCK]; \
    tree_##NAME(members, half, start, n, reduction, out); \
    tree_##NAME(members + half, m - half, start, n, reduction, right); \
    switch (reduction) { CASES } \
  } \
  static void reduce_##NAME(const byte *const *members, int m, int64_t count, int reduction, byte *result) { \
    WIDE total[BLOCK]; \
    for (int64_t start = 0; start < count; start += BLOCK) { \
      int n = count - start < BLOCK ? (int)(count - start) : BLOCK; \
      tree_##NAME(members, m, start, n, reduction, total); \
      for (int k = 0; k < n; k++) ((STORED *)result)[start + k] = STORE(total[k]); \
    } \
  }
#define ORDER case SHARDC_MAXIMUM: EACH(GREATER(x, y)); case SHARDC_MINIMUM: EACH(SMALLER(x, y));
#define BITS case SHARDC_AND: EACH((WIDE_)(x & y)); case SHARDC_OR: EACH((WIDE_)(x | y));
#define REAL case SHARDC_ADD: EACH(x + y); case SHARDC_MULTIPLY: EACH(x * y); ORDER
#define WHOLE(U) case SHARDC_ADD: EACH((WIDE_)((U)x + (U)y)); case SHARDC_MULTIPLY: EACH((WIDE_)((U)x * (U)y)); ORDER BITS
#define TRUTH case SHARDC_ADD: EACH((WIDE_)(x | y)); case SHARDC_MULTIPLY: EACH((WIDE_)(x & y)); ORDER BITS
#define COMPLEX \
  case SHARDC_ADD: EACH(((WIDE_){x.re + y.re, x.im + y.im})); \
  case SHARDC_MULTIPLY: EACH(((WIDE_){x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}));

REDUCTION(pred, uint8_t, uint8_t, SAME, SAME, TRUTH)
REDUCTION(s2, int8_t, int8_t, SAME, LOW2, WHOLE(uint8_t))
REDUCTION(s4, int8_t, int8_t, SAME, LOW4, WHOLE(uint8_t))
REDUCTION(s8, int8_t, int8_t, SAME, SAME, WHOLE(uint8_t))
REDUCTION(s16, int16_t, int16_t, SAME, SAME, WHOLE(uint32_t))
REDUCTION(s32, int32_t, int32_t, SAME, SAME, WHOLE(uint32_t))
REDUCTION(s64, int64_t, int64_t, SAME, SAME, WHOLE(uint64_t))
REDUCTION(u2, uint8_t, uint8_t, SAME, ULOW2, WHOLE(uint8_t))
REDUCTION(u4, uint8_t, uint8_t, SAME, ULOW4, WHOLE(uint8_t))
REDUCTION(u8, uint8_t, uint8_t, SAME, SAME, WHOLE(uint8_t))
REDUCTION(u16, uint16_t, uint16_t, SAME, SAME, WHOLE(uint32_t))
REDUCTION(u32, uint32_t, uint32_t, SAME, SAME, WHOLE(uint32_t))
REDUCTION(u64, uint64_t, uint64_t, SAME, SAME, WHOLE(uint64_t))
REDUCTION(bf16, float, uint16_t, from_bf16, to_bf16, REAL)
REDUCTION(f16, float, uint16_t, from_f16, to_f16, REAL)
REDUCTION(f32, float, float, SAME, SAME, REAL)
REDUCTION(f64, double, double, SAME, SAME, REAL)
REDUCTION(c64, c64, c64, SAME, SAME, COMPLEX)
REDUCTION(c128, c128, c128, SAME, SAME, COMPLEX)

typedef void reducer(const byte *const *members, int m, int64_t count, int reduction, byte *result);

static reducer *const reducers[] = {
    reduce_pred, reduce_s2,  reduce_s4,  reduce_s8,   reduce_s16, reduce_s32, reduce_s64, reduce_u2,  reduce_u4, reduce_u8,
    reduce_u16,  reduce_u32, reduce_u64, reduce_bf16, reduce_f16, reduce_f32, reduce_f64, reduce_c64, reduce_c128};

/* `members` are already at the first element; the result may be a member's memory. */
static void reduce(const shardc_operand *o, const byte *const *members, int m, int64_t count, int reduction,
                   byte *result) {
  if (m > 1)
    reducers[o->type](members, m, count, reduction, result);
  else if (result != members[0])
    memmove(result, members[0], (size_t)count * o->item);
}

/* Messages. */

static void send_to(state *s, const byte *from, size_t nbytes, int rank) {
#ifdef SHARDC_MPI
  for (size_t done = 0; done < nbytes; done += MESSAGE) {
    int n = (int)(nbytes - done < MESSAGE ? nbytes - done : MESSAGE);
    if (MPI_Isend(from + done, n, MPI_BYTE, rank, 0, s->comm, &s->requests[s->pending++])) s->failed = 1;
  }
#else
  (void)s, (void)from, (void)nbytes, (void)rank;
#endif
}

static void receive_from(state *s, byte *into, size_t nbytes, int rank) {
#ifdef SHARDC_MPI
  for (size_t done = 0; done < nbytes; done += MESSAGE) {
    int n = (int)(nbytes - done < MESSAGE ? nbytes - done : MESSAGE);
    if (MPI_Irecv(into + done, n, MPI_BYTE, rank, 0, s->comm, &s->requests[s->pending++])) s->failed = 1;
  }
#else
  (void)s, (void)into, (void)nbytes, (void)rank;
#endif
}

static int finish_messages(state *s) {
#ifdef SHARDC_MPI
  if (s->failed || MPI_Waitall(s->pending, s->requests, MPI_STATUSES_IGNORE)) return SHARDC_MPI_FAILED;
  s->pending = 0;
#else
  (void)s;
#endif
  return SHARDC_DONE;
}

static const byte *operand_of(const state *s, int device, const shardc_call *c, int i) {
  return at(s, device, &c->operands[i].operand);
}

/* A group with members here: for each of its ranks the first position (its leader), in order. */
typedef struct {
  const int32_t *devices;
  int size, ranks, mine; /* `mine` is this rank's number among them, -1 when it has no member */
  int32_t *leaders;
} group;

static group group_of(const state *s, const shardc_call *c, int number, int32_t *room) {
  group g = {c->members + (int64_t)number * c->size, c->size, 0, -1, room};
  int here = 0;
  for (int p = 0; p < g.size; p++) here |= is_here(s, g.devices[p]);
  if (!here) return g;
  for (int p = 0; p < g.size; p++) {
    int j = 0, rank = owner(s, g.devices[p]);
    while (j < g.ranks && owner(s, g.devices[room[j]]) != rank) j++;
    if (j < g.ranks) continue;
    if (rank == s->rank) g.mine = g.ranks;
    room[g.ranks++] = p;
  }
  return g;
}

static int rank_of(const state *s, const group *g, int j) { return owner(s, g->devices[g->leaders[j]]); }

/* The part of an all-reduce that rank j of a group reduces: small operands whole, others in equal shares. */
static void share_of(const shardc_operand *o, const group *g, int j, int64_t *low, int64_t *high) {
  int whole = g->ranks == 1 || o->count * o->item <= SMALL;
  *low = whole ? 0 : o->count * j / g->ranks;
  *high = whole ? o->count : o->count * (j + 1) / g->ranks;
}

static int is_shared(const shardc_operand *o, const group *g) { return g->ranks > 1 && o->count * o->item > SMALL; }

/* Members' pieces for one reduction: those here in place, the others received. */
static const byte **pieces_of(state *s, const shardc_call *c, const group *g, int i, int64_t low,
                              int64_t high) {
  const shardc_operand *o = &c->operands[i];
  const byte **pieces = take(s, sizeof(byte *) * g->size);
  for (int p = 0; p < g->size; p++) {
    int device = g->devices[p];
    if (is_here(s, device)) {
      pieces[p] = operand_of(s, device, c, i) + low * o->item;
    } else {
      byte *room = take(s, (size_t)(high - low) * o->item);
      receive_from(s, room, (size_t)(high - low) * o->item, owner(s, device));
      pieces[p] = room;
    }
  }
  return pieces;
}

static int all_reduce(state *s, const shardc_call *c, group *groups) {
  const byte ***pieces = take(s, sizeof(byte **) * c->groups * c->num_operands);
  int64_t low, high;
  for (int n = 0; n < c->groups; n++)
    for (int i = 0; i < c->num_operands && groups[n].mine >= 0; i++) {
      group *g = &groups[n];
      const shardc_operand *o = &c->operands[i];
      for (int p = 0; p < g->size; p++)
        for (int j = 0; j < g->ranks && is_here(s, g->devices[p]); j++) {
          if (j == g->mine) continue;
          share_of(o, g, j, &low, &high);
          const byte *from = operand_of(s, g->devices[p], c, i) + low * o->item;
          send_to(s, from, (size_t)(high - low) * o->item, rank_of(s, g, j));
        }
      share_of(o, g, g->mine, &low, &high);
      pieces[n * c->num_operands + i] = pieces_of(s, c, g, i, low, high);
    }
  if (finish_messages(s)) return SHARDC_MPI_FAILED;
  for (int n = 0; n < c->groups; n++)
    for (int i = 0; i < c->num_operands && groups[n].mine >= 0; i++) {
      group *g = &groups[n];
      const shardc_operand *o = &c->operands[i];
      byte *result = at(s, g->devices[g->leaders[g->mine]], &o->result);
      share_of(o, g, g->mine, &low, &high);
      reduce(o, pieces[n * c->num_operands + i], g->size, high - low, c->reduction, result + low * o->item);
      for (int j = 0; j < g->ranks && is_shared(o, g); j++) {
        if (j == g->mine) continue;
        send_to(s, result + low * o->item, (size_t)(high - low) * o->item, rank_of(s, g, j));
        int64_t start, end;
        share_of(o, g, j, &start, &end);
        receive_from(s, result + start * o->item, (size_t)(end - start) * o->item, rank_of(s, g, j));
      }
    }
  return finish_messages(s);
}

static int all_gather(state *s, const shardc_call *c, group *groups) {
  for (int n = 0; n < c->groups; n++)
    for (int i = 0; i < c->num_operands && groups[n].mine >= 0; i++) {
      group *g = &groups[n];
      size_t nbytes = c->operands[i].operand.nbytes;
      byte *result = at(s, g->devices[g->leaders[g->mine]], &c->operands[i].result);
      for (int p = 0; p < g->size; p++) {
        int device = g->devices[p];
        if (!is_here(s, device)) {
          receive_from(s, result + p * nbytes, nbytes, owner(s, device));
          continue;
        }
        const byte *operand = operand_of(s, device, c, i);
        for (int j = 0; j < g->ranks; j++)
          if (j != g->mine) send_to(s, operand, nbytes, rank_of(s, g, j));
        memcpy(result + p * nbytes, operand, nbytes);
      }
    }
  return finish_messages(s);
}

/* Every member here gets what its group's leader here has. */
static void spread(const state *s, const shardc_call *c, const group *groups) {
  for (int n = 0; n < c->groups; n++)
    for (int i = 0; i < c->num_operands && groups[n].mine >= 0; i++) {
      const group *g = &groups[n];
      const shardc_place *place = &c->operands[i].result;
      int leader = g->leaders[g->mine];
      for (int p = leader + 1; p < g->size; p++)
        if (is_here(s, g->devices[p]))
          memcpy(at(s, g->devices[p], place), at(s, g->devices[leader], place), place->nbytes);
    }
}

/* Chunk q of each operand goes to the member at position q: sends, in the order in which they are received. */
static void send_chunks(state *s, const shardc_call *c, const group *g, int i, size_t nbytes) {
  for (int q = 0; q < g->size; q++)
    for (int p = 0; p < g->size && !is_here(s, g->devices[q]); p++)
      if (is_here(s, g->devices[p]))
        send_to(s, operand_of(s, g->devices[p], c, i) + q * nbytes, nbytes, owner(s, g->devices[q]));
}

static int reduce_scatter(state *s, const shardc_call *c, group *groups) {
  const byte ***pieces = take(s, sizeof(byte **) * s->count * c->num_operands);
  for (int n = 0; n < c->groups; n++)
    for (int i = 0; i < c->num_operands && groups[n].mine >= 0; i++) {
      group *g = &groups[n];
      int64_t count = c->operands[i].count / g->size;
      send_chunks(s, c, g, i, (size_t)count * c->operands[i].item);
      for (int q = 0; q < g->size; q++)
        if (is_here(s, g->devices[q]))
          pieces[(g->devices[q] - s->first) * c->num_operands + i] =
              pieces_of(s, c, g, i, q * count, (q + 1) * count);
    }
  if (finish_messages(s)) return SHARDC_MPI_FAILED;
  for (int k = 0; k < s->count; k++)
    for (int i = 0; i < c->num_operands; i++) {
      const shardc_operand *o = &c->operands[i];
      byte *result = at(s, s->first + k, &o->result);
      reduce(o, pieces[k * c->num_operands + i], c->size, o->count / c->size, c->reduction, result);
    }
  return SHARDC_DONE;
}

static int all_to_all(state *s, const shardc_call *c, group *groups) {
  for (int n = 0; n < c->groups; n++)
    for (int i = 0; i < c->num_operands && groups[n].mine >= 0; i++) {
      group *g = &groups[n];
      size_t nbytes = (size_t)c->operands[i].operand.nbytes / g->size;
      send_chunks(s, c, g, i, nbytes);
      for (int q = 0; q < g->size; q++) {
        if (!is_here(s, g->devices[q])) continue;
        byte *result = at(s, g->devices[q], &c->operands[i].result);
        for (int p = 0; p < g->size; p++)
          if (is_here(s, g->devices[p]))
            memcpy(result + p * nbytes, operand_of(s, g->devices[p], c, i) + q * nbytes, nbytes);
          else
            receive_from(s, result + p * nbytes, nbytes, owner(s, g->devices[p]));
      }
    }
  return finish_messages(s);
}

/* Devices that nobody sends to get zeros. */
static int permute(state *s, const shardc_call *c) {
  byte *filled = take(s, s->count);
  memset(filled, 0, s->count);
  for (int n = 0; n < c->groups; n++) {
    int source = c->members[2 * n], target = c->members[2 * n + 1];
    for (int i = 0; i < c->num_operands; i++) {
      const shardc_operand *o = &c->operands[i];
      size_t nbytes = o->operand.nbytes;
      if (is_here(s, target)) {
        byte *result = at(s, target, &o->result);
        filled[target - s->first] = 1;
        if (is_here(s, source))
          memcpy(result, operand_of(s, source, c, i), nbytes);
        else
          receive_from(s, result, nbytes, owner(s, source));
      } else if (is_here(s, source)) {
        send_to(s, operand_of(s, source, c, i), nbytes, owner(s, target));
      }
    }
  }
  for (int k = 0; k < s->count; k++)
    for (int i = 0; i < c->num_operands && !filled[k]; i++)
      memset(at(s, s->first + k, &c->operands[i].result), 0, c->operands[i].result.nbytes);
  return finish_messages(s);
}

static int perform(state *s, const shardc_call *c) {
  s->used = 0;
  if (c->op == SHARDC_PERMUTE) return permute(s, c);
  group *groups = take(s, sizeof(group) * c->groups);
  for (int n = 0; n < c->groups; n++) groups[n] = group_of(s, c, n, take(s, sizeof(int32_t) * c->size));
  int code = SHARDC_DONE;
  switch (c->op) {
    case SHARDC_ALL_REDUCE:
      code = all_reduce(s, c, groups);
      spread(s, c, groups);
      break;
    case SHARDC_ALL_GATHER:
      code = all_gather(s, c, groups);
      spread(s, c, groups);
      break;
    case SHARDC_REDUCE_SCATTER: code = reduce_scatter(s, c, groups); break;
    default: code = all_to_all(s, c, groups);
  }
  return code;
}

/* Room: the most that `perform` takes for any call, and the requests of its messages. */

static size_t scratch_bytes(const state *s, const shardc_call *c, size_t *requests) {
  size_t total = ALIGNED(sizeof(byte *) * s->count * c->num_operands) + ALIGNED(s->count);
  size_t members = c->op == SHARDC_PERMUTE ? 1 : c->size, pieces = ALIGNED(sizeof(byte *) * members), sent = 0;
  total += ALIGNED(sizeof(group) * c->groups) + c->groups * ALIGNED(sizeof(int32_t) * c->size);
  total += ALIGNED(sizeof(byte **) * c->groups * c->num_operands);
  for (int i = 0; i < c->num_operands; i++) {
    const shardc_operand *o = &c->operands[i];
    size_t bytes = o->operand.nbytes, most = bytes > (size_t)o->result.nbytes ? bytes : (size_t)o->result.nbytes;
    size_t ranks = members < (size_t)s->ranks ? members : (size_t)s->ranks;
    size_t room = c->op == SHARDC_REDUCE_SCATTER ? bytes / members : c->op == SHARDC_ALL_REDUCE ? bytes : 0;
    /* A group's ranks may be fewer than its members when a rank owns several; two is the least that send. */
    if (c->op == SHARDC_ALL_REDUCE && bytes > SMALL && ranks > 1 && s->program->devices == s->ranks)
      room = bytes / members + o->item;
    else if (c->op == SHARDC_ALL_REDUCE && bytes > SMALL && ranks > 1)
      room = bytes / 2 + o->item;
    if (s->ranks == 1) room = 0;
    total += s->count * (pieces + members * ALIGNED(room));
    sent += 2 * s->count * members * (most / MESSAGE + 1);
  }
  if (sent > *requests) *requests = sent;
  return total;
}

static size_t layout(state *s) {
  size_t arenas = s->count * ALIGNED(s->program->arena_bytes), most = 0, requests = 0;
  for (int i = 0; i < s->program->num_calls; i++) {
    size_t n = scratch_bytes(s, &s->program->calls[i], &requests);
    if (n > most) most = n;
  }
  s->scratch = s->arenas + arenas;
  size_t total = arenas + most;
#ifdef SHARDC_MPI
  s->requests = (MPI_Request *)(s->scratch + most);
  total += ALIGNED(sizeof(MPI_Request) * requests);
#endif
  return total;
}

static state state_of(const shardc_program *program, int rank, int ranks, void *workspace) {
  state s;
  memset(&s, 0, sizeof s);
  s.program = program;
  s.rank = rank;
  s.ranks = ranks;
  s.first = shardc_first_device(program, rank, ranks);
  s.count = shardc_first_device(program, rank + 1, ranks) - s.first;
  s.arenas = workspace;
  return s;
}

size_t shardc_workspace_bytes(const shardc_program *program, int rank, int ranks) {
  static byte nowhere[64];
  state s = state_of(program, rank, ranks, nowhere);
  return layout(&s);
}

static int run(state *s) {
  const shardc_program *p = s->program;
  size_t arena = ALIGNED(p->arena_bytes);
  for (int k = 0; k < s->count; k++) memset(s->arenas + k * arena, 0, 64);
  for (;;) {
    int32_t stop = 0;
    for (int k = 0; k < s->count; k++) {
      int32_t own = p->step(s->arenas + k * arena, s->arguments[k], s->results[k], p->constants, s->first + k);
      if (own < -1) return SHARDC_CHECK + (-2 - own);
      if (k && own != stop) return SHARDC_DIVERGED;
      stop = own;
    }
    if (stop < 0) return SHARDC_DONE;
    int code = perform(s, &p->calls[stop]);
    if (code) return code;
  }
}

int shardc_run(const shardc_program *program, void *const *const *arguments, void *const *const *results,
               void *workspace) {
  state s = state_of(program, 0, 1, workspace);
  layout(&s);
  s.arguments = arguments;
  s.results = results;
  return run(&s);
}

#ifdef SHARDC_MPI
int shardc_run_mpi(const shardc_program *program, MPI_Comm comm, void *const *const *arguments,
                   void *const *const *results, void *workspace) {
  int rank, ranks;
  if (MPI_Comm_rank(comm, &rank) || MPI_Comm_size(comm, &ranks)) return SHARDC_MPI_FAILED;
  if (ranks > program->devices) return SHARDC_BAD_RANKS;
  state s = state_of(program, rank, ranks, workspace);
  layout(&s);
  s.comm = comm;
  s.arguments = arguments;
  s.results = results;
  return run(&s);
}
#endif
