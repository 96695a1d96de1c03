#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "manifest/manifest_reader.h"

typedef struct Finder {
  const Reader *reader;
  Procedure *procedure;
  unsigned char *marks; /* by place of a dimension */
  int32_t *writers;     /* by tensor: 1 + the number of the first call that writes it, or 0 */
} Finder;

/* ---- When symbols are bound ----------------------------------------------------------------------------------- */

/* Until the stages are numbered, a symbol's stage is 1 + the number of the call that binds it. */
static int32_t find_call(const Finder *finder, SymbolSpec *symbol) {
  const Procedure *procedure = finder->procedure;
  const TensorSpec *tensor = procedure->tensors + symbol->tensor;
  int32_t number = (int32_t)(symbol - procedure->symbols);
  if (!tensor->dimensions || symbol->axis >= tensor->ndim || tensor->dimensions[symbol->axis].place != number) {
    return graft_damaged(finder->reader, "symbol '%s' is not axis %" PRId32 " of tensor '%s'", symbol->name,
                         symbol->axis, tensor->name);
  }
  if (tensor->storage == STORAGE_INPUT) {
    symbol->stage = 0;
    return GRAFT_OK;
  }
  if (tensor->storage != STORAGE_DYNAMIC && tensor->storage != STORAGE_OUTPUT) {
    return graft_damaged(finder->reader, "symbol '%s' is bound by tensor '%s', whose memory is not asked for",
                         symbol->name, tensor->name);
  }
  symbol->stage = finder->writers[symbol->tensor];
  if (symbol->stage == 0) {
    return graft_damaged(finder->reader, "symbol '%s' is bound by tensor '%s', which no call writes", symbol->name,
                         tensor->name);
  }
  procedure->calls[symbol->stage - 1].stage = 1;
  return GRAFT_OK;
}

static void find_writers(const Finder *finder) {
  const Procedure *procedure = finder->procedure;
  for (int32_t i = procedure->call_count - 1; i >= 0; i--) {
    const IndexList *outputs = &procedure->calls[i].outputs;
    for (int32_t k = 0; k < outputs->count; k++) {
      if (outputs->items[k] >= 0) {
        finder->writers[outputs->items[k]] = i + 1;
      }
    }
  }
}

static int32_t number_stages(const Finder *finder) {
  Procedure *procedure = finder->procedure;
  int32_t count = 1;
  for (int32_t i = 0; i < procedure->call_count; i++) {
    procedure->calls[i].stage = procedure->calls[i].stage ? count++ : 0;
  }
  procedure->stage_count = count;
  procedure->stages = graft_store_allocate(finder->reader->store, (size_t)count, sizeof(Stage));
  GRAFT_TRY(graft_allocated(finder->reader, procedure->stages));
  procedure->stages[0].call = -1;
  for (int32_t i = 0; i < procedure->call_count; i++) {
    if (procedure->calls[i].stage) {
      procedure->stages[procedure->calls[i].stage].call = i;
    }
  }
  for (int32_t i = 0; i < procedure->symbol_count; i++) {
    SymbolSpec *symbol = procedure->symbols + i;
    symbol->stage = symbol->stage ? procedure->calls[symbol->stage - 1].stage : 0;
  }
  return GRAFT_OK;
}

static int32_t later(const Procedure *procedure, int32_t stage, Dimension dimension) {
  int32_t own = 0;
  if (dimension.place >= procedure->symbol_count) {
    own = procedure->operations[dimension.place - procedure->symbol_count].stage;
  } else if (dimension.place >= 0) {
    own = procedure->symbols[dimension.place].stage;
  }
  return own > stage ? own : stage;
}

static void stage_operations_and_tensors(Procedure *procedure) {
  for (int32_t i = 0; i < procedure->operation_count; i++) {
    ExtentOperation *operation = procedure->operations + i;
    operation->stage = later(procedure, later(procedure, 0, operation->left), operation->right);
  }
  for (int32_t i = 0; i < procedure->equation_count; i++) {
    ExtentEquation *equation = procedure->equations + i;
    equation->stage = later(procedure, later(procedure, 0, equation->left), equation->right);
  }
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    TensorSpec *tensor = procedure->tensors + i;
    tensor->stage = tensor->ndim < 0 ? GRAFT_NEVER : 0;
    tensor->is_unknown = tensor->ndim < 0 || tensor->storage == STORAGE_DYNAMIC;
    for (int32_t k = 0; tensor->dimensions && k < tensor->ndim; k++) {
      tensor->stage = later(procedure, tensor->stage, tensor->dimensions[k]);
    }
    for (int32_t k = 0; k < tensor->value_count; k++) {
      tensor->stage = later(procedure, tensor->stage, tensor->values[k]);
    }
  }
}

/* ---- What is used when ---------------------------------------------------------------------------------------- */

/* The call after which a tensor's shape is known. */
static int32_t known_after(const Procedure *procedure, const TensorSpec *tensor) {
  return tensor->stage == GRAFT_NEVER || tensor->stage == 0 ? -1 : procedure->stages[tensor->stage].call;
}

static int32_t check_reads(const Finder *finder, const IndexList *list, int32_t call) {
  for (int32_t i = 0; i < list->count; i++) {
    const TensorSpec *tensor = finder->procedure->tensors + (list->items[i] < 0 ? 0 : list->items[i]);
    if (list->items[i] >= 0 && known_after(finder->procedure, tensor) >= call) {
      return graft_damaged(finder->reader, "call %" PRId32 ": tensor '%s' is read before its shape is known", call,
                           tensor->name);
    }
  }
  return GRAFT_OK;
}

static int32_t check_writes(const Finder *finder, Call *call, int32_t number) {
  Procedure *procedure = finder->procedure;
  for (int32_t i = 0; i < call->outputs.count; i++) {
    if (call->outputs.items[i] < 0) {
      continue;
    }
    TensorSpec *tensor = procedure->tensors + call->outputs.items[i];
    const TensorSpec *root = procedure->tensors + tensor->root;
    int32_t after = known_after(procedure, tensor), of_root = known_after(procedure, root);
    int is_asked_for = tensor->storage == STORAGE_DYNAMIC || tensor->storage == STORAGE_OUTPUT;
    if (after > number || of_root > number || ((after == number || of_root == number) && !is_asked_for)) {
      return graft_damaged(finder->reader, "call %" PRId32 ": tensor '%s' is written before its shape is known", number,
                           tensor->name);
    }
    tensor->is_unknown |= after == number;
    call->has_unknown_output |= tensor->is_unknown;
  }
  return GRAFT_OK;
}

static int32_t check_uses(const Finder *finder) {
  Procedure *procedure = finder->procedure;
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    const TensorSpec *tensor = procedure->tensors + i;
    if (tensor->storage == STORAGE_INPUT && known_after(procedure, tensor) >= 0) {
      return graft_damaged(finder->reader, "the shape of input '%s' is not known when the procedure begins",
                           tensor->name);
    }
  }
  for (int32_t i = 0; i < procedure->call_count; i++) {
    Call *call = procedure->calls + i;
    GRAFT_TRY(check_reads(finder, &call->inputs, i));
    for (int32_t k = 0; k < call->body_count; k++) {
      GRAFT_TRY(check_reads(finder, &call->arguments[k], i));
    }
    GRAFT_TRY(check_writes(finder, call, i));
  }
  return GRAFT_OK;
}

/* ---- What a stage does ---------------------------------------------------------------------------------------- */

/* Whether number `i` belongs to `stage`, for each of its lists. */
typedef int (*Belongs)(const Procedure *procedure, int32_t i, int32_t stage);

static int is_bound(const Procedure *procedure, int32_t i, int32_t stage) {
  return procedure->symbols[i].stage == stage;
}

static int is_evaluated(const Procedure *procedure, int32_t i, int32_t stage) {
  return procedure->operations[i].stage == stage;
}

static int is_bounded(const Procedure *procedure, int32_t i, int32_t stage) {
  return procedure->operations[procedure->bounds[i].operation].stage == stage;
}

static int is_demanded(const Procedure *procedure, int32_t i, int32_t stage) {
  return procedure->equations[i].stage == stage;
}

static int is_shaped(const Procedure *procedure, int32_t i, int32_t stage) {
  const TensorSpec *tensor = procedure->tensors + i;
  int is_known = tensor->storage == STORAGE_INPUT || tensor->is_unknown;
  return tensor->stage == stage && !is_known && (tensor->dimensions || tensor->value_count);
}

static int is_planned(const TensorSpec *tensor, int32_t stage) {
  return tensor->storage == STORAGE_ARENA && tensor->stage == stage;
}

static int is_compared_view(const Procedure *procedure, int32_t i, int32_t stage) {
  const TensorSpec *tensor = procedure->tensors + i, *root = procedure->tensors + tensor->root;
  int32_t both = tensor->stage > root->stage ? tensor->stage : root->stage;
  return tensor != root && both == stage && (tensor->dimensions || root->dimensions);
}

static int is_late_output(const Procedure *procedure, int32_t i, int32_t stage) {
  const TensorSpec *tensor = procedure->tensors + i;
  return stage > 0 && tensor->storage == STORAGE_OUTPUT && tensor->stage == stage && !tensor->is_unknown;
}

static int32_t collect(const Finder *finder, Belongs belongs, int32_t count, int32_t stage, IndexList *list) {
  for (int32_t i = 0; i < count; i++) {
    list->count += belongs(finder->procedure, i, stage);
  }
  list->items = graft_store_allocate(finder->reader->store, (size_t)list->count, sizeof(int32_t));
  GRAFT_TRY(graft_allocated(finder->reader, list->items));
  int32_t *next = list->items;
  for (int32_t i = 0; i < count; i++) {
    if (belongs(finder->procedure, i, stage)) {
      *next++ = i;
    }
  }
  return GRAFT_OK;
}

static void mark(const Finder *finder, Dimension dimension) {
  if (dimension.place >= 0) {
    finder->marks[dimension.place] = 1;
  }
}

/* The symbols that the sizes of the stage's tensors in the arena are made of. */
static int32_t find_arena_symbols(const Finder *finder, int32_t number, IndexList *list) {
  const Procedure *procedure = finder->procedure;
  memset(finder->marks, 0, (size_t)(procedure->symbol_count + procedure->operation_count));
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    const TensorSpec *tensor = procedure->tensors + i;
    for (int32_t k = 0; is_planned(tensor, number) && tensor->dimensions && k < tensor->ndim; k++) {
      mark(finder, tensor->dimensions[k]);
    }
  }
  for (int32_t i = procedure->operation_count - 1; i >= 0; i--) {
    if (finder->marks[procedure->symbol_count + i]) {
      mark(finder, procedure->operations[i].left);
      mark(finder, procedure->operations[i].right);
    }
  }
  for (int32_t i = 0; i < procedure->symbol_count; i++) {
    list->count += finder->marks[i];
  }
  list->items = graft_store_allocate(finder->reader->store, (size_t)list->count, sizeof(int32_t));
  GRAFT_TRY(graft_allocated(finder->reader, list->items));
  for (int32_t i = 0, next = 0; i < procedure->symbol_count; i++) {
    if (finder->marks[i]) {
      list->items[next++] = i;
    }
  }
  return GRAFT_OK;
}

static int32_t fill_stage(const Finder *finder, int32_t number) {
  const Procedure *procedure = finder->procedure;
  Stage *stage = procedure->stages + number;
  int32_t tensors = procedure->tensor_count, symbols = procedure->symbol_count;
  GRAFT_TRY(collect(finder, is_bound, symbols, number, &stage->symbols));
  GRAFT_TRY(find_arena_symbols(finder, number, &stage->sizes));
  GRAFT_TRY(collect(finder, is_evaluated, procedure->operation_count, number, &stage->operations));
  GRAFT_TRY(collect(finder, is_bounded, procedure->bound_count, number, &stage->bounds));
  GRAFT_TRY(collect(finder, is_demanded, procedure->equation_count, number, &stage->equations));
  GRAFT_TRY(collect(finder, is_shaped, tensors, number, &stage->tensors));
  GRAFT_TRY(collect(finder, is_compared_view, tensors, number, &stage->views));
  return collect(finder, is_late_output, tensors, number, &stage->outputs);
}

int32_t graft_find_stages(const Reader *reader, Procedure *procedure) {
  size_t places = (size_t)(procedure->symbol_count + procedure->operation_count);
  Finder finder = {reader, procedure, graft_store_allocate(reader->store, places, 1),
                   graft_store_allocate(reader->store, (size_t)procedure->tensor_count, sizeof(int32_t))};
  GRAFT_TRY(graft_allocated(reader, finder.marks));
  GRAFT_TRY(graft_allocated(reader, finder.writers));
  find_writers(&finder);
  for (int32_t i = 0; i < procedure->symbol_count; i++) {
    GRAFT_TRY(find_call(&finder, procedure->symbols + i));
  }
  if (procedure->symbol_count) {
    GRAFT_TRY(number_stages(&finder));
  }
  stage_operations_and_tensors(procedure);
  GRAFT_TRY(check_uses(&finder));
  for (int32_t i = 0; i < procedure->stage_count; i++) {
    GRAFT_TRY(fill_stage(&finder, i));
  }
  return GRAFT_OK;
}

/* ---- Results that may stand on what dies ---------------------------------------------------------------------- */

static int is_allowed(const Call *call, int32_t position) {
  for (int32_t i = 0; i < call->in_place.count; i++) {
    if (call->in_place.items[i] == position) {
      return 1;
    }
  }
  return 0;
}

/* Whether all uses that the call makes of the tensor `dying` allow that it is written over, and they are the last. */
static int may_stand_on(const Procedure *procedure, const Call *call, int32_t dying) {
  if (procedure->tensors[dying].last != call - procedure->calls) {
    return 0;
  }
  for (int32_t i = 0; i < call->inputs.count; i++) {
    int32_t input = call->inputs.items[i];
    if (input >= 0 && procedure->tensors[input].root == dying && !is_allowed(call, i)) {
      return 0;
    }
  }
  return 1;
}

/* Adds what the call allows to `found`, which may be NULL; returns how many that are. */
static int32_t find_pairs(const Procedure *procedure, int32_t stage, const Call *call, InPlace *found) {
  if (call->kind != CALL_FUNCTION || call->in_place.count == 0 || call->outputs.count != 1) {
    return 0;
  }
  int32_t count = 0, result = procedure->tensors[call->outputs.items[0]].root;
  const TensorSpec *root = procedure->tensors + result;
  if (root->storage != STORAGE_ARENA || root->stage != stage || root->first != call - procedure->calls) {
    return 0;
  }
  for (int32_t i = 0; i < call->in_place.count; i++) {
    int32_t seen = call->inputs.items[call->in_place.items[i]];
    const TensorSpec *dying = seen < 0 ? NULL : procedure->tensors + procedure->tensors[seen].root;
    if (dying && dying->storage == STORAGE_ARENA && dying->stage == stage && dying != root &&
        may_stand_on(procedure, call, procedure->tensors[seen].root)) {
      if (found) {
        found[count] = (InPlace){result, procedure->tensors[seen].root, seen};
      }
      count++;
    }
  }
  return count;
}

/* The stage's tensors in the arena in the order in which they are written: what dies is before what stands on it. */
static int32_t find_arena(const Reader *reader, Procedure *procedure, int32_t number) {
  IndexList *arena = &procedure->stages[number].arena;
  int32_t count = 0;
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    count += is_planned(procedure->tensors + i, number);
  }
  arena->items = graft_store_allocate(reader->store, (size_t)count, sizeof(int32_t));
  GRAFT_TRY(graft_allocated(reader, arena->items));
  for (int32_t i = 0; i < procedure->call_count; i++) {
    const IndexList *outputs = &procedure->calls[i].outputs;
    for (int32_t k = 0; k < outputs->count; k++) {
      int32_t root = outputs->items[k] < 0 ? -1 : procedure->tensors[outputs->items[k]].root;
      TensorSpec *tensor = procedure->tensors + (root < 0 ? 0 : root);
      if (root >= 0 && is_planned(tensor, number) && tensor->first == i && tensor->index < 0) {
        tensor->index = arena->count;
        arena->items[arena->count++] = root;
      }
    }
  }
  for (int32_t i = 0; i < procedure->tensor_count; i++) {
    TensorSpec *tensor = procedure->tensors + i;
    if (is_planned(tensor, number) && tensor->index < 0) { /* nobody writes it: it has no bytes */
      tensor->index = arena->count;
      arena->items[arena->count++] = i;
    }
  }
  return GRAFT_OK;
}

int32_t graft_find_in_place(const Reader *reader, Procedure *procedure) {
  for (int32_t i = 0; i < procedure->stage_count; i++) {
    Stage *stage = procedure->stages + i;
    GRAFT_TRY(find_arena(reader, procedure, i));
    for (int32_t k = 0; k < procedure->call_count; k++) {
      stage->in_place_count += find_pairs(procedure, i, procedure->calls + k, NULL);
    }
    stage->in_place = graft_store_allocate(reader->store, (size_t)stage->in_place_count, sizeof(InPlace));
    GRAFT_TRY(graft_allocated(reader, stage->in_place));
    InPlace *next = stage->in_place;
    for (int32_t k = 0; k < procedure->call_count; k++) {
      next += find_pairs(procedure, i, procedure->calls + k, next);
    }
  }
  return GRAFT_OK;
}
