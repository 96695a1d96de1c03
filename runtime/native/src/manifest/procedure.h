/* Procedures as the executor runs them: the manifest (runtime/procedure.py), read and checked. */
#ifndef GRAFT_PROCEDURE_H
#define GRAFT_PROCEDURE_H

#include "base/dtype.h"
#include "base/extent_arithmetic.h"
#include "base/json.h"
#include "base/store.h"
#include "graft/runtime.h"

enum { GRAFT_MAXIMUM_NESTING = 32, GRAFT_NEVER = INT32_MAX };

typedef enum {
  STORAGE_INPUT,
  STORAGE_OUTPUT,
  STORAGE_CONSTANT,
  STORAGE_ARENA,
  STORAGE_VIEW,
  STORAGE_DYNAMIC,
  STORAGE_EXTENTS
} Storage;

/* A number, or the place of one in Frame.values: symbols come first, then operations. */
typedef struct Dimension {
  int32_t place; /* -1: a number */
  int64_t number;
} Dimension;

/* An operation on symbols, numbers and earlier operations. */
typedef struct ExtentOperation {
  ExtentOperator operator;
  Dimension left, right;
  int32_t stage;
} ExtentOperation;

typedef struct SymbolSpec {
  const char *name;
  int64_t low, high; /* high: GRAFT_MAXIMUM_EXTENT where it is open */
  int32_t tensor, axis;
  int32_t stage;
} SymbolSpec;

/* What an operation on symbols may be. */
typedef struct ExtentBound {
  int32_t operation;
  int64_t low, high; /* high: GRAFT_MAXIMUM_EXTENT where it is open */
} ExtentBound;

typedef enum { AGREE_EQUAL, AGREE_BROADCAST, AGREE_EXPAND, AGREE_AT_MOST } Agreement;

/* What a node demands of two extents, and the message where they do not agree: before, between and behind them. */
typedef struct ExtentEquation {
  Agreement kind;
  Dimension left, right;
  const char *says[3];
  int32_t stage;
} ExtentEquation;

/* Why an axis of an input has the extent that its dimension says: before, between and behind the one that came and the
 * one that is wanted. */
typedef struct AxisReason {
  int32_t tensor, axis;
  const char *says[3];
} AxisReason;

typedef struct TensorSpec {
  const char *name;
  DLDataType dtype;
  Storage storage;
  int32_t ndim;              /* -1: not even the rank is known before the program runs */
  int64_t *shape;            /* -1 for an extent that is no number */
  Dimension *dimensions;     /* NULL where the shape is numbers */
  const char **extents;      /* as texts, of inputs and outputs of procedure 0 */
  Dimension *values;         /* the elements of storage extents */
  int32_t value_count;
  int32_t stage;             /* when its shape and values are known: GRAFT_NEVER before its call is done, if ndim < 0 */
  int32_t is_unknown;        /* whether its shape is unknown when its call begins, which then asks for its memory */
  size_t bytes;              /* 0 where the shape is no numbers */
  uint64_t room;             /* of a tensor in an arena that was planned once: the most bytes that it may have */
  int32_t index;             /* of an input or output, or in Stage.arena; -1 for others */
  const char *constant;      /* key of a constant */
  const DLTensor *data;      /* the constant itself */
  int32_t root;              /* the tensor whose memory this is: itself, or what a view looks at in the end */
  uint64_t offset;           /* bytes: into the arena, or into the root */
  int32_t device;            /* 0: main memory; else 1 + the number of one of Manifest.devices */
  int32_t next_view;         /* another view of the same root, or -1; of a root: the first */
  int32_t first, last;       /* of a root in the arena: the calls that first write and last use it, or GRAFT_NEVER */
  int32_t grows;             /* the axis along which a call appends to it, or made it so; -1 for all others */
  int32_t past;              /* of what was appended to: that input */
} TensorSpec;

typedef enum { CALL_FUNCTION, CALL_COPY, CALL_APPEND, CALL_IF, CALL_LOOP, CALL_SCAN } CallKind;

typedef struct IndexList {
  int32_t *items;
  int32_t count;
} IndexList;

/* The axis and direction of one scan input or output. */
typedef struct ScanAxis {
  int32_t axis; /* negative: from the end */
  int32_t backward;
} ScanAxis;

typedef struct Call {
  CallKind kind;
  int32_t module;
  const char *function;
  IndexList inputs, outputs;
  IndexList in_place; /* positions in `inputs` that the output may stand on, which then is written over them */
  int32_t body_count;
  int32_t bodies[2];
  IndexList arguments[2];
  int32_t axis; /* of an append */
  ScanAxis *scan_inputs, *scan_outputs;
  int32_t scan_input_count;
  const char **origin;
  int32_t origin_count;
  GraftFunction entry;
  void *state;
  int32_t has_unknown_output;
  int32_t stage;        /* that begins when it is done; 0: none does */
  int32_t device;       /* where it computes, or the other side of a copy; 0: in main memory */
  int32_t series;       /* how many calls from here on only put work on the device's stream; 0 within a series */
  IndexList waits;      /* copies to main memory that are to be done before it begins */
  size_t first_pointer; /* where its tensors begin in Frame.pointers: inputs, then outputs */
} Call;

/* That the arena's tensor `result` may stand where `dying` does, if both and `seen`, a view of it, have one size. */
typedef struct InPlace {
  int32_t result, dying, seen;
} InPlace;

/* What becomes known at one time: when the procedure begins (stage 0), or when a call is done that binds symbols. */
typedef struct Stage {
  int32_t call;         /* -1 for stage 0 */
  IndexList symbols;    /* bound now */
  IndexList operations; /* in the order of evaluation */
  IndexList bounds;     /* of these operations */
  IndexList equations;  /* whose sides are known now */
  IndexList tensors;    /* whose shape or values are evaluated now, but for inputs and what calls ask memory for */
  IndexList views;      /* that can be compared with what they look at */
  IndexList arena;      /* tensors whose memory can be planned */
  IndexList sizes;      /* symbols that their sizes are made of */
  IndexList outputs;    /* of the procedure, of later stages than 0, whose memory is nobody else's business */
  InPlace *in_place;    /* in the order of calls */
  int32_t in_place_count;
} Stage;

typedef struct Procedure {
  const char *name;
  TensorSpec *tensors;
  int32_t tensor_count;
  IndexList inputs, outputs;
  Call *calls;
  int32_t call_count;
  uint64_t arena_bytes, arena_bound; /* 0 with symbols where there is a plan for each binding */
  uint64_t *device_arenas;           /* likewise the bytes, by number of the device */
  int32_t uses_devices;              /* whether a tensor is on one */
  int32_t is_planned;                /* whether tensors of arenas have their places for good */
  size_t pointer_count;
  SymbolSpec *symbols;
  ExtentOperation *operations;
  ExtentBound *bounds;
  ExtentEquation *equations;
  AxisReason *reasons;
  int32_t symbol_count, operation_count, bound_count, equation_count, reason_count;
  Stage *stages;
  int32_t stage_count; /* 0 without symbols */
} Procedure;

/* Whether tensors of the arena have their places for good: without symbols, or planned for the largest shapes. */
static inline int graft_is_planned(const Procedure *procedure) {
  return procedure->is_planned;
}

/* Whether a dimension is an operation, neither a number nor a symbol. */
static inline int graft_is_operation(const Procedure *procedure, Dimension dimension) {
  return dimension.place >= procedure->symbol_count;
}

static inline const ExtentOperation *graft_operation_of(const Procedure *procedure, Dimension dimension) {
  return procedure->operations + (dimension.place - procedure->symbol_count);
}

static inline int graft_is_symbolic(const TensorSpec *tensor) { return tensor->dimensions != NULL; }

/* Whether the shape is numbers, known since the manifest was read. */
static inline int graft_is_static(const TensorSpec *tensor) { return tensor->ndim >= 0 && !tensor->dimensions; }

/* Whether output `i` has a shape that is known when the procedure begins, and is written straight to where it is
 * wanted: then the result needs data before the procedure runs. */
static inline int graft_writes_in_place(const Procedure *procedure, int32_t i) {
  const TensorSpec *spec = procedure->tensors + procedure->outputs.items[i];
  return spec->storage == STORAGE_OUTPUT && spec->index == i && spec->stage == 0 && !spec->is_unknown;
}

/* A module as the manifest describes it. */
typedef struct ModuleSpec {
  const char *name;
  const char *kind;
  const char *plugin;
  const char *install;
  const JsonValue *functions; /* an array of strings */
  const JsonValue *constants; /* NULL, or an object: name to constant key */
} ModuleSpec;

/* A memory other than the host's, as the manifest describes it. */
typedef struct DeviceSpec {
  const char *name;
  const char *plugin;
  const char *install;
} DeviceSpec;

typedef struct Manifest {
  Procedure *procedures;
  int32_t procedure_count;
  IndexList variants; /* procedures that are tried in order before procedure 0, the general entry */
  ModuleSpec *modules;
  int32_t module_count;
  DeviceSpec *devices;
  int32_t device_count;
  const JsonValue *targets; /* NULL, or an array */
} Manifest;

/* Reads the parsed manifest into memory of `store`; strings point into the JSON document. Checks every field by
 * itself: kinds, ranges, sizes. */
int32_t graft_read_manifest(const JsonValue *root, Store *store, Manifest *manifest, GraftError *error);

/* Checks how the fields go together: bodies, order of writes and reads, overlap in the arena. */
int32_t graft_check_procedures(Manifest *manifest, Store *store, GraftError *error);

/* Appends an extent as text (extent_text.c): "2 * seq + 1", with the parentheses of runtime/extents.py; what does not fit is cut. */
void graft_append_extent(char *text, size_t size, const Procedure *procedure, Dimension dimension);

/* Appends "[batch,2 * seq]". */
void graft_append_dimensions(char *text, size_t size, const Procedure *procedure, const TensorSpec *tensor);

/* Checks that the variants take only what the entry takes, and give what it gives (variants.c). */
int32_t graft_check_variants(const Manifest *manifest, GraftError *error);

/* The number of the procedure that runs these inputs, whose ranks are those of the entry: a variant's, or 0. */
int32_t graft_choose_entry(const Manifest *manifest, const DLTensor *inputs);

/* Checks that this processor can run code for each of the manifest's targets (cpu.c). */
int32_t graft_check_targets(const JsonValue *targets, GraftError *error);

#endif
