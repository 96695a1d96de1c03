/* Calls between two processes: what the host of a fenced module and its worker write for each other.
 *
 * A channel is a socket and a door, which is memory that both see. For a call the host writes the door, marks it ASKED
 * and sends a note; the worker answers in the door, marks it ANSWERED and sends a note back. Tensors are places in
 * segments: shared memory that the host announces once, with its descriptor. */
#ifndef GRAFT_DOOR_H
#define GRAFT_DOOR_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/dtype.h"

enum {
  GRAFT_DOOR_TENSORS = 512,
  GRAFT_DOOR_SEGMENTS = 64, /* that a worker keeps mapped at one time */
  GRAFT_NO_SEGMENT = 0,
  GRAFT_SPIN_NANOSECONDS = 30000, /* below that a wake-up costs more than waiting */
  GRAFT_SPIN_RESTS = 15           /* the waits after one in vain that are asleep from the start */
};

typedef enum { DOOR_ASKED = 1, DOOR_ANSWERED = 2 } DoorTurn;

/* A tensor of a call. */
typedef struct DoorTensor {
  int32_t is_given;   /* 0: an optional input that is absent */
  int32_t is_unknown; /* of an output: the worker tells its shape, and hands its bytes over in a segment of its own */
  uint64_t segment, offset;
  DLDataType dtype;
  int32_t ndim;
  int64_t shape[GRAFT_MAXIMUM_DIMENSIONS];
} DoorTensor;

typedef struct Door {
  atomic_uint turn;
  int32_t function, input_count, output_count;
  int32_t status;
  char message[768];
  DoorTensor tensors[GRAFT_DOOR_TENSORS]; /* inputs, then outputs */
} Door;

typedef enum {
  NOTE_SEGMENT, /* host: maps the descriptor that comes along as `segment`, of `bytes` */
  NOTE_FORGET,  /* host: unmaps all segments but the door */
  NOTE_CALL,    /* host: the door is asked */
  NOTE_OUTPUT,  /* worker: output number `segment` of the answer lies in the descriptor that comes along */
  NOTE_DONE     /* worker: the door is answered, and all outputs were sent */
} NoteKind;

typedef struct Note {
  uint32_t kind;
  uint32_t is_read_only;
  uint64_t segment, bytes;
} Note;

/* Memory that may be shared with other processes. */
typedef struct Segment {
  struct Segment *next;
  void *base;
  size_t bytes;
  uint64_t number;
  int descriptor;
} Segment;

/* Those of one program. Zero but for the lock. */
typedef struct Segments {
  pthread_mutex_t lock;
  Segment *first;
  uint64_t numbers; /* that were given out */
} Segments;

/* A new segment of zeros; NULL if the system has none. It is found by its addresses until it is destroyed. */
Segment *graft_segment_create(Segments *segments, size_t bytes);
void graft_segment_destroy(Segments *segments, Segment *segment);

/* Where an address is shared: its segment's facts; 0 if it is in none. */
int graft_segment_find(Segments *segments, const void *address, size_t bytes, Segment *found);

/* Arenas in segments; `user` of both is the program's Segments. */
void *graft_segment_allocate_arena(void *user, size_t bytes);
void graft_segment_release_arena(void *user, void *arena);

/* Descriptor -1: none comes along. -1: the other end is gone. */
int graft_note_send(int socket, const Note *note, int descriptor);

/* *descriptor is -1 where none came along. -1: the other end is gone. */
int graft_note_receive(int socket, Note *note, int *descriptor);

/* Waits, awake, until the door has this turn; 0 if it has not after GRAFT_SPIN_NANOSECONDS. *rests, 0 at first, counts the
 * calls that return at once after that: the other end needs long, or the processor that this one is awake on. */
int graft_door_spin(Door *door, DoorTurn turn, int32_t *rests);

#endif
