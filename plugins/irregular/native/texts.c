/* Strings: UTF-8 in packed values. Offsets of text are bytes, but where white space and cases are looked for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

/* ---- Broadcasting ---- */

/* Two arrays of texts and the shape that they have together. */
typedef struct Pair {
  Array arrays[2];
  Text *texts[2];
  int32_t rank;
  int64_t shape[MOST_RANK], count;
} Pair;

static int32_t read_pair(Call *call, Pair *pair) {
  pair->rank = 0;
  pair->count = 1;
  for (int side = 0; side < 2; side++) {
    Array *array = pair->arrays + side;
    GRAFT_TRY(irregular_array(call, side, array));
    if (array->element != STRING) {
      return irregular_fail(call, "an input holds no strings");
    }
    pair->texts[side] = irregular_texts(call, array);
    if (!pair->texts[side]) {
      return GRAFT_ERROR_RUN;
    }
    pair->rank = array->rank > pair->rank ? array->rank : pair->rank;
  }
  for (int32_t i = 0; i < pair->rank; i++) {
    int64_t extents[2];
    for (int side = 0; side < 2; side++) {
      const Array *array = pair->arrays + side;
      int32_t own = i - (pair->rank - array->rank);
      extents[side] = own < 0 ? 1 : array->shape[own];
    }
    if (extents[0] != extents[1] && extents[0] != 1 && extents[1] != 1) {
      return irregular_fail(call, "the shapes of the inputs cannot be broadcast");
    }
    pair->shape[i] = extents[0] == 1 ? extents[1] : extents[0];
    pair->count *= pair->shape[i];
  }
  return GRAFT_OK;
}

/* The text of one side that belongs to an element of the result. */
static Text text_at(const Pair *pair, int side, int64_t index) {
  const Array *array = pair->arrays + side;
  int64_t place = 0, step = 1;
  for (int32_t i = pair->rank - 1, own = array->rank - 1; own >= 0; i--, own--) {
    place += array->shape[own] == 1 ? 0 : index % pair->shape[i] * step;
    step *= array->shape[own];
    index /= pair->shape[i];
  }
  return pair->texts[side][place];
}

static bool equal_texts(Text left, Text right) {
  return left.length == right.length && memcmp(left.begin, right.begin, left.length) == 0;
}

static int32_t string_equal(Call *call) {
  Pair pair;
  GRAFT_TRY(read_pair(call, &pair));
  unsigned char *data = irregular_output(call, 0, pair.rank, pair.shape);
  for (int64_t i = 0; data && i < pair.count; i++) {
    data[i] = equal_texts(text_at(&pair, 0, i), text_at(&pair, 1, i));
  }
  return data ? GRAFT_OK : GRAFT_ERROR_RUN;
}

static int32_t string_concat(Call *call) {
  Pair pair;
  Bytes bytes = {0};
  GRAFT_TRY(read_pair(call, &pair));
  irregular_write_header(&bytes, STRING, pair.rank, pair.shape);
  for (int64_t i = 0; i < pair.count; i++) {
    Text left = text_at(&pair, 0, i), right = text_at(&pair, 1, i);
    irregular_write_number(&bytes, left.length + right.length);
    irregular_write(&bytes, left.begin, left.length);
    irregular_write(&bytes, right.begin, right.length);
  }
  return irregular_give(call, 0, &bytes);
}

/* ---- Characters ---- */

/* The character at the beginning of a text, and its bytes; a damaged byte is a character by itself. */
static uint32_t character(Text text, size_t *bytes) {
  const unsigned char *at = (const unsigned char *)text.begin;
  uint32_t first = at[0];
  size_t length = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  uint32_t found = length == 1 ? first : first & (0x7fu >> length);
  *bytes = 1;
  if (length > text.length) {
    return 0xfffd;
  }
  for (size_t i = 1; i < length; i++) {
    if ((at[i] & 0xc0) != 0x80) {
      return 0xfffd;
    }
    found = found << 6 | (at[i] & 0x3f);
  }
  *bytes = length;
  return found;
}

/* Unicode's white space, as Python splits at it. */
static bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static Text behind(Text text, size_t bytes) {
  Text rest = {text.begin + bytes, text.length - bytes};
  return rest;
}

/* Goes over characters that are space, or that are none; returns what is behind them. */
static Text skip(Text text, bool spaces) {
  while (text.length) {
    size_t bytes;
    if (is_space(character(text, &bytes)) != spaces) {
      break;
    }
    text = behind(text, bytes);
  }
  return text;
}

/* ---- StringSplit ---- */

/* The next part of a text, by white space where the delimiter is empty; false where there is none. */
static bool next_part(Text *rest, Text delimiter, int64_t *splits, bool *ended, Text *part) {
  if (*ended) {
    return false;
  }
  if (delimiter.length == 0) {
    Text begin = skip(*rest, true), end = *splits == 0 ? behind(begin, begin.length) : skip(begin, false);
    *part = (Text){begin.begin, begin.length - end.length};
    *rest = end;
    *ended = begin.length == 0;
    *splits -= *splits > 0;
    return !*ended;
  }
  for (size_t at = 0; *splits != 0 && at + delimiter.length <= rest->length; at++) {
    if (memcmp(rest->begin + at, delimiter.begin, delimiter.length) == 0) {
      *part = (Text){rest->begin, at};
      *rest = behind(*rest, at + delimiter.length);
      *splits -= *splits > 0;
      return true;
    }
  }
  *part = *rest;
  *ended = true;
  return true;
}

static int32_t string_split(Call *call) {
  Array source;
  GRAFT_TRY(irregular_array(call, 0, &source));
  const char *given = irregular_text_of(call, "delimiter", "");
  Text delimiter = {given, strlen(given)}, part, *texts = irregular_texts(call, &source);
  int64_t most = irregular_integer_of(call, "maxsplit", -1), widest = 0, shape[MOST_RANK];
  int64_t *counts = texts ? irregular_output(call, 1, source.rank, source.shape) : NULL;
  if (!counts || source.rank >= MOST_RANK) {
    return counts ? irregular_fail(call, "the input has too many axes") : GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < source.count; i++) {
    Text rest = texts[i];
    int64_t splits = most;
    bool ended = false;
    counts[i] = 0;
    while (next_part(&rest, delimiter, &splits, &ended, &part)) {
      counts[i]++;
    }
    widest = counts[i] > widest ? counts[i] : widest;
  }
  memcpy(shape, source.shape, sizeof shape);
  shape[source.rank] = widest;
  Bytes bytes = {0};
  irregular_write_header(&bytes, STRING, source.rank + 1, shape);
  for (int64_t i = 0; i < source.count; i++) {
    Text rest = texts[i];
    int64_t splits = most;
    bool ended = false;
    for (int64_t k = 0; k < widest; k++) {
      part = next_part(&rest, delimiter, &splits, &ended, &part) ? part : (Text){"", 0};
      irregular_write_text(&bytes, part.begin, part.length);
    }
  }
  return irregular_give(call, 0, &bytes);
}

/* ---- StringNormalizer ---- */

/* Characters in another case, by number; the compiler writes them, for they are Unicode's. */
typedef struct Case {
  uint32_t character;
  Text text;
} Case;

typedef struct Cases {
  int64_t count;
  Case rows[];
} Cases;

static int by_character(const void *left, const void *right) {
  const Case *a = left, *b = right;
  return (a->character > b->character) - (a->character < b->character);
}

static void *prepare_cases(const Node *node) {
  const JsonValue *list = graft_json_member(node->attributes, "cases");
  size_t count = graft_json_count(list) / 2;
  Cases *cases = malloc(sizeof *cases + (count + 1) * sizeof *cases->rows);
  if (!cases) {
    return NULL;
  }
  cases->count = (int64_t)count;
  for (size_t i = 0; i < count; i++) {
    const char *text = graft_json_string(graft_json_item(list, 2 * i + 1), "");
    cases->rows[i].character = (uint32_t)graft_json_integer(graft_json_item(list, 2 * i), 0);
    cases->rows[i].text = (Text){text, strlen(text)};
  }
  qsort(cases->rows, count, sizeof *cases->rows, by_character);
  return cases;
}

static void write_cased(const Cases *cases, Text text, Bytes *bytes) {
  while (text.length) {
    size_t length;
    Case wanted = {character(text, &length), {NULL, 0}};
    const Case *found = bsearch(&wanted, cases->rows, (size_t)cases->count, sizeof wanted, by_character);
    irregular_write(bytes, found ? found->text.begin : text.begin, found ? found->text.length : length);
    text = behind(text, length);
  }
}

/* Whether a text is a stop word; where case makes no difference both are compared in the case of the table. */
static bool is_stopword(Call *call, Text text, bool exact, Bytes *own, Bytes *other) {
  const JsonValue *words = irregular_list_of(call, "stopwords");
  own->size = 0;
  if (!exact) {
    write_cased(call->node->prepared, text, own);
    text = (Text){(const char *)own->data, own->size};
  }
  for (size_t i = 0; i < graft_json_count(words); i++) {
    const char *given = graft_json_string(graft_json_item(words, i), "");
    Text word = {given, strlen(given)};
    other->size = 0;
    if (!exact) {
      write_cased(call->node->prepared, word, other);
      word = (Text){(const char *)other->data, other->size};
    }
    if (equal_texts(text, word)) {
      return true;
    }
  }
  return false;
}

static int32_t string_normalizer(Call *call) {
  Array source;
  GRAFT_TRY(irregular_array(call, 0, &source));
  if (source.rank < 1 || source.rank > 2 || (source.rank == 2 && source.shape[0] != 1)) {
    return irregular_fail(call, "the input has no shape [text] or [1, text]");
  }
  Text *texts = irregular_texts(call, &source);
  if (!texts) {
    return GRAFT_ERROR_RUN;
  }
  bool exact = irregular_integer_of(call, "is_case_sensitive", 0) != 0;
  bool changes = strcmp(irregular_text_of(call, "case_change_action", "NONE"), "NONE") != 0;
  Bytes own = {0}, other = {0}, body = {0}, bytes = {0};
  int64_t shape[2] = {1, 0}, *kept = shape + source.rank - 1;
  *kept = 0;
  for (int64_t i = 0; i < source.count; i++) {
    if (is_stopword(call, texts[i], exact, &own, &other)) {
      continue;
    }
    own.size = 0;
    if (changes) {
      write_cased(call->node->prepared, texts[i], &own);
    }
    irregular_write_text(&body, changes ? (const char *)own.data : texts[i].begin, changes ? own.size : texts[i].length);
    ++*kept;
  }
  if (*kept == 0) { /* an empty text stands for nothing */
    *kept = 1;
    irregular_write_text(&body, "", 0);
  }
  irregular_write_header(&bytes, STRING, source.rank, shape);
  irregular_write(&bytes, body.data, body.size);
  bytes.failed = bytes.failed || body.failed || own.failed || other.failed;
  free(own.data);
  free(other.data);
  free(body.data);
  return irregular_give(call, 0, &bytes);
}

/* ---- LabelEncoder ---- */

/* Keys in order, each with the place of its value: texts, or numbers with NaN before all others. */
typedef struct Key {
  double number;
  Text text;
  int64_t place;
} Key;

typedef struct Keys {
  int64_t count;
  bool texts;
  Key rows[];
} Keys;

static int by_text(const void *left, const void *right) {
  const Key *a = left, *b = right;
  size_t common = a->text.length < b->text.length ? a->text.length : b->text.length;
  int order = common ? memcmp(a->text.begin, b->text.begin, common) : 0;
  return order ? order : (a->text.length > b->text.length) - (a->text.length < b->text.length);
}

static int by_number(const void *left, const void *right) {
  const Key *a = left, *b = right;
  if (isnan(a->number) || isnan(b->number)) {
    return isnan(b->number) - isnan(a->number);
  }
  return (a->number > b->number) - (a->number < b->number);
}

static int by_place(const void *left, const void *right) {
  const Key *a = left, *b = right;
  return (a->place > b->place) - (a->place < b->place);
}

static int by_text_and_place(const void *left, const void *right) {
  int order = by_text(left, right);
  return order ? order : by_place(left, right);
}

static int by_number_and_place(const void *left, const void *right) {
  int order = by_number(left, right);
  return order ? order : by_place(left, right);
}

static void *prepare_keys(const Node *node) {
  const JsonValue *list = graft_json_member(node->attributes, "keys");
  size_t count = graft_json_count(list);
  Keys *keys = malloc(sizeof *keys + (count + 1) * sizeof *keys->rows);
  if (!keys) {
    return NULL;
  }
  keys->texts = graft_json_integer(graft_json_member(node->attributes, "keys_are_texts"), 0) != 0;
  for (size_t i = 0; i < count; i++) {
    const char *text = keys->texts ? graft_json_string(graft_json_item(list, i), "") : "";
    double number = keys->texts ? 0 : irregular_item_number(list, i);
    keys->rows[i] = (Key){number, {text, strlen(text)}, (int64_t)i};
  }
  qsort(keys->rows, count, sizeof *keys->rows, keys->texts ? by_text_and_place : by_number_and_place);
  keys->count = 0;
  for (size_t i = 0; i < count; i++) { /* of equal keys the last one counts, as in a dictionary */
    bool same = keys->count && (keys->texts ? by_text : by_number)(keys->rows + keys->count - 1, keys->rows + i) == 0;
    keys->count += !same;
    keys->rows[keys->count - 1] = keys->rows[i];
  }
  return keys;
}

static int32_t label_encoder(Call *call) {
  Array source;
  const Keys *keys = call->node->prepared;
  GRAFT_TRY(irregular_array(call, 0, &source));
  const JsonValue *values = irregular_list_of(call, "values"), *standard = irregular_list_of(call, "default");
  ValueType type = irregular_output_type(call, 0);
  Text *texts = keys->texts ? irregular_texts(call, &source) : NULL;
  if (keys->texts != (source.element == STRING) || (keys->texts && !texts)) {
    return irregular_fail(call, "the input is of another type than the keys");
  }
  Bytes bytes = {0};
  void *data = NULL;
  if (type.element == STRING) {
    irregular_write_header(&bytes, STRING, source.rank, source.shape);
  } else if (!(data = irregular_output(call, 0, source.rank, source.shape))) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < source.count; i++) {
    Key wanted = {texts ? 0 : irregular_load(source.element, source.data, i), texts ? texts[i] : (Text){"", 0}, 0};
    const Key *found =
        bsearch(&wanted, keys->rows, (size_t)keys->count, sizeof wanted, texts ? by_text : by_number);
    const JsonValue *list = found ? values : standard;
    size_t place = found ? (size_t)found->place : 0;
    if (type.element == STRING) {
      const char *text = graft_json_string(graft_json_item(list, place), "");
      irregular_write_text(&bytes, text, strlen(text));
    } else if (irregular_is_integer(type.element)) {
      irregular_store_integer(type.element, data, i, graft_json_integer(graft_json_item(list, place), 0));
    } else {
      irregular_store(type.element, data, i, irregular_item_number(list, place), false);
    }
  }
  return type.element == STRING ? irregular_give(call, 0, &bytes) : GRAFT_OK;
}

const KernelRow IRREGULAR_TEXTS[] = {{"Equal", string_equal, NULL},
                                     {"StringConcat", string_concat, NULL},
                                     {"StringSplit", string_split, NULL},
                                     {"StringNormalizer", string_normalizer, prepare_cases},
                                     {"LabelEncoder", label_encoder, prepare_keys},
                                     {NULL, NULL, NULL}};
