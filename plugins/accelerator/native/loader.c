/* The loader of module kind "accelerator": a program, its constants, and a device that runs it.
 *
 * The module's bytes are numbers of 64 bits, low byte first: see module.py. Loading copies the constants into the
 * device's DRAM; a call packs its inputs there, runs the program, and unpacks its outputs. Calls take turns.
 */
#include "accelerator.h"
#include "border.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graft/runtime.h"

#if defined(__GNUC__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

enum { VERSION = 2, HEAD = 2 + ACCELERATOR_CONFIGURATION_FIELDS + 6, MOST_TENSORS = 1 << 16, MOST_NAME = 64 };

static const char MAGIC[8] = "GRAFTACC";

typedef struct {
  int64_t offset, size;
} Range;

typedef struct {
  const GraftAcceleratorDriver *driver;
  void *library;
  void *device;
  uint8_t *dram;
  AcceleratorConfiguration configuration;
  int64_t dram_bytes, constants, inputs, outputs, stream_bytes;
  Range *ranges;
  Border *borders; /* inputs, then outputs */
  const uint8_t *stream;
  char *name;
  pthread_mutex_t lock;
} Module;

/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

typedef struct {
  const uint8_t *next, *end;
} Reader;

static bool take(Reader *reader, int64_t *numbers, size_t count) {
  if ((size_t)(reader->end - reader->next) / 8 < count) return false;
  for (size_t i = 0; i < count; i++, reader->next += 8) {
    uint64_t word = 0;
    for (int byte = 7; byte >= 0; byte--) word = word << 8 | reader->next[byte];
    numbers[i] = (int64_t)word;
  }
  return true;
}

/* As `checksum` in module.py: words by odd factors, so that words which change places are found too. */
static uint64_t checksum(const uint8_t *bytes, size_t size) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size / 8; i++) {
    uint64_t word = 0;
    for (int byte = 7; byte >= 0; byte--) word = word << 8 | bytes[i * 8 + (size_t)byte];
    sum ^= word * (2 * (uint64_t)i + 1);
  }
  return sum;
}

static bool inside(const Module *self, int64_t offset, int64_t size) {
  return offset >= 0 && size >= 0 && size <= self->dram_bytes && offset <= self->dram_bytes - size;
}

static const char NO_MEMORY[] = "out of memory";

static const char *read_module(Module *self, const uint8_t *bytes, size_t size) {
  static const char DAMAGED[] = "the program is damaged";
  Reader reader = {bytes, bytes + size};
  int64_t head[HEAD], sum;
  if (size < 16 || size % 8 || memcmp(bytes, MAGIC, sizeof MAGIC)) return "this is no program of an accelerator";
  if (!take(&reader, head, HEAD) || head[1] != VERSION) return "the program is of another version of Graft";
  Reader tail = {bytes + size - 8, bytes + size};
  if (!take(&tail, &sum, 1) || (uint64_t)sum != checksum(bytes, size - 8)) return DAMAGED;
  memcpy(&self->configuration, head + 2, sizeof self->configuration);
  const int64_t *counts = head + 2 + ACCELERATOR_CONFIGURATION_FIELDS;
  self->dram_bytes = counts[0], self->constants = counts[1], self->inputs = counts[2], self->outputs = counts[3];
  self->stream_bytes = counts[4];
  if (self->dram_bytes < 0 || self->dram_bytes > INT64_C(1) << 40) return DAMAGED;
  for (int i = 1; i < 4; i++)
    if (counts[i] < 0 || counts[i] > MOST_TENSORS) return DAMAGED;
  self->ranges = calloc((size_t)self->constants + 1, sizeof *self->ranges);
  self->borders = calloc((size_t)(self->inputs + self->outputs) + 1, sizeof *self->borders);
  if (!self->ranges || !self->borders) return NO_MEMORY;
  if (!take(&reader, (int64_t *)self->ranges, (size_t)self->constants * 2) ||
      !take(&reader, (int64_t *)self->borders, (size_t)(self->inputs + self->outputs) * BORDER_FIELDS))
    return DAMAGED;
  for (int64_t i = 0; i < self->inputs + self->outputs; i++) {
    const Border *border = &self->borders[i];
    if (border_bytes(border, i >= self->inputs) != border->size || !inside(self, border->offset, border->size)) return DAMAGED;
  }
  self->stream = reader.next;
  int64_t left = reader.end - 8 - reader.next, notes = counts[5];
  return self->stream_bytes >= 0 && notes >= 0 && self->stream_bytes <= left && notes == left - self->stream_bytes
             ? NULL
             : DAMAGED;
}

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

static int32_t open_library(Module *self, const GraftLoaderHost *host, const char *path) {
  self->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!self->library) return host->fail(host, "GRAFT_ACCELERATOR_DEVICE: '%s' cannot be opened: %s", path, dlerror());
  GraftAcceleratorEntry entry;
  *(void **)&entry = dlsym(self->library, "graft_accelerator_driver");
  if (!entry)
    return host->fail(host, "GRAFT_ACCELERATOR_DEVICE: '%s' exports no 'graft_accelerator_driver'", path);
  self->driver = entry();
  if (!self->driver) return host->fail(host, "GRAFT_ACCELERATOR_DEVICE: '%s' gives no driver", path);
  return GRAFT_OK;
}

/* Nothing but the version is read of a table of another version. */
static int32_t check_driver(const Module *self, const GraftLoaderHost *host) {
  const GraftAcceleratorDriver *driver = self->driver;
  if (driver->version != GRAFT_ACCELERATOR_DRIVER_VERSION)
    return host->fail(host, "'%s': the device's driver has version %u, and version %d is needed; build it anew",
                      self->name, driver->version, GRAFT_ACCELERATOR_DRIVER_VERSION);
  if (!driver->name || !driver->open || !driver->run || !driver->close)
    return host->fail(host, "'%s': the device's driver lacks its name, 'open', 'run' or 'close'", self->name);
  return GRAFT_OK;
}

static int32_t choose_driver(Module *self, const GraftLoaderHost *host, const GraftAcceleratorDriver *given) {
  const char *wanted = getenv("GRAFT_ACCELERATOR_DEVICE");
  self->driver = given ? given : graft_accelerator_simulator(wanted && *wanted ? wanted : "functional");
  if (self->driver) return GRAFT_OK;
  if (strchr(wanted, '/')) return open_library(self, host, wanted);
  return host->fail(host,
                    "GRAFT_ACCELERATOR_DEVICE is '%s'; 'functional', 'cycles' or the path of a driver is expected",
                    wanted);
}

static int32_t check_configuration(const Module *self, const GraftLoaderHost *host) {
  static const char *const NAMES[] = {"batch",        "block_in",          "block_out",
                                      "input_bytes",  "weight_bytes",      "accumulator_bytes",
                                      "micro_op_bytes", "queue_depth",     "token_depth"};
  const int64_t *ours = (const int64_t *)&self->configuration;
  const int64_t *theirs = (const int64_t *)self->driver->configuration;
  for (int i = 0; theirs && i < ACCELERATOR_MEANING_FIELDS; i++)
    if (ours[i] != theirs[i])
      return host->fail(host, "'%s': the program is for another configuration: '%s' is %lld, and device '%s' has %lld",
                        self->name, NAMES[i], (long long)ours[i], self->driver->name, (long long)theirs[i]);
  return GRAFT_OK;
}

/* What a driver says of a failure, or that it says nothing. */
static const char *said(GraftAcceleratorMessage *message) {
  message->text[sizeof message->text - 1] = 0;
  return message->text[0] ? message->text : "it failed without a message";
}

static int32_t open_device(Module *self, const GraftLoaderHost *host) {
  GraftAcceleratorMessage message = {{0}};
  if (self->driver->open(self->driver->user, &self->configuration, self->stream, (size_t)self->stream_bytes,
                         (size_t)self->dram_bytes, &self->device, &self->dram, &message)) {
    self->device = NULL;
    return host->fail(host, "'%s': device '%s': %s", self->name, self->driver->name, said(&message));
  }
  if (!self->dram && self->dram_bytes)
    return host->fail(host, "'%s': device '%s' gives no memory", self->name, self->driver->name);
  return GRAFT_OK;
}

static int32_t copy_constants(Module *self, const GraftLoaderHost *host, const GraftModuleSource *source) {
  for (int64_t i = 0; i < self->constants; i++) {
    char name[MOST_NAME];
    snprintf(name, sizeof name, "dram%lld", (long long)i);
    const DLTensor *found = NULL;
    for (size_t j = 0; j < source->constant_count; j++)
      if (!strcmp(source->constants[j].name, name)) found = source->constants[j].tensor;
    if (!found || found->ndim != 1 || found->dtype.bits != 8 || found->shape[0] != self->ranges[i].size ||
        !inside(self, self->ranges[i].offset, self->ranges[i].size))
      return host->fail(host, "'%s': constant '%s' is missing, or has another size", self->name, name);
    memcpy(self->dram + self->ranges[i].offset, (const uint8_t *)found->data + found->byte_offset,
           (size_t)self->ranges[i].size);
  }
  return GRAFT_OK;
}

/* ---- Loader ------------------------------------------------------------------------------------------------------ */

static bool fits(const DLTensor *tensor, const Border *border) {
  int64_t count = 1;
  for (int32_t i = 0; tensor && i < tensor->ndim; i++) count *= tensor->shape[i];
  return tensor && count == border->elements && tensor->dtype.bits == 8 && tensor->dtype.lanes == 1;
}

static int32_t run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  Module *self = state;
  for (int64_t i = 0; i < self->inputs + self->outputs; i++) {
    const Border *border = &self->borders[i];
    if (!fits(i < self->inputs ? inputs[border->argument] : outputs[border->argument], border))
      return context->api->fail(context, "'%s': %s %lld is no tensor of %lld bytes", self->name,
                                i < self->inputs ? "input" : "output", (long long)border->argument,
                                (long long)border->elements);
  }
  GraftAcceleratorMessage message = {{0}};
  pthread_mutex_lock(&self->lock);
  for (int64_t i = 0; i < self->inputs; i++) {
    const Border *border = &self->borders[i];
    const DLTensor *x = inputs[border->argument];
    border_pack(border, (const uint8_t *)x->data + x->byte_offset, self->dram + border->offset);
  }
  int32_t code = self->driver->run(self->device, &message);
  for (int64_t i = self->inputs; !code && i < self->inputs + self->outputs; i++) {
    const Border *border = &self->borders[i];
    DLTensor *y = outputs[border->argument];
    border_unpack(border, self->dram + border->offset, (uint8_t *)y->data + y->byte_offset);
  }
  pthread_mutex_unlock(&self->lock);
  if (!code) return GRAFT_OK;
  return context->api->fail(context, "'%s': device '%s': %s", self->name, self->driver->name, said(&message));
}

static void unload(void *user, void *module) {
  (void)user;
  Module *self = module;
  if (self->device) self->driver->close(self->device);
  if (self->library) dlclose(self->library);
  pthread_mutex_destroy(&self->lock);
  free(self->ranges);
  free(self->borders);
  free(self->name);
  free(self);
}

static Module *new_module(const char *name) {
  Module *self = calloc(1, sizeof *self);
  size_t size = strlen(name) + 1;
  if (!self || pthread_mutex_init(&self->lock, NULL)) {
    free(self);
    return NULL;
  }
  self->name = malloc(size);
  if (!self->name) {
    unload(NULL, self);
    return NULL;
  }
  memcpy(self->name, name, size);
  return self;
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **module) {
  Module *self = new_module(source->name);
  if (!self) return graft_fail_memory(host, source->name);
  const char *what = read_module(self, source->data, source->size);
  int32_t code = what == NO_MEMORY ? graft_fail_memory(host, source->name)
                 : what            ? host->fail(host, "'%s': %s; compile the model again", source->name, what)
                                   : GRAFT_OK;
  if (code == GRAFT_OK) code = choose_driver(self, host, user);
  if (code == GRAFT_OK) code = check_driver(self, host);
  if (code == GRAFT_OK) code = check_configuration(self, host);
  if (code == GRAFT_OK) code = open_device(self, host);
  if (code == GRAFT_OK) code = copy_constants(self, host, source);
  if (code != GRAFT_OK) {
    unload(user, self);
    return code;
  }
  *module = self;
  return GRAFT_OK;
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *module, const char *function, GraftFunction *entry,
                      void **state) {
  (void)user;
  Module *self = module;
  if (strcmp(function, self->name)) return host->fail(host, "'%s' has no function '%s'", self->name, function);
  for (int64_t i = 0; i < self->inputs + self->outputs; i++) {
    bool is_input = i < self->inputs;
    int32_t count = is_input ? host->input_count : host->output_count;
    int64_t argument = self->borders[i].argument;
    if (argument < 0 || (count >= 0 && argument >= count))
      return host->fail(host, "'%s' takes %s %lld, and its call has %d; compile the model again", self->name,
                        is_input ? "input" : "output", (long long)argument, (int)count);
  }
  *entry = run;
  *state = self;
  return GRAFT_OK;
}

EXPORT const GraftLoader *graft_loader(void);

EXPORT GraftLoader graft_accelerator_loader(const GraftAcceleratorDriver *driver) {
  return (GraftLoader){GRAFT_ABI_VERSION, "accelerator", (void *)(uintptr_t)driver, load, lookup, unload};
}

const GraftLoader *graft_loader(void) {
  static const GraftLoader LOADER = {GRAFT_ABI_VERSION, "accelerator", NULL, load, lookup, unload};
  return &LOADER;
}
