/* The loader of module kind "cuda". Loading takes the image for the device, a cubin or else PTX that the driver compiles,
 * and finds the kernels; a call evaluates what depends on shapes and puts its launches on the stream of the run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "loading.h"
#include "module.h"

#define EXPORT __attribute__((visibility("default")))

enum { FREE_SHARED = 48 << 10, MOST_GRID = 65535, LOG_BYTES = 2048 };

/* ---- Images ------------------------------------------------------------------------------------------------------ */

/* How well an image suits a device: 0 not at all. Cubins are for devices of one major version, from theirs on; PTX is for
 * all from its own on. */
static int suits(const CudaImage *image, int arch) {
  int is_cubin = strcmp(image->form, "cubin") == 0;
  if ((!is_cubin && strcmp(image->form, "ptx") != 0) || image->number > arch) return 0;
  if (image->is_exact && image->number != arch) return 0;
  if (is_cubin && image->number / 10 != arch / 10) return 0;
  return 1 + 2 * image->number + (image->is_exact ? 1 : 0) + (is_cubin ? 100000 : 0);
}

static int32_t fail_arch(const CudaModule *module, const GraftLoaderHost *host) {
  const CudaDevice *device = module->device;
  char text[256] = "";
  for (int32_t i = 0; i < module->image_count; i++) {
    graft_append(text, sizeof text, "%s%s (%s)", i ? ", " : "", module->images[i].arch, module->images[i].form);
  }
  char advice[64] = "Graft compiles for sm_80 and later";
  if (device->arch >= 80) {
    snprintf(advice, sizeof advice, "compile the model with --target sm_%d", device->arch >= 90 ? 90 : 80);
  }
  return host->fail(host, "it has code for %s, and device %d, '%s', is sm_%d; %s", *text ? text : "nothing",
                    device->number, device->name, device->arch, advice);
}

static int32_t load_image(CudaModule *module, const GraftLoaderHost *host, const char *name, const CudaImage *image,
                          CudaResult *result) {
  const CudaDevice *device = module->device;
  char *text = malloc(image->size + 1), log[LOG_BYTES] = "", said[512]; /* PTX ends with a zero */
  int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_SIZE};
  void *values[] = {log, (void *)(uintptr_t)sizeof log};
  if (!text) return graft_fail_memory(host, name);
  memcpy(text, image->data, image->size);
  text[image->size] = 0;
  *result = device->driver->load_module(&module->handle, text, 2, options, values);
  free(text);
  if (!*result) return GRAFT_OK;
  module->handle = NULL;
  graft_cuda_describe(device->driver, *result, "cuModuleLoadDataEx", said, sizeof said);
  log[sizeof log - 1] = 0;
  return host->fail(host, "its code for %s (%s) is refused by device %d, '%s' (sm_%d): %s%s%.256s", image->arch,
                    image->form, device->number, device->name, device->arch, said, *log ? ": " : "", log);
}

/* The best image; where the driver has no use for a cubin after all, PTX. */
static int32_t choose_image(CudaModule *module, const GraftLoaderHost *host, const char *name) {
  const CudaDevice *device = module->device;
  int most = INT32_MAX;
  for (;;) {
    const CudaImage *best = NULL;
    int score = 0;
    for (int32_t i = 0; i < module->image_count; i++) {
      int own = suits(module->images + i, device->arch);
      if (own < most && own > score) {
        best = module->images + i;
        score = own;
      }
    }
    CudaResult result = CUDA_NO_BINARY;
    int32_t status = best ? load_image(module, host, name, best, &result) : fail_arch(module, host);
    if (!status || !best || result != CUDA_NO_BINARY) return status;
    most = score;
  }
}

/* ---- Kernels and constants --------------------------------------------------------------------------------------- */

static int32_t find_kernel(CudaModule *module, const GraftLoaderHost *host, CudaLaunch *launch) {
  const CudaDevice *device = module->device;
  uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  uint32_t blocks = launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
  char said[512];
  if ((int64_t)launch->shared > device->most_shared || threads > (uint64_t)device->most_threads) {
    return host->fail(host, "kernel '%s' (node '%s') needs %u bytes of shared memory and %llu threads for a block, and device %d, '%s', "
                      "has at most %d bytes and %d threads", launch->kernel, launch->node, launch->shared,
                      (unsigned long long)threads, device->number, device->name, device->most_shared, device->most_threads);
  }
  if (blocks > 1 && !device->driver->launch_clusters) {
    return host->fail(host, "kernel '%s' (node '%s') runs in clusters of blocks, which the NVIDIA driver has no function for; update it",
                      launch->kernel, launch->node);
  }
  CudaResult result = device->driver->function(&launch->function, module->handle, launch->kernel);
  if (!result && launch->shared > FREE_SHARED) {
    result = device->driver->set_attribute(launch->function, CUDA_FUNCTION_DYNAMIC_SHARED, (int)launch->shared);
  }
  if (result) {
    graft_cuda_describe(device->driver, result, "cuModuleGetFunction", said, sizeof said);
    return host->fail(host, "kernel '%s' (node '%s'): %s", launch->kernel, launch->node, said);
  }
  return GRAFT_OK;
}

static int32_t find_constant(const CudaModule *module, const GraftLoaderHost *host, CudaArgument *argument) {
  for (int32_t i = 0; i < module->constant_count; i++) {
    if (strcmp(module->constant_names[i], argument->name) == 0) {
      argument->number = i;
      return GRAFT_OK;
    }
  }
  return host->fail(host, "it has no constant '%s'", argument->name);
}

static size_t bytes_of(const DLTensor *tensor) {
  size_t bytes = tensor->dtype.bits / 8u;
  for (int32_t i = 0; i < tensor->ndim; i++) bytes *= (size_t)tensor->shape[i];
  return bytes;
}

static int32_t upload(CudaModule *module, const GraftLoaderHost *host, const GraftModuleSource *source) {
  const CudaDevice *device = module->device;
  module->constant_names = graft_store_allocate(&module->store, source->constant_count, sizeof(char *));
  module->constants = graft_store_allocate(&module->store, source->constant_count, sizeof(CudaAddress));
  if (!module->constant_names || !module->constants) return graft_fail_memory(host, source->name);
  CudaResult result = CUDA_OK;
  for (size_t i = 0; !result && i < source->constant_count; i++) {
    const DLTensor *tensor = source->constants[i].tensor;
    size_t bytes = bytes_of(tensor);
    module->constant_names[i] = source->constants[i].name;
    result = device->driver->allocate(module->constants + i, bytes ? bytes : 1);
    module->constant_count += !result;
    if (!result && bytes) result = device->driver->to_device(module->constants[i], tensor->data, bytes, NULL);
  }
  result = result || !source->constant_count ? result : device->driver->synchronize(NULL);
  if (result) {
    char said[512];
    graft_cuda_describe(device->driver, result, "its constants cannot be put on the device", said, sizeof said);
    return host->fail(host, "%s", said);
  }
  return GRAFT_OK;
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* "kernel 'k' (node 'n', grid [1,2,3], block [128,1,1], 1024 bytes of shared memory)" */
static void describe_launch(const CudaLaunch *launch, const int64_t *grid, char *text, size_t size) {
  snprintf(text, size, "kernel '%.64s' (node '%.64s', grid [%lld,%lld,%lld], block [%u,%u,%u], %u bytes of shared memory)",
           launch->kernel, launch->node, (long long)grid[0], (long long)grid[1], (long long)grid[2], launch->block[0],
           launch->block[1], launch->block[2], launch->shared);
}

static CudaResult start_kernel(const CudaDevice *device, const CudaLaunch *launch, const int64_t *grid, void *stream,
                               void **parameters) {
  uint32_t x = (uint32_t)grid[0], y = (uint32_t)grid[1], z = (uint32_t)grid[2];
  if (launch->cluster[0] * launch->cluster[1] * launch->cluster[2] == 1) {
    return device->driver->launch(launch->function, x, y, z, launch->block[0], launch->block[1], launch->block[2],
                                  launch->shared, stream, parameters, NULL);
  }
  CudaLaunchAttribute attribute = {.id = CUDA_ATTRIBUTE_CLUSTER};
  memcpy(attribute.value.cluster, launch->cluster, sizeof launch->cluster);
  CudaLaunchConfig config = {.grid = {x, y, z}, .shared = launch->shared, .stream = stream, .attributes = &attribute,
                             .attribute_count = 1};
  memcpy(config.block, launch->block, sizeof launch->block);
  return device->driver->launch_clusters(&config, launch->function, parameters, NULL);
}

/* What a running call has: its tensors, and what was computed for it. */
typedef struct Frame {
  const DLTensor *const *inputs;
  DLTensor *const *outputs;
  int64_t *values;
  char *workspace;
  void *stream;
  uint64_t offsets[CUDA_MOST_WORKSPACES];
} Frame;

static int fill(const CudaModule *module, const CudaLaunch *launch, const Frame *frame, const CudaArgument *argument,
                uint64_t *value) {
  const DLTensor *tensor = NULL;
  int64_t extent = 0;
  switch (argument->kind) {
    case ARGUMENT_INPUT:
      tensor = frame->inputs[argument->number];
      break;
    case ARGUMENT_OUTPUT:
      tensor = frame->outputs[argument->number];
      break;
    case ARGUMENT_WORKSPACE:
      *value = (uint64_t)(uintptr_t)(frame->workspace + frame->offsets[argument->number]);
      return 1;
    case ARGUMENT_CONSTANT:
      *value = module->constants[argument->number];
      return 1;
    case ARGUMENT_REPORT: {
      const CudaReport report = {.module = module, .launch = launch, .kernel = launch->kernel, .node = launch->node};
      int64_t *words;
      if (graft_cuda_report(module->device, frame->stream, &report, &words)) return 0;
      *value = (uint64_t)(uintptr_t)words;
      return 1;
    }
    case ARGUMENT_EXTENT: {
      int known = graft_cuda_value(&argument->extent, frame->inputs, frame->outputs, frame->values, &extent);
      int32_t narrow = (int32_t)extent;
      memcpy(value, &narrow, sizeof narrow);
      return known && extent >= INT32_MIN && extent <= INT32_MAX;
    }
  }
  *value = tensor ? (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset : 0;
  return 1;
}

static int32_t run_launch(GraftContext *context, const CudaModule *module, const CudaLaunch *launch, const Frame *frame) {
  CudaDevice *device = module->device;
  uint64_t values[CUDA_MOST_ARGUMENTS];
  void *parameters[CUDA_MOST_ARGUMENTS];
  int64_t grid[3];
  char text[CUDA_LAST_LAUNCH + 160];
  for (int i = 0; i < 3; i++) {
    if (!graft_cuda_value(launch->grid + i, frame->inputs, frame->outputs, frame->values, grid + i)) grid[i] = -1;
  }
  if (!grid[0] || !grid[1] || !grid[2]) return GRAFT_OK;
  describe_launch(launch, grid, text, sizeof text);
  if (grid[0] < 0 || grid[0] > INT32_MAX || grid[1] < 0 || grid[1] > MOST_GRID || grid[2] < 0 || grid[2] > MOST_GRID) {
    return context->api->fail(context, "%s: a grid has at most [%d,%d,%d] blocks", text, INT32_MAX, MOST_GRID, MOST_GRID);
  }
  for (int32_t i = 0; i < launch->argument_count; i++) {
    values[i] = 0;
    parameters[i] = values + i;
    const CudaArgument *argument = launch->arguments + i;
    if (!fill(module, launch, frame, argument, values + i)) {
      return context->api->fail(context, "%s: parameter %d is %s", text, (int)i, argument->kind == ARGUMENT_REPORT
                                ? "memory that both sides see, of which there is none" : "an extent beyond 32 bits");
    }
  }
  CudaResult result = start_kernel(device, launch, grid, frame->stream, parameters);
  if (result) {
    GraftError error;
    int32_t status = graft_cuda_fail(device, result, "cuLaunchKernel", &error);
    context->api->fail(context, "%s: %s", text, error.message);
    return status;
  }
  graft_cuda_note_launch(device, text);
  return GRAFT_OK;
}

/* One block of memory for all workspaces of a call. */
static int32_t place_workspaces(GraftContext *context, const CudaFunction *function, Frame *frame, DLDevice device) {
  uint64_t total = 0;
  for (int32_t i = 0; i < function->workspace_count; i++) {
    int64_t bytes;
    if (!graft_cuda_value(function->workspaces + i, frame->inputs, frame->outputs, frame->values, &bytes) || bytes < 0) {
      return context->api->fail(context, "the size of workspace %d cannot be told", (int)i);
    }
    frame->offsets[i] = total;
    total += ((uint64_t)bytes + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
  }
  frame->workspace = total ? context->api->device_scratch(context, device, total) : NULL;
  return total && !frame->workspace ? GRAFT_ERROR_MEMORY : GRAFT_OK;
}

static int32_t run(GraftContext *context, void *state, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const CudaFunction *function = state;
  CudaDevice *device = function->module->device;
  DLDevice place = {kDLCUDA, device->number};
  Frame frame = {.inputs = inputs, .outputs = outputs, .stream = context->api->stream(context, place)};
  if (!frame.stream || graft_cuda_enter(device)) {
    return context->api->fail(context, "there is no stream on device %d", device->number);
  }
  frame.values = context->api->scratch(context, (uint64_t)function->operation_count * sizeof(int64_t) + 8);
  if (!frame.values) return GRAFT_ERROR_MEMORY;
  if (!graft_cuda_evaluate(function, inputs, outputs, frame.values)) {
    return context->api->fail(context, "an extent has no value for these shapes");
  }
  int32_t status = function->workspace_count ? place_workspaces(context, function, &frame, place) : GRAFT_OK;
  for (int32_t i = 0; !status && i < function->launch_count; i++) {
    status = run_launch(context, function->module, function->launches + i, &frame);
  }
  return status;
}

/* ---- The loader -------------------------------------------------------------------------------------------------- */

static void unload(void *user, void *loaded) {
  (void)user;
  CudaModule *module = loaded;
  CudaDevice *device = module->device;
  if (device && !graft_cuda_enter(device)) {
    graft_cuda_forget(device, NULL, module);
    for (int32_t i = 0; i < module->constant_count; i++) device->driver->free(module->constants[i]);
    if (module->handle) device->driver->unload_module(module->handle);
  }
  if (device) graft_cuda_close(device);
  graft_json_free(module->document);
  graft_store_destroy(&module->store);
  free(module);
}

static int32_t find_kernels(CudaModule *module, const GraftLoaderHost *host) {
  int32_t status = GRAFT_OK;
  for (int32_t i = 0; i < module->function_count; i++) {
    CudaFunction *function = module->functions + i;
    for (int32_t k = 0; !status && k < function->launch_count; k++) {
      CudaLaunch *launch = function->launches + k;
      status = find_kernel(module, host, launch);
      for (int32_t a = 0; !status && a < launch->argument_count; a++) {
        if (launch->arguments[a].kind == ARGUMENT_CONSTANT) {
          status = find_constant(module, host, launch->arguments + a);
        }
      }
    }
  }
  return status;
}

static int32_t prepare(void *made, const GraftLoaderHost *host, const GraftModuleSource *source) {
  CudaModule *module = made;
  const char *fault = graft_cuda_read(module, source->data, source->size);
  if (fault) return graft_json_lacked_memory(fault) ? graft_fail_memory(host, source->name) : host->fail(host, "%s", fault);
  CudaDevice *device = NULL;
  int32_t status = graft_cuda_open_for(host, &device);
  if (status) return status;
  module->device = device;
  CudaResult result = graft_cuda_enter(device);
  if (result) {
    GraftError error;
    graft_cuda_fail(device, result, "cuCtxSetCurrent", &error);
    return host->fail(host, "%s", error.message);
  }
  status = choose_image(module, host, source->name);
  status = status ? status : upload(module, host, source);
  return status ? status : find_kernels(module, host);
}

static int32_t load(void *user, const GraftLoaderHost *host, const GraftModuleSource *source, void **loaded) {
  (void)user;
  return graft_cuda_load(host, source, sizeof(CudaModule), prepare, unload, loaded);
}

static int32_t lookup(void *user, const GraftLoaderHost *host, void *loaded, const char *name, GraftFunction *entry,
                      void **state) {
  (void)user;
  CudaModule *module = loaded;
  *entry = run;
  int32_t status = graft_cuda_find(host, name, module->functions, module->function_count, sizeof(CudaFunction),
                                   offsetof(CudaFunction, name), state);
  if (status) return status;
  const CudaFunction *function = *state;
  return graft_cuda_takes(host, name, function->input_count, function->output_count);
}

EXPORT const GraftLoader *graft_loader(void);

const GraftLoader *graft_loader(void) {
  static const GraftLoader LOADER = {GRAFT_ABI_VERSION, "cuda", NULL, load, lookup, unload};
  return &LOADER;
}
