/* What the readers and the checks of the manifest's parts share. */
#ifndef GRAFT_MANIFEST_READER_H
#define GRAFT_MANIFEST_READER_H

#include "base/error.h"
#include "manifest/procedure.h"

typedef struct Reader {
  Store *store;
  GraftError *error;
  Manifest *manifest;
  char where[192]; /* the place that messages name */
  int32_t call;    /* the call of that procedure; -1: not at a call */
} Reader;

/* Sets the error "damaged manifest: <place><text>" and returns its code. */
int32_t graft_damaged(const Reader *reader, const char *format, ...) GRAFT_FORMAT(2, 3);

/* GRAFT_OK if memory was given, else an error. */
int32_t graft_allocated(const Reader *reader, const void *memory);

int32_t graft_read_integer(Reader *reader, const JsonValue *object, const char *key, int64_t low, int64_t high,
                           int64_t *result);
int32_t graft_read_text(Reader *reader, const JsonValue *object, const char *key, const char **result);
int32_t graft_read_array(Reader *reader, const JsonValue *object, const char *key, const JsonValue **result);

/* Likewise, of a member that may be absent: NULL. */
int32_t graft_read_rows(Reader *reader, const JsonValue *object, const char *key, const JsonValue **result);

/* The place of a name among these, -1 if it is none of them. */
int32_t graft_find_name(const char *const *names, int32_t count, const char *name);

/* Integers between `low` and `limit` - 1. */
int32_t graft_read_list(Reader *reader, const JsonValue *array, const char *key, int64_t low, int64_t limit,
                        IndexList *list);
int32_t graft_read_indices(Reader *reader, const JsonValue *object, const char *key, int64_t low, int64_t limit,
                           IndexList *list);

/* The symbols and operations of a procedure, where it has any (manifest_extents.c). */
int32_t graft_read_extents(Reader *reader, const JsonValue *data, Procedure *procedure);

/* A JSON integer, or the text of a reference to a symbol or an operation before number `limit`. 0 if it is neither. */
int graft_read_dimension(const Procedure *procedure, const JsonValue *value, int32_t limit, Dimension *dimension);

/* One tensor; those before it are read (manifest_tensors.c). */
int32_t graft_read_tensor(Reader *reader, Procedure *procedure, const JsonValue *row, TensorSpec *tensor);

/* Finds when symbols are bound and what is known then; checks that nothing is used before (stages.c). */
int32_t graft_find_stages(const Reader *reader, Procedure *procedure);

/* Checks the order of writes and reads, and the overlap in the arena; notes the lives of tensors in it
 * (check_memory.c). */
int32_t graft_check_memory(Reader *reader, Procedure *procedure);

/* What is wrong with a call of kind append, NULL if nothing: then its tensors know that they grow (check_append.c). */
const char *graft_check_append(Procedure *procedure, const Call *call);

/* Checks that what goes together is on one device, that what the runtime itself reads is in main memory, and notes what
 * calls have to wait for (check_devices.c). */
int32_t graft_check_devices(Reader *reader, Procedure *procedure);

/* Finds what may stand in whose place, where memory is planned for each binding: lives are known (stages.c). */
int32_t graft_find_in_place(const Reader *reader, Procedure *procedure);

/* Checks one call with bodies against them (check_control.c). */
int32_t graft_check_control(const Reader *reader, const Procedure *procedure, const Call *call);

#endif
