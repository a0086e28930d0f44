// A library with the interface of cuBLASLt that computes by plain loops on the imitated device. It takes
// what the documents of the real one list and nothing else: types, sizes, alignment, epilogues.

#include "tests/cuda/fake_cublas_lt.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/cuda/cublas_lt_library.h"
#include "kernels/device/element.h"
#include "tests/cuda/imitation/imitation.h"

namespace starling::kernels::cuda {
namespace lt {

struct Context {};
struct DescriptionBytes {
  int compute, scale;
  int transpose_a = kAsIs, transpose_b = kAsIs;
  std::uint32_t epilogue = kNoEpilogue;
  const void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
};
struct LayoutBytes {
  int type;
  std::uint64_t rows, columns;
  std::int64_t ld;
};
struct PreferenceBytes {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = 7;
  std::uint32_t align[4] = {256, 256, 256, 256};  // of a, b, c, d
};

}  // namespace lt

namespace {

std::atomic<int> living{0}, broken{-1}, runs[fake::kAlgorithms], proposals[fake::kAlgorithms];
std::atomic<std::uint32_t> refused{0};

template <class Bytes>
int create(Bytes** to, const Bytes& value) {
  if (!to) return lt::kInvalidValue;
  *to = new Bytes(value);
  ++living;
  return lt::kSuccess;
}
template <class Bytes>
int destroy(Bytes* bytes) {
  if (!bytes) return lt::kInvalidValue;
  delete bytes;
  --living;
  return lt::kSuccess;
}
template <class Value>
int set(Value& to, const void* from, std::size_t bytes) {
  if (!from || bytes != sizeof to) return lt::kInvalidValue;
  std::memcpy(&to, from, bytes);
  return lt::kSuccess;
}

bool is_half(int type) {
  return type == lt::kBf16 || type == lt::kF16;
}
std::uint64_t bytes_of_type(int type) {
  return type == lt::kF32 ? 4 : 2;
}
bool is_multiple(const void* at, std::uint64_t of) {
  return reinterpret_cast<std::uintptr_t>(at) % of == 0;
}

// ---- which products there are -------------------------------------------------------------------

struct Product {
  lt::DescriptionBytes description;
  lt::LayoutBytes a, b, c, d;

  std::uint64_t depth() const { return description.transpose_a ? a.rows : a.columns; }
};

bool fits(const Product& p) {
  const auto& [description, a, b, c, d] = p;
  const auto rows = [](const lt::LayoutBytes& l, int t) { return t ? l.columns : l.rows; };
  const auto columns = [](const lt::LayoutBytes& l, int t) { return t ? l.rows : l.columns; };
  for (const lt::LayoutBytes* const l : {&a, &b, &c, &d})
    if (l->rows == 0 || l->columns == 0 || l->ld < static_cast<std::int64_t>(l->rows)) return false;
  return rows(a, description.transpose_a) == d.rows &&
         columns(b, description.transpose_b) == d.columns &&
         columns(a, description.transpose_a) == rows(b, description.transpose_b) &&
         c.rows == d.rows && c.columns == d.columns;
}

bool has_bias(std::uint32_t epilogue) {
  return epilogue == lt::kBias || epilogue == lt::kReluBias || epilogue == lt::kGeluAuxBias;
}
bool has_aux(std::uint32_t epilogue) {
  return epilogue == lt::kGeluAux || epilogue == lt::kGeluAuxBias || epilogue == lt::kGeluBackward;
}

int support(const Product& p) {
  const auto& [description, a, b, c, d] = p;
  if (description.compute != lt::kComputeF32 || description.scale != lt::kF32)
    return lt::kNotSupported;
  const bool types = a.type == b.type && c.type == d.type &&
                     (is_half(a.type) || a.type == lt::kF32) &&
                     (d.type == a.type || d.type == lt::kF32);
  if (!types) return lt::kNotSupported;
  if (!fits(p)) return lt::kInvalidValue;
  const std::uint32_t epilogue = description.epilogue;
  constexpr std::uint32_t kKnown[] = {lt::kNoEpilogue,  lt::kRelu,    lt::kBias,
                                      lt::kReluBias,    lt::kGeluAux, lt::kGeluAuxBias,
                                      lt::kGeluBackward};
  if (std::find(std::begin(kKnown), std::end(kKnown), epilogue) == std::end(kKnown) ||
      epilogue == refused)
    return lt::kNotSupported;
  if (has_bias(epilogue) &&
      (!description.bias || !is_multiple(description.bias, bytes_of_type(d.type))))
    return lt::kInvalidValue;
  if (!has_aux(epilogue)) return lt::kSuccess;
  if (!is_half(d.type)) return lt::kNotSupported;
  const bool aux = description.aux && description.aux_ld % 8 == 0 &&
                   description.aux_ld >= static_cast<std::int64_t>(d.rows);
  return aux ? lt::kSuccess : lt::kInvalidValue;
}

// ---- algorithms ---------------------------------------------------------------------------------

constexpr std::uint64_t kMark = 0xfa4eb1a5;

lt::Algorithm algorithm_of(int id) {
  lt::Algorithm algorithm{};
  algorithm.data[0] = kMark << 32 | static_cast<std::uint32_t>(id);
  algorithm.data[1] = fake::kVersion;
  return algorithm;
}
// Negative if it is none.
int id_of(const lt::Algorithm& algorithm) {
  const std::uint64_t id = algorithm.data[0] & 0xffffffff;
  if (algorithm.data[0] >> 32 != kMark || algorithm.data[1] != fake::kVersion) return -1;
  return id < fake::kAlgorithms ? static_cast<int>(id) : -1;
}
std::size_t workspace_of(int id) {
  return id == fake::kAligned ? 4 << 20 : 0;
}

// ---- the product itself -------------------------------------------------------------------------

double load(const void* from, int type, std::uint64_t at) {
  if (type == lt::kF32) return static_cast<const float*>(from)[at];
  const std::uint16_t half = static_cast<const std::uint16_t*>(from)[at];
  return type == lt::kBf16 ? from_bf16(half) : from_fp16(half);
}
void store(void* to, int type, std::uint64_t at, double value) {
  const auto single = static_cast<float>(value);
  if (type == lt::kF32)
    static_cast<float*>(to)[at] = single;
  else
    static_cast<std::uint16_t*>(to)[at] = type == lt::kBf16 ? to_bf16(single) : to_fp16(single);
}

struct Work {
  Product product;
  float alpha, beta;
  const void *a, *b, *c;
  void* d;
  int id;
};

double gelu_tanh(double u) {
  return std::tanh(0.7978845608028654 * (u + 0.044715 * u * u * u));
}

double end(const Work& w, std::uint64_t row, std::uint64_t column, double x) {
  const lt::DescriptionBytes& e = w.product.description;
  const int type = w.product.d.type;
  const std::uint64_t aux = column * static_cast<std::uint64_t>(e.aux_ld) + row;
  if (has_bias(e.epilogue)) x += load(e.bias, type, row);
  if (e.epilogue == lt::kRelu || e.epilogue == lt::kReluBias) return std::max(x, 0.0);
  if (e.epilogue == lt::kGeluBackward) {
    const double u = load(e.aux, type, aux), t = gelu_tanh(u);
    return x * ((1 + t) / 2 + u / 2 * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * u * u));
  }
  if (!has_aux(e.epilogue)) return x;
  store(e.aux, type, aux, x);
  return x * (1 + gelu_tanh(x)) / 2;
}

void compute(const Work& w) {
  const auto& [description, a, b, c, d] = w.product;
  const auto at = [](const lt::LayoutBytes& l, int transposed, std::uint64_t row,
                     std::uint64_t column) {
    if (transposed) std::swap(row, column);
    return column * static_cast<std::uint64_t>(l.ld) + row;
  };
  for (std::uint64_t column = 0; column < d.columns; ++column)
    for (std::uint64_t row = 0; row < d.rows; ++row) {
      double sum = 0;
      for (std::uint64_t k = 0; k < w.product.depth(); ++k)
        sum += load(w.a, a.type, at(a, description.transpose_a, row, k)) *
               load(w.b, b.type, at(b, description.transpose_b, k, column));
      sum *= w.alpha;
      if (w.beta != 0) sum += w.beta * load(w.c, c.type, at(c, 0, row, column));
      store(w.d, d.type, at(d, 0, row, column), end(w, row, column, sum));
    }
  if (w.id == fake::kSlow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// What streams were asked; kept, as a graph may run it again.
const Work* keep(const Work& work) {
  static std::mutex mutex;
  static auto* const kept = new std::deque<Work>;
  const std::lock_guard guard(mutex);
  return &kept->emplace_back(work);
}

}  // namespace
}  // namespace starling::kernels::cuda

// ---- the library's functions --------------------------------------------------------------------

using namespace starling::kernels::cuda;  // NOLINT: definitions of C functions only

extern "C" {

void fake_cublas_lt_refuse(std::uint32_t epilogue) {
  refused = epilogue;
}
void fake_cublas_lt_break(int algorithm) {
  broken = algorithm;
}
int fake_cublas_lt_runs(int algorithm) {
  return runs[algorithm];
}
int fake_cublas_lt_proposals(int algorithm) {
  return proposals[algorithm];
}
int fake_cublas_lt_living() {
  return living;
}

int cublasLtCreate(lt::Handle* handle) {
  return create(handle, {});
}
int cublasLtDestroy(lt::Handle handle) {
  return destroy(handle);
}
std::size_t cublasLtGetVersion() {
  return fake::kVersion;
}
const char* cublasLtGetStatusString(int status) {
  if (status == lt::kNotSupported) return "the requested functionality is not supported";
  return status == lt::kInvalidValue ? "an unsupported value or parameter" : "unknown";
}

int cublasLtMatmulDescCreate(lt::Description* to, int compute, int scale) {
  return create(to, {.compute = compute, .scale = scale});
}
int cublasLtMatmulDescDestroy(lt::Description description) {
  return destroy(description);
}
int cublasLtMatmulDescSetAttribute(lt::Description d, int attribute, const void* from,
                                   std::size_t bytes) {
  switch (attribute) {
    case lt::kTransposeA:
      return set(d->transpose_a, from, bytes);
    case lt::kTransposeB:
      return set(d->transpose_b, from, bytes);
    case lt::kEpilogue:
      return set(d->epilogue, from, bytes);
    case lt::kBiasPointer:
      return set(d->bias, from, bytes);
    case lt::kAuxPointer:
      return set(d->aux, from, bytes);
    case lt::kAuxLd:
      return set(d->aux_ld, from, bytes);
    default:
      return lt::kInvalidValue;
  }
}

int cublasLtMatrixLayoutCreate(lt::Layout* to, int type, std::uint64_t rows, std::uint64_t columns,
                               std::int64_t ld) {
  return create(to, {type, rows, columns, ld});
}
int cublasLtMatrixLayoutDestroy(lt::Layout layout) {
  return destroy(layout);
}

int cublasLtMatmulPreferenceCreate(lt::Preference* to) {
  return create(to, {});
}
int cublasLtMatmulPreferenceDestroy(lt::Preference preference) {
  return destroy(preference);
}
int cublasLtMatmulPreferenceSetAttribute(lt::Preference p, int attribute, const void* from,
                                         std::size_t bytes) {
  if (attribute == lt::kWorkspaceMax) return set(p->workspace, from, bytes);
  if (attribute == lt::kReductionMask) return set(p->reductions, from, bytes);
  if (attribute < lt::kAlignA || attribute > lt::kAlignD) return lt::kInvalidValue;
  return set(p->align[attribute - lt::kAlignA], from, bytes);
}

int cublasLtMatmulAlgoGetHeuristic(lt::Handle handle, lt::Description description, lt::Layout a,
                                   lt::Layout b, lt::Layout c, lt::Layout d, lt::Preference p,
                                   int wanted, lt::Candidate* to, int* got) {
  if (!handle || wanted <= 0) return lt::kInvalidValue;
  *got = 0;
  const Product product{*description, *a, *b, *c, *d};
  if (const int status = support(product); status != lt::kSuccess) return status;
  bool aligned = true;
  const lt::LayoutBytes* const layouts[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    aligned =
        aligned && p->align[i] >= 16 &&
        static_cast<std::uint64_t>(layouts[i]->ld) * bytes_of_type(layouts[i]->type) % 16 == 0;
  for (const int id : {fake::kReduced, fake::kSplit, fake::kSlow, fake::kAligned, fake::kAny}) {
    if (id == fake::kReduced && !(p->reductions & 2)) continue;
    if (id == fake::kAligned && !aligned) continue;
    if (workspace_of(id) > p->workspace || *got == wanted) continue;
    ++proposals[id];
    to[(*got)++] = {algorithm_of(id), workspace_of(id), lt::kSuccess, 1, {}};
  }
  return lt::kSuccess;
}

int cublasLtMatmulAlgoCheck(lt::Handle handle, lt::Description description, lt::Layout a,
                            lt::Layout b, lt::Layout c, lt::Layout d,
                            const lt::Algorithm* algorithm, lt::Candidate* to) {
  const int id = id_of(*algorithm);
  if (!handle || id < 0) return lt::kInvalidValue;
  const int status = support({*description, *a, *b, *c, *d});
  *to = {*algorithm, workspace_of(id), status, 1, {}};
  return status;
}

int cublasLtMatmulAlgoConfigGetAttribute(const lt::Algorithm* algorithm, int attribute, void* to,
                                         std::size_t bytes, std::size_t* written) {
  const int id = id_of(*algorithm);
  if (id < 0 || bytes != 4) return lt::kInvalidValue;
  std::int32_t value = 0;
  if (attribute == lt::kAlgorithmId)
    value = id;
  else if (attribute == lt::kSplitK)
    value = id == fake::kReduced || id == fake::kSplit ? 4 : 1;
  else if (attribute == lt::kReduction)
    value = id == fake::kReduced ? 2 : 0;
  else
    return lt::kInvalidValue;
  std::memcpy(to, &value, bytes);
  *written = bytes;
  return lt::kSuccess;
}

int cublasLtMatmul(lt::Handle handle, lt::Description description, const void* alpha, const void* a,
                   lt::Layout a_layout, const void* b, lt::Layout b_layout, const void* beta,
                   const void* c, lt::Layout c_layout, void* d, lt::Layout d_layout,
                   const lt::Algorithm* algorithm, void* workspace, std::size_t bytes,
                   void* stream) {
  if (!handle || !alpha || !beta || !a || !b || !d || !algorithm) return lt::kInvalidValue;
  Work work{{*description, *a_layout, *b_layout, *c_layout, *d_layout},
            0,
            0,
            a,
            b,
            c,
            d,
            id_of(*algorithm)};
  std::memcpy(&work.alpha, alpha, sizeof work.alpha);
  std::memcpy(&work.beta, beta, sizeof work.beta);
  if (const int status = support(work.product); status != lt::kSuccess) return status;
  if (work.id < 0 || (work.beta != 0 && !c)) return lt::kInvalidValue;
  if (work.id == broken) return lt::kNotSupported;
  if (workspace_of(work.id) > bytes || (bytes > 0 && !is_multiple(workspace, 256)))
    return lt::kInvalidValue;
  const Product& p = work.product;
  for (const auto& [at, layout] :
       {std::pair{a, &p.a}, {b, &p.b}, {c, &p.c}, {static_cast<const void*>(d), &p.d}}) {
    const std::uint64_t size = bytes_of_type(layout->type);
    const bool aligned =
        is_multiple(at, 16) && static_cast<std::uint64_t>(layout->ld) * size % 16 == 0;
    if (!is_multiple(at, size) || (work.id == fake::kAligned && !aligned)) return lt::kNotSupported;
  }
  ++runs[work.id];
  const auto run = [](void* data) {
    const starling::imitation::AtWork at_work;
    compute(*static_cast<const Work*>(data));
  };
  const cudaError_t asked =
      cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), run, const_cast<Work*>(keep(work)));
  return asked == cudaSuccess ? lt::kSuccess : 13;  // execution failed
}

}  // extern "C"
