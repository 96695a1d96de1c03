#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sort.h"
#include "manifest/manifest_reader.h"

/* What an extent may be, written out: beyond that a table could hide more than anyone can print. */
enum { MAXIMUM_OPERATIONS = 4096, MAXIMUM_DEPTH = 256, MAXIMUM_SYMBOLS = 65536 };

/* How large an operation is, written out. */
typedef struct Size {
  int32_t operations, depth;
} Size;

/* ---- References ----------------------------------------------------------------------------------------------- */

/* The number in "s12" behind its letter; -1 if it is none, or is not below `count`. */
static int32_t read_number(const char *digits, int32_t count) {
  int64_t number = 0;
  if (!*digits) {
    return -1;
  }
  for (; *digits; digits++) {
    if (*digits < '0' || *digits > '9') {
      return -1;
    }
    number = 10 * number + (*digits - '0');
    if (number >= count) {
      return -1;
    }
  }
  return (int32_t)number;
}

int graft_read_dimension(const Procedure *procedure, const JsonValue *value, int32_t limit, Dimension *dimension) {
  if (value && value->kind == JSON_INTEGER) {
    *dimension = (Dimension){-1, value->as.integer};
    return value->as.integer >= -GRAFT_MAXIMUM_EXTENT && value->as.integer <= GRAFT_MAXIMUM_EXTENT;
  }
  const char *text = graft_json_string(value, "");
  int32_t number = -1;
  if (text[0] == 's') {
    number = read_number(text + 1, procedure->symbol_count);
  } else if (text[0] == 'e') {
    number = read_number(text + 1, limit);
    number = number < 0 ? -1 : procedure->symbol_count + number;
  }
  *dimension = (Dimension){number, 0};
  return number >= 0;
}

/* ---- Symbols -------------------------------------------------------------------------------------------------- */

/* The least and the greatest that a symbol or an operation may be; the greatest may be open. */
static int32_t read_range(Reader *reader, const JsonValue *row, int64_t *low, int64_t *high) {
  const JsonValue *greatest = graft_json_member(row, "high");
  GRAFT_TRY(graft_read_integer(reader, row, "low", 0, GRAFT_MAXIMUM_EXTENT, low));
  *high = GRAFT_MAXIMUM_EXTENT;
  return greatest && greatest->kind == JSON_NULL
             ? GRAFT_OK
             : graft_read_integer(reader, row, "high", *low, GRAFT_MAXIMUM_EXTENT, high);
}

/* An axis of a tensor. */
static int32_t read_axis(Reader *reader, const Procedure *procedure, const JsonValue *row, int32_t *tensor,
                         int32_t *axis) {
  int64_t number, place;
  GRAFT_TRY(graft_read_integer(reader, row, "tensor", 0, (int64_t)procedure->tensor_count - 1, &number));
  GRAFT_TRY(graft_read_integer(reader, row, "axis", 0, GRAFT_MAXIMUM_DIMENSIONS - 1, &place));
  *tensor = (int32_t)number;
  *axis = (int32_t)place;
  return GRAFT_OK;
}

static int32_t read_symbol(Reader *reader, const Procedure *procedure, const JsonValue *row, SymbolSpec *symbol) {
  GRAFT_TRY(graft_read_text(reader, row, "name", &symbol->name));
  GRAFT_TRY(read_range(reader, row, &symbol->low, &symbol->high));
  return read_axis(reader, procedure, row, &symbol->tensor, &symbol->axis);
}

static int by_text(const void *one, const void *other) {
  return strcmp(*(const char *const *)one, *(const char *const *)other);
}

static int32_t check_names(Reader *reader, const Procedure *procedure) {
  size_t count = (size_t)procedure->symbol_count;
  const char **names = graft_store_allocate(reader->store, count, sizeof(char *));
  GRAFT_TRY(graft_allocated(reader, names));
  for (size_t i = 0; i < count; i++) {
    names[i] = procedure->symbols[i].name;
  }
  graft_sort(names, count, sizeof *names, by_text);
  for (size_t i = 1; i < count; i++) {
    if (strcmp(names[i - 1], names[i]) == 0) {
      return graft_damaged(reader, "two symbols are named '%s'", names[i]);
    }
  }
  return GRAFT_OK;
}

static int32_t read_symbols(Reader *reader, const JsonValue *rows, Procedure *procedure) {
  size_t length = strlen(reader->where);
  if (graft_json_count(rows) == 0 || graft_json_count(rows) > MAXIMUM_SYMBOLS) {
    return graft_damaged(reader, "'symbols' has %zu entries, not between 1 and %d", graft_json_count(rows),
                         MAXIMUM_SYMBOLS);
  }
  procedure->symbol_count = (int32_t)graft_json_count(rows);
  procedure->symbols = graft_store_allocate(reader->store, (size_t)procedure->symbol_count, sizeof(SymbolSpec));
  GRAFT_TRY(graft_allocated(reader, procedure->symbols));
  for (int32_t i = 0; i < procedure->symbol_count; i++) {
    snprintf(reader->where + length, sizeof reader->where - length, "symbol %" PRId32 ": ", i);
    GRAFT_TRY(read_symbol(reader, procedure, graft_json_item(rows, (size_t)i), procedure->symbols + i));
  }
  reader->where[length] = 0;
  return check_names(reader, procedure);
}

/* ---- Operations ----------------------------------------------------------------------------------------------- */

static int32_t read_operation(Reader *reader, const Procedure *procedure, const JsonValue *row, int32_t number,
                              Size *sizes) {
  ExtentOperation *operation = procedure->operations + number;
  const char *name = graft_json_string(graft_json_item(row, 0), "");
  if (!graft_extent_operator(name, &operation->operator) || graft_json_count(row) != 3 ||
      !graft_read_dimension(procedure, graft_json_item(row, 1), number, &operation->left) ||
      !graft_read_dimension(procedure, graft_json_item(row, 2), number, &operation->right)) {
    return graft_damaged( reader,
                         "entry %" PRId32 " of 'extents' is no operation on numbers, symbols and earlier entries",
                         number);
  }
  const Dimension *operands[] = {&operation->left, &operation->right};
  sizes[number] = (Size){1, 1};
  for (int32_t i = 0; i < 2; i++) {
    if (operands[i]->place >= procedure->symbol_count) {
      Size size = sizes[operands[i]->place - procedure->symbol_count];
      sizes[number].operations += size.operations;
      sizes[number].depth = size.depth >= sizes[number].depth ? size.depth + 1 : sizes[number].depth;
    }
  }
  if (sizes[number].operations > MAXIMUM_OPERATIONS || sizes[number].depth > MAXIMUM_DEPTH) {
    return graft_damaged(reader,
                         "entry %" PRId32 " of 'extents' has more than %d operations, or is nested more than %d deep",
                         number, MAXIMUM_OPERATIONS, MAXIMUM_DEPTH);
  }
  return GRAFT_OK;
}

/* ---- Bounds --------------------------------------------------------------------------------------------------- */

static int32_t read_bounds(Reader *reader, const JsonValue *data, Procedure *procedure) {
  const JsonValue *rows;
  GRAFT_TRY(graft_read_rows(reader, data, "bounds", &rows));
  procedure->bound_count = (int32_t)graft_json_count(rows);
  procedure->bounds = graft_store_allocate(reader->store, (size_t)procedure->bound_count, sizeof(ExtentBound));
  GRAFT_TRY(graft_allocated(reader, procedure->bounds));
  for (int32_t i = 0; i < procedure->bound_count; i++) {
    const JsonValue *row = graft_json_item(rows, (size_t)i);
    ExtentBound *bound = procedure->bounds + i;
    Dimension extent;
    if (!graft_read_dimension(procedure, graft_json_member(row, "extent"), procedure->operation_count, &extent) ||
        extent.place < procedure->symbol_count) {
      return graft_damaged(reader, "entry %" PRId32 " of 'bounds' is of no operation", i);
    }
    bound->operation = extent.place - procedure->symbol_count;
    GRAFT_TRY(read_range(reader, row, &bound->low, &bound->high));
  }
  return GRAFT_OK;
}

/* ---- Equations ------------------------------------------------------------------------------------------------ */

/* The three parts of a message. */
static int read_message(const JsonValue *row, const char *says[3]) {
  const JsonValue *parts = graft_json_member(row, "says");
  int is_whole = graft_json_count(parts) == 3;
  for (size_t i = 0; is_whole && i < 3; i++) {
    says[i] = graft_json_string(graft_json_item(parts, i), NULL);
    is_whole = says[i] != NULL;
  }
  return is_whole;
}

static int32_t read_equation(Reader *reader, const Procedure *procedure, const JsonValue *row, int32_t number) {
  static const char *const kinds[] = {"equal", "broadcast", "expand", "at most"};
  ExtentEquation *equation = procedure->equations + number;
  int32_t kind = graft_find_name(kinds, 4, graft_json_string(graft_json_member(row, "kind"), ""));
  equation->kind = (Agreement)kind;
  int is_whole = kind >= 0 &&
                 graft_read_dimension(procedure, graft_json_member(row, "left"), procedure->operation_count,
                                      &equation->left) &&
                 graft_read_dimension(procedure, graft_json_member(row, "right"), procedure->operation_count,
                                      &equation->right) &&
                 read_message(row, equation->says);
  return is_whole ? GRAFT_OK
                  : graft_damaged(reader, "entry %" PRId32 " of 'equations' is not two extents that agree", number);
}

static int32_t read_equations(Reader *reader, const JsonValue *data, Procedure *procedure) {
  const JsonValue *rows;
  GRAFT_TRY(graft_read_rows(reader, data, "equations", &rows));
  procedure->equation_count = (int32_t)graft_json_count(rows);
  procedure->equations =
      graft_store_allocate(reader->store, (size_t)procedure->equation_count, sizeof(ExtentEquation));
  GRAFT_TRY(graft_allocated(reader, procedure->equations));
  for (int32_t i = 0; i < procedure->equation_count; i++) {
    GRAFT_TRY(read_equation(reader, procedure, graft_json_item(rows, (size_t)i), i));
  }
  return GRAFT_OK;
}

static int32_t read_reasons(Reader *reader, const JsonValue *data, Procedure *procedure) {
  const JsonValue *rows;
  GRAFT_TRY(graft_read_rows(reader, data, "reasons", &rows));
  procedure->reason_count = (int32_t)graft_json_count(rows);
  procedure->reasons = graft_store_allocate(reader->store, (size_t)procedure->reason_count, sizeof(AxisReason));
  GRAFT_TRY(graft_allocated(reader, procedure->reasons));
  for (int32_t i = 0; i < procedure->reason_count; i++) {
    const JsonValue *row = graft_json_item(rows, (size_t)i);
    AxisReason *reason = procedure->reasons + i;
    GRAFT_TRY(read_axis(reader, procedure, row, &reason->tensor, &reason->axis));
    if (!read_message(row, reason->says)) {
      return graft_damaged(reader, "entry %" PRId32 " of 'reasons' has no message of three parts", i);
    }
  }
  return GRAFT_OK;
}

int32_t graft_read_extents(Reader *reader, const JsonValue *data, Procedure *procedure) {
  const JsonValue *symbols, *operations;
  if (!graft_json_member(data, "symbols")) {
    return GRAFT_OK;
  }
  GRAFT_TRY(graft_read_array(reader, data, "symbols", &symbols));
  GRAFT_TRY(graft_read_array(reader, data, "extents", &operations));
  GRAFT_TRY(read_symbols(reader, symbols, procedure));
  procedure->operation_count = (int32_t)graft_json_count(operations);
  size_t count = (size_t)procedure->operation_count;
  procedure->operations = graft_store_allocate(reader->store, count, sizeof(ExtentOperation));
  Size *sizes = graft_store_allocate(reader->store, count, sizeof(Size));
  GRAFT_TRY(graft_allocated(reader, procedure->operations));
  GRAFT_TRY(graft_allocated(reader, sizes));
  for (int32_t i = 0; i < procedure->operation_count; i++) {
    GRAFT_TRY(read_operation(reader, procedure, graft_json_item(operations, (size_t)i), i, sizes));
  }
  GRAFT_TRY(read_bounds(reader, data, procedure));
  GRAFT_TRY(read_equations(reader, data, procedure));
  return read_reasons(reader, data, procedure);
}
