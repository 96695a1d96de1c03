/* The cycle simulator: units that work beside each other, and one DRAM port that they and the fetching share.
 *
 * A transfer waits the latency of DRAM once and then asks for bursts, each of which holds the port for its bytes; asked
 * at one time, who was served longest ago is first. Products take a cycle a step and ALU operations `alu_interval`,
 * behind the filling of their pipeline; a product waits for the last of its instruction with the same destination. Time jumps from one event to the next.
 */
#include "accelerator.h"

#include <stdlib.h>

enum { FETCH = UNITS, ACTORS, FETCHED_AT_ONCE = 16 };

typedef enum { IDLE, TRANSFERRING, WORKING, GIVING, ENDED } State;

typedef struct {
  State state;
  int64_t current;          /* the instruction in hand */
  int64_t ready;            /* when the next burst may be asked for, or when the work is done */
  int64_t row, column;      /* what of a transfer is done: rows, and bytes of a row */
  int64_t served;           /* when the port last served it */
  int64_t *waiting, given, taken;
} Actor;

typedef struct {
  Accelerator *machine;
  AcceleratorCounters *counters;
  Actor actors[ACTORS];
  int64_t now, port_free, tokens[QUEUES];
  int64_t fetched, brought; /* instructions handed to their units, and brought from DRAM */
  int port_user;
  int64_t issued, *summed; /* cycles of products so far, and by accumulator, when the last was there */
  int64_t *starts, *ends;
} Cycles;

static const Instruction *at(const Cycles *self, int64_t index) { return &self->machine->instructions[index]; }

/* ---- The port ---------------------------------------------------------------------------------------------------- */

/* Returns the bytes of the next burst of an actor's transfer, 0 if it is over. */
static int64_t next_burst(const Cycles *self, int actor) {
  const AcceleratorConfiguration *c = &self->machine->configuration;
  const Actor *one = &self->actors[actor];
  int64_t size, rows = 1;
  if (actor == FETCH) {
    int64_t left = self->machine->count - self->brought;
    size = (left < FETCHED_AT_ONCE ? left : FETCHED_AT_ONCE) * ACCELERATOR_INSTRUCTION_BYTES;
  } else {
    const Instruction *i = at(self, one->current);
    size = i->columns * accelerator_dram_entry(self->machine, i->memory);
    rows = i->rows;
    /* Rows without a gap are one. */
    if (i->stride == i->columns) size *= rows, rows = rows ? 1 : 0;
  }
  if (one->row >= rows || !size) return 0;
  int64_t left = size - one->column;
  return left < c->burst_bytes ? left : c->burst_bytes;
}

static void advance_transfer(Cycles *self, int actor, int64_t bytes) {
  Actor *one = &self->actors[actor];
  one->column += bytes;
  if (actor == FETCH) return;
  const Instruction *i = at(self, one->current);
  int64_t size = i->columns * accelerator_dram_entry(self->machine, i->memory);
  if (i->stride == i->columns) size *= i->rows;
  if (one->column >= size) one->row++, one->column = 0;
}

static bool grant_port(Cycles *self) {
  if (self->port_free > self->now) return false;
  int chosen = -1;
  for (int actor = 0; actor < ACTORS; actor++) {
    const Actor *one = &self->actors[actor];
    if (one->state != TRANSFERRING || one->ready > self->now || !next_burst(self, actor)) continue;
    if (chosen < 0 || one->served < self->actors[chosen].served) chosen = actor;
  }
  self->port_user = chosen;
  if (chosen < 0) return false;
  const AcceleratorConfiguration *c = &self->machine->configuration;
  int64_t bytes = next_burst(self, chosen), cycles = (bytes + c->port_bytes - 1) / c->port_bytes;
  self->port_free = self->now + cycles;
  self->counters->port_cycles += cycles;
  self->actors[chosen].ready = self->port_free;
  self->actors[chosen].served = self->port_free;
  advance_transfer(self, chosen, bytes);
  return true;
}

/* ---- Fetching ---------------------------------------------------------------------------------------------------- */

static bool advance_fetch(Cycles *self) {
  const AcceleratorConfiguration *c = &self->machine->configuration;
  Actor *fetch = &self->actors[FETCH];
  bool moved = false;
  while (self->fetched < self->brought) {
    Actor *unit = &self->actors[at(self, self->fetched)->unit];
    if (unit->given - unit->taken >= c->queue_depth) break;
    unit->waiting[unit->given++] = self->fetched++;
    moved = true;
  }
  if (fetch->state == IDLE && self->fetched == self->brought && self->brought < self->machine->count) {
    fetch->state = TRANSFERRING;
    fetch->ready = self->now + c->latency;
    fetch->column = 0;
    return true;
  }
  if (fetch->state == TRANSFERRING && fetch->ready <= self->now && !next_burst(self, FETCH)) {
    int64_t left = self->machine->count - self->brought;
    int64_t number = left < FETCHED_AT_ONCE ? left : FETCHED_AT_ONCE;
    self->counters->fetch_bytes += number * ACCELERATOR_INSTRUCTION_BYTES;
    self->brought += number;
    fetch->state = self->brought < self->machine->count ? IDLE : ENDED;
    return true;
  }
  return moved;
}

/* ---- Units ------------------------------------------------------------------------------------------------------- */

/* Returns the cycles of an instruction's products, behind the filling of their pipeline. */
static int64_t product_cycles(Cycles *self, const Instruction *i) {
  int64_t latency = self->machine->configuration.accumulator_latency, steps = accelerator_steps(i);
  if (latency == 1 || i->end > self->machine->micro_op_entries) return steps; /* the latter is told when it takes effect */
  int64_t begin = self->issued += latency;
  for (int64_t outer = 0; outer < i->outer; outer++)
    for (int64_t inner = 0; inner < i->inner; inner++)
      for (int64_t k = i->begin; k < i->end; k++) {
        int64_t destination = accelerator_step(self->machine, i, outer, inner, k).destination;
        if (destination >= self->machine->accumulator_entries) return steps;
        if (self->issued < self->summed[destination]) self->issued = self->summed[destination];
        self->summed[destination] = self->issued++ + latency;
      }
  return self->issued - begin;
}

static void begin_work(Cycles *self, Actor *one, const Instruction *i) {
  const AcceleratorConfiguration *c = &self->machine->configuration;
  int64_t steps = accelerator_steps(i);
  one->row = one->column = 0;
  if (i->opcode == OPCODE_LOAD || i->opcode == OPCODE_STORE) {
    one->state = TRANSFERRING;
    one->ready = self->now + (i->rows && i->columns ? c->latency : 0);
    self->counters->bytes[i->memory] += i->rows * i->columns * accelerator_dram_entry(self->machine, i->memory);
    return;
  }
  one->state = WORKING;
  one->ready = self->now + (steps ? c->pipeline : 1);
  if (i->opcode == OPCODE_GEMM) self->counters->gemm_steps += steps, one->ready += product_cycles(self, i);
  if (i->opcode == OPCODE_ALU) self->counters->alu_steps += steps, one->ready += steps * c->alu_interval;
}

/* Padding is written beside the transfer, an entry a cycle. */
static int64_t padded_end(const Cycles *self, const Actor *one, const Instruction *i) {
  if (i->opcode != OPCODE_LOAD) return 0;
  int64_t entries = (i->pad_top + i->rows + i->pad_bottom) * (i->pad_left + i->columns + i->pad_right);
  return entries > i->rows * i->columns ? self->starts[one->current] + entries : 0;
}

/* Returns 1 if the unit's state changed, 0 if not, -1 for an error. */
static int advance_unit(Cycles *self, Unit unit) {
  Actor *one = &self->actors[unit];
  if (one->state == IDLE) {
    if (one->taken == one->given) return 0;
    int64_t index = one->waiting[one->taken];
    const Instruction *i = at(self, index);
    if (accelerator_lacking(self->machine, self->tokens, i, true) != NO_QUEUE) return 0;
    accelerator_exchange(self->tokens, i, true);
    one->taken++;
    one->current = index;
    self->starts[index] = self->now;
    if (!accelerator_begin(self->machine, index)) return -1;
    begin_work(self, one, i);
    bool is_needed = !self->machine->without_data || (i->opcode == OPCODE_LOAD && i->memory == MEMORY_MICRO_OP);
    return !is_needed || accelerator_execute(self->machine, index) ? 1 : -1;
  }
  const Instruction *i = at(self, one->current);
  if (one->ready > self->now) return 0;
  if (one->state == TRANSFERRING) {
    if (next_burst(self, unit)) return 0;
    one->state = WORKING;
    int64_t end = padded_end(self, one, i);
    if (end > one->ready) one->ready = end;
    return 1;
  }
  if (one->state == WORKING) {
    self->ends[one->current] = self->now;
    one->state = GIVING;
    return 1;
  }
  if (one->state == GIVING && accelerator_lacking(self->machine, self->tokens, i, false) == NO_QUEUE) {
    accelerator_exchange(self->tokens, i, false);
    one->state = i->opcode == OPCODE_FINISH ? ENDED : IDLE;
    return 1;
  }
  return 0;
}

static TimeKind time_of(const Cycles *self, int unit) {
  const Actor *one = &self->actors[unit];
  switch (one->state) {
    case WORKING:
      return TIME_BUSY;
    case TRANSFERRING:
      return self->port_user == unit && self->port_free > self->now ? TIME_BUSY : TIME_DRAM;
    case GIVING:
      return TIME_ROOM;
    default:
      break;
  }
  if (one->state == ENDED || one->taken == one->given) return TIME_INSTRUCTIONS;
  Queue queue = accelerator_lacking(self->machine, self->tokens, at(self, one->waiting[one->taken]), true);
  return queue % 2 ? TIME_TOKEN_NEXT : TIME_TOKEN_PREVIOUS;
}

/* Moves to the next event and says what each unit did until then; false if there is none. */
static bool pass_time(Cycles *self) {
  int64_t next = INT64_MAX;
  if (self->port_free > self->now) next = self->port_free;
  for (int actor = 0; actor < ACTORS; actor++) {
    const Actor *one = &self->actors[actor];
    bool timed = one->state == TRANSFERRING || one->state == WORKING;
    if (timed && one->ready > self->now && one->ready < next) next = one->ready;
  }
  if (next == INT64_MAX) return false;
  for (int unit = 0; unit < UNITS; unit++) self->counters->times[unit][time_of(self, unit)] += next - self->now;
  self->now = next;
  return true;
}

static bool run(Cycles *self) {
  while (self->actors[UNIT_ALU].state != ENDED) {
    bool moved = true;
    while (moved) {
      moved = advance_fetch(self);
      for (int unit = 0; unit < UNITS; unit++) {
        int done = advance_unit(self, (Unit)unit);
        if (done < 0) return false;
        moved = moved || done;
      }
      moved = grant_port(self) || moved;
    }
    if (self->actors[UNIT_ALU].state != ENDED && !pass_time(self))
      return accelerator_fail(self->machine, "deadlock after %lld cycles: %lld of %lld instructions were fetched",
                              (long long)self->now, (long long)self->fetched, (long long)self->machine->count);
  }
  self->counters->cycles = self->now;
  return true;
}

bool accelerator_run_cycles(Accelerator *machine, AcceleratorCounters *counters, int64_t *starts, int64_t *ends) {
  Cycles self = {.machine = machine, .counters = counters, .starts = starts, .ends = ends, .port_user = -1};
  *counters = (AcceleratorCounters){0};
  bool good = true;
  for (int unit = 0; unit < UNITS; unit++) {
    self.actors[unit].waiting = malloc(((size_t)machine->count + 1) * sizeof(int64_t));
    good = good && self.actors[unit].waiting;
  }
  self.summed = calloc((size_t)machine->accumulator_entries, sizeof *self.summed);
  good = good && self.summed;
  good = good ? run(&self) : accelerator_fail(machine, "out of memory");
  for (int unit = 0; unit < UNITS; unit++) free(self.actors[unit].waiting);
  free(self.summed);
  return good;
}
