#pragma once
// LoRA: a model whose weights stay as they were published, and low-rank adapters of some of them, which are trained (Hu
// et al., 2021, "LoRA: Low-Rank Adaptation of Large Language Models"). A spec that can have them has
//   lora           what is adapted
//   kModules       the modules of a layer that can be, as published models name them
//   kLoraTargets   those that are, where the job does not say
//   kFanInFanOut   whether their weights are [in, out]; else [out, in]

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace starling {

// A module computes x W, and with an adapter scale() (x A^T) B^T beside it, A [rank, in] and B [out, rank].
struct LoraSpec {
  std::uint32_t rank = 0;  // 0: no adapters, the whole model is trained
  double alpha = 0;
  // Modules, or the ends of their names: "c_attn", "mlp.c_proj". In ascending order.
  std::vector<std::string> targets;
  // PretrainedWeights::digest() of the weights that are adapted, as text: no bit of the result is without them.
  std::string base;

  bool on() const { return rank != 0; }
  double scale() const { return alpha / rank; }
  bool adapts(std::string_view module) const {
    return std::ranges::any_of(targets, [&](const std::string& target) {
      return module == target || module.ends_with("." + target);
    });
  }
  bool operator==(const LoraSpec&) const = default;
};

inline constexpr std::uint32_t kLoraRankMax = 1024;

// Names of an adapter's tensors.
inline std::string lora_a(const std::string& module) {
  return module + ".lora_A.weight";
}
inline std::string lora_b(const std::string& module) {
  return module + ".lora_B.weight";
}

}  // namespace starling
