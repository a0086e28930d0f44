#include "kernels/models/normal.h"

#include <cmath>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "kernels/cpu/portable_math.h"

namespace starling::kernels {

void fill_normal(std::uint64_t seed, std::uint32_t stream, double deviation, std::uint64_t first,
                 std::span<float> out) {
  STARLING_CHECK(first % 4 == 0);
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const auto bits = random4(seed, Purpose::kInitialWeights, 0, stream, (first + i) / 4);
    double four[4];
    for (int pair = 0; pair < 4; pair += 2) {
      const double radius = std::sqrt(-2 * portable_log(uniform(bits[pair])));
      portable_cos_sin(uniform(bits[pair + 1]), four[pair], four[pair + 1]);
      four[pair] *= radius;
      four[pair + 1] *= radius;
    }
    for (std::size_t j = 0; j < 4 && i + j < out.size(); ++j)
      out[i + j] = static_cast<float>(deviation * four[j]);
  }
}

}  // namespace starling::kernels
