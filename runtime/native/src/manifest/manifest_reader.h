/* What the readers of the manifest's parts share. */
#ifndef GRAFT_MANIFEST_READER_H
#define GRAFT_MANIFEST_READER_H

#include "base/error.h"
#include "manifest/procedure.h"

typedef struct Reader {
  Store *store;
  GraftError *error;
  Manifest *manifest;
  char where[192]; /* the place that messages name */
} Reader;

/* Sets the error "damaged manifest: <place><text>" and returns its code. */
int32_t graft_damaged(Reader *reader, const char *format, ...) GRAFT_FORMAT(2, 3);
int32_t graft_no_memory(Reader *reader);

int32_t graft_read_integer(Reader *reader, const JsonValue *object, const char *key, int64_t low, int64_t high,
                           int64_t *result);
int32_t graft_read_text(Reader *reader, const JsonValue *object, const char *key, const char **result);
int32_t graft_read_array(Reader *reader, const JsonValue *object, const char *key, const JsonValue **result);

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

#endif
