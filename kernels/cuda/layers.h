#pragma once
// These functions do the work of a model's layers on a device. Each call only asks: the stream
// works in order, and pointers are of the device's memory. Every result depends on its inputs
// alone: no float is added by an atomic, and no grid depends on the number of processors.
//
// Matrices are row-major. Activations and their gradients have one precision; sums, statistics, losses
// and gradients of parameters are fp32 (losses double), whatever the type. Sums are made in fp32 in
// an order that the sizes fix. Threads: any, of distinct streams; scratch belongs to one stream.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/base/precision.h"

namespace starling::kernels::cuda {

// ---- products.cu: matrix products ---------------------------------------------------------------

enum class Epilogue : std::uint8_t {
  kNone,
  kGelu,          // aux = result; c = gelu(result) (tanh form)
  kGeluBackward,  // c = result * gelu'(aux)
  kRelu,          // c = max(result, 0)
  kReluBackward,  // c = aux > 0 ? result : 0
};

// result[m,n] = op(a)[m,k] op(b)[k,n] (+ bias[n]) (+ add[m,n]); c = epilogue(result).
struct Product {
  std::uint32_t m = 0, n = 0, k = 0;
  Precision in = Precision::kFp32;  // of a and b
  const void* a = nullptr;          // [m,k], or [k,m] if transposed
  std::uint32_t lda = 0;
  bool a_transposed = false;
  const void* b = nullptr;  // [k,n], or [n,k] if transposed
  std::uint32_t ldb = 0;
  bool b_transposed = false;
  Precision out = Precision::kFp32;  // of c, add and aux; of products of halves it is fp32 or `in`
  void* c = nullptr;
  std::uint32_t ldc = 0;
  const float* bias = nullptr;
  const void* add = nullptr;  // may be c
  std::uint32_t ldadd = 0;
  Epilogue epilogue = Epilogue::kNone;
  void* aux = nullptr;  // [m,n] with ldc
};
// Multiplies by our own kernel. Any sizes and leading dimensions; fp32
// products are of fp32 (no tf32), those of halves are exact and added in fp32.
void multiply(cudaStream_t stream, const Product& product);
// Does only what follows the sum of products: c holds that sum and becomes the result.
void finish(cudaStream_t stream, const Product& product);

// ---- attention.cu: causal attention -------------------------------------------------------------

inline constexpr std::uint32_t kHeadWidthMax = 128;
struct AttentionShape {
  std::uint32_t sequences, positions, heads, head_width;  // head_width at most kHeadWidthMax
  // So many heads of queries, one after the other, share a head of keys and values; a divisor of `heads`.
  std::uint32_t group = 1;
  std::uint32_t window = 0;  // rows that a row sees, its own included; 0: all before it
};
// Row r of queries, of [sequences * positions], begins query_stride elements behind row r - 1: [heads][head_width].
// Keys and values likewise: [heads / group][head_width].
template <class Void>
struct HeadRows {
  Void *queries = nullptr, *keys = nullptr, *values = nullptr;
  std::size_t query_stride = 0, key_value_stride = 0;
};
// -> out [sequences * positions][heads][head_width]; log_sums [sequences][heads][positions]: of the scaled
// scores' exponentials, for the backward pass. Algorithm: Dao, 2023, "FlashAttention-2", section 3.
void attention(cudaStream_t stream, Precision type, const AttentionShape& shape,
               const HeadRows<const void>& in, void* out, float* log_sums);
// Makes d_in from d_out and writes all of it. dots [sequences][heads][positions]
// is scratch. Two passes, one by keys and one by queries, replace atomics.
void attention_backward(cudaStream_t stream, Precision type, const AttentionShape& shape,
                        const HeadRows<const void>& in, const void* out, const float* log_sums,
                        const void* d_out, const HeadRows<void>& d_in, float* dots);

// ---- rotary.cu: rotary positions ------------------------------------------------------------------

// Turns the pairs x[i] and x[pairs + i] of every head by the angles of its row's position, row % positions, in
// place (Su et al., 2021, "RoFormer"); back: by as much the other way. x [rows][heads][2 * pairs]; cosines and
// sines [positions][pairs].
struct RotaryShape {
  std::uint32_t rows, positions, heads, pairs;
};
void rotate(cudaStream_t stream, Precision type, const RotaryShape& shape, const float* cosines,
            const float* sines, bool back, void* x);

// ---- norm.cu, columns.cu, classifier.cu, embedding.cu -------------------------------------------

struct Rows {
  std::uint32_t rows, width;
};
// Sums over rows are made of the sums of so many runs of rows;
// backward passes keep those in this many floats for `width` columns.
inline constexpr std::uint32_t kRowRuns = 128;
constexpr std::size_t partial_floats(std::size_t width) {
  return kRowRuns * width;
}

// y = (x - mean) rstd gain + bias, by row; mean, rstd [rows]. Epsilon 1e-5.
void layer_norm(cudaStream_t stream, Precision type, Rows shape, const void* x, const float* gain,
                const float* bias, void* y, float* mean, float* rstd);
// dx = the gradient through the norm (+ add); d_gain and d_bias are overwritten. dx may be add.
// partials [2 * partial_floats(width)].
void layer_norm_backward(cudaStream_t stream, Precision type, Rows shape, const void* x,
                         const float* gain, const float* mean, const float* rstd, const void* dy,
                         const void* add, void* dx, float* d_gain, float* d_bias, float* partials);

// y = x rstd gain with rstd = 1 / sqrt(mean of x^2 + epsilon), by row; rstd [rows].
void rms_norm(cudaStream_t stream, Precision type, Rows shape, float epsilon, const void* x,
              const float* gain, void* y, float* rstd);
// As layer_norm_backward().
void rms_norm_backward(cudaStream_t stream, Precision type, Rows shape, const void* x,
                       const float* gain, const float* rstd, const void* dy, const void* add,
                       void* dx, float* d_gain, float* partials);

// Sets sums[width] of x [rows, width]. partials [partial_floats(width)].
void column_sums(cudaStream_t stream, Precision type, Rows shape, const void* x, float* sums,
                 float* partials);

// Computes the cross entropy by row of logits [rows, ld], of which `classes` columns
// count: losses [rows], in double, 0 where the target is none (kNotATarget). Logits become their
// gradient times *scale, in fp32 before it is rounded, and columns from `classes` to ld become zero;
// if scale is null they stay. *scale is read when the work is done, so that a graph takes each scale anew.
void cross_entropy(cudaStream_t stream, Precision type, std::uint32_t rows, std::uint32_t classes,
                   std::uint32_t ld, void* logits, const std::int32_t* targets, const float* scale,
                   double* losses);
// Sets *sum to the sum of all losses, in a fixed order. sum may be pinned memory.
void sum_losses(cudaStream_t stream, std::uint32_t rows, const double* losses, double* sum);

// out[r] = wte[tokens[r]] + wpe[r % positions], [rows, width]; wpe may be null: nothing is added. tables: the type of
// both, fp32 or `type`.
void embed(cudaStream_t stream, Precision type, Rows shape, std::uint32_t positions,
           const std::int32_t* tokens, Precision tables, const void* wte, const void* wpe,
           void* out);
// TokenRows says where each token of a batch stands: rows with token t,
// ascending, are rows[begins[t]] to rows[begins[t + 1]] (exclusive).
struct TokenRows {
  const std::uint32_t* begins;  // [vocabulary + 1]
  const std::uint32_t* rows;    // [rows of the batch]
};
// Overwrites gradient[count, width] of tokens `first` to first + count: each is
// the sum of its rows of d_out in ascending order (zeros where there is none).
void embed_backward(cudaStream_t stream, Precision type, std::uint32_t width, TokenRows where,
                    std::uint32_t first, std::uint32_t count, const void* d_out, float* gradient);
// gradient[positions, width] = d_out [sequences, positions, width] added up in order of sequences.
void position_gradient(cudaStream_t stream, Precision type, std::uint32_t sequences,
                       std::uint32_t positions, std::uint32_t width, const void* d_out,
                       float* gradient);

// ---- activation.cu -------------------------------------------------------------------------------

// dx = y > 0 ? dy : 0.
void relu_backward(cudaStream_t stream, Precision type, std::size_t n, const void* y,
                   const void* dy, void* dx);

// y = silu(gate) up with silu(x) = x / (1 + exp(-x)) (Shazeer, 2020, "GLU Variants Improve Transformer").
void swiglu(cudaStream_t stream, Precision type, std::size_t n, const void* gate, const void* up,
            void* y);
// Makes d_gate and d_up from dy, and y once more. d_up may be dy.
void swiglu_backward(cudaStream_t stream, Precision type, std::size_t n, const void* gate,
                     const void* up, const void* dy, void* d_gate, void* d_up, void* y);

// x = by x.
void multiply_by(cudaStream_t stream, Precision type, std::size_t n, float by, void* x);

// Converts fp32 to a type of 16 bits, to the nearest, ties to even.
void to_halves(cudaStream_t stream, Precision type, std::size_t n, const float* from,
               std::uint16_t* to);

}  // namespace starling::kernels::cuda
