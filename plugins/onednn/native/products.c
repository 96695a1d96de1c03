/* Matrix products: MatMul and Gemm. */
#include <string.h>

#include "kernel.h"

/* The matrices as the primitive sees them: equal ranks, or two axes where the right one is shared by all rows. */
typedef struct Product {
  Shape left, right;
  bool left_transposed, right_transposed;
} Product;

static void pad_rank(const Shape *shape, int32_t rank, Shape *result) {
  *result = (Shape){.rank = rank};
  for (int32_t i = 0; i < rank; i++) {
    int32_t from = i - (rank - shape->rank);
    result->sizes[i] = from >= 0 ? shape->sizes[from] : 1;
  }
}

static int32_t read_product(Kernel *kernel, Product *product) {
  *product = (Product){.left_transposed = kernel_flag(kernel, "transpose_a"),
                       .right_transposed = kernel_flag(kernel, "transpose_b")};
  const Shape *left = kernel_shape(kernel, 0);
  const Shape *right = kernel_shape(kernel, 1);
  int32_t rank = kernel->self->shape.rank;
  if (left->rank < 2 || right->rank < 2 || left->rank > rank || right->rank > rank) {
    return kernel_fail(kernel, "both matrices need at least two axes", DNNL_SUCCESS);
  }
  kernel->reshaped = true;
  if (right->rank == 2 && left->rank == rank && !product->left_transposed) {
    product->left = onednn_fold_rows(left);
    product->right = *right;
    kernel->shape = onednn_fold_rows(&kernel->self->shape);
  } else {
    pad_rank(left, rank, &product->left);
    pad_rank(right, rank, &product->right);
  }
  int64_t *depths[2] = {&product->left.sizes[product->left.rank - 1 - product->left_transposed],
                        &product->right.sizes[product->right.rank - 2 + product->right_transposed]};
  if (*depths[0] == 0 && *depths[1] == 0) { /* a sum of nothing: of one product of zeros */
    *depths[0] = *depths[1] = 1;
  }
  return GRAFT_OK;
}

static void swap_last(int64_t *values, int32_t rank) {
  int64_t last = values[rank - 1];
  values[rank - 1] = values[rank - 2];
  values[rank - 2] = last;
}

/* Describes row-major bytes of `shape`, read with the last two axes swapped where `transposed`; swaps `shape` too. */
static int32_t matrix_view(Kernel *kernel, Shape *shape, bool transposed, DnnlDesc *view) {
  int64_t strides[DNNL_MAX_RANK];
  onednn_row_major_strides(shape, strides);
  if (transposed) {
    swap_last(strides, shape->rank);
    swap_last(shape->sizes, shape->rank);
  }
  return onednn_strided(kernel->binding, kernel->node, shape, strides, view);
}

/* Adds zeros of a shape as operand, in the place of an input without elements. */
static int32_t add_zeros(Kernel *kernel, int32_t arg, int32_t input, const Shape *shape, DnnlDesc *desc) {
  Binding *binding = kernel->binding;
  DnnlDesc view = NULL;
  int32_t buffer = -1;
  bool failed = onednn_row_major(binding, kernel->node, shape, desc) ||
                onednn_row_major(binding, kernel->node, shape, &view) ||
                onednn_new_buffer(binding, BUFFER_CONSTANT, binding->dnnl->memory_desc_get_size(*desc), &buffer);
  if (!failed) {
    Buffer *zeros = &binding->buffers[buffer];
    zeros->data = onednn_allocate(zeros->bytes);
    zeros->owned = true;
    failed = zeros->data == NULL ? kernel_fail(kernel, "memory ran out", DNNL_SUCCESS)
                                 : onednn_store(binding, kernel->self->inputs[input], buffer, *desc, view);
    if (!failed) {
      memset(zeros->data, 0, zeros->bytes);
    }
  }
  if (failed) {
    binding->dnnl->memory_desc_destroy(view);
    return GRAFT_ERROR_RUN;
  }
  return kernel_operand(kernel, arg, input, view);
}

/* Adds a matrix as operand; `desc` gets what the primitive is told: any layout for a constant, else the bytes as
 * they lie. */
static int32_t add_matrix(Kernel *kernel, int32_t arg, int32_t input, Product *product, DnnlDesc *desc) {
  Shape *shape = input == 0 ? &product->left : &product->right;
  bool transposed = input == 0 ? product->left_transposed : product->right_transposed;
  Binding *binding = kernel->binding;
  int32_t value = kernel->self->inputs[input];
  const Stored *current = onednn_current(binding, value);
  const Shape *given = kernel_shape(kernel, input);
  bool constant = binding->nodes[value].kind == NODE_CONST;
  DnnlDesc view = NULL;
  if (binding->nodes[value].empty) {
    if (transposed) {
      swap_last(shape->sizes, shape->rank);
    }
    return add_zeros(kernel, arg, input, shape, desc);
  }
  if (!constant && !transposed && shape->rank == given->rank && !kernel->copied) {
    GRAFT_TRY(kernel_check(kernel, binding->dnnl->memory_desc_clone(desc, current->desc), "describing a matrix"));
    return kernel_operand(kernel, arg, input, NULL);
  }
  if (matrix_view(kernel, shape, transposed, &view) ||
      (constant ? onednn_any_layout(binding, kernel->node, shape, desc)
                : kernel_check(kernel, binding->dnnl->memory_desc_clone(desc, view), "describing a matrix"))) {
    binding->dnnl->memory_desc_destroy(view);
    return GRAFT_ERROR_RUN;
  }
  return kernel_operand(kernel, arg, input, view);
}

static int32_t add_bias(Kernel *kernel, DnnlDesc *desc) {
  DnnlDesc view = NULL;
  Shape shape;
  if (kernel->self->input_count < 3) {
    return kernel_fail(kernel, "the bias is missing", DNNL_SUCCESS);
  }
  if (kernel_shape(kernel, 2)->rank > kernel->shape.rank) {
    return kernel_fail(kernel, "the bias has too many axes", DNNL_SUCCESS);
  }
  pad_rank(kernel_shape(kernel, 2), kernel->shape.rank, &shape);
  GRAFT_TRY(onednn_row_major(kernel->binding, kernel->node, &shape, desc));
  GRAFT_TRY(onednn_row_major(kernel->binding, kernel->node, &shape, &view));
  return kernel_operand(kernel, ARG_BIAS, 2, view);
}

int32_t describe_matmul(Kernel *kernel) {
  Binding *binding = kernel->binding;
  Product product;
  DnnlDesc right = NULL;
  DnnlDesc bias = NULL;
  bool failed = read_product(kernel, &product) || add_matrix(kernel, ARG_SRC, 0, &product, &kernel->source) ||
                add_matrix(kernel, ARG_WEIGHTS, 1, &product, &right) ||
                (kernel_flag(kernel, "bias") && add_bias(kernel, &bias)) ||
                onednn_row_major(binding, kernel->node, &kernel->shape, &kernel->target) || kernel_attributes(kernel);
  if (!failed) {
    DnnlStatus status = binding->dnnl->matmul_primitive_desc_create(&kernel->recipe, binding->engine, kernel->source,
                                                                  right, bias, kernel->target, kernel->attr);
    failed = kernel_check(kernel, status, "describing a matrix product");
  }
  binding->dnnl->memory_desc_destroy(right);
  binding->dnnl->memory_desc_destroy(bias);
  return failed ? GRAFT_ERROR_RUN : GRAFT_OK;
}
