// A program that brings its own model, data, optimizer and schedule, and is the whole `starling`
// command line for them: run, worker, chaos and all the others.

#include <starling.h>

#include <algorithm>
#include <cmath>

using namespace starling;

// y = w . x + b, mean squared error.
class Line : public kernels::Model {
 public:
  explicit Line(std::size_t inputs) : inputs_(inputs), tensors_{{"w", {inputs}}, {"b", {1}}} {}

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  Result<> initialise(std::uint64_t, const Layout&, std::span<float> parameters) const override {
    std::ranges::fill(parameters, 0.0f);
    return ok();
  }
  // Tensors begin at block boundaries: w at 0, b at the first block after it.
  Result<kernels::MicroBatchResult> forward_backward(std::span<const float> parameters,
                                                     const Batch& batch, kernels::Workspace&,
                                                     std::span<float> gradient) const override {
    const std::size_t b = (inputs_ + kBlock - 1) / kBlock * kBlock;
    std::ranges::fill(gradient, 0.0f);
    double loss = 0, furthest = 0;
    for (std::uint32_t i = 0; i < batch.sequences; ++i) {
      const float* x = &batch.x[i * inputs_];
      float error = parameters[b] - float(batch.targets[i]);
      for (std::size_t k = 0; k < inputs_; ++k) error += parameters[k] * x[k];
      loss += double(error) * error / batch.sequences;
      furthest = std::max(furthest, double(std::abs(error)));
      for (std::size_t k = 0; k < inputs_; ++k)
        gradient[k] += 2 * error * x[k] / float(batch.sequences);
      gradient[b] += 2 * error / float(batch.sequences);
    }
    return kernels::MicroBatchResult{loss, batch.sequences, std::isfinite(loss), {furthest}};
  }

 private:
  const std::size_t inputs_;
  const std::vector<TensorSpec> tensors_;
};

Result<std::unique_ptr<kernels::Model>> make_line(const OwnSpec& spec) {
  const double inputs = spec.option("inputs", 8);
  if (!(inputs >= 1) || inputs > 1000)
    return Error(Code::kBadInput, "inputs must be from 1 to 1000; [model].options");
  return std::unique_ptr<kernels::Model>(new Line(std::size_t(inputs)));
}

// Points whose target is the inputs' sum and three. A real program would open what [data] path names
// here, and make `identity` of its bytes, so that a worker with another copy is refused.
Result<OwnData> open_points(const OwnSpec& spec, const std::string& /*path*/) {
  const auto inputs = std::size_t(spec.option("inputs", 8));
  OwnData data;
  data.samples = 10000;
  data.identity = hash128(as_bytes(std::span<const std::size_t>(&inputs, 1)));
  data.append = [inputs](std::uint64_t i, Batch& batch) -> Result<> {
    std::int32_t sum = 3;
    for (std::size_t k = 0; k < inputs; ++k) {
      batch.x.push_back(float(random4(1, Purpose::kSyntheticData, i, 0, k)[0] % 8) - 4);
      sum += std::int32_t(batch.x.back());
    }
    batch.targets.push_back(sum);
    return ok();
  };
  return data;
}

// Lion without its own weight decay: the sign of a mix of gradient and momentum (Chen et al., 2023,
// "Symbolic Discovery of Optimization Algorithms", algorithm 2).
void lion(const kernels::OwnStep& step, std::span<const float> gradient, std::span<float> weights,
          std::span<float> momentum, std::span<float>) {
  const auto rate = float(step.rate);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const float g = gradient[i] * step.clip;
    const float mix = 0.9f * momentum[i] + 0.1f * g;
    weights[i] -= rate * float((mix > 0) - (mix < 0));
    momentum[i] = 0.99f * momentum[i] + 0.01f * g;
  }
}

// A straight line from the peak to its floor.
double fall(const OptimizerSpec& optimizer, std::uint64_t step, std::uint64_t steps) {
  const double part = double(std::min(step, steps - 1)) / double(steps);
  return optimizer.peak_rate * (1 - part * (1 - optimizer.floor));
}

int main(int argc, char** argv) {
  Registry mine;
  mine.model("line", make_line, open_points)
      .optimizer("lion", {.moments = 1, .update = lion})
      .schedule("fall", fall);
  return starling::main(argc, argv, mine);
}
