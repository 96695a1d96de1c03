/* What the loom does. All lanes do every instruction; those that are off store nothing. Outside of the lanes' loops all
   lanes have the same numbers, so that one of them could do the work: the machine knows no other way. */
#include <math.h>
#include <string.h>

#include "loom.h"

typedef union Value {
  int64_t i;
  float f;
} Value;

typedef struct Buffer {
  char *data;
  int64_t count, capacity; /* elements that a lane sees; bytes in all */
  int64_t apart;           /* elements from a lane's own to the next's, 0 for memory that all lanes share */
  int64_t bytes;           /* of an element */
} Buffer;

static const struct {
  int operands, results;
  char p, q;
} SHAPES[LOOM_OPCODES] = {
#define EACH(name, operands, field, value) {operands, 1, 'N', 'N'},
#define CONTROL(name, operands, results, p, q) {operands, results, #p[0], #q[0]},
#include "instructions.def"
#undef EACH
#undef CONTROL
};

typedef struct Level {
  int64_t depth, saved; /* operands on the stack, masks that are saved */
} Level;

static const char *step(Level *level, int64_t opcode) {
  level->depth -= SHAPES[opcode].operands;
  level->saved += (opcode == LOOM_SAVE) - (opcode == LOOM_RESTORE);
  if (level->depth < 0 || level->saved < 0) return "it takes what is not there";
  level->depth += SHAPES[opcode].results;
  return level->depth > LOOM_STACK || level->saved > LOOM_SAVED ? "its stack is too deep" : NULL;
}

static const char *fault_of(const LoomFunction *function, const LoomInstruction *one) {
  if (one->opcode < 0 || one->opcode >= LOOM_OPCODES) return "it has an unknown instruction";
  const char kind = SHAPES[one->opcode].p;
  const int64_t bound = kind == 'L' ? function->locals : kind == 'B' ? function->buffers : function->count + 1;
  if (kind != 'N' && (one->p < 0 || one->p >= bound)) return "a number of an instruction is too large";
  if (one->opcode == LOOM_EXTENT && (one->p >= function->parameters || one->q < 0)) return "it asks for no extent";
  if (one->opcode == LOOM_ALLOCATE && (one->p < function->parameters || one->q < 2 || one->q > 17))
    return "it allocates no buffer of its own";
  return NULL;
}

/* Jumps go where the stack is empty and as many masks are saved as where they come from: so a pass along the code knows
   both everywhere. */
const char *loom_fault(const LoomFunction *function) {
  const char *fault = NULL;
  if (function->parameters > function->buffers || function->inputs > function->parameters) return "it lacks buffers";
  if (function->buffers > LOOM_MOST || function->locals > LOOM_MOST) return "it has too many buffers or locals";
  for (int64_t at = 0; at < function->count && fault == NULL; ++at) fault = fault_of(function, &function->code[at]);
  Level level = {0, 0};
  for (int64_t at = 0; at < function->count && fault == NULL; ++at) {
    fault = step(&level, function->code[at].opcode);
    if (fault != NULL || SHAPES[function->code[at].opcode].p != 'T') continue;
    Level there = {0, 0};
    for (int64_t i = 0; i < function->code[at].p && fault == NULL; ++i) fault = step(&there, function->code[i].opcode);
    if (level.depth != 0 || there.depth != 0 || level.saved != there.saved) fault = "it jumps into an expression";
  }
  return fault != NULL || (level.depth == 0 && level.saved == 0) ? fault : "it ends within an expression";
}

static int bytes_of(int64_t opcode) {
  switch (opcode) {
    case LOOM_LOAD_F: case LOOM_LOAD_IF_F: case LOOM_STORE_F: return 4;
    case LOOM_LOAD_B: case LOOM_LOAD_IF_B: case LOOM_STORE_B: return 1;
    default: return 8;
  }
}

/* The place of a lane's element, NULL outside of the buffer. */
static char *place_of(const Buffer *buffer, int lane, int64_t index, int bytes) {
  if (index < 0 || index >= buffer->count || bytes != buffer->bytes) return NULL;
  return buffer->data + (lane * buffer->apart + index) * bytes;
}

static Value read_value(const char *from, int bytes) {
  Value value = {0};
  if (bytes == 4) memcpy(&value.f, from, 4);
  if (bytes == 8) memcpy(&value.i, from, 8);
  if (bytes == 1) value.i = *from != 0;
  return value;
}

static void write_value(char *to, Value value, int bytes) {
  if (bytes == 4) memcpy(to, &value.f, 4);
  if (bytes == 8) memcpy(to, &value.i, 8);
  if (bytes == 1) *to = value.i != 0;
}

static int32_t bind(GraftContext *context, Buffer *buffer, const DLTensor *tensor) {
  if (tensor == NULL) return context->api->fail(context, "loom: an operand is absent");
  *buffer = (Buffer){(char *)tensor->data + tensor->byte_offset, 1, 0, 0, tensor->dtype.bits / 8};
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) buffer->count *= tensor->shape[axis];
  return GRAFT_OK;
}

/* Memory stays with a buffer: in a loop it is taken once. */
static int32_t allocate(GraftContext *context, Buffer *buffer, int64_t count, int64_t how) {
  const int64_t lanes = how & 1 ? LOOM_LANES : 1, bytes = how >> 1;
  if (count < 0 || count > INT64_MAX / (lanes * bytes))
    return context->api->fail(context, "loom: a buffer of %lld elements", (long long)count);
  if (buffer->data == NULL || buffer->capacity < count * lanes * bytes) {
    buffer->data = context->api->scratch(context, (uint64_t)(count * lanes * bytes) + 1);
    if (buffer->data == NULL) return GRAFT_ERROR_MEMORY;
    buffer->capacity = count * lanes * bytes;
  }
  buffer->count = count;
  buffer->bytes = bytes;
  buffer->apart = how & 1 ? count : 0;
  return GRAFT_OK;
}

static int32_t failed(GraftContext *context, int64_t kind, int64_t first, int64_t axis, int64_t last) {
  const char *format = kind == 0 ? "index %lld is out of range: axis %lld has extent %lld"
                                 : "the operands make the extent %lld of axis %lld of the result, but the model states %lld";
  return context->api->fail(context, format, (long long)first, (long long)axis, (long long)last);
}

int32_t loom_run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const LoomFunction *function = state;
  const size_t rows = (size_t)function->locals + LOOM_STACK + 3; /* each looks at three, taken or not */
  Value(*locals)[LOOM_LANES] = context->api->scratch(context, rows * sizeof *locals);
  Buffer *buffers = context->api->scratch(context, ((size_t)function->buffers + 1) * sizeof(Buffer));
  if (locals == NULL || buffers == NULL) return GRAFT_ERROR_MEMORY;
  memset(locals, 0, rows * sizeof *locals);
  memset(buffers, 0, ((size_t)function->buffers + 1) * sizeof(Buffer));
  for (int64_t i = 0; i < function->parameters; ++i) {
    const int32_t status = bind(context, &buffers[i], i < function->inputs ? inputs[i] : outputs[i - function->inputs]);
    if (status != GRAFT_OK) return status;
  }
  Value(*top)[LOOM_LANES] = locals + function->locals; /* the first free row of the stack */
  uint32_t on = (1u << LOOM_LANES) - 1, saved[LOOM_SAVED + 1];
  int depth = 0;
  for (int64_t at = 0; at < function->count; ++at) {
    const int64_t opcode = function->code[at].opcode, p = function->code[at].p, q = function->code[at].q;
    top -= SHAPES[opcode].operands;
    Value *a = top[0], *b = top[1];
    const int bytes = bytes_of(opcode);
    switch ((LoomOpcode)opcode) {
#define EACH(name, operands, field, value)                               \
  case LOOM_##name:                                                      \
    for (int lane = 0; lane < LOOM_LANES; ++lane) {                      \
      const Value a = top[0][lane], b = top[1][lane], c = top[2][lane];  \
      (void)b, (void)c;                                                  \
      top[0][lane].field = (value);                                      \
    }                                                                    \
    break;
#define CONTROL(name, operands, results, p, q)
#include "instructions.def"
#undef EACH
#undef CONTROL
      case LOOM_CONSTANT_I:
        for (int lane = 0; lane < LOOM_LANES; ++lane) a[lane].i = p;
        break;
      case LOOM_CONSTANT_F: {
        const uint32_t bits = (uint32_t)p;
        for (int lane = 0; lane < LOOM_LANES; ++lane) memcpy(&a[lane].f, &bits, 4);
        break;
      }
      case LOOM_LANE:
        for (int lane = 0; lane < LOOM_LANES; ++lane) a[lane].i = lane;
        break;
      case LOOM_GET: memcpy(a, locals[p], sizeof *locals); break;
      case LOOM_SET:
        for (int lane = 0; lane < LOOM_LANES; ++lane)
          if (on >> lane & 1) locals[p][lane] = a[lane];
        break;
      case LOOM_EXTENT: {
        const DLTensor *tensor = p < function->inputs ? inputs[p] : outputs[p - function->inputs];
        if (q >= tensor->ndim) return context->api->fail(context, "loom: tensor %lld has no axis %lld", (long long)p, (long long)q);
        for (int lane = 0; lane < LOOM_LANES; ++lane) a[lane].i = tensor->shape[q];
        break;
      }
      case LOOM_ALLOCATE: {
        const int32_t status = allocate(context, &buffers[p], a[0].i, q);
        if (status != GRAFT_OK) return status;
        break;
      }
      case LOOM_LOAD_F: case LOOM_LOAD_I: case LOOM_LOAD_B:
      case LOOM_LOAD_IF_F: case LOOM_LOAD_IF_I: case LOOM_LOAD_IF_B:
        for (int lane = 0; lane < LOOM_LANES; ++lane) {
          const char *place = place_of(&buffers[p], lane, a[lane].i, bytes);
          const int wanted = (on >> lane & 1) && (SHAPES[opcode].operands == 1 || b[lane].i);
          if (wanted && place == NULL) return context->api->fail(context, "loom: a load outside of buffer %lld", (long long)p);
          a[lane] = wanted ? read_value(place, bytes) : (Value){0};
        }
        break;
      case LOOM_STORE_F: case LOOM_STORE_I: case LOOM_STORE_B:
        for (int lane = 0; lane < LOOM_LANES; ++lane) {
          char *place = place_of(&buffers[p], lane, a[lane].i, bytes);
          if (!(on >> lane & 1)) continue;
          if (place == NULL) return context->api->fail(context, "loom: a store outside of buffer %lld", (long long)p);
          write_value(place, b[lane], bytes);
        }
        break;
      case LOOM_SAVE: saved[depth++] = on; break;
      case LOOM_NARROW:
        for (int lane = 0; lane < LOOM_LANES; ++lane)
          if (!a[lane].i) on &= ~(1u << lane);
        if (on == 0) at = p - 1;
        break;
      case LOOM_RESTORE: on = saved[--depth]; break;
      case LOOM_JUMP: at = p - 1; break;
      case LOOM_FAIL: return failed(context, p, a[0].i, b[0].i, top[2][0].i);
      case LOOM_OPCODES: break;
    }
    top += SHAPES[opcode].results;
  }
  return GRAFT_OK;
}
