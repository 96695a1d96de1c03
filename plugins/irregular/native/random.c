/* Random numbers: the Mersenne Twister (Matsumoto and Nishimura 1998), seeded and read as NumPy's RandomState does.
 *
 * So a node with a seed gives the same numbers in every run, those of onnx.reference; one without gives others each time.
 */
#include <math.h>
#include <string.h>

#include "kernel.h"

enum { WORDS = 624, MIDDLE = 397 };

typedef struct Twister {
  uint32_t words[WORDS];
  int next;
  bool has_normal;
  double normal;
} Twister;

static void seed_twister(Twister *twister, uint32_t seed) {
  for (uint32_t i = 0; i < WORDS; i++) {
    twister->words[i] = seed;
    seed = UINT32_C(1812433253) * (seed ^ seed >> 30) + i + 1;
  }
  twister->next = WORDS;
  twister->has_normal = false;
}

static uint32_t next_word(Twister *twister) {
  uint32_t *words = twister->words;
  if (twister->next == WORDS) {
    for (int i = 0; i < WORDS; i++) {
      uint32_t joined = (words[i] & 0x80000000) | (words[(i + 1) % WORDS] & 0x7fffffff);
      words[i] = words[(i + MIDDLE) % WORDS] ^ joined >> 1 ^ (joined & 1 ? 0x9908b0df : 0);
    }
    twister->next = 0;
  }
  uint32_t word = words[twister->next++];
  word ^= word >> 11;
  word ^= word << 7 & 0x9d2c5680;
  word ^= word << 15 & 0xefc60000;
  return word ^ word >> 18;
}

/* A number in [0, 1) of 53 bits. */
static double uniform(Twister *twister) {
  uint32_t high = next_word(twister) >> 5, low = next_word(twister) >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

/* Marsaglia's polar method, whose second number is kept. */
static double normal(Twister *twister) {
  if (twister->has_normal) {
    twister->has_normal = false;
    return twister->normal;
  }
  double x, y, square;
  do {
    x = 2 * uniform(twister) - 1;
    y = 2 * uniform(twister) - 1;
    square = x * x + y * y;
  } while (square >= 1 || square == 0);
  double factor = sqrt(-2 * log(square) / square);
  twister->normal = factor * x;
  twister->has_normal = true;
  return factor * y;
}

static void start(Call *call, Twister *twister) {
  double seed = irregular_number_of(call, "seed", NAN);
  uint64_t number = isnan(seed) ? irregular_fresh_seed(call) : (uint64_t)(int64_t)seed;
  number = isnan(seed) ? number ^ number >> 32 : number;
  seed_twister(twister, (uint32_t)number);
}

/* Output 0 in the shape of input 0, or that of the attribute. */
static void *like(Call *call, Array *shape) {
  if (irregular_has(call, 0)) {
    return irregular_array(call, 0, shape) ? NULL : irregular_output(call, 0, shape->rank, shape->shape);
  }
  const JsonValue *list = irregular_list_of(call, "shape");
  memset(shape, 0, sizeof *shape);
  shape->count = 1;
  for (size_t i = 0; i < graft_json_count(list) && i < MOST_RANK; i++) {
    shape->shape[shape->rank] = graft_json_integer(graft_json_item(list, i), 0);
    shape->count *= shape->shape[shape->rank++];
  }
  return irregular_output(call, 0, shape->rank, shape->shape);
}

/* Output 0, its type, and the numbers to come, of a kernel that draws one for each element; `source` is input 0 or says
 * the shape. */
typedef struct Draw {
  Array source;
  Twister twister;
  Element to;
  void *data;
} Draw;

static bool begin(Call *call, Draw *draw) {
  draw->data = like(call, &draw->source);
  draw->to = irregular_output_type(call, 0).element;
  start(call, &draw->twister);
  return draw->data != NULL;
}

static int32_t bernoulli(Call *call) {
  Draw draw;
  if (!begin(call, &draw)) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < draw.source.count; i++) {
    double chance = irregular_load(draw.source.element, draw.source.data, i), number = uniform(&draw.twister);
    irregular_store(draw.to, draw.data, i, chance <= 0.5 ? number > 1 - chance : !(number > chance), false);
  }
  return GRAFT_OK;
}

/* Gives `base + factor * number` for numbers of a distribution. */
static int32_t distributed(Call *call, double base, double factor, double (*number)(Twister *twister)) {
  Draw draw;
  if (!begin(call, &draw)) {
    return GRAFT_ERROR_RUN;
  }
  for (int64_t i = 0; i < draw.source.count; i++) {
    irregular_store(draw.to, draw.data, i, base + factor * number(&draw.twister), false);
  }
  return GRAFT_OK;
}

static int32_t random_uniform(Call *call) {
  double low = irregular_number_of(call, "low", 0), high = irregular_number_of(call, "high", 1);
  return distributed(call, low, high - low, uniform);
}

static int32_t random_normal(Call *call) {
  return distributed(call, irregular_number_of(call, "mean", 0), irregular_number_of(call, "scale", 1), normal);
}

/* Draws of classes, whose chances are the exponentials of what comes. */
static int32_t multinomial(Call *call) {
  Array source;
  Twister twister;
  GRAFT_TRY(irregular_array(call, 0, &source));
  if (source.rank != 2 || source.shape[1] < 1) {
    return irregular_fail(call, "the input has no shape [batch, class]");
  }
  int64_t classes = source.shape[1], draws = irregular_integer_of(call, "sample_size", 1);
  int64_t shape[2] = {source.shape[0], draws};
  double *sums = irregular_scratch(call, (uint64_t)classes * sizeof *sums);
  void *data = sums ? irregular_output(call, 0, 2, shape) : NULL;
  if (!data) {
    return GRAFT_ERROR_RUN;
  }
  Element to = irregular_output_type(call, 0).element;
  start(call, &twister);
  for (int64_t row = 0; row < shape[0]; row++) {
    double top = -INFINITY, total = 0;
    for (int64_t i = 0; i < classes; i++) {
      double chance = irregular_load(source.element, source.data, row * classes + i);
      top = chance > top ? chance : top;
    }
    for (int64_t i = 0; i < classes; i++) {
      total += exp(irregular_load(source.element, source.data, row * classes + i) - top);
      sums[i] = total;
    }
    for (int64_t draw = 0; draw < draws; draw++) {
      double wanted = uniform(&twister) * total;
      int64_t low = 0, high = classes - 1;
      while (low < high) { /* the first sum above what is wanted */
        int64_t middle = (low + high) / 2;
        if (sums[middle] > wanted) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      irregular_store(to, data, row * draws + draw, (double)low, false);
    }
  }
  return GRAFT_OK;
}

/* A scalar input, or what it is by default. */
static double scalar(Call *call, int32_t input, double fallback) {
  Array array;
  if (!irregular_has(call, input) || irregular_array(call, input, &array) || array.count < 1) {
    return fallback;
  }
  return irregular_load(array.element, array.data, 0);
}

static int32_t dropout(Call *call) {
  Draw draw;
  if (!begin(call, &draw)) {
    return GRAFT_ERROR_RUN;
  }
  const Array *source = &draw.source;
  double ratio = scalar(call, 1, 0.5);
  bool trains = scalar(call, 2, 0) != 0 && ratio != 0;
  unsigned char *mask = NULL;
  if (irregular_wants(call, 1) && !(mask = irregular_output(call, 1, source->rank, source->shape))) {
    return GRAFT_ERROR_RUN;
  }
  double factor = trains ? 1 / (1 - ratio) : 1;
  for (int64_t i = 0; i < source->count; i++) {
    bool kept = !trains || uniform(&draw.twister) >= ratio;
    double value = kept ? irregular_load(source->element, source->data, i) * factor : 0;
    irregular_store(source->element, draw.data, i, value, false);
    if (mask) {
      mask[i] = kept;
    }
  }
  return GRAFT_OK;
}

const KernelRow IRREGULAR_RANDOM[] = {{"Bernoulli", bernoulli, NULL},
                                      {"RandomUniform", random_uniform, NULL},
                                      {"RandomUniformLike", random_uniform, NULL},
                                      {"RandomNormal", random_normal, NULL},
                                      {"RandomNormalLike", random_normal, NULL},
                                      {"Multinomial", multinomial, NULL},
                                      {"Dropout", dropout, NULL},
                                      {NULL, NULL, NULL}};
