/* Variants: versions of the entry for some of its shapes. Whether they are that, and which of them takes a call. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "manifest/procedure.h"

/* ---- Checks --------------------------------------------------------------------------------------------------- */

typedef struct Checker {
  const Procedure *entry, *variant;
  int32_t number; /* of the variant's procedure */
  GraftError *error;
} Checker;

static Dimension dimension_at(const TensorSpec *spec, int32_t axis) {
  return spec->dimensions ? spec->dimensions[axis] : (Dimension){-1, spec->shape[axis]};
}

static int is_same(Dimension left, Dimension right) {
  return left.place == right.place && left.number == right.number;
}

/* NULL where the dimension is no symbol. */
static const SymbolSpec *symbol_of(const Procedure *procedure, Dimension dimension) {
  return dimension.place >= 0 && dimension.place < procedure->symbol_count ? procedure->symbols + dimension.place : NULL;
}

static int32_t fail_tensor(const Checker *checker, const char *what, const TensorSpec *entry,
                           const TensorSpec *variant) {
  char wanted[256] = "", got[256] = "";
  if (entry->ndim >= 0) {
    graft_append_dimensions(wanted, sizeof wanted, checker->entry, entry);
  }
  if (variant->ndim >= 0) {
    graft_append_dimensions(got, sizeof got, checker->variant, variant);
  }
  return graft_set_error(checker->error, GRAFT_ERROR_ARTIFACT,
                         "damaged manifest: variant in procedure %" PRId32 ": %s '%s' is %s%s, which is no %s%s",
                         checker->number, what, variant->name, graft_dtype_name(variant->dtype), got,
                         graft_dtype_name(entry->dtype), wanted);
}

/* Whether every extent that an axis of an input may have in the variant is one that it may have in the entry. Where the
 * entry has a symbol in two places, the variant has one and the same extent; what an operation gives is compared when the
 * program runs. */
static int allows(const Checker *checker, Dimension wanted, Dimension got) {
  const SymbolSpec *general = symbol_of(checker->entry, wanted), *own = symbol_of(checker->variant, got);
  if (wanted.place < 0) {
    return is_same(wanted, got);
  }
  if (!general) {
    return 1;
  }
  const TensorSpec *place = checker->entry->tensors + general->tensor;
  if (place->storage != STORAGE_INPUT ||
      !is_same(got, dimension_at(checker->variant->tensors + checker->variant->inputs.items[place->index],
                                 general->axis))) {
    return 0;
  }
  return got.place < 0 ? got.number >= general->low && got.number <= general->high
                       : own && own->low >= general->low && own->high <= general->high;
}

static int has_same_rank(const TensorSpec *entry, const TensorSpec *variant) {
  return graft_dtype_equal(entry->dtype, variant->dtype) && (entry->ndim < 0 || entry->ndim == variant->ndim);
}

static int32_t check_ranks(const Checker *checker, const char *what, const IndexList *wanted, const IndexList *got) {
  if (wanted->count != got->count) {
    return graft_set_error(checker->error, GRAFT_ERROR_ARTIFACT,
                           "damaged manifest: variant in procedure %" PRId32 " has %" PRId32 " %ss, the entry has %" PRId32,
                           checker->number, got->count, what, wanted->count);
  }
  for (int32_t i = 0; i < got->count; i++) {
    const TensorSpec *entry = checker->entry->tensors + wanted->items[i];
    const TensorSpec *variant = checker->variant->tensors + got->items[i];
    if (!has_same_rank(entry, variant)) {
      return fail_tensor(checker, what, entry, variant);
    }
  }
  return GRAFT_OK;
}

/* Ranks are right. Of outputs only numbers are compared: the variant may know more of them than the entry. */
static int32_t check_shapes(const Checker *checker, const char *what, const IndexList *wanted, const IndexList *got,
                            int are_inputs) {
  for (int32_t i = 0; i < got->count; i++) {
    const TensorSpec *entry = checker->entry->tensors + wanted->items[i];
    const TensorSpec *variant = checker->variant->tensors + got->items[i];
    for (int32_t axis = 0; axis < entry->ndim; axis++) {
      Dimension general = dimension_at(entry, axis), own = dimension_at(variant, axis);
      if (are_inputs ? !allows(checker, general, own) : general.place < 0 && !is_same(general, own)) {
        return fail_tensor(checker, what, entry, variant);
      }
    }
  }
  return GRAFT_OK;
}

int32_t graft_check_variants(const Manifest *manifest, GraftError *error) {
  for (int32_t i = 0; i < manifest->variants.count; i++) {
    int32_t number = manifest->variants.items[i];
    const Procedure *entry = manifest->procedures, *variant = manifest->procedures + number;
    Checker checker = {.entry = entry, .variant = variant, .number = number, .error = error};
    GRAFT_TRY(check_ranks(&checker, "input", &entry->inputs, &variant->inputs));
    GRAFT_TRY(check_ranks(&checker, "output", &entry->outputs, &variant->outputs));
    GRAFT_TRY(check_shapes(&checker, "input", &entry->inputs, &variant->inputs, 1));
    GRAFT_TRY(check_shapes(&checker, "output", &entry->outputs, &variant->outputs, 0));
  }
  return GRAFT_OK;
}

/* ---- Choice --------------------------------------------------------------------------------------------------- */

/* What comes as rows of a larger buffer has to be what the variant appends to. */
static int fits_strides(const TensorSpec *spec, const DLTensor *input) {
  return spec->grows >= 0 || graft_is_contiguous(input);
}

/* Ranks are compared. */
static int fits_axes(const Procedure *variant, const TensorSpec *spec, const DLTensor *inputs, const int64_t *shape) {
  for (int32_t axis = 0; axis < spec->ndim; axis++) {
    const SymbolSpec *symbol = spec->dimensions ? symbol_of(variant, spec->dimensions[axis]) : NULL;
    if (spec->shape[axis] >= 0 ? shape[axis] != spec->shape[axis]
                               : symbol && (shape[axis] < symbol->low || shape[axis] > symbol->high ||
                                            shape[axis] != inputs[variant->tensors[symbol->tensor].index].shape[symbol->axis])) {
      return 0;
    }
  }
  return 1;
}

static int fits(const Procedure *variant, const DLTensor *inputs) {
  const IndexList *list = &variant->inputs;
  for (int32_t i = 0; i < list->count; i++) {
    int32_t ndim = variant->tensors[list->items[i]].ndim;
    if (ndim >= 0 && inputs[i].ndim != ndim) {
      return 0;
    }
  }
  for (int32_t i = 0; i < list->count; i++) {
    const TensorSpec *spec = variant->tensors + list->items[i];
    if (!fits_axes(variant, spec, inputs, inputs[i].shape) || !fits_strides(spec, inputs + i)) {
      return 0;
    }
  }
  return 1;
}

int32_t graft_choose_entry(const Manifest *manifest, const DLTensor *inputs) {
  for (int32_t i = 0; i < manifest->variants.count; i++) {
    if (fits(manifest->procedures + manifest->variants.items[i], inputs)) {
      return manifest->variants.items[i];
    }
  }
  return 0;
}
