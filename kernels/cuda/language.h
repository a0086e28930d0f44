#pragma once
// The first and the last layer of language models on a device (see kernels/layers/language.h). x is [rows, width].

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/net.h"
#include "kernels/layers/language.h"

namespace starling::kernels::cuda {

std::unique_ptr<DeviceLayer> make_embedding(const Embedding::Shape& shape, const Tensors& tensors);

struct DeviceHeadShape {
  std::uint32_t vocabulary = 0;
  DeviceNorm norm;
  std::string table;  // [vocabulary, norm.width]
  bool tied = false;  // to the embedding
};
std::unique_ptr<DeviceLayer> make_head(const DeviceHeadShape& shape, const Tensors& tensors);

}  // namespace starling::kernels::cuda
