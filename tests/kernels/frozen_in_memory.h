#pragma once
// Frozen tensors of a model with adapters, for tests.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/job/layout.h"
#include "kernels/models/model.h"

namespace starling::kernels {

// Frozen tensors in memory. With `copies` matrices are given as those are that are no floats where they lie.
class FrozenInMemory : public FrozenTensors {
 public:
  FrozenInMemory(const Model& adapted, const Layout& whole, const std::vector<float>& values,
                 bool copies)
      : copies_(copies) {
    for (const TensorSpec& spec : adapted.frozen()) {
      const auto place = std::ranges::find(whole.tensors(), spec.name,
                                           [](const TensorPlace& each) { return each.spec.name; });
      REQUIRE(place != whole.tensors().end());
      REQUIRE(place->spec.shape == spec.shape);
      const auto from = values.begin() + std::ptrdiff_t{place->first_block} * kBlock;
      tensors_.emplace_back(from, from + static_cast<std::ptrdiff_t>(spec.elements()));
      is_matrix_.push_back(spec.shape.size() > 1);
    }
  }
  const float* read(std::size_t tensor, std::uint64_t from, std::size_t count,
                    float* room) const override {
    REQUIRE(from + count <= tensors_[tensor].size());
    if (changes_after > 0 && --changes_after == 0) changed = true;
    const float* const there = tensors_[tensor].data() + from;
    if (!copies_ || !is_matrix_[tensor]) return there;
    std::copy_n(there, count, room);
    return room;
  }
  Result<> intact() const override {
    return changed ? Result<>(bad_input("was changed")) : Result<>(ok());
  }
  // Of the tensor of that name.
  std::vector<float>& values(const std::string& name, const Model& adapted) {
    const auto found = std::ranges::find(adapted.frozen(), name, &TensorSpec::name);
    REQUIRE(found != adapted.frozen().end());
    return tensors_[static_cast<std::size_t>(found - adapted.frozen().begin())];
  }
  mutable bool changed = false;
  mutable int changes_after = 0;  // reads; 0: never

 private:
  const bool copies_;
  std::vector<std::vector<float>> tensors_;
  std::vector<bool> is_matrix_;
};

}  // namespace starling::kernels
