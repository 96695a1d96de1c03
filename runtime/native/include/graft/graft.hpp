/* Graft's programs in C++17: owned, typed, with exceptions or error codes. Header only; needs nothing but the standard
 * library.
 *
 *   GRAFT_DECLARE_MODEL(digits)                           // a library that `graft export` wrote
 *   graft::Program program(*graft_model_digits());        // or graft::Program::open("digits.graft"), with the runtime
 *   std::vector<float> image(64);
 *   auto outputs = program.run({graft::Tensor(image, {1, 1, 8, 8})});
 *   for (float logit : outputs[0].values<float>()) ...
 *
 * What fails throws graft::Error; functions that begin with `try_` return a code and fill a GraftError instead. Threads
 * may run one program at the same time.
 */
#ifndef GRAFT_GRAFT_HPP
#define GRAFT_GRAFT_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "graft/model.h"

namespace graft {

/* What failed: a text, and the code of runtime.h. */
class Error : public std::runtime_error {
 public:
  explicit Error(const GraftError &error) : std::runtime_error(error.message), code_(error.code) {}
  Error(std::int32_t code, const std::string &message) : std::runtime_error(message), code_(code) {}
  std::int32_t code() const noexcept { return code_; }

 private:
  std::int32_t code_;
};

/* The element type of T: bool, integers, float and double. */
template <class T>
constexpr DLDataType element_type() noexcept {
  static_assert(std::is_arithmetic<T>::value && sizeof(T) <= 8, "tensors have numbers as elements");
  const auto code = std::is_same<T, bool>::value      ? kDLBool
                    : std::is_floating_point<T>::value ? kDLFloat
                    : std::is_signed<T>::value         ? kDLInt
                                                       : kDLUInt;
  return DLDataType{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * sizeof(T)), 1};
}

/* Elements that somebody else owns. */
template <class T>
class Span {
 public:
  constexpr Span() noexcept = default;
  constexpr Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <class Container, class = decltype(std::declval<Container &>().data())>
  constexpr Span(Container &container) noexcept : Span(container.data(), container.size()) {}
  template <std::size_t N>
  constexpr Span(T (&array)[N]) noexcept : Span(array, N) {}

  constexpr T *data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr T *begin() const noexcept { return data_; }
  constexpr T *end() const noexcept { return data_ + size_; }
  constexpr T &operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  T *data_ = nullptr;
  std::size_t size_ = 0;
};

/* An input, or the memory of an output: contiguous elements of somebody else, and a shape. Throws where the number of
 * elements is not that of the shape. */
class Tensor {
 public:
  template <class Elements>
  Tensor(Elements &&elements, std::vector<std::int64_t> shape) : shape_(std::move(shape)) {
    const Span<std::remove_pointer_t<decltype(Span(elements).data())>> span(elements);
    using T = std::remove_const_t<std::remove_pointer_t<decltype(span.data())>>;
    std::size_t count = 1;
    for (const std::int64_t extent : shape_) count *= static_cast<std::size_t>(extent);
    if (count != span.size()) {
      throw Error(GRAFT_ERROR_INPUT, "a tensor has " + std::to_string(span.size()) + " elements, and its shape wants " +
                                         std::to_string(count));
    }
    data_ = const_cast<T *>(span.data());
    type_ = element_type<T>();
  }

  /* What the C functions take; valid as long as this tensor is. */
  DLTensor view() const noexcept {
    DLTensor tensor{};
    tensor.data = data_;
    tensor.device = DLDevice{kDLCPU, 0};
    tensor.ndim = static_cast<std::int32_t>(shape_.size());
    tensor.dtype = type_;
    tensor.shape = const_cast<std::int64_t *>(shape_.data());
    return tensor;
  }

 private:
  std::vector<std::int64_t> shape_;
  void *data_ = nullptr;
  DLDataType type_{};
};

template <class Container>
Span(Container &) -> Span<std::remove_pointer_t<decltype(std::declval<Container &>().data())>>;

/* An output that the program allocated; freed when it goes. */
class Output {
 public:
  Output(const DLTensor &tensor, void (*release)(DLTensor *)) noexcept : tensor_(tensor), release_(release) {}
  Output(Output &&other) noexcept : tensor_(other.tensor_), release_(std::exchange(other.release_, nullptr)) {}
  Output &operator=(Output &&other) noexcept {
    std::swap(tensor_, other.tensor_);
    std::swap(release_, other.release_);
    return *this;
  }
  Output(const Output &) = delete;
  Output &operator=(const Output &) = delete;
  ~Output() {
    if (release_ != nullptr) release_(&tensor_);
  }

  Span<const std::int64_t> shape() const noexcept {
    return {tensor_.shape, static_cast<std::size_t>(tensor_.ndim)};
  }
  const DLTensor &tensor() const noexcept { return tensor_; }

  /* The elements; throws where they are of another type. */
  template <class T>
  Span<const T> values() const {
    const DLDataType wanted = element_type<T>(), own = tensor_.dtype;
    if (own.code != wanted.code || own.bits != wanted.bits || own.lanes != 1) {
      throw Error(GRAFT_ERROR_INPUT, "an output has another element type than the one it is read as");
    }
    std::size_t count = 1;
    for (const std::int64_t extent : shape()) count *= static_cast<std::size_t>(extent);
    const char *begin = static_cast<const char *>(tensor_.data) + tensor_.byte_offset;
    return {reinterpret_cast<const T *>(begin), count};
  }

 private:
  DLTensor tensor_;
  void (*release_)(DLTensor *);
};

/* The functions of the runtime that is linked, as those of a model's library. */
inline const GraftModel &linked_runtime() noexcept {
  static const GraftModel table = {GRAFT_ABI_VERSION,          sizeof(GraftModel),        nullptr,
                                   graft_program_destroy,      graft_program_input_count, graft_program_output_count,
                                   graft_program_input,        graft_program_output,      graft_program_symbol_count,
                                   graft_program_symbol,       graft_program_run,         graft_free_output,
                                   graft_program_run_with,     graft_cancel,              graft_program_input_index,
                                   graft_program_output_index};
  return table;
}

/* A loaded program. */
class Program {
 public:
  /* The program of a library that `graft export` wrote: *graft_model_NAME(). */
  explicit Program(const GraftModel &model, const GraftLoadOptions *options = nullptr) : model_(&model) {
    GraftError error{};
    if (model.abi_version != GRAFT_ABI_VERSION) {
      throw Error(GRAFT_ERROR_ARTIFACT, "the library was made for another version of Graft's ABI; export it again");
    }
    if (model.load(options, &program_, &error) != GRAFT_OK) throw Error(error);
  }

  /* The program of an artifact, or of a library's file; this wants the runtime to be linked. */
  static Program open(const std::string &path, const GraftLoadOptions *options = nullptr) {
    GraftError error{};
    GraftProgram *program = nullptr;
    if (graft_program_load(path.c_str(), options, &program, &error) != GRAFT_OK) throw Error(error);
    return Program(linked_runtime(), program);
  }

  Program(Program &&other) noexcept : model_(other.model_), program_(std::exchange(other.program_, nullptr)) {}
  Program &operator=(Program &&other) noexcept {
    std::swap(model_, other.model_);
    std::swap(program_, other.program_);
    return *this;
  }
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;
  ~Program() { model_->destroy(program_); }

  std::int32_t input_count() const noexcept { return model_->input_count(program_); }
  std::int32_t output_count() const noexcept { return model_->output_count(program_); }
  GraftTensorInfo input(std::int32_t index) const noexcept { return model_->input(program_, index); }
  GraftTensorInfo output(std::int32_t index) const noexcept { return model_->output(program_, index); }

  /* Which input or output has a name; -1 where none has. */
  std::int32_t input_index(const std::string &name) const noexcept {
    return index_of(input_count(), model_->input, name);
  }
  std::int32_t output_index(const std::string &name) const noexcept {
    return index_of(output_count(), model_->output, name);
  }

  /* Runs the program on all its inputs; the outputs own their memory. A run that `options` stop throws, too. */
  std::vector<Output> run(const std::vector<Tensor> &inputs, const GraftRunOptions *options = nullptr) {
    std::vector<DLTensor> results(static_cast<std::size_t>(output_count()));
    std::vector<Output> outputs;
    outputs.reserve(results.size()); /* nothing below may throw before each result has an owner */
    GraftError error{};
    if (try_run(inputs, results, error, options) != GRAFT_OK) throw Error(error);
    for (const DLTensor &result : results) outputs.emplace_back(result, model_->free_output);
    return outputs;
  }

  /* Runs the program into the caller's memory; nothing is allocated for outputs. */
  void run(const std::vector<Tensor> &inputs, const std::vector<Tensor> &outputs,
           const GraftRunOptions *options = nullptr) {
    std::vector<DLTensor> results = views(outputs);
    GraftError error{};
    if (try_run(inputs, results, error, options) != GRAFT_OK) throw Error(error);
  }

  /* The same with a code: an output without data is allocated, and freed by `free`. */
  std::int32_t try_run(const std::vector<Tensor> &inputs, std::vector<DLTensor> &outputs, GraftError &error,
                       const GraftRunOptions *options = nullptr) {
    if (!has(inputs.size(), input_count()) || !has(outputs.size(), output_count())) {
      return refuse(error, "the number of inputs or outputs is not that of the program");
    }
    const std::vector<DLTensor> given = views(inputs);
    if (options == nullptr) return model_->run(program_, given.data(), outputs.data(), &error);
    if (model_->size <= GRAFT_MODEL_LEAST) return refuse(error, "the library's runs cannot be stopped; export it again");
    return model_->run_with(program_, given.data(), outputs.data(), options, &error);
  }

  /* Stops the runs that have this token; any thread may call it. */
  void cancel(GraftCancelToken &token) const {
    if (model_->size <= GRAFT_MODEL_LEAST) {
      throw Error(GRAFT_ERROR_INPUT, "the library's runs cannot be stopped; export it again");
    }
    model_->cancel(&token);
  }

  void free(DLTensor &output) const noexcept { model_->free_output(&output); }

 private:
  Program(const GraftModel &model, GraftProgram *program) noexcept : model_(&model), program_(program) {}

  std::int32_t index_of(std::int32_t count, GraftTensorInfo (*info)(const GraftProgram *, std::int32_t),
                        const std::string &name) const noexcept {
    for (std::int32_t i = 0; i < count; ++i) {
      if (name == info(program_, i).name) return i;
    }
    return -1;
  }

  template <std::size_t Size>
  static std::int32_t refuse(GraftError &error, const char (&text)[Size]) noexcept {
    error.code = GRAFT_ERROR_INPUT;
    for (std::size_t i = 0; i < Size; ++i) error.message[i] = text[i];
    return GRAFT_ERROR_INPUT;
  }
  static bool has(std::size_t given, std::int32_t wanted) noexcept {
    return given == static_cast<std::size_t>(wanted);
  }
  static std::vector<DLTensor> views(const std::vector<Tensor> &tensors) {
    std::vector<DLTensor> result;
    result.reserve(tensors.size());
    for (const Tensor &tensor : tensors) result.push_back(tensor.view());
    return result;
  }

  const GraftModel *model_;
  GraftProgram *program_ = nullptr;
};

}  // namespace graft

#endif
