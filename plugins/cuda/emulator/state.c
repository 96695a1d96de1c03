/* The state of a launch: its failure, with the line of the PTX; numbers drawn by the seed; waiting. */
#define _GNU_SOURCE
#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Emulated emulated;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns what went wrong in the last launch, NULL if nothing did, and forgets it. */
const char *graft_emulator_error(void) {
  static char said[sizeof emulated.error];
  pthread_mutex_lock(&lock);
  memcpy(said, emulated.error, sizeof said);
  emulated.error[0] = 0;
  pthread_mutex_unlock(&lock);
  return said[0] ? said : NULL;
}

const char *said_line(uint32_t line) {
  static char texts[4][128];
  static int next;
  const char *at = emulated.ptx;
  for (uint32_t i = 1; i < line && at != NULL; ++i)
    at = (at = strchr(at, '\n')) == NULL ? NULL : at + 1;
  if (at == NULL)
    return "?";
  at += strspn(at, " \t");
  char *text = texts[next++ % 4];
  int length = snprintf(text, sizeof texts[0], "line %u (", line);
  const char *last = "";
  for (; *at != 0 && *at != ';' && *at != '\n'; ++at) {
    if (length > 96) {
      last = " ...";
      break;
    }
    if (*at != '\t' && (*at != ' ' || text[length - 1] != ' '))
      text[length++] = *at;
    else if (text[length - 1] != ' ')
      text[length++] = ' ';
  }
  snprintf(text + length, sizeof texts[0] - (size_t)length, "%s)", last);
  return text;
}

void fail_launch(uint32_t line, const char *format, ...) {
  char text[768];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (emulated.unwritten.epoch) {
    line = emulated.unwritten.line, emulated.current = emulated.unwritten.thread;
    snprintf(text, sizeof text, "it reads byte %lld of shared memory, which nothing has written", emulated.unwritten_byte);
  }
  const uint32_t *thread = emulated.threads[emulated.current].index;
  snprintf(emulated.error, sizeof emulated.error, "kernel '%s': block (%u, %u, %u), thread (%u, %u, %u), %s: %s", emulated.name,
           emulated.at[0], emulated.at[1], emulated.at[2], thread[0], thread[1], thread[2], said_line(line), text);
  _longjmp(emulated.failure, 1);
}

void graft_emulator_begin(const char *name, const char *ptx) {
  pthread_mutex_lock(&lock);
  emulated.name = name, emulated.ptx = ptx;
  emulated.buffer_count = 0;
  emulated.last = NULL;
}

void graft_emulator_end(void) {
  for (int i = 0; i < emulated.buffer_count; ++i)
    free(emulated.buffers[i].shadow);
  emulated.buffer_count = 0;
  pthread_mutex_unlock(&lock);
}

uint32_t drawn(uint32_t count) { /* xorshift32 */
  emulated.random ^= emulated.random << 13, emulated.random ^= emulated.random >> 17, emulated.random ^= emulated.random << 5;
  return emulated.random % count;
}

void suspend(State state, uint32_t line) {
  Thread *thread = &emulated.threads[emulated.current];
  thread->state = state, thread->line = line;
  if (!_setjmp(thread->place))
    _longjmp(emulated.place, 1);
}

uint32_t graft_emulator_unit(uint32_t which) {
  if (which >= 6)
    return which < 9 ? emulated.block[which - 6] : emulated.grid[which - 9];
  return which < 3 ? emulated.threads[emulated.current].index[which] : emulated.at[which - 3];
}
