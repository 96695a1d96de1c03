/* What a kernel sees of the region that it runs in: inputs as arrays, memory for outputs, attributes. */
#include "call.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool irregular_has(const Call *call, int32_t input) {
  if (input >= call->node->inputs || call->node->places[input] == NO_VALUE) {
    return false;
  }
  return call->values[call->node->places[input]].data != NULL;
}

static int32_t output_place(const Call *call, int32_t output) {
  return output < call->node->outputs ? call->node->places[call->node->inputs + output] : NO_VALUE;
}

bool irregular_wants(const Call *call, int32_t output) { return output_place(call, output) != NO_VALUE; }

ValueType irregular_input_type(const Call *call, int32_t input) {
  ValueType none = {NO_ELEMENT, false};
  return irregular_has(call, input) ? call->module->types[call->node->places[input]] : none;
}

ValueType irregular_output_type(const Call *call, int32_t output) {
  ValueType none = {NO_ELEMENT, false};
  return irregular_wants(call, output) ? call->module->types[output_place(call, output)] : none;
}

int32_t irregular_fail(Call *call, const char *what) {
  return call->context->api->fail(call->context, "node '%s': %s", call->node->origin, what);
}

int32_t irregular_no_memory(Call *call) { return irregular_fail(call, "memory ran out"); }

void *irregular_scratch(Call *call, uint64_t bytes) { return call->context->api->scratch(call->context, bytes + 64); }

int32_t irregular_packed(Call *call, int32_t input, Packed *packed) {
  if (!irregular_has(call, input)) {
    return irregular_fail(call, "an input is absent");
  }
  const Value *value = call->values + call->node->places[input];
  packed->begin = value->data;
  packed->end = packed->begin + (value->rank == 1 ? value->shape[0] : 0);
  Packed whole = *packed;
  if (!irregular_input_type(call, input).packed || !irregular_skip(&whole, 0) || whole.begin != whole.end) {
    return irregular_fail(call, "a packed value is damaged");
  }
  return GRAFT_OK;
}

int32_t irregular_array(Call *call, int32_t input, Array *array) {
  memset(array, 0, sizeof *array);
  if (!irregular_has(call, input)) {
    return irregular_fail(call, "an input is absent");
  }
  ValueType type = irregular_input_type(call, input);
  if (type.packed) {
    Packed packed;
    int32_t status = irregular_packed(call, input, &packed);
    bool fits = !status && irregular_read_array(&packed, array);
    fits = fits && (type.element == NO_ELEMENT || array->element == type.element);
    return fits || status ? status : irregular_fail(call, "a packed value is no tensor of the type that is stated");
  }
  const Value *value = call->values + call->node->places[input];
  array->element = type.element;
  array->rank = value->rank;
  array->count = 1;
  for (int32_t i = 0; i < value->rank; i++) {
    array->shape[i] = value->shape[i];
    array->count *= value->shape[i];
  }
  array->data = value->data;
  array->end = array->data + array->count * IRREGULAR_ELEMENTS[type.element].bytes;
  return GRAFT_OK;
}

Text *irregular_texts(Call *call, const Array *array) {
  Text *texts = irregular_scratch(call, (uint64_t)(array->count + 1) * sizeof *texts);
  const unsigned char *place = array->data;
  for (int64_t i = 0; texts && i < array->count; i++) {
    texts[i] = irregular_text(&place);
  }
  return texts;
}

/* The memory of a value as a plain tensor: the caller's where the region returns it. */
static void *memory_of(Call *call, int32_t place, int32_t rank, const int64_t *shape, size_t bytes) {
  Value *value = call->values + place;
  value->rank = rank;
  if (rank) {
    memcpy(value->shape, shape, sizeof *shape * (size_t)rank);
  }
  int32_t number = call->module->returned[place];
  if (number >= 0) {
    static unsigned char nothing;
    void *data = call->context->api->allocate_output(call->context, number, rank, shape);
    value->data = data || bytes ? data : &nothing; /* nothing is written there */
    return (void *)value->data;
  }
  value->owned = malloc(bytes ? bytes : 1);
  if (!value->owned) {
    irregular_no_memory(call);
  }
  value->data = value->owned;
  return value->owned;
}

static size_t size_of(Element element, int32_t rank, const int64_t *shape) {
  size_t size = (size_t)IRREGULAR_ELEMENTS[element].bytes;
  for (int32_t i = 0; i < rank; i++) {
    if (shape[i] < 0 || (shape[i] && size > SIZE_MAX / 4 / (size_t)shape[i])) {
      return SIZE_MAX;
    }
    size *= (size_t)shape[i];
  }
  return size;
}

void *irregular_output(Call *call, int32_t output, int32_t rank, const int64_t *shape) {
  int32_t place = output_place(call, output);
  ValueType type = irregular_output_type(call, output);
  size_t size = place == NO_VALUE || rank > MOST_RANK ? SIZE_MAX : size_of(type.element, rank, shape);
  if (size == SIZE_MAX) {
    irregular_fail(call, "a result is absent or too large");
    return NULL;
  }
  if (!type.packed) {
    return memory_of(call, place, rank, shape, size);
  }
  Bytes head = {0};
  irregular_write_header(&head, type.element, rank, shape);
  int64_t whole = (int64_t)(head.size + size);
  unsigned char *data = head.failed ? NULL : memory_of(call, place, 1, &whole, (size_t)whole);
  if (data) {
    memcpy(data, head.data, head.size);
    data += head.size;
  }
  free(head.data);
  return data;
}

int32_t irregular_give(Call *call, int32_t output, Bytes *bytes) {
  int32_t place = output_place(call, output);
  int64_t size = (int64_t)bytes->size;
  int32_t status = GRAFT_OK;
  if (bytes->failed) {
    status = irregular_no_memory(call);
  } else if (place != NO_VALUE) {
    void *data = memory_of(call, place, 1, &size, bytes->size);
    status = data ? GRAFT_OK : GRAFT_ERROR_RUN;
    if (data && bytes->size) {
      memcpy(data, bytes->data, bytes->size);
    }
  }
  free(bytes->data);
  return status;
}

int32_t irregular_give_array(Call *call, int32_t output, const Array *array) {
  ValueType type = irregular_output_type(call, output);
  if (type.packed) {
    Bytes bytes = {0};
    irregular_write_array(&bytes, array);
    return irregular_give(call, output, &bytes);
  }
  if (type.element != array->element) {
    return irregular_fail(call, "a tensor is of another type than the model says");
  }
  void *data = irregular_output(call, output, array->rank, array->shape);
  if (data && array->end > array->data) {
    memcpy(data, array->data, (size_t)(array->end - array->data));
  }
  return data ? GRAFT_OK : GRAFT_ERROR_RUN;
}

double irregular_item_number(const JsonValue *list, size_t index) {
  const JsonValue *item = graft_json_item(list, index);
  const char *text = graft_json_string(item, NULL);
  if (!text) {
    return graft_json_number(item, 0);
  }
  return strcmp(text, "nan") == 0 ? NAN : *text == '-' ? -INFINITY : INFINITY;
}

const char *irregular_text_of(const Call *call, const char *name, const char *fallback) {
  return graft_json_string(graft_json_member(call->node->attributes, name), fallback);
}

int64_t irregular_integer_of(const Call *call, const char *name, int64_t fallback) {
  return graft_json_integer(graft_json_member(call->node->attributes, name), fallback);
}

double irregular_number_of(const Call *call, const char *name, double fallback) {
  return graft_json_number(graft_json_member(call->node->attributes, name), fallback);
}

const JsonValue *irregular_list_of(const Call *call, const char *name) {
  return graft_json_member(call->node->attributes, name);
}

uint64_t irregular_fresh_seed(Call *call) {
  struct timespec now = {0};
  timespec_get(&now, TIME_UTC);
  uint64_t count = (uint64_t)atomic_fetch_add(&call->module->draws, 1);
  uint64_t seed = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 20;
  return seed ^ (count + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)(uintptr_t)call->module << 7;
}
