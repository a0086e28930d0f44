#pragma once
// The pickle of a state_dict, as torch.save() writes it: which tensors lie where. A pickle is a program; of its
// instructions those are followed that make dictionaries of tensors, and nothing that it names is ever called.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/formats/safetensors.h"

namespace starling {

// A tensor as a part of a storage. `shape` is row-major, and the elements lie one behind the other.
struct StateDictTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::string storage;       // the name of its storage
  std::uint64_t offset = 0;  // its first element there
  std::vector<std::uint64_t> shape;
};

// In the order of the dictionary; storages may serve several tensors. Errors: kBadInput  another instruction, a name
// or a call that no state_dict needs, a value that is no tensor, a tensor whose elements lie otherwise, one name
// twice, or a pickle that is cut or has more than 2^20 values.
Result<std::vector<StateDictTensor>> parse_state_dict(std::string_view pickle);

}  // namespace starling
