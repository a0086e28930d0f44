#include "kernels/grid/quantise_avx2.h"

#include <cmath>

#include "core/base/proof.h"
#include "kernels/grid/quantise.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace starling::kernels {

#ifdef __AVX2__
namespace {

static_assert(kBlock % 8 == 0);

// Weighing makes the weighted sum of consecutive elements, eight at a time: weights
// of the even ones and of the odd ones, each multiplied to 64 bits. One object
// serves a whole run of blocks, as the four parts are added up only at the end.
class Weighing {
 public:
  // The next elements begin with this one.
  void go_to(std::uint32_t first) {
    product_ = _mm256_mullo_epi32(_mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first)),
                                                   _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                                  _mm256_set1_epi32(static_cast<int>(kFactor)));
  }
  void add(__m256i values) {
    const __m256i weights = _mm256_or_si256(_mm256_srli_epi32(product_, 1), _mm256_set1_epi32(1));
    even_ = _mm256_add_epi64(even_, _mm256_mul_epi32(values, weights));
    odd_ = _mm256_add_epi64(
        odd_, _mm256_mul_epi32(_mm256_srli_epi64(values, 32), _mm256_srli_epi64(weights, 32)));
    product_ = _mm256_add_epi32(product_, _mm256_set1_epi32(static_cast<int>(8 * kFactor)));
  }
  std::uint64_t sum() const {
    alignas(32) std::uint64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi64(even_, odd_));
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }

 private:
  static constexpr std::uint32_t kFactor = 0x9e3779b1u;
  static_assert(weight_of(1) == (kFactor >> 1 | 1));
  __m256i product_ = _mm256_setzero_si256();  // of each element's number and the factor, mod 2^32
  __m256i even_ = _mm256_setzero_si256(), odd_ = _mm256_setzero_si256();
};

std::uint64_t weigh_avx2(std::uint32_t first, std::uint32_t blocks, const std::int32_t* values) {
  Weighing weighing;
  weighing.go_to(first);
  for (unsigned i = 0; i < blocks * kBlock; i += 8)
    weighing.add(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i)));
  return weighing.sum();
}

// Adds a block's integers to the sums, if they are not null, and weighs them.
void add_to_sums(const std::int32_t (&q)[kBlock], std::uint32_t first_element, std::int32_t* sums,
                 Weighing& weighing) {
  weighing.go_to(first_element);
  for (unsigned i = 0; i < kBlock; i += 8) {
    const __m256i part = _mm256_load_si256(reinterpret_cast<const __m256i*>(q + i));
    weighing.add(part);
    if (sums == nullptr) continue;
    auto* sum = reinterpret_cast<__m256i*>(sums + i);
    _mm256_storeu_si256(sum, _mm256_add_epi32(_mm256_loadu_si256(sum), part));
  }
}

bool add_block(const float* gradient, GridScale scale, std::int32_t limit,
               std::uint32_t first_element, std::int32_t* sums, Weighing& weighing) {
  alignas(32) std::int32_t q[kBlock];
  const __m256 first = _mm256_set1_ps(scale.first), second = _mm256_set1_ps(scale.second);
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  const __m256 bound = _mm256_set1_ps(0x1p30f);
  const __m256i most = _mm256_set1_epi32(limit - 1);
  __m256i outside = _mm256_setzero_si256();
  for (unsigned i = 0; i < kBlock; i += 8) {
    const __m256 p = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(gradient + i), first), second);
    // NLT means not less than: true for NaN as well.
    const __m256 large = _mm256_cmp_ps(_mm256_and_ps(p, magnitude), bound, _CMP_NLT_UQ);
    const __m256i rounded = _mm256_cvtps_epi32(p);  // half to even, the mode of the program
    const __m256i above = _mm256_cmpgt_epi32(_mm256_abs_epi32(rounded), most);
    outside = _mm256_or_si256(outside, _mm256_or_si256(_mm256_castps_si256(large), above));
    _mm256_store_si256(reinterpret_cast<__m256i*>(q + i), rounded);
  }
  if (!_mm256_testz_si256(outside, outside)) return false;
  add_to_sums(q, first_element, sums, weighing);
  return true;
}

std::uint32_t add_avx2(const float* gradient, const std::int16_t* exponents, std::int32_t limit,
                       std::uint32_t first, std::uint32_t blocks, std::int32_t* sums,
                       std::uint64_t* weighted, std::uint32_t* outside) {
  Weighing weighing;
  std::uint32_t missed = 0;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const std::size_t at = std::size_t{b} * kBlock;
    if (!add_block(gradient + at, grid_scale(exponents[b]), limit, first + b * kBlock,
                   sums == nullptr ? nullptr : sums + at, weighing))
      outside[missed++] = b;
  }
  *weighted += weighing.sum();
  return missed;
}

// High and low halves of the products of all lanes with a number.
struct Products {
  __m256i high, low;
};
Products products(__m256i x, std::uint32_t factor) {
  const __m256i f = _mm256_set1_epi64x(factor);
  const __m256i even = _mm256_mul_epu32(x, f), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), f);
  return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa),
          _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa)};
}

__m256i of_all(std::uint32_t x) {
  return _mm256_set1_epi32(static_cast<int>(x));
}

// Writes the dice of a block's elements: eight calls of Philox (core/base/philox.h) at a time, in lanes.
void throw_dice(const GridDice& dice, std::uint32_t block, std::int32_t* thrown) {
  static_assert(kBlock == 256);
  const std::uint64_t index = (std::uint64_t{dice.use} << 40) + std::uint64_t{block} * 32;
  for (std::uint32_t first = 0; first < 32; first += 8) {
    __m256i c0 = _mm256_add_epi32(of_all(static_cast<std::uint32_t>(index) + first),
                                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i c1 = of_all(static_cast<std::uint32_t>(index >> 32));
    __m256i c2 = of_all(static_cast<std::uint32_t>(dice.step));
    __m256i c3 =
        of_all((static_cast<std::uint32_t>(Purpose::kGridRounding) << 24) ^ dice.micro_batch);
    std::uint32_t k0 = static_cast<std::uint32_t>(dice.seed);
    std::uint32_t k1 =
        static_cast<std::uint32_t>(dice.seed >> 32) ^ static_cast<std::uint32_t>(dice.step >> 32);
    for (int round = 0; round < 10; ++round) {
      const Products p0 = products(c0, 0xD2511F53u), p1 = products(c2, 0xCD9E8D57u);
      c0 = _mm256_xor_si256(_mm256_xor_si256(p1.high, c1), of_all(k0));
      c1 = p1.low;
      c2 = _mm256_xor_si256(_mm256_xor_si256(p0.high, c3), of_all(k1));
      c3 = p0.low;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    // From word by word to call by call.
    const __m256i t0 = _mm256_unpacklo_epi32(c0, c1), t1 = _mm256_unpackhi_epi32(c0, c1);
    const __m256i t2 = _mm256_unpacklo_epi32(c2, c3), t3 = _mm256_unpackhi_epi32(c2, c3);
    const __m256i u0 = _mm256_unpacklo_epi64(t0, t2), u1 = _mm256_unpackhi_epi64(t0, t2);
    const __m256i u2 = _mm256_unpacklo_epi64(t1, t3), u3 = _mm256_unpackhi_epi64(t1, t3);
    const __m256i calls[] = {
        _mm256_permute2x128_si256(u0, u1, 0x20), _mm256_permute2x128_si256(u2, u3, 0x20),
        _mm256_permute2x128_si256(u0, u1, 0x31), _mm256_permute2x128_si256(u2, u3, 0x31)};
    for (unsigned i = 0; i < 4; ++i) {
      std::int32_t* const to = thrown + 4 * first + 8 * i;
      _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                         _mm256_and_si256(calls[i], of_all(0xffff)));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + kBlock / 2),
                         _mm256_srli_epi32(calls[i], 16));
    }
  }
}

bool add_block_by_dice(const std::int32_t* thrown, const float* gradient, GridScale scale,
                       std::int32_t limit, std::uint32_t first_element, std::int32_t* sums,
                       Weighing& weighing) {
  alignas(32) std::int32_t q[kBlock];
  const __m256 first = _mm256_set1_ps(scale.first), second = _mm256_set1_ps(scale.second);
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  const __m256 bound = _mm256_set1_ps(0x1p14f), fine = _mm256_set1_ps(0x1p16f);
  const __m256i most = _mm256_set1_epi32(limit - 1);
  __m256i outside = _mm256_setzero_si256();
  for (unsigned i = 0; i < kBlock; i += 8) {
    const __m256 p = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(gradient + i), first), second);
    const __m256 large = _mm256_cmp_ps(_mm256_and_ps(p, magnitude), bound, _CMP_NLT_UQ);
    const __m256i dice = _mm256_load_si256(reinterpret_cast<const __m256i*>(thrown + i));
    const __m256i rounded =
        _mm256_srai_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(p, fine)), dice), 16);
    const __m256i above = _mm256_cmpgt_epi32(_mm256_abs_epi32(rounded), most);
    outside = _mm256_or_si256(outside, _mm256_or_si256(_mm256_castps_si256(large), above));
    _mm256_store_si256(reinterpret_cast<__m256i*>(q + i), rounded);
  }
  if (!_mm256_testz_si256(outside, outside)) return false;
  add_to_sums(q, first_element, sums, weighing);
  return true;
}

std::uint32_t add_by_dice_avx2(const GridDice& dice, std::uint32_t first_block,
                               const float* gradient, const std::int16_t* exponents,
                               std::int32_t limit, std::uint32_t blocks, std::int32_t* sums,
                               std::uint64_t* weighted, std::uint32_t* outside) {
  Weighing weighing;
  std::uint32_t missed = 0;
  alignas(32) std::int32_t thrown[kBlock];
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const std::size_t at = std::size_t{b} * kBlock;
    throw_dice(dice, first_block + b, thrown);
    if (!add_block_by_dice(thrown, gradient + at, grid_scale(exponents[b]), limit,
                           (first_block + b) * kBlock, sums == nullptr ? nullptr : sums + at,
                           weighing))
      outside[missed++] = b;
  }
  *weighted += weighing.sum();
  return missed;
}

void mean_by_factor(const std::int32_t* totals, double scale, float* mean) {
  const __m256d factor = _mm256_set1_pd(scale);
  for (unsigned i = 0; i < kBlock; i += 4) {
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(totals + i));
    _mm_storeu_ps(mean + i, _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtepi32_pd(t), factor)));
  }
}

void mean_avx2(const std::int32_t* totals, double scale, double micro_batches, float* mean) {
  // A power of two divides without rounding; a division costs several products.
  int power = 0;
  if (std::frexp(micro_batches, &power) == 0.5)
    return mean_by_factor(totals, scale / micro_batches, mean);
  const __m256d factor = _mm256_set1_pd(scale), divisor = _mm256_set1_pd(micro_batches);
  for (unsigned i = 0; i < kBlock; i += 4) {
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(totals + i));
    const __m256d exact = _mm256_mul_pd(_mm256_cvtepi32_pd(t), factor);
    _mm_storeu_ps(mean + i, _mm256_cvtpd_ps(_mm256_div_pd(exact, divisor)));
  }
}

void squares_avx2(const std::int32_t* totals, std::uint64_t* sum) {
  const __m256i low_half = _mm256_set1_epi64x(0xffffffff);
  __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();  // below 2^40 each
  const auto add = [&](__m256i values) {                                // the even ones
    const __m256i square = _mm256_mul_epi32(values, values);
    low = _mm256_add_epi64(low, _mm256_and_si256(square, low_half));
    high = _mm256_add_epi64(high, _mm256_srli_epi64(square, 32));
  };
  for (unsigned i = 0; i < kBlock; i += 8) {
    const __m256i t = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(totals + i));
    // The largest totals round to 2^31, which becomes -2^31: its square is the same.
    const __m256i rounded = _mm256_cvtps_epi32(_mm256_cvtepi32_ps(t));
    add(rounded);
    add(_mm256_srli_epi64(rounded, 32));
  }
  alignas(32) std::uint64_t lows[4], highs[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lows), low);
  _mm256_store_si256(reinterpret_cast<__m256i*>(highs), high);
  const std::uint64_t l = lows[0] + lows[1] + lows[2] + lows[3];
  const std::uint64_t h = highs[0] + highs[1] + highs[2] + highs[3];
  sum[0] = l + (h << 32);
  sum[1] = (h >> 32) + (sum[0] < l ? 1 : 0);
}

std::uint32_t largest_avx2(const float* values) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for (unsigned i = 0; i < kBlock; i += 8) {
    const auto* p = reinterpret_cast<const __m256i*>(values + i);
    most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_loadu_si256(p), magnitude));
  }
  alignas(32) std::uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), most);
  std::uint32_t largest = 0;
  for (const std::uint32_t lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

constexpr BlockKernels kAvx2{add_avx2,  add_by_dice_avx2, weigh_avx2,
                             mean_avx2, squares_avx2,     largest_avx2};

}  // namespace

const BlockKernels* avx2_block_kernels() {
  return __builtin_cpu_supports("avx2") ? &kAvx2 : nullptr;
}
#else
const BlockKernels* avx2_block_kernels() {
  return nullptr;
}
#endif

}  // namespace starling::kernels
