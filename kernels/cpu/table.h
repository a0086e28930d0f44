#pragma once
// A KernelTable has the kernels of one instruction set, as functions on memory of this
// process. Layers call these and nothing else, so a new instruction set is a new table.
//
// All matrices are row-major float. No function allocates, keeps state or looks at alignment: the
// same numbers in give the same bits out, wherever the buffers lie.

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace starling::kernels {

// Trim says which part of a product is known to be zero or not wanted, for
// causal attention. Tiles outside are skipped; inside a tile on the diagonal
// the zeros must be there (as A) or the results are unspecified (as C).
enum class Trim : std::uint8_t {
  kNone,
  kLowerC,  // only c[i][j], j <= i, is wanted
  kLowerA,  // a[i][k] is zero for k > i
  kUpperA,  // a[i][k] is zero for k < i
};

// c[m,n] = a[m,k] b[k,n] (+ bias[n]) (+ add[m,n]), or added to c.
// Every element is a sum of chunks of kGemmChunk products, each chunk one chain of fused
// multiply-adds in rising k: the bits do not depend on tiles, vector width or the number of rows.
struct Gemm {
  std::size_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::size_t lda = 0;
  bool a_transposed = false;  // a is stored [k,m]
  const float* b = nullptr;
  std::size_t ldb = 0;
  bool b_transposed = false;  // b is stored [n,k]
  float* c = nullptr;
  std::size_t ldc = 0;
  const float* bias = nullptr;
  const float* add = nullptr;  // may be c's own memory only if it is c, with ldadd = ldc
  std::size_t ldadd = 0;
  Trim trim = Trim::kNone;
  float* scratch = nullptr;  // kGemmScratch floats, at a 64-byte boundary
};
inline constexpr std::size_t kGemmChunk = 256;
// Floats of one chunk of packed B (up to kGemmPackedB columns of it) and of packed A.
inline constexpr std::size_t kGemmPackedB = 2048;
inline constexpr std::size_t kGemmPackedA = 384;
inline constexpr std::size_t kGemmScratch = kGemmChunk * (kGemmPackedB + kGemmPackedA + 64);

// Holds a product to what Gemm says, for its caller.
void check(const Gemm& gemm);

struct NormShape {
  std::size_t rows = 0, width = 0;
};

// Which columns a row of scores sees: those up to its own, `before` + row, and no more than `window` of them.
struct CausalShape {
  std::size_t rows = 0, columns = 0;
  std::size_t before = 0;
  std::size_t window = 0;  // 0: all

  std::size_t end(std::size_t row) const { return before + row + 1; }
  std::size_t first(std::size_t row) const {
    return window != 0 && end(row) > window ? end(row) - window : 0;
  }
};

struct KernelTable {
  const char* isa;
  void (*gemm)(const Gemm&);

  // y = (x - mean) rstd gain + bias, per row; mean and rstd are kept for the backward pass.
  void (*layer_norm)(NormShape, const float* x, const float* gain, const float* bias, float* y,
                     float* mean, float* rstd);
  // dx = the gradient through the norm, + add if it is not null; dgain and dbias are overwritten.
  void (*layer_norm_backward)(NormShape, const float* x, const float* gain, const float* mean,
                              const float* rstd, const float* dy, const float* add, float* dx,
                              float* dgain, float* dbias);

  // y = x rstd gain with rstd = 1 / sqrt(mean of x^2 + epsilon), per row; rstd is kept for the backward pass
  // (Zhang and Sennrich, 2019, "Root Mean Square Layer Normalization").
  void (*rms_norm)(NormShape, float epsilon, const float* x, const float* gain, float* y,
                   float* rstd);
  // dx = the gradient through the norm, + add if it is not null; dgain is overwritten. dx may be dy's memory.
  void (*rms_norm_backward)(NormShape, const float* x, const float* gain, const float* rstd,
                            const float* dy, const float* add, float* dx, float* dgain);

  // GELU is in its tanh form. The backward pass turns dg into du
  // in place and gives g once more, so that g need not be kept.
  void (*gelu)(std::size_t n, const float* u, float* g);
  void (*gelu_backward)(std::size_t n, const float* u, float* dg_du, float* g);

  // y = silu(gate) up with silu(x) = x / (1 + exp(-x)) (Shazeer, 2020, "GLU Variants Improve Transformer"). The
  // backward pass takes dy and gives y once more; dup may be dy's memory.
  void (*swiglu)(std::size_t n, const float* gate, const float* up, float* y);
  void (*swiglu_backward)(std::size_t n, const float* gate, const float* up, const float* dy,
                          float* dgate, float* dup, float* y);

  // Turns n pairs, x[i] and x[n + i], by the angles of these cosines and sines, in place (Su et al., 2021,
  // "RoFormer"); back: by as much the other way, which is the backward pass.
  void (*rotate)(std::size_t n, const float* cosines, const float* sines, bool back, float* x);

  void (*relu)(std::size_t n, float* y);                            // in place
  void (*relu_backward)(std::size_t n, const float* y, float* dy);  // in place, y after relu

  // Causal attention of one head. s [rows, ld]: scores in; softmax(scale s) over what each row sees out, zeros in its
  // other columns. Backward: dp in, ds (scale included) out, zeros in the other columns.
  void (*softmax_causal)(const CausalShape&, float scale, float* s, std::size_t ld);
  void (*softmax_causal_backward)(const CausalShape&, float scale, const float* p, float* dp_ds,
                                  std::size_t ld);

  // Sums the cross entropy over rows. Turns logits into their gradient
  // times `scale` if `gradient`; else they are left as they are.
  double (*cross_entropy)(std::size_t rows, std::size_t classes, float* logits,
                          const std::int32_t* targets, bool gradient, float scale);

  void (*column_sums)(std::size_t rows, std::size_t n, const float* x, float* sums);
  void (*sum)(std::size_t n, const float* a, const float* b, float* y);  // y = a + b; y may be a
};

const KernelTable& reference_kernels();
const KernelTable& avx2_kernels();    // call these two only if cpu_has() says so
const KernelTable& avx512_kernels();  // as avx2 with wider products; the same bits

bool cpu_has(const std::string& isa);
// Resolves "auto" to the CPU's best. Errors: kBadInput  unknown name, or the CPU lacks it.
Result<const KernelTable*> kernel_table(const std::string& isa);

}  // namespace starling::kernels
