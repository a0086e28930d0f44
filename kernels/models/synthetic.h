#pragma once
// The synthetic model has real parameters and a gradient that costs next
// to nothing, so that a measurement covers everything but arithmetic. The
// caller waits for the time that its micro-batches take (compute_time()).
//
// Element j of block b (256 elements of tensor t, core/job/layout.h) of a micro-batch has
//
//   g_j = s (a_j + n_j / 2 + w_j / 16)      and the loss is   4 + mean(a w + w^2 / 32) + n' / 16
//
//   a_j  j/128 - 1: what all micro-batches have in common
//   n_j  in [-1, 1): 32 bits mixed from j and a number drawn for (seed, step, micro-batch, b)
//   s    2^-8 to 2^-14 by tensor, and 32 times that in one block of 4096, which is drawn as well:
//        it does not fit the grid and goes to the side list
//   w_j  the parameter, so a worker with parameters of another version gets other bits
//
// with the mean over the first elements of all blocks, and n' in (-1, 1) drawn for (seed, step,
// micro-batch). All operations are integer or IEEE ones in a fixed order: the same bits on every
// machine, whatever the instruction set and the threads.

#include <chrono>
#include <memory>

#include "kernels/models/model.h"

namespace starling::kernels {

// Makes a model of `spec.parameters` (at least kSyntheticParametersMin) elements:
// three layers of the shapes of a GPT's, an embedding, and a rest; 25 or 26
// tensors. Takes batches of any number of sequences and looks at `draw` only.
std::unique_ptr<Model> make_synthetic(const SyntheticSpec& spec);

// Returns how long micro-batch m takes: compute_ms, up to `jitter` of it more or less; 0 of a model
// of another kind.
std::chrono::nanoseconds compute_time(const ModelSpec& model, std::uint64_t seed,
                                      std::uint64_t step, MicroBatch m);

}  // namespace starling::kernels
