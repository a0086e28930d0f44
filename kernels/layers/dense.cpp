#include "kernels/layers/dense.h"

#include <algorithm>
#include <cmath>

namespace starling::kernels {

Dense::Dense(std::size_t in, std::size_t out, std::uint32_t index, bool relu,
             Parameters& parameters)
    : relu_(relu) {
  parameters.begin_part();
  linear_ = Linear::declare(parameters, "fc" + std::to_string(index), in, out,
                            {.deviation = std::sqrt(2.0 / static_cast<double>(in))},
                            Initial{.deviation = 0.1});
}

void Dense::forward(Pass& pass, const float* in, float* out, float*) const {
  const OpenPart open(pass, pass.part_of(linear_.weight));
  linear_.forward(pass, in, out);
  if (relu_) pass.kernels.relu(pass.rows * linear_.out, out);
}

void Dense::backward(Pass& pass, const float* in, const float* out, float*, const float* d_out,
                     float* d_in) const {
  const float* dy = d_out;
  if (relu_) {
    float* const masked = pass.scratch;
    std::copy(d_out, d_out + pass.rows * linear_.out, masked);
    pass.kernels.relu_backward(pass.rows * linear_.out, out, masked);
    dy = masked;
  }
  const OpenPart open(pass, pass.part_of(linear_.weight));
  OpenGradient d_open(pass, pass.part_of(linear_.weight), /*use=*/0);
  linear_.backward_parameters(pass, in, dy);
  if (d_in) linear_.backward_input(pass, dy, d_in);
  d_open.end();
}

void ClassifierLoss::forward(Pass& pass, const float* in, float*, float* saved) const {
  std::copy(in, in + pass.rows * classes_, saved);
  const auto rows = static_cast<double>(pass.rows);
  pass.loss = pass.kernels.cross_entropy(pass.rows, classes_, saved, pass.batch.targets.data(),
                                         pass.sink != nullptr, static_cast<float>(1 / rows)) /
              rows;
}

void ClassifierLoss::backward(Pass& pass, const float*, const float*, float* saved, const float*,
                              float* d_in) const {
  std::copy(saved, saved + pass.rows * classes_, d_in);
}

}  // namespace starling::kernels
