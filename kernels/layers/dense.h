#pragma once
// These are the layers of the classifier. Rows are samples.

#include "kernels/layers/layer.h"

namespace starling::kernels {

// y = x W + b, then ReLU if asked for.
class Dense : public Layer {
 public:
  Dense(std::size_t in, std::size_t out, std::uint32_t index, bool relu, Parameters& parameters);
  std::size_t width() const override { return linear_.out; }
  std::size_t saved(std::size_t, std::size_t) const override { return 0; }
  std::size_t scratch(std::size_t rows) const override {
    return aligned_floats(rows * linear_.out);
  }
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  Linear linear_;
  bool relu_;
};

// Computes loss = mean cross entropy of x as logits.
class ClassifierLoss : public Layer {
 public:
  explicit ClassifierLoss(std::size_t classes) : classes_(classes) {}
  std::size_t width() const override { return 0; }
  std::size_t saved(std::size_t, std::size_t rows) const override {
    return aligned_floats(rows * classes_);
  }
  std::size_t scratch(std::size_t) const override { return 0; }
  void forward(Pass& pass, const float* in, float* out, float* saved) const override;
  void backward(Pass& pass, const float* in, const float* out, float* saved, const float* d_out,
                float* d_in) const override;

 private:
  std::size_t classes_;
};

}  // namespace starling::kernels
