#include "pool/affinity.h"

int32_t graft_processor(void) { return (int32_t)sched_getcpu(); }

int graft_affinity_create(Affinity *affinity) {
  affinity->has_clock = 0;
  atomic_init(&affinity->narrowed, 0);
  return pthread_mutex_init(&affinity->lock, NULL) == 0;
}

void graft_affinity_attach(Affinity *affinity, pthread_t thread) {
  affinity->thread = thread;
  affinity->has_clock = pthread_getcpuclockid(thread, &affinity->clock) == 0;
}

void graft_affinity_destroy(Affinity *affinity) { pthread_mutex_destroy(&affinity->lock); }

/* Whoever finds the lock taken leaves the worker alone: it is widening its processors, so it runs. */
static int begin_to_narrow(Affinity *affinity) {
  if (pthread_mutex_trylock(&affinity->lock) != 0) {
    return 0;
  }
  if (!atomic_load(&affinity->narrowed)) {
    CPU_ZERO(&affinity->own);
    if (pthread_getaffinity_np(affinity->thread, sizeof affinity->own, &affinity->own) != 0) {
      pthread_mutex_unlock(&affinity->lock);
      return 0;
    }
  }
  return 1;
}

static void narrow(Affinity *affinity, const cpu_set_t *set) {
  if (pthread_setaffinity_np(affinity->thread, sizeof *set, set) == 0) {
    atomic_store(&affinity->narrowed, 1);
  }
}

int graft_affinity_leave(Affinity *affinity, int32_t processor) {
  if (processor < 0 || !begin_to_narrow(affinity)) {
    return 1;
  }
  cpu_set_t set = affinity->own;
  CPU_CLR((size_t)processor, &set);
  int elsewhere = CPU_COUNT(&set) > 0;
  if (elsewhere) {
    narrow(affinity, &set);
  }
  pthread_mutex_unlock(&affinity->lock);
  return elsewhere;
}

void graft_affinity_bring(Affinity *affinity, int32_t processor) {
  if (processor < 0 || !begin_to_narrow(affinity)) {
    return;
  }
  if (CPU_ISSET((size_t)processor, &affinity->own)) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    narrow(affinity, &set);
  }
  pthread_mutex_unlock(&affinity->lock);
}

void graft_affinity_widen(Affinity *affinity) {
  if (!atomic_load_explicit(&affinity->narrowed, memory_order_relaxed)) {
    return;
  }
  pthread_mutex_lock(&affinity->lock);
  if (atomic_exchange(&affinity->narrowed, 0)) {
    pthread_setaffinity_np(pthread_self(), sizeof affinity->own, &affinity->own);
  }
  pthread_mutex_unlock(&affinity->lock);
}

int64_t graft_affinity_nanoseconds(const Affinity *affinity) {
  struct timespec time;
  if (!affinity->has_clock || clock_gettime(affinity->clock, &time) != 0) {
    return -1;
  }
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}
