/* Kernels of irregular operators: data decide how much they make, or their values are no tensors of plain numbers.
 *
 * A kernel reads arrays (of plain tensors, or of packed values as runtime/packed_values.py says) and gives outputs, in
 * memory of the caller where its region returns them, else in memory that lives as long as the run.
 */
#ifndef GRAFT_IRREGULAR_KERNEL_H
#define GRAFT_IRREGULAR_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graft/runtime.h"
#include "base/error.h"
#include "base/json.h"

enum { MOST_RANK = 16, MOST_INPUTS = 1024, NO_VALUE = -1 };

typedef enum {
  BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64,
  FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ, FLOAT8E8M0, FLOAT4E2M1, INT4, UINT4, INT2, UINT2,
  COMPLEX64, STRING, NO_ELEMENT
} Element; /* the rows of ELEMENTS */

typedef struct ElementRow {
  const char *name;   /* ONNX's, in lower case */
  const char *packed; /* that of NumPy, which packed values have */
  int32_t bytes;
} ElementRow;

extern const ElementRow IRREGULAR_ELEMENTS[];

/* What a value is, as its model says. */
typedef struct ValueType {
  Element element; /* NO_ELEMENT for sequences and optionals */
  bool packed;
} ValueType;

/* A tensor; of strings, `data` is what `irregular_text` walks through and `end` is behind the last one. */
typedef struct Array {
  Element element;
  int32_t rank;
  int64_t shape[MOST_RANK];
  int64_t count;
  const unsigned char *data, *end;
} Array;

/* A part of packed bytes. */
typedef struct Packed {
  const unsigned char *begin, *end;
} Packed;

/* Bytes that grow; `failed` when memory ran out. */
typedef struct Bytes {
  unsigned char *data;
  size_t size, room;
  bool failed;
} Bytes;

typedef struct Text {
  const char *begin;
  size_t length;
} Text;

typedef struct Module Module;
typedef struct Node Node;
typedef struct Value Value;

/* A node that runs. */
typedef struct Call {
  GraftContext *context;
  Module *module;
  const Node *node;
  Value *values;
  DLTensor *const *outputs;
} Call;

typedef int32_t (*Kernel)(Call *call);

/* Makes of a node's attributes, once, what its kernel looks things up in: one block of `malloc`. NULL: memory ran out. */
typedef void *(*Prepare)(const Node *node);

typedef struct KernelRow {
  const char *name;
  Kernel run;
  Prepare prepare;
} KernelRow;

struct Node {
  const char *origin;
  Kernel run;
  const JsonValue *attributes;
  int32_t inputs, outputs;
  void *prepared;
  const int32_t *places; /* the values that are read, then those that are made; NO_VALUE where one is absent */
};

/* ---- What kernels ask for (call.c) ---- */

/* Whether an input is there. */
bool irregular_has(const Call *call, int32_t input);
/* Whether somebody reads an output. */
bool irregular_wants(const Call *call, int32_t output);
ValueType irregular_input_type(const Call *call, int32_t input);
ValueType irregular_output_type(const Call *call, int32_t output);
/* Gives an input that is a tensor. */
int32_t irregular_array(Call *call, int32_t input, Array *array);
/* Gives the bytes of a packed input. */
int32_t irregular_packed(Call *call, int32_t input, Packed *packed);
/* Makes an output that is a tensor of fixed-size elements, and returns where its elements go; NULL after a failure. */
void *irregular_output(Call *call, int32_t output, int32_t rank, const int64_t *shape);
/* Gives the bytes of a packed output, and frees them. */
int32_t irregular_give(Call *call, int32_t output, Bytes *bytes);
/* A text attribute, a number, numbers. */
const char *irregular_text_of(const Call *call, const char *name, const char *fallback);
int64_t irregular_integer_of(const Call *call, const char *name, int64_t fallback);
double irregular_number_of(const Call *call, const char *name, double fallback);
const JsonValue *irregular_list_of(const Call *call, const char *name);
/* A number of a list; those that JSON cannot say are "nan", "inf" and "-inf". */
double irregular_item_number(const JsonValue *list, size_t index);
/* Makes an output that is a tensor like another one, packed or not. */
int32_t irregular_give_array(Call *call, int32_t output, const Array *array);
/* Says what is wrong, with the node; returns an error. */
int32_t irregular_fail(Call *call, const char *what);
int32_t irregular_no_memory(Call *call);
/* A number that no two runs of a process share. */
uint64_t irregular_fresh_seed(Call *call);
/* Memory until the run ends. */
void *irregular_scratch(Call *call, uint64_t bytes);

/* ---- Packed values (packed.c) ---- */

/* Reads the tensor at a place and goes behind it; false where the bytes are damaged. */
bool irregular_read_array(Packed *from, Array *array);
/* Reads the tag of a sequence and its count; false where there is none. */
bool irregular_read_sequence(Packed *from, uint64_t *count);
bool irregular_is_absent(const Packed *value);
/* Goes behind a value. */
bool irregular_skip(Packed *from, int32_t depth);
void irregular_write(Bytes *bytes, const void *data, size_t size);
void irregular_write_number(Bytes *bytes, uint64_t number);
void irregular_write_header(Bytes *bytes, Element element, int32_t rank, const int64_t *shape);
void irregular_write_array(Bytes *bytes, const Array *array);
void irregular_write_sequence(Bytes *bytes, uint64_t count);
void irregular_write_text(Bytes *bytes, const char *text, size_t length);
/* Returns the text at a place among strings, and moves the place behind it; they were checked when they were read. */
Text irregular_text(const unsigned char **place);
/* Returns all texts of an array of strings, in memory of the run; NULL when it runs out. */
Text *irregular_texts(Call *call, const Array *array);
Element irregular_element(const char *name, bool packed);

/* ---- Numbers (numbers.c) ---- */

double irregular_load(Element element, const void *data, int64_t index);
/* Integers wrap; floats are rounded to nearest even, and out of range they are as `saturate` says. */
void irregular_store(Element element, void *data, int64_t index, double value, bool saturate);
int64_t irregular_load_integer(Element element, const void *data, int64_t index);
void irregular_store_integer(Element element, void *data, int64_t index, int64_t value);
bool irregular_is_integer(Element element);
/* Returns the normal axis of a rank, or -1. */
int32_t irregular_axis(int64_t axis, int32_t rank);

/* ---- Numbers in order (sorting.c) ---- */

typedef struct Keyed {
  uint64_t key;
  int64_t number;
} Keyed;

/* Writes for each element whether it is not 0: 1 or 0. NaN is not. */
void irregular_flags(Element element, const void *data, int64_t count, unsigned char *flags);
/* Returns what compares as an element does; NaN comes last. */
uint64_t irregular_key(Element element, const void *data, int64_t index);
/* Sorts by keys, equal ones as they come, with the help of as much memory; returns which of the two has the result. */
Keyed *irregular_sort(Keyed *items, Keyed *spare, int64_t count);

/* ---- The tables, one a file ---- */

extern const KernelRow IRREGULAR_SELECTION[], IRREGULAR_TEXTS[], IRREGULAR_SEQUENCES[], IRREGULAR_NARROW[],
    IRREGULAR_RANDOM[], IRREGULAR_VECTORIZER[], IRREGULAR_IMAGES[], IRREGULAR_MOVES[], IRREGULAR_TEXTS_MOVED[],
    IRREGULAR_TOKENS[], IRREGULAR_FOURIER[];

#endif
