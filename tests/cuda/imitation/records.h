#pragma once
// Which kernels ran, and their names.

#include <cstdint>
#include <string>

namespace starling::imitation {

void record_launch(const void* kernel, std::uint64_t blocks, std::uint64_t threads);

// As the program's symbols have it; "0xADDRESS" where there are none.
std::string kernel_name(const void* kernel);

}  // namespace starling::imitation
