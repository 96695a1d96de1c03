/* The loader of modules of kind "loom". */
#include <stdlib.h>
#include <string.h>

#include "loom.h"

enum { HEAD = 4 };

/* CRC-32 as zlib's: a jump that is damaged and lands in the code could loop for ever. */
static uint32_t checksum(const unsigned char *bytes, size_t size) {
  uint32_t rest = ~UINT32_C(0);
  for (size_t i = 0; i < size; ++i) {
    rest ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? UINT32_C(0xEDB88320) : 0);
  }
  return ~rest;
}

/* Reads the functions behind the header; what is wrong, NULL if nothing is. */
static const char *read_functions(LoomProgram *program, int64_t size) {
  int64_t at = HEAD;
  if (program->words[3] != checksum((const unsigned char *)(program->words + at), sizeof(int64_t) * (size_t)(size - at)))
    return "its checksum is another";
  for (int64_t i = 0; i < program->count; ++i) {
    LoomFunction *function = &program->functions[i];
    if (size - at < 6) return "it ends within a function";
    const int64_t *head = program->words + at;
    for (int j = 0; j < 6; ++j)
      if (head[j] < 0 || head[j] > size) return "a number of it is out of range";
    at += 6;
    *function = (LoomFunction){NULL, 8 * head[0], head[1], head[2], head[3], head[4], head[5], NULL};
    if (head[0] > size - at || 3 * head[5] > size - at - head[0]) return "it ends within a function";
    function->name = (const char *)(program->words + at);
    function->code = (const LoomInstruction *)(program->words + at + head[0]);
    at += head[0] + 3 * head[5];
    if (function->name_size == 0 || function->name[function->name_size - 1] != 0) return "a name of it does not end";
    const char *fault = loom_fault(function);
    if (fault != NULL) return fault;
  }
  return at == size ? NULL : "it has more words than functions";
}

static void unload(void *user, void *module) {
  (void)user;
  LoomProgram *program = module;
  if (program != NULL) free(program->words);
  free(program);
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **module) {
  const int64_t size = (int64_t)(source->size / sizeof(int64_t));
  int64_t head[HEAD] = {0};
  if (size >= HEAD) memcpy(head, source->data, sizeof head);
  if (head[0] != LOOM_VERSION || head[1] != LOOM_OPCODES || head[2] < 0 || head[2] > size)
    return host->fail(host, "module '%s' is no program of loom version %d with %d instructions", source->name,
                      LOOM_VERSION, LOOM_OPCODES);
  LoomProgram *program = calloc(1, sizeof(LoomProgram) + (size_t)head[2] * sizeof(LoomFunction));
  if (program != NULL) program->words = malloc(source->size);
  if (program == NULL || program->words == NULL) {
    unload(user, program);
    return GRAFT_ERROR_MEMORY;
  }
  memcpy(program->words, source->data, source->size);
  program->count = head[2];
  const char *fault = read_functions(program, size);
  if (fault != NULL) {
    unload(user, program);
    return host->fail(host, "the program of module '%s' is damaged: %s", source->name, fault);
  }
  *module = program;
  return GRAFT_OK;
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *module, const char *name, GraftFunction *entry,
                      void **state) {
  (void)user;
  LoomProgram *program = module;
  for (int64_t i = 0; i < program->count; ++i) {
    LoomFunction *function = &program->functions[i];
    if (strcmp(function->name, name) == 0) {
      *entry = loom_run;
      *state = function;
      return GRAFT_OK;
    }
  }
  return host->fail(host, "the program has no function '%s'", name);
}

__attribute__((visibility("default"))) const GraftLoader *graft_loader(void) {
  static const GraftLoader loader = {GRAFT_ABI_VERSION, "loom", NULL, load, lookup, unload};
  return &loader;
}
