/* One kernel on its way to becoming a step: its operands, post-operations and the implementation chosen for it. */
#ifndef GRAFT_ONEDNN_KERNEL_H
#define GRAFT_ONEDNN_KERNEL_H

#include "module.h"

#define MAX_POST_OPS 8

/* `view`, where it is not NULL, describes the value's row-major bytes as the primitive sees them; owned. */
typedef struct Operand {
  int32_t arg;
  int32_t value;
  DnnlDesc view;
} Operand;

typedef struct Kernel {
  Binding *binding;
  int32_t node;
  const Node *self;
  Shape shape;       /* of the destination as the primitive sees it */
  int32_t dropped;   /* axes of extent 1 at the end that `shape` leaves out */
  bool copied;       /* operands are laid out anew: there is no fast implementation for how they lie */
  bool reshaped;     /* the destination is row-major under `shape`, and stays so under the node's own shape */
  int32_t replaced;  /* the value whose buffer the destination overwrites (sum), -1 for none */
  DnnlDesc replaced_view;
  DnnlDesc source, target; /* descriptions for the primitive's source and destination; owned */
  DnnlAttr attr;
  DnnlRecipe recipe;
  Operand operands[MAX_OPERANDS];
  int32_t operand_count;
} Kernel;

/* A row of the table of primitives: how many inputs it has at least and at most, and how it is described. */
typedef struct PrimitiveRow {
  const char *name;
  int32_t least, most;
  int32_t (*describe)(Kernel *kernel);
  bool empty; /* whether it takes inputs without elements */
} PrimitiveRow;

/* kernel.c */
int32_t kernel_fail(const Kernel *kernel, const char *what, DnnlStatus status);
/* Fails where a call of oneDNN did. */
int32_t kernel_check(const Kernel *kernel, DnnlStatus status, const char *what);
const Shape *kernel_shape(const Kernel *kernel, int32_t input);
/* Adds input number `input` as argument `arg`; takes `view`. */
int32_t kernel_operand(Kernel *kernel, int32_t arg, int32_t input, DnnlDesc view);
/* An operand's shape with ones in front, under the axes of the destination as the primitive sees it: those of the node,
 * or fewer where the first are folded into one (products) or the last are of extent 1 and left out (binary). */
void kernel_pad_rank(const Kernel *kernel, const Shape *shape, Shape *result);
/* Reads exactly `count` integers, each in [least, 2^31). */
int32_t kernel_integers(const Kernel *kernel, const char *name, int32_t count, int64_t least, int64_t *values);
float kernel_number(const Kernel *kernel, const char *name, double fallback);
const char *kernel_text(const Kernel *kernel, const char *name);
bool kernel_flag(const Kernel *kernel, const char *name);
/* Looks `name`'s string up in a table of oneDNN's constants; 0 where it is not there. */
typedef struct NamedValue {
  const char *name;
  DnnlEnum value;
} NamedValue;
DnnlEnum onednn_named(const NamedValue *table, size_t count, const char *name);

/* post_ops.c */
DnnlEnum onednn_eltwise(const char *name);
DnnlEnum onednn_binary(const char *name);
/* Fills `attr` from the attribute "post_ops". */
int32_t kernel_attributes(Kernel *kernel);

/* post_ops.c: descriptions of primitives with one source */
/* Sets `source` to the layout in which input 0 lies, or where it is copied to one with `axis` innermost, `target` to any
 * layout of the node's shape, and `attr`. */
int32_t kernel_unary(Kernel *kernel, int32_t axis);
/* Ends the description of such a kernel: checks the status, then adds input 0 as the source. */
int32_t kernel_described(Kernel *kernel, DnnlStatus status, const char *what);

/* windows.c */
int32_t describe_convolution(Kernel *kernel);
int32_t describe_pooling(Kernel *kernel);
/* products.c */
int32_t describe_matmul(Kernel *kernel);
/* pointwise.c */
int32_t describe_eltwise(Kernel *kernel);
int32_t describe_binary(Kernel *kernel);
int32_t describe_softmax(Kernel *kernel);
int32_t describe_layer_normalization(Kernel *kernel);
int32_t describe_lrn(Kernel *kernel);
int32_t describe_batch_normalization(Kernel *kernel);
int32_t describe_concat(Kernel *kernel);

#endif
