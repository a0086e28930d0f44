#pragma once
// Models, and random numbers and batches for them.

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/models/model.h"

namespace starling::kernels {

inline std::vector<float> normal(std::size_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0, scale);
  std::vector<float> values(n);
  for (float& v : values) v = draw(random);
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

inline std::unique_ptr<Model> model_of(const ModelSpec& spec, const std::string& isa = "auto") {
  auto made = make_model(spec, isa);
  REQUIRE(made);
  return std::move(made).value();
}

inline Batch batch_of(const ModelSpec& spec, std::uint32_t sequences, unsigned seed = 1) {
  std::mt19937 random(seed);
  Batch b;
  b.sequences = sequences;
  const ModelInput input = *input_of(spec);
  if (input.tokens()) {
    const auto below = static_cast<std::uint32_t>(input.vocabulary);
    for (std::size_t i = 0; i < sequences * input.positions; ++i) {
      b.tokens.push_back(static_cast<std::int32_t>(random() % below));
      b.targets.push_back(static_cast<std::int32_t>(random() % below));
    }
    return b;
  }
  const auto& sizes = std::get<MlpSpec>(spec).sizes;
  std::normal_distribution<float> normal;
  for (std::uint32_t i = 0; i < sequences * sizes.front(); ++i) b.x.push_back(normal(random));
  for (std::uint32_t i = 0; i < sequences; ++i)
    b.targets.push_back(static_cast<std::int32_t>(random() % sizes.back()));
  return b;
}

}  // namespace starling::kernels
