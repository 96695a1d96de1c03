/* host ARTIFACT LIBRARY X Y ROWS: runs an artifact whose loader and device are in a library; writes both outputs. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graft/device.h"

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "no %s: %s\n", name, dlerror());
    exit(1);
  }
  return found;
}

static float *contents(const char *path, size_t count) {
  float *numbers = malloc(count * sizeof *numbers);
  FILE *file = fopen(path, "rb");
  if (!numbers || !file || fread(numbers, sizeof *numbers, count, file) != count) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return numbers;
}

static int fail(const GraftError *error) {
  fprintf(stderr, "%s\n", error->message);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  void *library = dlopen(argv[2], RTLD_NOW);
  if (!library) return 3;
  GraftLoaderEntry loader_of;
  GraftDeviceEntry device_of;
  *(void **)&loader_of = symbol(library, "graft_loader");
  *(void **)&device_of = symbol(library, "graft_device");
  const GraftLoader *loader = loader_of();
  const GraftDevice *device = device_of(0);
  GraftLoadOptions options = {.size = sizeof options, .threads = 1, .loaders = &loader, .loader_count = 1};
  GraftProgram *program;
  GraftError error = {0};
  if (graft_program_load_on(argv[1], &options, &device, 1, &program, &error)) return fail(&error);
  int64_t rows = atoll(argv[5]), x_shape[] = {4, 8}, y_shape[] = {rows, 8};
  DLDataType type = {kDLFloat, 32, 1};
  DLTensor inputs[] = {
      {.data = contents(argv[3], 32), .device = {kDLCPU, 0}, .ndim = 2, .dtype = type, .shape = x_shape},
      {.data = contents(argv[4], (size_t)rows * 8), .device = {kDLCPU, 0}, .ndim = 2, .dtype = type, .shape = y_shape},
  };
  DLTensor outputs[2] = {{.device = {kDLCPU, 0}}, {.device = device->device}};
  if (graft_program_run(program, inputs, outputs, &error)) return fail(&error);
  void *stream;
  float *q = malloc((size_t)rows * 8 * sizeof *q);
  if (!q || device->create_stream(device->user, &stream, &error)) return fail(&error);
  if (device->copy(device->user, GRAFT_TO_HOST, q, outputs[1].data, (size_t)rows * 32, stream, &error)) return fail(&error);
  if (device->synchronize(device->user, stream, &error)) return fail(&error);
  device->destroy_stream(device->user, stream);
  fwrite(outputs[0].data, sizeof(float), 12, stdout);
  fwrite(q, sizeof(float), (size_t)rows * 8, stdout);
  graft_free_output(&outputs[0]);
  graft_free_output(&outputs[1]);
  graft_program_destroy(program);
  free(q);
  free(inputs[0].data);
  free(inputs[1].data);
  return 0;
}
