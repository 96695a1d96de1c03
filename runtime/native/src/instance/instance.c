#include "instance/instance.h"

#include "base/memory.h"
#include "devices/streams.h"

static Instance *create_instance(GraftProgram *program) {
  Instance *instance = graft_allocate(program->memory, sizeof(Instance));
  if (!instance) {
    return NULL;
  }
  *instance = (Instance){.store.allocator = program->memory};
  int32_t count = program->manifest.procedure_count;
  instance->program = program;
  instance->frames = graft_store_allocate(&instance->store, (size_t)count, sizeof(Frame));
  graft_create_context(&instance->context, program->memory, program->pool, program->thread_count);
  instance->entry = instance->frames;
  instance->context.instance = instance;
  instance->streams = graft_store_allocate(&instance->store, (size_t)program->device_count, sizeof(DeviceStream));
  if (!instance->streams) {
    graft_destroy_instance(instance);
    return NULL;
  }
  for (int32_t i = 0; i < count; i++) {
    const Procedure *procedure = program->manifest.procedures + i;
    if (!instance->frames || !graft_create_frame(&instance->store, procedure, program, instance->frames + i)) {
      graft_destroy_instance(instance);
      return NULL;
    }
  }
  return instance;
}

void graft_destroy_instance(Instance *instance) {
  const GraftProgram *program = instance->program;
  for (int32_t i = 0; instance->frames && i < program->manifest.procedure_count; i++) {
    graft_destroy_frame(instance->frames + i, program);
  }
  graft_destroy_streams(instance);
  graft_scratch_destroy(&instance->context.scratch);
  graft_store_destroy(&instance->store);
  graft_release(program->memory, instance);
}

Instance *graft_acquire_instance(GraftProgram *program) {
  pthread_mutex_lock(&program->lock);
  Instance *instance = program->idle;
  if (instance) {
    program->idle = instance->next;
  }
  pthread_mutex_unlock(&program->lock);
  return instance ? instance : create_instance(program);
}

void graft_release_instance(Instance *instance) {
  GraftProgram *program = instance->program;
  pthread_mutex_lock(&program->lock);
  instance->next = program->idle;
  program->idle = instance;
  pthread_mutex_unlock(&program->lock);
}
