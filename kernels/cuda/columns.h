#pragma once
// Sums over the rows of a matrix are made of the sums of kRowRuns runs of rows.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/layers.h"

namespace starling::kernels::cuda {

struct RowRun {
  std::uint32_t begin, end;
};
// Returns run `index` of kRowRuns: runs follow one another; the last may be shorter or empty.
inline __device__ RowRun row_run(std::uint32_t index, std::uint32_t rows) {
  const std::uint32_t length = rows / kRowRuns + (rows % kRowRuns != 0);
  const std::uint32_t begin = min(index * length, rows);
  return {begin, min(begin + length, rows)};
}

// Adds up sums[n] = partials [kRowRuns, n] in order of runs; if
// `second` is given, for both of two such arrays, one behind the other.
void add_runs(cudaStream_t stream, std::uint32_t n, const float* partials, float* sums,
              float* second = nullptr);

// Makes partial sums of dy and of dy times the normed x: partials [kRowRuns,
// width] of the first, for the bias, lie behind those of the second, for the gain. mean may be null: 0.
void norm_column_partials(cudaStream_t stream, Precision type, Rows shape, const void* x,
                          const float* mean, const float* rstd, const void* dy, float* partials);

}  // namespace starling::kernels::cuda
