#include <algorithm>
#include <iterator>

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/xxh3.h"

namespace starling::kernels::cuda {
namespace {

// Each segment has a warp, in a thread block of its own: a hash is made from front
// to back, so segments go to all processors of the device. Most of a warp's
// registers hold what it has read ahead, so few thread blocks may share a processor.
constexpr std::uint32_t kAProcessor = 8;

// ---- checksum -------------------------------------------------------------------------------------

// Floats reads the bytes of floats that begin at a block.
struct Floats {
  static constexpr std::uint32_t kAhead = 8;
  const float* values;

  __device__ void read(std::uint64_t block, Word (&words)[xxh3::kRounds]) const {
    for (std::uint32_t r = 0; r < xxh3::kRounds; ++r)
      words[r] = word(block * xxh3::kBlockBytes + xxh3::lane_word(r));
  }
  __device__ Word word(std::uint64_t at) const {
    const auto pair = *reinterpret_cast<const float2*>(values + at / sizeof(float));
    return __float_as_uint(pair.x) | Word{__float_as_uint(pair.y)} << 32;
  }
  __device__ unsigned byte(std::uint64_t at) const {
    return __float_as_uint(values[at / sizeof(float)]) >> (at % sizeof(float) * 8) & 0xff;
  }
};

// Exponents reads the bytes of exponents, which begin anywhere.
struct Exponents {
  static constexpr std::uint32_t kAhead = 1;  // there are few
  const std::int16_t* values;

  __device__ void read(std::uint64_t block, Word (&words)[xxh3::kRounds]) const {
    for (std::uint32_t r = 0; r < xxh3::kRounds; ++r)
      words[r] = word(block * xxh3::kBlockBytes + xxh3::lane_word(r));
  }
  __device__ Word word(std::uint64_t at) const {
    return half(at) | half(at + 2) << 16 | half(at + 4) << 32 | half(at + 6) << 48;
  }
  __device__ Word half(std::uint64_t at) const {
    return static_cast<std::uint16_t>(values[at / sizeof(*values)]);
  }
  __device__ unsigned byte(std::uint64_t at) const {
    return static_cast<unsigned>(half(at)) >> (at % sizeof(*values) * 8) & 0xff;
  }
};

// seeds: null if all have `seed`.
__global__ void __launch_bounds__(kLanes, kAProcessor)
    checksum_kernel(ChecksumJob job, Listed listed, const std::uint64_t* seeds, Word seed) {
  const std::uint32_t i = blockIdx.x;
  const SegmentBlocks s = listed.list[i];
  Word hash = xxh3::hash64(Exponents{job.exponents + s.first}, s.count * sizeof(*job.exponents),
                           seeds != nullptr ? seeds[i] : seed);
  STARLING_ROLL
  for (std::uint32_t a = 0; a < 3; ++a) {
    const float* array = a == 0 ? job.arrays[0] : a == 1 ? job.arrays[1] : job.arrays[2];
    if (array != nullptr)
      hash = xxh3::long64(Floats{array + element_of(s.first - job.first_block)},
                          std::uint64_t{s.count} * kBlock * sizeof(float), hash);
  }
  if (lane_of_thread() == 0) job.checksums[i] = hash;
}

// ---- digest ---------------------------------------------------------------------------------------

// segment_digest() (core/job/segment_values.h) hashes, in words of 32 bits, the segment's
// number and the real elements of each array; then the exponents. Real elements are runs of
// whole blocks, of which only the last may be shorter: mostly one run for the whole segment.
struct Run {
  std::uint32_t word;  // its first word, counted in an array's real elements
  std::uint32_t gap;   // elements before it that are not real
};
static_assert(sizeof(Run) == sizeof(Word));

struct Runs {
  const Run* list;      // [count], the first from word 0
  std::uint32_t count;  // at least 1
  std::uint32_t words;  // of an array's real elements
};

// Writes the runs of a segment of at least one block to list,
// one for each of its blocks at most. All lanes call it.
__device__ Runs find_runs(const std::uint16_t* used, std::uint32_t blocks, Run* list) {
  const std::uint32_t lane = lane_of_thread();
  std::uint32_t count = 0, words = 0;
  bool after_gap = true;  // the elements before the next 32 blocks are not all real
  for (std::uint32_t first = 0; first < blocks; first += kLanes) {
    const std::uint32_t b = first + lane;
    const std::uint32_t own = b < blocks ? used[b] : 0;
    std::uint32_t until = own;  // words from the first of the 32 up to and with this block
    for (std::uint32_t by = 1; by < kLanes; by *= 2) {
      const std::uint32_t before = __shfl_up_sync(kAllLanes, until, by);
      if (lane >= by) until += before;
    }
    const unsigned gaps = __ballot_sync(kAllLanes, own < kBlock);
    const unsigned begins = gaps << 1 | (after_gap ? 1u : 0u);
    if ((begins >> lane & 1) != 0 && b < blocks) {
      const std::uint32_t word = words + until - own;
      list[count + __popc(begins & ((1u << lane) - 1))] = {word, b * kBlock - word};
    }
    const std::uint32_t here = blocks - first < kLanes ? blocks - first : kLanes;
    count += __popc(begins & (kAllLanes >> (kLanes - here)));
    words += __shfl_sync(kAllLanes, until, kLanes - 1);
    after_gap = gaps >> (kLanes - 1) != 0;
  }
  __syncwarp();  // lanes read what other lanes wrote
  return {list, count, words};
}

// Content requires that null arrays come last.
class Content {
 public:
  static constexpr std::uint32_t kAhead = 4;

  __device__ Content(const DigestJob& job, const SegmentBlocks& s, const Runs& runs)
      : job_(job),
        id_(s.id),
        first_(element_of(s.first)),
        runs_(runs),
        exponents_{job.exponents + s.first} {
    std::uint64_t words = 1;
    for (const float* array : job.arrays) words += array != nullptr ? runs.words : 0;
    exponents_at_ = words * sizeof(float);
    length_ = exponents_at_ + (job.exponents != nullptr ? s.count * sizeof(*job.exponents) : 0);
  }
  __device__ std::uint64_t length() const { return length_; }

  __device__ void read(std::uint64_t block, Word (&words)[xxh3::kRounds]) {
    const std::uint64_t begin = block * kBlockWords;
    if (begin + kBlockWords <= here_.end) {
      for (std::uint32_t r = 0; r < xxh3::kRounds; ++r) {
        const std::uint64_t w = begin + xxh3::lane_word(r) / sizeof(float);
        words[r] = here_.load(w) | Word{here_.load(w + 1)} << 32;
      }
      return;
    }
    __shared__ Word found[xxh3::kRounds][kLanes];  // a loop over registers would not stay one
    STARLING_ROLL
    for (std::uint32_t r = 0; r < xxh3::kRounds; ++r)
      found[r][lane_of_thread()] = word(block * xxh3::kBlockBytes + xxh3::lane_word(r));
    for (std::uint32_t r = 0; r < xxh3::kRounds; ++r) words[r] = found[r][lane_of_thread()];
    here_ = piece_at(begin + kBlockWords - 1);
  }

  __device__ Word word(std::uint64_t at) const {
    Word both = 0;
    STARLING_ROLL
    for (std::uint32_t i = 0; i < 2; ++i) both |= Word{half(at / sizeof(float) + i)} << (32 * i);
    return both;
  }

  __device__ unsigned byte(std::uint64_t at) const {
    if (at >= exponents_at_) return exponents_.byte(at - exponents_at_);
    return half(at / sizeof(float)) >> (at % sizeof(float) * 8) & 0xff;
  }

 private:
  static constexpr std::uint32_t kBlockWords = xxh3::kBlockBytes / sizeof(float);

  // A Piece has the words of an array's run, up to end: array[word + offset].
  struct Piece {
    const float* array = nullptr;
    std::uint64_t offset = 0, end = 0;

    __device__ std::uint32_t load(std::uint64_t w) const {
      return __float_as_uint(array[w + offset]);
    }
  };

  // Returns the w-th word; a word of exponents must be whole.
  __device__ std::uint32_t half(std::uint64_t w) const {
    if (w == 0) return id_;
    const std::uint64_t at = w * sizeof(float);
    if (at < exponents_at_) return piece_at(w).load(w);
    return static_cast<std::uint32_t>(exponents_.half(at - exponents_at_) |
                                      exponents_.half(at - exponents_at_ + 2) << 16);
  }

  // Returns the piece that has the w-th word; an empty one for number and exponents.
  __device__ Piece piece_at(std::uint64_t w) const {
    if (w == 0 || w * sizeof(float) >= exponents_at_) return {};
    Piece piece;
    std::uint64_t begin = 1;
    for (const float* array : job_.arrays) {
      piece.array = array + first_;
      if (w < begin + runs_.words) break;
      begin += runs_.words;
    }
    const std::uint64_t real = w - begin;  // of the array
    std::uint32_t run = 0, end = runs_.count;
    STARLING_ROLL
    while (end - run > 1) {
      const std::uint32_t middle = run + (end - run) / 2;
      if (runs_.list[middle].word <= real)
        run = middle;
      else
        end = middle;
    }
    piece.offset = runs_.list[run].gap - begin;
    piece.end = begin + (end < runs_.count ? runs_.list[end].word : runs_.words);
    return piece;
  }

  const DigestJob& job_;
  const std::uint32_t id_;
  const std::size_t first_;
  const Runs runs_;
  const Exponents exponents_;
  std::uint64_t exponents_at_ = 0, length_ = 0;  // in bytes
  Piece here_;  // the piece where the last block that was read ends
};

__global__ void __launch_bounds__(kLanes, kAProcessor)
    digest_kernel(DigestJob job, Listed listed, Run* runs) {
  const std::uint32_t i = blockIdx.x;
  const SegmentBlocks s = listed.list[i];
  const Content content(
      job, s, find_runs(job.used + s.first, s.count, runs + std::size_t{i} * listed.largest));
  const xxh3::Hash128 hash = xxh3::hash128(content, content.length());
  if (lane_of_thread() != 0) return;
  job.digests[2 * std::size_t{i}] = hash.low;
  job.digests[2 * std::size_t{i} + 1] = hash.high;
}

}  // namespace

void checksum(cudaStream_t stream, const ChecksumJob& job, const Listed& listed,
              const std::uint64_t* seeds, std::uint64_t seed) {
  if (listed.count > 0)
    launch(stream, listed.count, kLanes, 0, checksum_kernel, job, listed, seeds, seed);
}

std::size_t scratch_words(const DigestJob&, const Listed& listed) {
  return std::size_t{listed.count} * listed.largest;
}

void digest(cudaStream_t stream, const DigestJob& job, const Listed& listed, Word* scratch) {
  DigestJob here = job;
  float const** const end = std::end(here.arrays);
  std::fill(std::remove(here.arrays, end, nullptr), end, nullptr);
  if (listed.count > 0)
    launch(stream, listed.count, kLanes, 0, digest_kernel, here, listed,
           reinterpret_cast<Run*>(scratch));
}

}  // namespace starling::kernels::cuda
