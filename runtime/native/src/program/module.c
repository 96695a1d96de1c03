#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "program/program.h"

GRAFT_FORMAT(2, 3) static int32_t host_fail(const GraftLoaderHost *base, const char *format, ...) {
  const LoadingHost *host = (const LoadingHost *)base;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(host->message, host->size, format, arguments);
  va_end(arguments);
  return GRAFT_ERROR_LOADER;
}

static const GraftLoader *find_loader(const GraftLoadOptions *options, const char *kind) {
  for (size_t i = 0; options && i < options->loader_count; i++) {
    if (options->loaders[i] && strcmp(options->loaders[i]->kind, kind) == 0) {
      return options->loaders[i];
    }
  }
  const GraftLoader *const own[] = {&graft_native_loader, &graft_c_source_loader};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    if (strcmp(own[i]->kind, kind) == 0) {
      return own[i];
    }
  }
  return NULL;
}

static int32_t fail_missing(const ModuleSpec *module, GraftError *error) {
  graft_set_error(error, GRAFT_ERROR_LOADER, "no loader for modules of kind '%s', which module '%s' needs",
                  module->kind, module->name);
  if (error && *module->plugin) {
    graft_append(error->message, sizeof error->message, "; plugin '%s' provides it", module->plugin);
  }
  if (error && *module->install) {
    graft_append(error->message, sizeof error->message, "; install it with: %s", module->install);
  }
  return GRAFT_ERROR_LOADER;
}

static int32_t fail_module(const ModuleSpec *module, const char *reason, int32_t status, GraftError *error) {
  int has_plugin = *module->plugin != 0;
  int32_t code = graft_set_error(error, status == GRAFT_ERROR_MEMORY ? status : GRAFT_ERROR_LOADER,
                                 "module '%s' (kind '%s'%s%s%s) cannot be loaded: %s", module->name, module->kind,
                                 has_plugin ? ", plugin '" : "", module->plugin, has_plugin ? "'" : "",
                                 *reason ? reason : "its loader gave no reason");
  if (error && *module->install && strcmp(module->kind, graft_c_source_loader.kind) == 0) {
    graft_append(error->message, sizeof error->message, "; install it with: %s", module->install);
  }
  return code;
}

/* The constant store by key. */
static const DLTensor *find_constant(const GraftProgram *program, const char *key) {
  for (size_t i = 0; i < program->source.constant_count; i++) {
    if (strcmp(program->source.constants[i].name, key) == 0) {
      return program->constants + i;
    }
  }
  return NULL;
}

static int is_named(const JsonValue *constants, size_t named, const char *name) {
  for (size_t i = 0; i < named; i++) {
    if (strcmp(constants->as.list.keys[i].as.string.bytes, name) == 0) {
      return 1;
    }
  }
  return 0;
}

/* The constants that the manifest takes from the store, and those that the source hands over besides. An artifact's
 * source has what its manifest names as well: a loader sees each once, as the store has placed it. */
static int32_t collect_constants(GraftProgram *program, const ModuleSpec *module, GraftModuleSource *source,
                                 GraftError *error) {
  size_t named = graft_json_count(module->constants);
  if (named == 0) {
    return GRAFT_OK;
  }
  GraftNamedTensor *constants = graft_store_allocate(&program->store, source->constant_count + named, sizeof *constants);
  if (!constants) {
    return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while loading module '%s'", module->name);
  }
  size_t count = 0;
  for (size_t i = 0; i < source->constant_count; i++) {
    if (!is_named(module->constants, named, source->constants[i].name)) {
      constants[count++] = source->constants[i];
    }
  }
  for (size_t i = 0; i < named; i++) {
    const char *name = module->constants->as.list.keys[i].as.string.bytes;
    const char *key = graft_json_string(module->constants->as.list.items + i, "");
    const DLTensor *tensor = find_constant(program, key);
    if (!tensor) {
      return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "module '%s' needs constant '%s', which is missing",
                             module->name, key);
    }
    constants[count++] = (GraftNamedTensor){name, tensor};
  }
  source->constants = constants;
  source->constant_count = count;
  return GRAFT_OK;
}

static int32_t load_module(GraftProgram *program, const GraftLoadOptions *options, int32_t number, GraftError *error) {
  const ModuleSpec *module = program->manifest.modules + number;
  GraftModuleSource source = program->source.modules[number];
  LoadedModule *loaded = program->modules + number;
  char message[768] = "";
  LoadingHost host = {{GRAFT_ABI_VERSION, host_fail, -1, -1}, message, sizeof message, program->memory};
  loaded->loader = find_loader(options, module->kind);
  if (!loaded->loader) {
    return fail_missing(module, error);
  }
  if (loaded->loader->abi_version != GRAFT_ABI_VERSION) {
    return graft_set_error(error, GRAFT_ERROR_LOADER,
                           "the loader for kind '%s' was built for ABI version %" PRIu32
                           " of Graft's runtime, and this runtime has version %d; update plugin '%s'",
                           module->kind, loaded->loader->abi_version, GRAFT_ABI_VERSION, module->plugin);
  }
  GRAFT_TRY(collect_constants(program, module, &source, error));
  source.name = module->name;
  source.kind = module->kind;
  source.thread_count = program->thread_count;
  int32_t status = loaded->loader->load(loaded->loader->user, &host.base, &source, &loaded->module);
  if (status) {
    return fail_module(module, message, status, error);
  }
  program->loaded_count = number + 1;
  return GRAFT_OK;
}

static int32_t resolve_call(GraftProgram *program, Call *call, GraftError *error) {
  if (call->kind != CALL_FUNCTION) {
    return GRAFT_OK;
  }
  const LoadedModule *loaded = program->modules + call->module;
  char message[768] = "";
  LoadingHost host = {{GRAFT_ABI_VERSION, host_fail, call->inputs.count, call->outputs.count}, message, sizeof message,
                      program->memory};
  int32_t status = loaded->loader->lookup(loaded->loader->user, &host.base, loaded->module, call->function,
                                          &call->entry, &call->state);
  if (status) {
    return fail_module(program->manifest.modules + call->module, message, status, error);
  }
  if (!call->entry) {
    host_fail(&host.base, "its loader gave no function '%s'", call->function);
    return fail_module(program->manifest.modules + call->module, message, GRAFT_ERROR_LOADER, error);
  }
  return GRAFT_OK;
}

int32_t graft_load_modules(GraftProgram *program, const GraftLoadOptions *options, GraftError *error) {
  const Manifest *manifest = &program->manifest;
  program->modules = graft_store_allocate(&program->store, (size_t)manifest->module_count, sizeof(LoadedModule));
  if (!program->modules) {
    return graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while loading modules");
  }
  for (int32_t i = 0; i < manifest->module_count; i++) {
    GRAFT_TRY(load_module(program, options, i, error));
  }
  for (int32_t i = 0; i < manifest->procedure_count; i++) {
    for (int32_t k = 0; k < manifest->procedures[i].call_count; k++) {
      GRAFT_TRY(resolve_call(program, manifest->procedures[i].calls + k, error));
    }
  }
  return GRAFT_OK;
}

void graft_unload_modules(GraftProgram *program) {
  for (int32_t i = program->loaded_count - 1; i >= 0; i--) {
    program->modules[i].loader->unload(program->modules[i].loader->user, program->modules[i].module);
  }
  program->loaded_count = 0;
}
