/* The walk: for each entry of each memory, the last instruction of each unit that wrote it and that read it. */
#include "hazards.h"

#include <stdlib.h>
#include <string.h>

/* Of one instruction: no layer needs more, and a program that loops longer is damaged. */
static const int64_t MOST_STEPS = 1 << 24;

/* Instructions are counted from 1, so that zeros are nobody. Only the last of each unit counts: a unit takes its
 * instructions in order. */
typedef struct {
  int32_t writers[UNITS], readers[UNITS];
} Entry;

typedef struct {
  Accelerator *machine;
  Hazards *hazards;
  Entry *entries[PLACES];
  int64_t granule;
  int64_t index; /* of the instruction that is looked at */
  const Instruction *i;
  Contents contents;
  /* What is searched for once an entry was read that nobody wrote. */
  bool searching, found;
  Place wanted_place;
  int64_t wanted;
} Walk;

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

static bool refuse(Walk *walk, FaultKind kind, Place place, int64_t first, int64_t last) {
  if (!walk->searching) walk->hazards->fault = (Fault){kind, walk->index, place, first, last};
  return false;
}

static void meet(Walk *walk, Place place, int64_t entry, const int32_t *others) {
  Conflict *conflicts = walk->hazards->conflicts + walk->index * UNITS;
  for (Unit unit = 0; unit < UNITS; unit++)
    if (others[unit] > conflicts[unit].other && unit != walk->i->unit)
      conflicts[unit] = (Conflict){others[unit], place, entry};
}

static bool is_written(const Entry *one) {
  for (Unit unit = 0; unit < UNITS; unit++)
    if (one->writers[unit]) return true;
  return false;
}

/* `is_known` says that what is read was there before the program began. */
static bool read_entry(Walk *walk, Place place, int64_t entry, bool is_known) {
  if (walk->searching) return true;
  Entry *one = &walk->entries[place][entry];
  if (!is_known && !is_written(one)) return refuse(walk, FAULT_UNWRITTEN, place, entry, -1);
  meet(walk, place, entry, one->writers);
  one->readers[walk->i->unit] = (int32_t)walk->index + 1;
  return true;
}

static void write_entry(Walk *walk, Place place, int64_t entry) {
  if (walk->searching) {
    walk->found = walk->found || (place == walk->wanted_place && entry == walk->wanted);
    return;
  }
  Entry *one = &walk->entries[place][entry];
  meet(walk, place, entry, one->writers);
  meet(walk, place, entry, one->readers);
  one->writers[walk->i->unit] = (int32_t)walk->index + 1;
}

static int64_t size_of(const Walk *walk, Place place) {
  const Accelerator *machine = walk->machine;
  switch (place) {
    case PLACE_MICRO_OP:
      return machine->micro_op_entries;
    case PLACE_WEIGHT:
      return machine->weight_entries;
    case PLACE_INPUT:
      return machine->input_entries;
    case PLACE_ACCUMULATOR:
      return machine->accumulator_entries;
    default:
      return (machine->dram_bytes + walk->granule - 1) / walk->granule;
  }
}

static bool check_reach(Walk *walk, Place place, int64_t last, bool writes) {
  return last < size_of(walk, place) || refuse(walk, FAULT_OUTSIDE, place, last, writes);
}

/* ---- Transfers --------------------------------------------------------------------------------------------------- */

static const ProgramTensor *tensor_at(const Hazards *hazards, int64_t address) {
  size_t low = 0, high = hazards->tensor_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (hazards->tensors[middle].offset <= address) low = middle + 1;
    else high = middle;
  }
  return low ? &hazards->tensors[low - 1] : NULL;
}

static bool access_row(Walk *walk, int64_t first, int64_t last, bool writes) {
  const ProgramTensor *tensor = tensor_at(walk->hazards, first);
  if (!tensor || last > tensor->offset + tensor->size) return refuse(walk, FAULT_DRAM, PLACE_DRAM, first, last);
  int64_t place = tensor - walk->hazards->tensors;
  if (writes && tensor->role != ROLE_OUTPUT && tensor->role != ROLE_WORKSPACE)
    return refuse(walk, FAULT_ROLE_WRITTEN, PLACE_DRAM, place, 0);
  bool of_micro_ops = walk->i->opcode == OPCODE_LOAD && walk->i->memory == MEMORY_MICRO_OP;
  if (of_micro_ops != (tensor->role == ROLE_MICRO_OPS)) return refuse(walk, FAULT_ROLE_READ, PLACE_DRAM, place, 0);
  bool is_known = tensor->role != ROLE_OUTPUT && tensor->role != ROLE_WORKSPACE;
  for (int64_t entry = first / walk->granule; entry * walk->granule < last; entry++)
    if (writes) write_entry(walk, PLACE_DRAM, entry);
    else if (!read_entry(walk, PLACE_DRAM, entry, is_known)) return false;
  return true;
}

static bool access_rows(Walk *walk, bool writes) {
  const Instruction *i = walk->i;
  int64_t size = accelerator_dram_entry(walk->machine, i->memory);
  for (int64_t row = 0; row < i->rows && i->columns; row++) {
    int64_t first = (i->dram + row * i->stride) * size;
    if (!access_row(walk, first, first + i->columns * size, writes)) return false;
  }
  return true;
}

static Place place_of(MemoryKind memory) {
  return memory == MEMORY_OUTPUT || memory == MEMORY_ACCUMULATOR_8 ? PLACE_ACCUMULATOR : (Place)memory;
}

static void load_micro_ops(Walk *walk) {
  const Instruction *i = walk->i;
  for (int64_t row = 0; row < i->rows; row++)
    for (int64_t column = 0; column < i->columns; column++) {
      const uint8_t *from = walk->machine->dram + (i->dram + row * i->stride + column) * 4;
      walk->machine->micro_op[i->sram + row * i->columns + column] =
          (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
    }
}

static bool access_load(Walk *walk) {
  const Instruction *i = walk->i;
  Place place = place_of(i->memory);
  int64_t width = i->pad_left + i->columns + i->pad_right, height = i->pad_top + i->rows + i->pad_bottom;
  if (!access_rows(walk, false)) return false;
  int64_t count = width * height;
  if (count > 0 && !check_reach(walk, place, i->sram + count - 1, true)) return false;
  for (int64_t entry = 0; entry < count; entry++) write_entry(walk, place, i->sram + entry);
  if (place == PLACE_MICRO_OP && !walk->searching) load_micro_ops(walk);
  return true;
}

static bool access_store(Walk *walk) {
  const Instruction *i = walk->i;
  int64_t count = i->rows * i->columns;
  if (count > 0 && !check_reach(walk, PLACE_ACCUMULATOR, i->sram + count - 1, false)) return false;
  for (int64_t entry = 0; entry < count; entry++)
    if (!read_entry(walk, PLACE_ACCUMULATOR, i->sram + entry, false)) return false;
  return access_rows(walk, true);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

/* Returns the highest indices: no field is negative, so that the last trip reaches furthest. */
static Step reach_of(const Walk *walk) {
  const Instruction *i = walk->i;
  Step most = {0, 0, 0};
  for (int64_t k = i->begin; k < i->end; k++) {
    Step step = accelerator_step(walk->machine, i, i->outer - 1, i->inner - 1, k);
    if (step.destination > most.destination) most.destination = step.destination;
    if (step.source > most.source) most.source = step.source;
    if (step.weight > most.weight) most.weight = step.weight;
  }
  return most;
}

/* Reads come before writes, of all steps: what an instruction writes itself was not there for it. */
static bool read_step(Walk *walk, Step step) {
  const Instruction *i = walk->i;
  if (i->opcode == OPCODE_GEMM) {
    int64_t weight = i->lanes ? step.weight / walk->machine->configuration.block_out : step.weight;
    return read_entry(walk, PLACE_INPUT, step.source, false) && read_entry(walk, PLACE_WEIGHT, weight, false) &&
           (i->reset || read_entry(walk, PLACE_ACCUMULATOR, step.destination, false));
  }
  int64_t behind = i->operation == OPERATION_REQUANTIZE ? 2 : 0;
  for (int64_t k = 0; k <= behind && !i->use_immediate; k++)
    if (!read_entry(walk, PLACE_ACCUMULATOR, step.source + k, false)) return false;
  return i->operation == OPERATION_COPY || read_entry(walk, PLACE_ACCUMULATOR, step.destination, false);
}

static bool check_steps(Walk *walk) {
  const Instruction *i = walk->i;
  const AcceleratorConfiguration *c = &walk->machine->configuration;
  Step most = reach_of(walk);
  if (i->opcode == OPCODE_GEMM) {
    int64_t weight = i->lanes ? most.weight / c->block_out : most.weight;
    if (!check_reach(walk, PLACE_INPUT, most.source, false) || !check_reach(walk, PLACE_WEIGHT, weight, false))
      return false;
  } else if (!i->use_immediate) {
    int64_t behind = i->operation == OPERATION_REQUANTIZE ? 2 : 0;
    if (!check_reach(walk, PLACE_ACCUMULATOR, most.source + behind, false)) return false;
  }
  return check_reach(walk, PLACE_ACCUMULATOR, most.destination, true);
}

static bool access_steps(Walk *walk) {
  const Instruction *i = walk->i;
  if (!i->outer || !i->inner) return true;
  if (accelerator_steps(i) > MOST_STEPS)
    return refuse(walk, FAULT_STEPS, PLACE_MICRO_OP, accelerator_steps(i), MOST_STEPS);
  if (!check_reach(walk, PLACE_MICRO_OP, i->end - 1, false)) return false;
  for (int64_t k = i->begin; k < i->end; k++)
    if (!read_entry(walk, PLACE_MICRO_OP, k, false)) return false;
  if (!check_steps(walk)) return false;
  for (int writing = 0; writing < 2; writing++)
    for (int64_t outer = 0; outer < i->outer; outer++)
      for (int64_t inner = 0; inner < i->inner; inner++)
        for (int64_t k = i->begin; k < i->end; k++) {
          Step step = accelerator_step(walk->machine, i, outer, inner, k);
          if (writing) write_entry(walk, PLACE_ACCUMULATOR, step.destination);
          else if (!read_step(walk, step)) return false;
        }
  return true;
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

static bool access_all(Walk *walk, int64_t index) {
  walk->index = index;
  walk->i = &walk->machine->instructions[index];
  switch (walk->i->opcode) {
    case OPCODE_LOAD:
      return access_load(walk);
    case OPCODE_STORE:
      return access_store(walk);
    case OPCODE_GEMM:
    case OPCODE_ALU:
      return access_steps(walk);
    case OPCODE_FINISH:
      break;
  }
  return true;
}

/* Finds an instruction that writes, too late, what the fault says nobody wrote. */
static void find_writer(Walk *walk) {
  Fault *fault = &walk->hazards->fault;
  walk->searching = true;
  walk->wanted_place = (Place)fault->place;
  walk->wanted = fault->first;
  for (int64_t index = 0; index < walk->machine->count && !walk->found; index++) {
    if (index == fault->index) continue;
    (void)access_all(walk, index);
    if (walk->found) fault->last = index;
  }
}

static void check_outputs(Walk *walk) {
  Hazards *hazards = walk->hazards;
  for (size_t k = 0; k < hazards->tensor_count; k++) {
    const ProgramTensor *tensor = &hazards->tensors[k];
    int64_t end = tensor->offset + tensor->size;
    for (int64_t entry = tensor->offset / walk->granule; entry * walk->granule < end; entry++)
      if (tensor->role == ROLE_OUTPUT && !is_written(&walk->entries[PLACE_DRAM][entry])) {
        hazards->fault = (Fault){FAULT_OUTPUT, -1, PLACE_DRAM, (int64_t)k, entry};
        return;
      }
  }
}

bool accelerator_find_hazards(Accelerator *machine, Hazards *hazards) {
  const AcceleratorConfiguration *c = &machine->configuration;
  Walk walk = {.machine = machine, .hazards = hazards};
  walk.granule = common_divisor(c->batch * c->block_in, c->batch * c->block_out);
  bool good = true;
  for (Place place = 0; place < PLACES; place++) {
    walk.entries[place] = calloc((size_t)size_of(&walk, place) + 1, sizeof(Entry));
    good = good && walk.entries[place];
  }
  hazards->fault = (Fault){FAULT_NONE, -1, 0, 0, 0};
  bool is_clean = good;
  walk.contents.dram = hazards->contents;
  bool follows = good && hazards->contents;
  if (follows) is_clean = good = contents_open(&walk.contents, machine);
  for (int64_t k = 0; k < machine->count && is_clean; k++) {
    is_clean = access_all(&walk, hazards->sequence[k]);
    if (follows && is_clean) contents_follow(&walk.contents, machine, walk.i);
  }
  if (is_clean) check_outputs(&walk);
  else if (good && hazards->fault.kind == FAULT_UNWRITTEN) find_writer(&walk);
  for (Place place = 0; place < PLACES; place++) free(walk.entries[place]);
  if (follows) contents_close(&walk.contents);
  return good || (!follows && accelerator_fail(machine, "out of memory"));
}
