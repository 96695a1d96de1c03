/* Every kernel of packed values on a good value, on each of its beginnings, and with each of its bytes changed: nothing
 * outside of the memory is touched, and a run ends in a result or in an error. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "../../../../runtime/native/tests/lacking_memory.h"

const GraftLoader *graft_loader(void);

enum { MOST_OUTPUTS = 4, MOST_BLOCKS = 4096 };

/* A host that keeps what it gives until the run is over. */
typedef struct Host {
  GraftContext base;
  void *blocks[MOST_BLOCKS];
  int32_t count;
  char message[512];
} Host;

static void *keep(Host *host, size_t bytes) {
  if (host->count == MOST_BLOCKS || bytes > 1u << 28) {
    return NULL;
  }
  return host->blocks[host->count++] = malloc(bytes ? bytes : 1);
}

static void *scratch(GraftContext *context, uint64_t bytes) { return keep((Host *)context, (size_t)bytes); }

static void *allocate_output(GraftContext *context, int32_t index, int32_t ndim, const int64_t *shape) {
  size_t bytes = 8;
  (void)index;
  for (int32_t i = 0; i < ndim; i++) {
    if (shape[i] < 0 || (shape[i] && bytes > ((size_t)1 << 28) / (size_t)shape[i])) {
      return NULL;
    }
    bytes *= (size_t)shape[i];
  }
  return keep((Host *)context, bytes);
}

static int32_t fail(GraftContext *context, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(((Host *)context)->message, sizeof((Host *)context)->message, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_RUN;
}

static int32_t parallel_for(GraftContext *context, int64_t count, int64_t grain, GraftTask task, void *closure) {
  (void)grain;
  return task(context, closure, 0, count);
}

static int32_t loader_fail(const GraftLoaderHost *host, const char *format, ...) {
  (void)host;
  (void)format;
  return GRAFT_ERROR_LOADER;
}

static const GraftApi API = {.abi_version = GRAFT_ABI_VERSION,
                             .size = sizeof API,
                             .parallel_for = parallel_for,
                             .scratch = scratch,
                             .allocate_output = allocate_output,
                             .fail = fail};
static const GraftLoaderHost LOADER_HOST = {GRAFT_ABI_VERSION, loader_fail, -1, -1};

/* Runs a module of one node, whose inputs are bytes. */
static int32_t run(const char *json, int32_t count, unsigned char *const *values, const size_t *sizes) {
  const GraftLoader *loader = graft_loader();
  GraftModuleSource source = {.name = "m", .kind = "irregular", .data = json, .size = strlen(json)};
  void *module = NULL, *state = NULL;
  GraftFunction entry = NULL;
  if (loader->load(NULL, &LOADER_HOST, &source, &module)) {
    return -1;
  }
  const GraftLoaderHost fewer = {GRAFT_ABI_VERSION, loader_fail, count - 1, MOST_OUTPUTS};
  if (count && !loader->lookup(NULL, &fewer, module, "r", &entry, &state)) {
    abort();
  }
  if (loader->lookup(NULL, &LOADER_HOST, module, "r", &entry, &state)) {
    abort();
  }
  int64_t shapes[8];
  DLTensor tensors[8];
  const DLTensor *inputs[8];
  DLTensor results[MOST_OUTPUTS], *outputs[MOST_OUTPUTS];
  memset(results, 0, sizeof results);
  for (int32_t i = 0; i < count; i++) {
    shapes[i] = (int64_t)sizes[i];
    tensors[i] = (DLTensor){.data = values[i], .ndim = 1, .shape = shapes + i, .dtype = {kDLUInt, 8, 1}};
    inputs[i] = tensors + i;
  }
  for (int32_t i = 0; i < MOST_OUTPUTS; i++) {
    outputs[i] = results + i;
  }
  Host *host = calloc(1, sizeof *host);
  host->base.api = &API;
  int32_t status = entry(&host->base, state, inputs, outputs);
  for (int32_t i = 0; i < host->count; i++) {
    free(host->blocks[i]);
  }
  free(host);
  loader->unload(NULL, module);
  return status;
}

static void append_texts(Bytes *bytes) {
  const int64_t shape[2] = {1, 3};
  irregular_write_header(bytes, STRING, 2, shape);
  irregular_write_text(bytes, "a b", 3);
  irregular_write_text(bytes, "", 0);
  irregular_write_text(bytes, "\xc3\x84 z", 4);
}

static void append_numbers(Bytes *bytes) {
  const int64_t shape[1] = {4};
  irregular_write_header(bytes, INT4, 1, shape);
  irregular_write(bytes, "\1\2\3\17", 4);
}

static void append_sequence(Bytes *bytes) {
  irregular_write_sequence(bytes, 2);
  append_numbers(bytes);
  append_numbers(bytes);
}

typedef struct Row {
  const char *name, *json;
  void (*append)(Bytes *bytes);
  int32_t count;
} Row;

#define NODE(OP, ATTRIBUTES, TYPES, INPUTS, COUNT, OUT)                                                              \
  "{\"name\":\"r\",\"values\":[" TYPES "],\"inputs\":" COUNT ",\"constants\":[],\"outputs\":" OUT ",\"nodes\":[{"       \
  "\"op\":\"" OP "\",\"origin\":\"n\",\"attributes\":{" ATTRIBUTES "},\"inputs\":" INPUTS ",\"outputs\":" OUT "}]}"
#define TEXT "[\"string\",1]"
#define NUMBER "[\"int4\",1]"
#define OTHER "[\"\",1]"
#define PLAIN(NAME) "[\"" NAME "\",0]"

/* One letter or more, of those whose bytes are numbered: all bytes below 'a' are in class 0. */
#define ZEROS8 "0,0,0,0,0,0,0,0,"
#define ZEROS32 ZEROS8 ZEROS8 ZEROS8 ZEROS8
#define WORDS                                                                                                        \
  "\"automata\":[{\"classes\":[" ZEROS32 ZEROS32 ZEROS32 "0,1,1],\"moves\":[-1,2,-1,2,-1,2],\"accepts\":[0,0,7],\"starts\":[0,1,1]}]"

static const Row ROWS[] = {
    {"concat", NODE("StringConcat", "", TEXT "," TEXT "," TEXT, "[0,1]", "2", "[2]"), append_texts, 2},
    {"equal", NODE("Equal", "", TEXT "," TEXT "," PLAIN("bool"), "[0,1]", "2", "[2]"), append_texts, 2},
    {"split", NODE("StringSplit", "", TEXT "," TEXT "," PLAIN("int64"), "[0]", "1", "[1,2]"), append_texts, 1},
    {"split at", NODE("StringSplit", "\"delimiter\":\" \"", TEXT "," TEXT "," PLAIN("int64"), "[0]", "1", "[1,2]"),
     append_texts, 1},
    {"normalize",
     NODE("StringNormalizer", "\"case_change_action\":\"LOWER\",\"stopwords\":[\"a b\"],\"cases\":[65,\"a\"]",
          TEXT "," TEXT, "[0]", "1", "[1]"),
     append_texts, 1},
    {"label", NODE("LabelEncoder", "\"keys\":[\"a b\"],\"values\":[7],\"default\":[1],\"keys_are_texts\":1",
                   TEXT "," PLAIN("int64"), "[0]", "1", "[1]"), append_texts, 1},
    {"vectorize",
     NODE("TfIdfVectorizer",
          "\"pool_strings\":[\"a b\",\"\"],\"ngram_counts\":[0],\"ngram_indexes\":[0,1],\"max_gram_length\":1",
          TEXT "," PLAIN("float32"), "[0]", "1", "[1]"),
     append_texts, 1},
    {"match", NODE("RegexFullMatch", WORDS, TEXT "," PLAIN("bool"), "[0]", "1", "[1]"), append_texts, 1},
    {"tokens", NODE("Tokenizer", WORDS ",\"tokenexp\":\"\",\"mark\":1,\"mincharnum\":1", TEXT "," TEXT, "[0]", "1", "[1]"),
     append_texts, 1},
    {"separated", NODE("Tokenizer", WORDS ",\"separators\":[\"\"],\"pad_value\":\"#\",\"mincharnum\":2", TEXT "," TEXT,
                       "[0]", "1", "[1]"), append_texts, 1},
    {"characters", NODE("Tokenizer", "\"automata\":[],\"mincharnum\":1", TEXT "," TEXT, "[0]", "1", "[1]"),
     append_texts, 1},
    {"a damaged table",
     NODE("Tokenizer", "\"automata\":[{\"classes\":[300,1],\"moves\":[7,-9,1],\"accepts\":[0,1],\"starts\":[1,9,-7]}],\"mincharnum\":1",
          TEXT "," TEXT, "[0]", "1", "[1]"),
     append_texts, 1},
    {"no table", NODE("Tokenizer", "\"automata\":[7,{}],\"mincharnum\":1", TEXT "," TEXT, "[0]", "1", "[1]"),
     append_texts, 1},
    {"cast", NODE("Cast", "", NUMBER "," PLAIN("float32"), "[0]", "1", "[1]"), append_numbers, 1},
    {"dequantize", NODE("DequantizeLinear", "\"axis\":0", NUMBER "," NUMBER "," PLAIN("float32"), "[0,1]", "2", "[2]"),
     append_numbers, 2},
    {"unique", NODE("Unique", "", NUMBER "," NUMBER, "[0]", "1", "[1]"), append_numbers, 1},
    {"nonzero", NODE("NonZero", "", NUMBER "," PLAIN("int64"), "[0]", "1", "[1]"), append_numbers, 1},
    {"parts", NODE("SplitToSequence", "\"axis\":0", NUMBER "," OTHER, "[0]", "1", "[1]"), append_numbers, 1},
    {"at", NODE("SequenceAt", "", OTHER "," NUMBER, "[0,-1]", "1", "[1]"), append_sequence, 1},
    {"insert", NODE("SequenceInsert", "", OTHER "," OTHER, "[0,0]", "1", "[1]"), append_sequence, 1},
    {"erase", NODE("SequenceErase", "", OTHER "," OTHER, "[0]", "1", "[1]"), append_sequence, 1},
    {"length", NODE("SequenceLength", "", OTHER "," PLAIN("int64"), "[0]", "1", "[1]"), append_sequence, 1},
    {"concat all", NODE("ConcatFromSequence", "\"axis\":0", OTHER "," NUMBER, "[0]", "1", "[1]"), append_sequence, 1},
    {"stack", NODE("ConcatFromSequence", "\"axis\":-1,\"new_axis\":1", OTHER "," NUMBER, "[0]", "1", "[1]"),
     append_sequence, 1},
    {"construct", NODE("SequenceConstruct", "", OTHER "," OTHER, "[0,0]", "1", "[1]"), append_sequence, 1},
    {"has", NODE("OptionalHasElement", "", OTHER "," PLAIN("bool"), "[0]", "1", "[1]"), append_sequence, 1},
    {"get", NODE("OptionalGetElement", "", OTHER "," OTHER, "[0]", "1", "[1]"), append_sequence, 1},
};

/* Runs with the same bytes for every input, in memory of exactly their size. */
static int32_t run_with(const Row *row, const unsigned char *data, size_t size) {
  unsigned char *values[2];
  size_t sizes[2] = {size, size};
  for (int32_t i = 0; i < row->count; i++) {
    values[i] = malloc(size ? size : 1);
    memcpy(values[i], data, size);
  }
  int32_t status = run(row->json, row->count, values, sizes);
  for (int32_t i = 0; i < row->count; i++) {
    free(values[i]);
  }
  return status;
}

/* Fails each allocation of a load in turn: every failure has the code of lacking memory. */
static bool says_that_memory_ran_out(const char *json) {
  GraftModuleSource source = {.name = "m", .kind = "irregular", .data = json, .size = strlen(json)};
  int32_t status = GRAFT_ERROR_MEMORY, failed = -1;
  for (; status == GRAFT_ERROR_MEMORY; failed++) {
    void *module = NULL;
    allocations_left = failed + 1;
    status = graft_loader()->load(NULL, &LOADER_HOST, &source, &module);
    allocations_left = ENOUGH;
    if (status == GRAFT_OK) {
      graft_loader()->unload(NULL, module);
    }
  }
  return status == GRAFT_OK && failed > 0;
}

int main(void) {
  int64_t runs = 0, failures = 0;
  for (size_t r = 0; r < sizeof ROWS / sizeof *ROWS; r++) {
    const Row *row = ROWS + r;
    if (!says_that_memory_ran_out(row->json)) {
      fprintf(stderr, "%s: a load that lacked memory said something else\n", row->name);
      return 1;
    }
    Bytes good = {0};
    row->append(&good);
    if (run_with(row, good.data, good.size) != GRAFT_OK) {
      fprintf(stderr, "%s failed on a good value\n", row->name);
      return 1;
    }
    for (size_t size = 0; size < good.size; size++, runs++) {
      if (run_with(row, good.data, size) == GRAFT_OK) {
        fprintf(stderr, "%s took the first %zu bytes of %zu\n", row->name, size, good.size);
        return 1;
      }
    }
    for (size_t at = 0; at < good.size; at++) {
      for (int bit = 0; bit < 8; bit++, runs++) {
        good.data[at] ^= (unsigned char)(1 << bit);
        failures += run_with(row, good.data, good.size) != GRAFT_OK;
        good.data[at] ^= (unsigned char)(1 << bit);
      }
    }
    free(good.data);
  }
  printf("%lld runs on damaged values, %lld refused\n", (long long)runs, (long long)failures);
  return 0;
}
