/* Regular expressions over strings: RegexFullMatch, and the Tokenizer of `com.microsoft`.
 *
 * The compiler writes an expression as the table of an automaton over bytes (automata.py). Of the matches that begin
 * where the first one does, the longest is taken, as ONNX Runtime has it. From every character on a match is looked
 * for anew, which takes quadratic time for expressions of which long beginnings match in vain.
 */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { DEAD = -1, ACCEPTS_BEFORE_WORD = 1, ACCEPTS_BEFORE_OTHER = 2, ACCEPTS_AT_END = 4 };
static const size_t NOWHERE = SIZE_MAX;

typedef struct Automaton {
  int32_t states, width;
  int32_t starts[3]; /* at the beginning, behind a byte that is no letter of a word, behind one that is */
  uint8_t classes[256];
  int32_t *moves;
  uint8_t *accepts;
} Automaton;

/* The automata of a node, then their tables, in one block. */
typedef struct Automata {
  size_t count;
  Automaton rows[];
} Automata;

static void read_automaton(const JsonValue *from, Automaton *to) {
  const JsonValue *classes = graft_json_member(from, "classes"), *moves = graft_json_member(from, "moves");
  const JsonValue *accepts = graft_json_member(from, "accepts");
  const JsonValue *starts = graft_json_member(from, "starts");
  for (size_t i = 0; i < 3; i++) {
    to->starts[i] = (int32_t)graft_json_integer(graft_json_item(starts, i), DEAD);
  }
  to->width = 0;
  for (size_t i = 0; i < 256; i++) {
    to->classes[i] = (uint8_t)graft_json_integer(graft_json_item(classes, i), 0);
    to->width = to->classes[i] >= to->width ? to->classes[i] + 1 : to->width;
  }
  to->states = (int32_t)graft_json_count(accepts);
  size_t cells = (size_t)to->states * (size_t)to->width;
  for (size_t i = 0; i < cells; i++) {
    int64_t next = graft_json_integer(graft_json_item(moves, i), DEAD);
    to->moves[i] = next >= 0 && next < to->states ? (int32_t)next : DEAD;
  }
  for (int32_t i = 0; i < to->states; i++) {
    to->accepts[i] = (uint8_t)graft_json_integer(graft_json_item(accepts, (size_t)i), 0);
  }
}

static void *prepare_automata(const Node *node) {
  const JsonValue *list = graft_json_member(node->attributes, "automata");
  size_t count = graft_json_count(list), room = sizeof(Automata) + count * sizeof(Automaton);
  for (size_t i = 0; i < count; i++) {
    room += graft_json_count(graft_json_member(graft_json_item(list, i), "accepts")) * (256 * sizeof(int32_t) + 1);
  }
  Automata *automata = malloc(room);
  if (!automata) {
    return NULL;
  }
  automata->count = count;
  int32_t *moves = (int32_t *)(void *)(automata->rows + count);
  for (size_t i = 0; i < count; i++) {
    automata->rows[i].moves = moves;
    moves += 256 * graft_json_count(graft_json_member(graft_json_item(list, i), "accepts"));
  }
  uint8_t *accepts = (uint8_t *)moves;
  for (size_t i = 0; i < count; i++) {
    automata->rows[i].accepts = accepts;
    read_automaton(graft_json_item(list, i), automata->rows + i);
    accepts += automata->rows[i].states;
  }
  return automata;
}

static bool is_word(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte == '_';
}

/* Where the longest match that begins at a place ends, or NOWHERE. */
static size_t longest_match(const Automaton *automaton, Text text, size_t begin) {
  int32_t state = automaton->starts[begin == 0 ? 0 : is_word(text.begin[begin - 1]) ? 2 : 1];
  size_t found = NOWHERE;
  for (size_t at = begin; state >= 0 && state < automaton->states; at++) {
    int behind = at == text.length ? ACCEPTS_AT_END : is_word(text.begin[at]) ? ACCEPTS_BEFORE_WORD : ACCEPTS_BEFORE_OTHER;
    if (automaton->accepts[state] & behind) {
      found = at;
    }
    if (at == text.length) {
      break;
    }
    size_t row = (size_t)state * (size_t)automaton->width;
    state = automaton->moves[row + automaton->classes[(unsigned char)text.begin[at]]];
  }
  return found;
}

static bool is_within_character(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

/* The place behind the character at a place. */
static size_t next_character(Text text, size_t at) {
  do {
    at++;
  } while (at < text.length && is_within_character(text.begin[at]));
  return at;
}

static size_t count_characters(Text text) {
  size_t count = 0;
  for (size_t i = 0; i < text.length; i++) {
    count += !is_within_character(text.begin[i]);
  }
  return count;
}

/* Gives the first match from a place on. */
static bool find_match(const Automaton *automaton, Text text, size_t from, size_t *begin, size_t *end) {
  for (*begin = from; *begin <= text.length; *begin = next_character(text, *begin)) {
    *end = longest_match(automaton, text, *begin);
    if (*end != NOWHERE) {
      return true;
    }
  }
  return false;
}

static int32_t regex_full_match(Call *call) {
  const Automata *automata = call->node->prepared;
  Array source;
  GRAFT_TRY(irregular_array(call, 0, &source));
  Text *texts = irregular_texts(call, &source);
  unsigned char *matches = texts ? irregular_output(call, 0, source.rank, source.shape) : NULL;
  if (!matches || !automata->count) {
    return matches ? irregular_fail(call, "there is no expression") : GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < source.count; i++) {
    matches[i] = longest_match(automata->rows, texts[i], 0) == texts[i].length;
  }
  return GRAFT_OK;
}

/* ---- Tokenizer ---- */

static Text part_of(Text text, size_t begin, size_t end) {
  Text part = {text.begin + begin, end - begin};
  return part;
}

/* Adds a token, one text behind the other, unless it has too few characters. */
static bool add_token(Bytes *tokens, Text token, size_t least) {
  bool is_one = count_characters(token) >= least;
  if (is_one) {
    irregular_write(tokens, &token, sizeof token);
  }
  return is_one;
}

static void add_characters(Bytes *tokens, Text text) {
  for (size_t at = 0, next; at < text.length; at = next) {
    next = next_character(text, at);
    add_token(tokens, part_of(text, at, next), 1);
  }
}

/* Adds what matches; where that is too short, a match is looked for from the next character on. */
static void add_matches(Bytes *tokens, const Automaton *token, Text text, size_t least) {
  size_t from = 0, begin, end;
  while (find_match(token, text, from, &begin, &end)) {
    bool is_one = add_token(tokens, part_of(text, begin, end), least);
    from = is_one && end > begin ? end : next_character(text, begin);
  }
}

/* Adds what lies between matches; one of no character takes the character behind it for the separator. */
static void add_parts(Bytes *tokens, const Automaton *separator, Text text, size_t least) {
  size_t from = 0, begin, end;
  while (from <= text.length && find_match(separator, text, from, &begin, &end)) {
    add_token(tokens, part_of(text, from, begin), least);
    from = end > begin ? end : next_character(text, begin);
  }
  if (from <= text.length) {
    add_token(tokens, part_of(text, from, text.length), least);
  }
}

/* Adds the parts that a text falls into at all separators, one after the other. */
static void add_separated(Bytes *tokens, const Automata *separators, Text text, size_t least) {
  Bytes parts = {0}, finer = {0};
  irregular_write(&parts, &text, sizeof text);
  for (size_t i = 0; i < separators->count && !parts.failed; i++) {
    finer.size = 0;
    for (size_t k = 0; k < parts.size / sizeof text; k++) {
      add_parts(&finer, separators->rows + i, ((const Text *)(const void *)parts.data)[k], least);
    }
    Bytes coarser = parts;
    parts = finer;
    finer = coarser;
  }
  irregular_write(tokens, parts.data, parts.size);
  tokens->failed = tokens->failed || parts.failed || finer.failed;
  free(parts.data);
  free(finer.data);
}

static void add_tokens(Call *call, Bytes *tokens, Text text, size_t least) {
  const Automata *automata = call->node->prepared;
  if (!automata->count) {
    add_characters(tokens, text);
  } else if (irregular_list_of(call, "separators")) {
    add_separated(tokens, automata, text, least);
  } else {
    add_matches(tokens, automata->rows, text, least);
  }
}

/* Writes the tokens of every text, marked where that is asked for, and padded to the most that one has. */
static void write_tokens(Call *call, Bytes *bytes, const Array *source, const Text *tokens, const int64_t *counts) {
  const char *pad = irregular_text_of(call, "pad_value", "");
  bool marks = irregular_integer_of(call, "mark", 0) != 0;
  int64_t widest = 0, shape[MOST_RANK];
  for (int64_t i = 0; i < source->count; i++) {
    widest = counts[i] > widest ? counts[i] : widest;
  }
  memcpy(shape, source->shape, sizeof shape);
  shape[source->rank] = widest && marks ? widest + 2 : widest;
  irregular_write_header(bytes, STRING, source->rank + 1, shape);
  for (int64_t i = 0; widest && i < source->count; i++) {
    if (marks) {
      irregular_write_text(bytes, "\x02", 1);
    }
    for (int64_t k = 0; k < counts[i]; k++, tokens++) {
      irregular_write_text(bytes, tokens->begin, tokens->length);
    }
    if (marks) {
      irregular_write_text(bytes, "\x03", 1);
    }
    for (int64_t k = counts[i]; k < widest; k++) {
      irregular_write_text(bytes, pad, strlen(pad));
    }
  }
}

static int32_t tokenizer(Call *call) {
  Array source;
  GRAFT_TRY(irregular_array(call, 0, &source));
  if (source.rank >= MOST_RANK) {
    return irregular_fail(call, "the input has too many axes");
  }
  Text *texts = irregular_texts(call, &source);
  int64_t *counts = texts ? irregular_scratch(call, (uint64_t)(source.count + 1) * sizeof *counts) : NULL;
  if (!counts) {
    return texts ? irregular_no_memory(call) : GRAFT_ERROR_RUN;
  }
  int64_t least = irregular_integer_of(call, "mincharnum", 1);
  Bytes tokens = {0}, bytes = {0};
  for (int64_t i = 0; i < source.count; i++) {
    size_t before = tokens.size;
    add_tokens(call, &tokens, texts[i], least > 0 ? (size_t)least : 1);
    counts[i] = (int64_t)((tokens.size - before) / sizeof(Text));
  }
  if (!tokens.failed) {
    write_tokens(call, &bytes, &source, (const Text *)(const void *)tokens.data, counts);
  }
  bytes.failed = bytes.failed || tokens.failed;
  free(tokens.data);
  return irregular_give(call, 0, &bytes);
}

const KernelRow IRREGULAR_TOKENS[] = {{"RegexFullMatch", regex_full_match, prepare_automata},
                                      {"Tokenizer", tokenizer, prepare_automata},
                                      {NULL, NULL, NULL}};
