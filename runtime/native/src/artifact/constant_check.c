#include "artifact/constant_check.h"

#include <string.h>

#include "artifact/content.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/platform.h"

/* The chunks of all constants, one after another. */
typedef struct Chunks {
  const TensorStore *store;
  size_t *first; /* by constant: the number of its first chunk; one more than there are constants */
  ContentHash *hashes;
} Chunks;

static size_t bytes_of(const DLTensor *tensor) {
  size_t bytes = 0;
  graft_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes);
  return bytes;
}

int graft_constants_name_content(const TensorStore *store) {
  for (size_t i = 0; i < store->count; i++) {
    const char *name = store->tensors[i].name;
    if (strspn(name, "0123456789abcdef") != GRAFT_CONTENT_DIGITS || name[GRAFT_CONTENT_DIGITS] != '-') {
      return 0;
    }
  }
  return 1;
}

int graft_constant_check_create(ConstantCheck *check, const TensorStore *store, int done) {
  check->store = store;
  atomic_init(&check->done, done);
  return pthread_mutex_init(&check->lock, NULL) == 0;
}

void graft_constant_check_destroy(ConstantCheck *check) {
  if (check->store) {
    pthread_mutex_destroy(&check->lock);
  }
}

static int32_t hash_chunks(GraftContext *context, void *closure, int64_t begin, int64_t end) {
  (void)context;
  const Chunks *chunks = closure;
  size_t constant = 0;
  for (size_t number = (size_t)begin; number < (size_t)end; number++) {
    while (chunks->first[constant + 1] <= number) {
      constant++;
    }
    const DLTensor *tensor = chunks->store->tensors[constant].tensor;
    size_t offset = (number - chunks->first[constant]) * GRAFT_CONTENT_CHUNK, left = bytes_of(tensor) - offset;
    const uint8_t *bytes = (const uint8_t *)tensor->data + offset;
    size_t size = left < GRAFT_CONTENT_CHUNK ? left : GRAFT_CONTENT_CHUNK;
    graft_fetch_pages(bytes, size);
    chunks->hashes[number] = graft_content_chunk(bytes, size);
  }
  return GRAFT_OK;
}

/* The number of the first constant that differs from its name; their count if none does. */
static size_t first_damaged(const Chunks *chunks) {
  for (size_t i = 0; i < chunks->store->count; i++) {
    size_t begin = chunks->first[i];
    char text[GRAFT_CONTENT_DIGITS + 1];
    graft_content_text(graft_content_join(chunks->hashes + begin, chunks->first[i + 1] - begin), text);
    if (memcmp(text, chunks->store->tensors[i].name, GRAFT_CONTENT_DIGITS) != 0) {
      return i;
    }
  }
  return chunks->store->count;
}

static int32_t fail_damaged(const char *name, GraftError *error) {
  return graft_set_error(error, GRAFT_ERROR_ARTIFACT,
                         "artifact is damaged: constant '%.160s' does not have the hash in its name; compile it again",
                         name);
}

static int32_t hash_all(ConstantCheck *check, GraftContext *context, GraftError *error) {
  const TensorStore *store = check->store;
  Chunks chunks = {store, graft_allocate_zeroed(store->memory, store->count + 1, sizeof *chunks.first), NULL};
  for (size_t i = 0; chunks.first && i < store->count; i++) {
    chunks.first[i + 1] = chunks.first[i] + graft_content_chunks(bytes_of(store->tensors[i].tensor));
  }
  size_t count = chunks.first ? chunks.first[store->count] : 0, damaged = store->count;
  chunks.hashes = chunks.first ? graft_allocate_zeroed(store->memory, count, sizeof *chunks.hashes) : NULL;
  int32_t status = GRAFT_OK;
  if (!chunks.hashes) {
    status = graft_set_error(error, GRAFT_ERROR_MEMORY, "out of memory while checking the artifact's constants");
  } else if (context) {
    status = context->api->parallel_for(context, (int64_t)count, 1, hash_chunks, &chunks);
  } else {
    status = hash_chunks(NULL, &chunks, 0, (int64_t)count);
  }
  if (!status) {
    damaged = first_damaged(&chunks);
    atomic_store_explicit(&check->done, damaged == store->count, memory_order_release);
    status = damaged < store->count ? fail_damaged(store->tensors[damaged].name, error) : GRAFT_OK;
  }
  graft_release(store->memory, chunks.first);
  graft_release(store->memory, chunks.hashes);
  return status;
}

int32_t graft_constant_check_run(ConstantCheck *check, GraftContext *context, GraftError *error) {
  if (atomic_load_explicit(&check->done, memory_order_acquire)) {
    return GRAFT_OK;
  }
  pthread_mutex_lock(&check->lock);
  int32_t status = atomic_load(&check->done) ? GRAFT_OK : hash_all(check, context, error);
  pthread_mutex_unlock(&check->lock);
  return status;
}
