/* Shared memory and notes of fenced calls (Linux). */
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/platform.h"

/* ---- Segments ------------------------------------------------------------------------------------------------- */

Segment *graft_segment_create(Segments *segments, size_t bytes) {
  size_t page = graft_page_size(), rounded = (bytes + page - 1) / page * page;
  Segment *segment = calloc(1, sizeof *segment);
  int descriptor = segment ? memfd_create("graft", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
  if (rounded < page) {
    rounded = page;
  }
  void *base = MAP_FAILED;
  /* Sealed: who shortens memory ends the process that reads it. */
  if (descriptor >= 0 && ftruncate(descriptor, (off_t)rounded) == 0 &&
      fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    base = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  if (base == MAP_FAILED) {
    if (descriptor >= 0) {
      close(descriptor);
    }
    free(segment);
    return NULL;
  }
  pthread_mutex_lock(&segments->lock);
  *segment = (Segment){segments->first, base, rounded, ++segments->numbers, descriptor};
  segments->first = segment;
  pthread_mutex_unlock(&segments->lock);
  return segment;
}

void graft_segment_destroy(Segments *segments, Segment *segment) {
  if (!segment) {
    return;
  }
  pthread_mutex_lock(&segments->lock);
  Segment **place = &segments->first;
  while (*place != segment) {
    place = &(*place)->next;
  }
  *place = segment->next;
  pthread_mutex_unlock(&segments->lock);
  munmap(segment->base, segment->bytes);
  close(segment->descriptor);
  free(segment);
}

int graft_segment_find(Segments *segments, const void *address, size_t bytes, Segment *found) {
  uintptr_t start = (uintptr_t)address;
  int is_found = 0;
  pthread_mutex_lock(&segments->lock);
  for (const Segment *one = segments->first; one && !is_found; one = one->next) {
    uintptr_t base = (uintptr_t)one->base;
    is_found = start >= base && start - base <= one->bytes && bytes <= one->bytes - (start - base);
    if (is_found) {
      *found = *one;
    }
  }
  pthread_mutex_unlock(&segments->lock);
  return is_found;
}

void *graft_segment_allocate_arena(void *user, size_t bytes) {
  const Segment *segment = graft_segment_create(user, bytes);
  return segment ? segment->base : NULL;
}

void graft_segment_release_arena(void *user, void *arena) {
  Segments *segments = user;
  pthread_mutex_lock(&segments->lock);
  Segment *segment = segments->first;
  while (segment->base != arena) {
    segment = segment->next;
  }
  pthread_mutex_unlock(&segments->lock);
  graft_segment_destroy(segments, segment);
}

/* ---- Notes ---------------------------------------------------------------------------------------------------- */

typedef union Ancillary {
  char bytes[CMSG_SPACE(sizeof(int))];
  struct cmsghdr aligned;
} Ancillary;

int graft_note_send(int socket, const Note *note, int descriptor) {
  Ancillary ancillary = {{0}};
  struct iovec part = {(void *)note, sizeof *note};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (descriptor >= 0) {
    message.msg_control = ancillary.bytes;
    message.msg_controllen = sizeof ancillary.bytes;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == (ssize_t)sizeof *note ? 0 : -1;
}

int graft_note_receive(int socket, Note *note, int *descriptor) {
  Ancillary ancillary = {{0}};
  struct iovec part = {note, sizeof *note};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = ancillary.bytes,
                           .msg_controllen = sizeof ancillary.bytes};
  *descriptor = -1;
  ssize_t received;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  struct cmsghdr *header = received > 0 ? CMSG_FIRSTHDR(&message) : NULL;
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
  }
  if (received == (ssize_t)sizeof *note) {
    return 0;
  }
  if (*descriptor >= 0) {
    close(*descriptor);
    *descriptor = -1;
  }
  return -1;
}

int graft_door_spin(Door *door, DoorTurn turn, int32_t *rests) {
  if (*rests) {
    --*rests;
    return 0;
  }
  int64_t end = graft_nanoseconds() + GRAFT_SPIN_NANOSECONDS;
  do {
    for (int32_t i = 0; i < 64; i++) {
      if (atomic_load_explicit(&door->turn, memory_order_acquire) == (unsigned)turn) {
        return 1;
      }
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  } while (graft_nanoseconds() < end);
  *rests = GRAFT_SPIN_RESTS;
  return 0;
}
