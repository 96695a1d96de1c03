/* Procedures as the executor runs them: the manifest (runtime/procedure.py), read and checked. */
#ifndef GRAFT_PROCEDURE_H
#define GRAFT_PROCEDURE_H

#include "dtype.h"
#include "graft/runtime.h"
#include "json.h"
#include "store.h"

enum { GRAFT_MAXIMUM_NESTING = 32 };

typedef enum {
  STORAGE_INPUT,
  STORAGE_OUTPUT,
  STORAGE_CONSTANT,
  STORAGE_ARENA,
  STORAGE_VIEW,
  STORAGE_DYNAMIC
} Storage;

typedef struct TensorSpec {
  const char *name;
  DLDataType dtype;
  Storage storage;
  int32_t ndim; /* -1: shape known only at run time */
  int64_t *shape;
  size_t bytes;              /* 0 where the shape is unknown */
  int32_t index;             /* of an input or output */
  const char *constant;      /* key of a constant */
  const DLTensor *data;      /* the constant itself */
  int32_t root;              /* the tensor whose memory this is: itself, or what a view looks at in the end */
  uint64_t offset;           /* bytes: into the arena, or into the root */
  int32_t next_view;         /* another view of the same root, or -1; of a root: the first */
} TensorSpec;

typedef enum { CALL_FUNCTION, CALL_COPY, CALL_IF, CALL_LOOP, CALL_SCAN } CallKind;

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
  ScanAxis *scan_inputs, *scan_outputs;
  int32_t scan_input_count;
  const char **origin;
  int32_t origin_count;
  GraftFunction entry;
  void *state;
  int32_t has_unknown_output;
  size_t first_pointer; /* where its tensors begin in Frame.pointers: inputs, then outputs */
} Call;

typedef struct Procedure {
  const char *name;
  TensorSpec *tensors;
  int32_t tensor_count;
  IndexList inputs, outputs;
  Call *calls;
  int32_t call_count;
  uint64_t arena_bytes, arena_bound;
  size_t pointer_count;
} Procedure;

/* A module as the manifest describes it. */
typedef struct ModuleSpec {
  const char *name;
  const char *kind;
  const char *plugin;
  const char *install;
  const JsonValue *functions; /* an array of strings */
  const JsonValue *constants; /* NULL, or an object: name to constant key */
} ModuleSpec;

typedef struct Manifest {
  Procedure *procedures;
  int32_t procedure_count;
  ModuleSpec *modules;
  int32_t module_count;
  const JsonValue *targets; /* NULL, or an array */
} Manifest;

/* Reads the parsed manifest into memory of `store`; strings point into the JSON document. Checks every field by
 * itself: kinds, ranges, sizes. */
int32_t graft_read_manifest(const JsonValue *root, Store *store, Manifest *manifest, GraftError *error);

/* Checks how the fields go together: bodies, order of writes and reads, overlap in the arena. */
int32_t graft_check_procedures(const Manifest *manifest, GraftError *error);

/* Checks the order of writes and reads, and the overlap in the arena (check_memory.c). `where` begins the message. */
int32_t graft_check_memory(const Procedure *procedure, const char *where, GraftError *error);

/* Checks one call with bodies against them. `where` begins the message. */
int32_t graft_check_control(const Manifest *manifest, const Procedure *procedure, const Call *call, const char *where,
                            GraftError *error);

/* Checks that this processor can run code for each of the manifest's targets (cpu.c). */
int32_t graft_check_targets(const JsonValue *targets, GraftError *error);

/* "node 'a', 'b' and 3 more" or, where no node is known, "call 3"; appended to `text`. */
void graft_append_origin(char *text, size_t size, const Call *call, int32_t number);

#endif
