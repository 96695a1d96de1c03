/* Where a worker runs, and whether it does; implemented once per system (affinity_linux.c).
 *
 * The processors of a worker are those that it inherited or that somebody gave it since. They are narrowed only to move
 * it, and it widens them again itself, so that a caller that goes elsewhere later finds no worker tied to that place. */
#ifndef GRAFT_AFFINITY_H
#define GRAFT_AFFINITY_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

typedef struct Affinity {
  pthread_t thread;
  clockid_t clock; /* of the thread's time on processors */
  int has_clock;
  pthread_mutex_t lock; /* guards `own`; one caller and the worker itself want it */
  atomic_int narrowed;
  cpu_set_t own; /* while narrowed: what the worker goes back to */
} Affinity;

/* The processor that the calling thread runs on; -1 if unknown. */
int32_t graft_processor(void);

/* Before the thread starts (returns 0 if the system refuses), and once it has. */
int graft_affinity_create(Affinity *affinity);
void graft_affinity_attach(Affinity *affinity, pthread_t thread);
void graft_affinity_destroy(Affinity *affinity);

/* Takes the worker off a processor, at once even if it waits for its turn there: a kernel that wakes a thread beside its
 * waker leaves it waiting while the waker spins. Returns 0 if it may run nowhere else. */
int graft_affinity_leave(Affinity *affinity, int32_t processor);

/* Takes the worker to a processor, at once even if it waits for its turn elsewhere. */
void graft_affinity_bring(Affinity *affinity, int32_t processor);

/* Called by the worker: gives it back its own processors. */
void graft_affinity_widen(Affinity *affinity);

/* The processor time of the thread; -1 if unknown. It stands still while others have its processor. */
int64_t graft_affinity_nanoseconds(const Affinity *affinity);

#endif
