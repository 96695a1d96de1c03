/* Life after fork().
 *
 * GNU OpenMP keeps its workers by the thread that they work for. In a forked child the one thread left still has the
 * books of workers that are gone, and waits for them without end when it asks for two threads. Any other thread of the
 * child starts with empty books: so the thread that was forked has its work done by a new one.
 */
#include "module.h"

static _Thread_local bool forked;
static pthread_once_t watching = PTHREAD_ONCE_INIT;

static void mark(void) { forked = true; }

static void watch(void) { (void)pthread_atfork(NULL, NULL, mark); /* fails for lack of memory only */ }

typedef struct Errand {
  OnednnTask task;
  void *argument;
} Errand;

static void *run_errand(void *given) {
  const Errand *errand = given;
  errand->task(errand->argument);
  return NULL;
}

bool onednn_with_workers(int32_t threads, OnednnTask task, void *argument) {
  (void)pthread_once(&watching, watch);
  if (!forked || threads < 2) {
    task(argument);
    return true;
  }
  Errand errand = {task, argument};
  pthread_t thread;
  return pthread_create(&thread, NULL, run_errand, &errand) == 0 && pthread_join(thread, NULL) == 0;
}
