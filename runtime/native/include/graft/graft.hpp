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
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus > 202002L && __has_include(<stdfloat>)
#include <stdfloat>
#endif

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

/* IEEE 754's binary16, as an element of tensors: made of a float by rounding to the nearest, to even in the middle. */
class Half {
 public:
  Half() noexcept = default;
  explicit Half(float value) noexcept : bits_(round(value)) {}
  static Half of_bits(std::uint16_t bits) noexcept {
    Half half;
    half.bits_ = bits;
    return half;
  }
  std::uint16_t bits() const noexcept { return bits_; }

  operator float() const noexcept {
    const std::uint32_t exponent = bits_ >> 10 & 31u, mantissa = bits_ & 1023u;
    std::uint32_t bits = (exponent + 112) << 23 | mantissa << 13;
    if (exponent == 31) bits = 0x7F800000u | mantissa << 13;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    if (exponent == 0) value = static_cast<float>(mantissa) * 0x1p-24f;
    return bits_ & 0x8000u ? -value : value;
  }

 private:
  static std::uint16_t round(float value) noexcept {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u) {
      bits = 0x7E00;
    } else if (bits >= 0x477FF000u) { /* 65520 */
      bits = 0x7C00;
    } else if (bits >= 0x38800000u) { /* 2**-14, the least that is normal */
      bits = (bits + 0xFFFu + (bits >> 13 & 1u) - 0x38000000u) >> 13;
    } else { /* the last bit of 0.5 weighs 2**-24, as that of what is subnormal does */
      float shifted;
      std::memcpy(&shifted, &bits, sizeof shifted);
      shifted += 0.5f;
      std::memcpy(&bits, &shifted, sizeof bits);
      bits -= 0x3F000000u;
    }
    return static_cast<std::uint16_t>(sign | bits);
  }

  std::uint16_t bits_ = 0;
};

/* The upper half of a float, as an element of tensors: rounded to the nearest, to even in the middle. */
class BFloat16 {
 public:
  BFloat16() noexcept = default;
  explicit BFloat16(float value) noexcept {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    bits_ = static_cast<std::uint16_t>((is_nan ? bits | 0x400000u : bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  }
  static BFloat16 of_bits(std::uint16_t bits) noexcept {
    BFloat16 made;
    made.bits_ = bits;
    return made;
  }
  std::uint16_t bits() const noexcept { return bits_; }

  operator float() const noexcept {
    const std::uint32_t bits = static_cast<std::uint32_t>(bits_) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

 private:
  std::uint16_t bits_ = 0;
};

/* The element type of T: bool, integers, float, double, Half and BFloat16, and C++23's types of their formats. */
template <class T>
constexpr DLDataType element_type() noexcept {
  constexpr bool is_half = std::is_same<T, Half>::value;
  bool is_bfloat = std::is_same<T, BFloat16>::value;
#ifdef __STDCPP_BFLOAT16_T__
  is_bfloat = is_bfloat || std::is_same<T, std::bfloat16_t>::value;
#endif
  static_assert((std::is_arithmetic<T>::value && sizeof(T) <= 8) || is_half || std::is_same<T, BFloat16>::value,
                "tensors have numbers as elements");
  const auto code = std::is_same<T, bool>::value                   ? kDLBool
                    : is_bfloat                                    ? kDLBfloat
                    : is_half || std::is_floating_point<T>::value ? kDLFloat
                    : std::is_signed<T>::value                     ? kDLInt
                                                                   : kDLUInt;
  return DLDataType{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * sizeof(T)), 1};
}

/* Elements that somebody else owns, as C++20's std::span, which is made of one and of which one is made. */
template <class T>
class Span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using iterator = T *;

  constexpr Span() noexcept = default;
  constexpr Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <class Container, class = decltype(std::declval<Container &>().data())>
  constexpr Span(Container &container) noexcept : Span(container.data(), container.size()) {}
  template <std::size_t N>
  constexpr Span(T (&array)[N]) noexcept : Span(array, N) {}

  constexpr T *data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T *begin() const noexcept { return data_; }
  constexpr T *end() const noexcept { return data_ + size_; }
  constexpr T &operator[](std::size_t index) const noexcept { return data_[index]; }
  /* `count` elements from `offset` on, which are there. */
  constexpr Span subspan(std::size_t offset, std::size_t count) const noexcept { return {data_ + offset, count}; }

 private:
  T *data_ = nullptr;
  std::size_t size_ = 0;
};

template <class Container>
Span(Container &) -> Span<std::remove_pointer_t<decltype(std::declval<Container &>().data())>>;

/* What a container, an array or a span has. */
template <class Elements>
using ElementOf = std::remove_pointer_t<decltype(Span(std::declval<Elements &>()).data())>;

/* An input: contiguous elements of somebody else, which stay there until the run is done, and a shape. Throws where the
 * number of elements is not that of the shape. */
class Tensor {
 public:
  template <class Elements>
  Tensor(Elements &&elements, std::vector<std::int64_t> shape) : shape_(std::move(shape)) {
    const Span<ElementOf<Elements>> span(elements);
    using T = std::remove_const_t<ElementOf<Elements>>;
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

/* The memory of an output: a span, or elements that have a name and may be written. What goes at the end of the statement
 * is none. */
class MutableTensor : public Tensor {
 public:
  template <class T, class = std::enable_if_t<!std::is_const<T>::value>>
  MutableTensor(Span<T> elements, std::vector<std::int64_t> shape) : Tensor(elements, std::move(shape)) {}
  template <class Elements, class = std::enable_if_t<!std::is_const<ElementOf<Elements>>::value>>
  MutableTensor(Elements &elements, std::vector<std::int64_t> shape) : Tensor(elements, std::move(shape)) {}
};

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
                                   graft_program_output_index, graft_thread_pool_create,  graft_thread_pool_destroy};
  return table;
}

/* How a program is loaded. */
struct LoadOptions : GraftLoadOptions {
  LoadOptions() noexcept : GraftLoadOptions{} { size = sizeof(GraftLoadOptions); }
};

/* How a run goes. */
struct RunOptions : GraftRunOptions {
  RunOptions() noexcept : GraftRunOptions{} { size = sizeof(GraftRunOptions); }

  /* Calls `callback` with the GraftCallTime of each call; it stays where it is, and does not throw. */
  template <class Callback>
  void time(Callback &callback) noexcept {
    user = &callback;
    timed = [](void *given, const GraftCallTime *call) noexcept { (*static_cast<Callback *>(given))(*call); };
  }
};

/* Threads that programs share, of any library: `options.thread_pool = pool.get()`. It outlives the programs. */
class ThreadPool {
 public:
  /* Of the library of a model; as many threads as the process may use processors, if nothing is said. */
  explicit ThreadPool(const GraftModel &model, std::int32_t threads = 0, const GraftAllocator *allocator = nullptr)
      : model_(&model) {
    GraftError error{};
    if (model.size < sizeof(GraftModel)) {
      throw Error(GRAFT_ERROR_INPUT, "the library has no pools of threads; export it again");
    }
    if (model.thread_pool_create(threads, allocator, &pool_, &error) != GRAFT_OK) throw Error(error);
  }
  /* Of the runtime, which is linked. */
  explicit ThreadPool(std::int32_t threads = 0) : ThreadPool(linked_runtime(), threads) {}
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;
  ~ThreadPool() { model_->thread_pool_destroy(pool_); }

  GraftThreadPool *get() const noexcept { return pool_; }

 private:
  const GraftModel *model_;
  GraftThreadPool *pool_ = nullptr;
};

/* A loaded program. */
class Program {
 public:
  /* The program of a library that `graft export` wrote: *graft_model_NAME(). */
  explicit Program(const GraftModel &model, const GraftLoadOptions *options = nullptr) : model_(&model) {
    GraftError error{};
    if (model.abi_version != GRAFT_ABI_VERSION) {
      throw Error(GRAFT_ERROR_ARTIFACT, "the library was made for another version of Graft's ABI; export it again");
    }
    if (options != nullptr && model.size < sizeof(GraftModel)) {
      throw Error(GRAFT_ERROR_INPUT, "the library does not know these options; export it again");
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
  void run(const std::vector<Tensor> &inputs, const std::vector<MutableTensor> &outputs,
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
  template <class Item>
  static std::vector<DLTensor> views(const std::vector<Item> &tensors) {
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
