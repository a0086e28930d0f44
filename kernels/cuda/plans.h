#pragma once
// A PlanTable says which algorithm of cuBLASLt a matrix product takes, and can be kept in a file.
//
// An algorithm that is chosen anew in every process may be another one each
// time; so tune() in cublas_lt.h chooses it once, by measuring, and writes it
// down. A table holds for one version of the library and one kind of device.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/base/result.h"
#include "kernels/cuda/cublas_lt_library.h"
#include "kernels/cuda/layers.h"

namespace starling::kernels::cuda {

// A PlanKey decides which algorithms are possible.
struct PlanKey {
  std::uint32_t m, n, k, lda, ldb, ldc, ldadd;  // ldadd: 0 if nothing is added
  Precision in, out;
  bool a_transposed, b_transposed, bias;
  Epilogue epilogue;
  // Each address is a multiple of this: a power of two up to 256 bytes.
  std::uint16_t align_a, align_b, align_c, align_add, align_bias, align_aux;

  auto operator<=>(const PlanKey&) const = default;
};
PlanKey key_of(const Product& product);
// Writes one line, as in a file.
std::string text_of(const PlanKey& key);

enum class Way : std::uint8_t {
  kFused,  // the library does everything
  kPlain,  // the library's product (and add), then finish()
  kOwn,    // our own kernel
};
struct Plan {
  Way way = Way::kOwn;
  lt::Algorithm algorithm{};  // zeros if way is kOwn
};

struct PlanTable {
  std::size_t version = 0;  // of cuBLASLt
  std::string device;       // its name
  std::map<PlanKey, Plan> plans;
};
// Writes a head and a line for each product, in order of keys.
std::string text_of(const PlanTable& table);
// Errors: kBadInput  the text is no table
Result<PlanTable> parse_plans(const std::string& text);
// Errors: kUnavailable  the file cannot be read; kBadInput  it holds no table
Result<PlanTable> read_plans(const std::filesystem::path& path);

}  // namespace starling::kernels::cuda
