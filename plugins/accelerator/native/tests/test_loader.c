/* Crafted modules: numbers of a small module are exchanged for others, and the checksum made anew. Each is refused with a
 * message, or runs on tensors of the sizes that it says, and touches nothing else. */
#include "accelerator.h"
#include "border.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../../../runtime/native/tests/lacking_memory.h"

enum { ROUNDS = 30000, LANES = 4, FIELDS = ACCELERATOR_CONFIGURATION_FIELDS, HEAD = 2 + FIELDS + 6, MOST_ELEMENTS = 4096 };

/* Memory that is asked for without measure is not there, as on a small machine. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=64"; }

static char said[512];

static int32_t loader_fail(const GraftLoaderHost *host, const char *format, ...) {
  va_list arguments;
  (void)host;
  va_start(arguments, format);
  vsnprintf(said, sizeof said, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_LOADER;
}

static int32_t run_fail(GraftContext *context, const char *format, ...) {
  va_list arguments;
  (void)context;
  va_start(arguments, format);
  vsnprintf(said, sizeof said, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_RUN;
}

static void seal(uint64_t *words, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 1 < count; i++) sum ^= words[i] * (2 * (uint64_t)i + 1);
  words[count - 1] = sum;
}

/* An input and an output of 6 x 2 x 3 bytes in blocks of four. Without steps, all of their elements are the first. */
static size_t module_of(uint64_t *words, bool without_steps) {
  const int64_t configuration[FIELDS] = {1, LANES, LANES, 128, 256, 512, 64, 4, 3, 8, 16, 7, 2, 2, 1};
  const int64_t border[BORDER_FIELDS] = {0, 48, 0, 36, 0, 1, 6, 2, 3, 36, 6, 3, 1, LANES, 2, 3, 1, 1, 1, 1, 0, 0, 1, 1, 7, 0};
  size_t count = 0;
  memcpy(words, "GRAFTACC", 8);
  words[1] = 2;
  memcpy(words + 2, configuration, sizeof configuration);
  const int64_t counts[] = {112, 1, 1, 1, ACCELERATOR_INSTRUCTION_BYTES, 0};
  memcpy(words + 2 + FIELDS, counts, sizeof counts);
  count = HEAD;
  words[count++] = 96;
  words[count++] = 16;
  for (int i = 0; i < 2; i++, count += BORDER_FIELDS) {
    memcpy(words + count, border, sizeof border);
    words[count] = i ? 64 : 0;
    if (without_steps) memset(words + count + 9, 0, 4 * sizeof *words);
  }
  words[count++] = OPCODE_FINISH;
  words[count++] = 0;
  return count + 1;
}

static int64_t other_number(uint64_t *state, int64_t number) {
  static const int64_t LARGE[] = {INT64_MAX, INT64_MIN, -1, INT64_C(1) << 62, INT64_C(1) << 40, INT64_C(1) << 33,
                                  INT64_C(1) << 32, INT32_MAX, 1 << 24, 1 << 20, 65536};
  uint64_t random = accelerator_random(state);
  switch (random >> 61) {
    case 0:
      return LARGE[(random >> 20) % (sizeof LARGE / sizeof *LARGE)];
    case 1:
      return (int64_t)((uint64_t)number + 1);
    case 2:
      return (int64_t)((uint64_t)number - 1);
    case 3:
      return (int64_t)((uint64_t)number * 2);
    case 4:
      return (int64_t)-(uint64_t)number;
    default:
      return (int64_t)(random >> 20 & 15);
  }
}

static DLTensor tensor_of(int64_t *elements) {
  uint8_t *data = calloc((size_t)*elements + (*elements == 0), 1);
  assert(data);
  return (DLTensor){.data = data, .ndim = 1, .dtype = {kDLInt, 8, 1}, .shape = elements};
}

/* Runs a function on one input and one output, as many bytes each as its borders say. */
static int call(GraftFunction function, void *state, const uint64_t *words, int64_t inputs, int64_t outputs) {
  static const GraftApi API = {.abi_version = GRAFT_ABI_VERSION, .size = sizeof(GraftApi), .fail = run_fail};
  GraftContext context = {&API};
  const Border *borders = (const Border *)(words + HEAD + 2);
  int64_t sizes[2] = {inputs ? borders[0].elements : 1, outputs ? borders[inputs].elements : 1};
  if (sizes[0] > MOST_ELEMENTS || sizes[1] > MOST_ELEMENTS) return 0;
  DLTensor x = tensor_of(&sizes[0]), y = tensor_of(&sizes[1]);
  const DLTensor *const given[] = {&x};
  DLTensor *const made[] = {&y};
  int code = function(&context, state, given, made);
  assert(!code || said[0]);
  free(x.data);
  free(y.data);
  return !code;
}

static int try_module(const uint64_t *words, size_t count) {
  static uint8_t bytes[16];
  int64_t size = sizeof bytes;
  DLTensor constant = {.data = bytes, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &size};
  const GraftNamedTensor constants[] = {{"dram0", &constant}};
  const GraftModuleSource source = {
      .name = "m", .kind = "accelerator", .data = words, .size = count * 8, .constants = constants, .constant_count = 1};
  const GraftLoaderHost host = {GRAFT_ABI_VERSION, loader_fail, 1, 1};
  GraftLoader loader = graft_accelerator_loader(graft_accelerator_simulator("functional"));
  void *module = NULL, *state = NULL;
  GraftFunction function = NULL;
  said[0] = 0;
  if (loader.load(loader.user, &host, &source, &module)) {
    assert(said[0]);
    return 0;
  }
  int good = 0;
  if (!loader.lookup(loader.user, &host, module, "m", &function, &state))
    good = call(function, state, words, (int64_t)words[2 + FIELDS + 2], (int64_t)words[2 + FIELDS + 3]);
  else assert(said[0]);
  loader.unload(loader.user, module);
  return good;
}

/* Each allocation of a load fails in turn; what lacks is the module's memory, or the device's, whose driver says so. */
static void lack_memory(const uint64_t *words, size_t count) {
  const GraftModuleSource source = {.name = "m", .kind = "accelerator", .data = words, .size = count * 8};
  const GraftLoaderHost host = {GRAFT_ABI_VERSION, loader_fail, 1, 1};
  GraftLoader loader = graft_accelerator_loader(graft_accelerator_simulator("functional"));
  for (int64_t failed = 0;; failed++) {
    void *module = NULL;
    allocations_left = failed;
    int32_t status = loader.load(loader.user, &host, &source, &module);
    bool lacked = allocations_left == FAILED;
    allocations_left = ENOUGH;
    if (!lacked) break;
    assert(status && strstr(said, "memory"));
    assert(status == (strstr(said, "device") ? GRAFT_ERROR_LOADER : GRAFT_ERROR_MEMORY));
  }
}

int main(void) {
  uint64_t state = 7, words[256];
  size_t count = module_of(words, false);
  seal(words, count);
  assert(try_module(words, count));
  assert(!try_module(words, count - 1));
  lack_memory(words, count);
  int good = 0;
  for (int round = 0; round < ROUNDS; round++) {
    size_t size = module_of(words, round % 2), sealed = size;
    for (uint64_t changes = accelerator_random(&state) >> 61; changes < 8; changes++) {
      size_t at = 2 + (accelerator_random(&state) >> 20) % (size - 5);
      if (changes % 2) at = HEAD + 2 + 5 + at % (2 * BORDER_FIELDS - 5); /* of the borders */
      words[at] = (uint64_t)other_number(&state, (int64_t)words[at]);
    }
    if (accelerator_random(&state) >> 60 == 0) sealed = 1 + (accelerator_random(&state) >> 20) % size;
    seal(words, sealed);
    good += try_module(words, sealed);
  }
  printf("%d of %d modules ran\n", good, ROUNDS);
  assert(good > ROUNDS / 100);
  return 0;
}
