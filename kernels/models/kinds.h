#pragma once
// How the host makes a model of each kind: a line a kind, which is defined in the file of its name. A
// kind without a line does not compile.

#include <cstdint>
#include <memory>

#include "kernels/cpu/table.h"
#include "kernels/models/model.h"

namespace starling::kernels {

// These limits are far above any model of one process; they keep all sizes within 64 bits.
inline constexpr std::uint32_t kDimensionMax = 1u << 24, kContextMax = 1u << 16, kLayersMax = 1024;
inline constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 36;
// Errors: kBadInput  the value is not one of 1 to `most`.
Result<> in_range(const char* key, std::uint64_t value, std::uint64_t most);

using MadeModel = Result<std::unique_ptr<Model>>;

// Errors: as make_model().
MadeModel make(const GptSpec& spec, const KernelTable& kernels, bool recompute);
MadeModel make(const LlamaSpec& spec, const KernelTable& kernels, bool recompute);
MadeModel make(const MlpSpec& spec, const KernelTable& kernels, bool recompute);
MadeModel make(const SyntheticSpec& spec, const KernelTable& kernels, bool recompute);
MadeModel make(const OwnSpec& spec, const KernelTable& kernels, bool recompute);
MadeModel make(const PythonSpec& spec, const KernelTable& kernels, bool recompute);  // kInternal

}  // namespace starling::kernels
