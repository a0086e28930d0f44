#include "kernels/device/emulated.h"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <new>

#include "core/base/check.h"
#include "core/base/ids.h"
#include "kernels/device/host_jobs.h"
#include "kernels/device/lazy_pages.h"

namespace starling::kernels {

class EmulatedQueue : public Queue {
 public:
  explicit EmulatedQueue(EmulatedDevice& device) : device_(device) {}

  void zero(void* at, std::size_t bytes) override {
    if (bytes > 0) std::memset(device_.real(at, bytes), 0, bytes);
  }
  void copy_in(void* to, ByteView from) override {
    if (from.empty()) return;
    std::memcpy(device_.real(to, from.size()), from.data(), from.size());
    device_.in_ += from.size();
  }
  void copy_out(std::span<std::uint8_t> to, const void* from) override {
    if (to.empty()) return;
    std::memcpy(to.data(), device_.real(from, to.size()), to.size());
    device_.out_ += to.size();
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device_.real(to, bytes), device_.real(from, bytes), bytes);
  }

  void add(const AddJob& job) override {
    require(job.sums, job.segments);
    run_here(job, job.gradient, job.exponents, job.sums, job.weighted, job.outside, job.broken);
  }
  void gather(const GatherJob& job) override {
    run_here(job, job.gradient, job.blocks, job.values);
    device_.out_ += std::size_t{job.count} * kBlock * sizeof(float);
  }
  void weigh(const WeighJob& job) override {
    require(job.sums, job.segments);
    run_here(job, job.sums, job.weighted);
  }
  void sum(const SumJob& job) override {
    for (const std::int32_t* const sums :
         {static_cast<const std::int32_t*>(job.sums), job.a, job.b})
      if (job.elements > 0) device_.real(sums, job.elements * sizeof *sums);
    run_here(job, job.sums, job.a, job.b);
  }
  void wide_means(const WideJob& job) override {
    run_here(job, job.totals, job.exponents, job.blocks, job.ends, job.entries, job.means,
             job.largest);
  }
  void squares(const SquaresJob& job) override {
    require(job.totals, job.segments);
    run_here(job, job.totals, job.exponents, job.used, job.wide.blocks, job.wide.means,
             job.wide.largest, job.bins, job.weighted);
  }
  void apply(const ApplyJob& job) override {
    require(job.totals, job.segments);
    for (const float* const held : {job.weights, job.first, job.second})
      require(held, job.segments);
    run_here(job, job.totals, job.used, job.groups, job.wide.blocks, job.wide.means,
             job.wide.largest, job.exponents, job.weights, job.first, job.second, job.checksums);
  }
  void publish(const PublishJob& job) override {
    require(job.weights, job.segments);
    run_here(job, job.weights, job.held_exponents, job.parameters, job.exponents, job.checksums);
  }
  void multiple(const MultipleJob& job) override { run_here(job, job.from, job.to); }
  void difference(const DifferenceJob& job) override {
    run_here(job, job.before, job.after, job.difference);
  }
  void norm(const NormJob& job) override {
    run_here(job, job.gradient, job.used, job.counted, job.bins, job.broken);
  }
  void local_step(const LocalStepJob& job) override {
    run_here(job, job.gradient, job.used, job.groups, job.weights, job.first, job.second,
             job.parameters);
  }
  void checksum(const ChecksumJob& job) override {
    for (const float* const array : job.arrays) require(array, job.segments, job.first_block);
    run_here(job, job.exponents, job.arrays[0], job.arrays[1], job.arrays[2], job.checksums);
  }
  void digest(const DigestJob& job) override {
    for (const float* const array : job.arrays) require(array, job.segments);
    run_here(job, job.exponents, job.arrays[0], job.arrays[1], job.arrays[2], job.used,
             job.digests);
  }
  void wait() override {}

 private:
  // Checks that these segments of an array are there whose element 0 is that of `first_block`.
  template <class T>
  void require(const T* array, const Segments& segments, std::uint32_t first_block = 0) const {
    if (array == nullptr) return;
    for (std::uint32_t i = 0; i < segments.count; ++i) {
      const SegmentBlocks& segment = segments.list[i];
      device_.real(array + std::size_t{segment.first - first_block} * kBlock,
                   std::size_t{segment.count} * kBlock * sizeof(T));
    }
  }

  // Runs a copy of the job whose fields `addresses` are replaced by the real addresses.
  template <class Job, class... Address>
  void run_here(const Job& job, const Address&... addresses) {
    Job here = job;
    const auto move = [&](const auto& address) {
      if (address == nullptr) return;
      const auto offset =
          reinterpret_cast<const char*>(&address) - reinterpret_cast<const char*>(&job);
      const std::byte* there = device_.real(address, 0);
      std::memcpy(reinterpret_cast<char*>(&here) + offset, &there, sizeof there);
    };
    (move(addresses), ...);
    run(here);
  }

  EmulatedDevice& device_;
};

namespace {

class EmulatedStream : public Stream {
 public:
  bool idle() override { return counts.done == counts.asked; }
  void* native() const override { return &counts; }

  mutable StreamCounts counts;
};

}  // namespace

EmulatedDevice::~EmulatedDevice() {
  if (!keeps_memory()) STARLING_CHECK(pieces_.empty());
}

std::size_t EmulatedDevice::pieces() const {
  const std::shared_lock lock(mutex_);
  return pieces_.size();
}

std::size_t EmulatedDevice::backed() const {
  const std::shared_lock lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [at, piece] : pieces_)
    if (piece.sparse)
      for (const Granules::Run& run : piece.sparse->mapped()) bytes += run.count;
  return bytes;
}

std::unique_ptr<Queue> EmulatedDevice::make_queue() {
  return std::make_unique<EmulatedQueue>(*this);
}

std::shared_ptr<Stream> EmulatedDevice::make_stream() {
  auto stream = std::make_shared<EmulatedStream>();
  stream->counts.real = [this](const void* at, std::size_t bytes) { return real(at, bytes); };
  return stream;
}

std::byte* EmulatedDevice::take(std::size_t bytes, bool pinned) {
  Piece piece{bytes, take_pages(bytes)};
  if (!pinned) return hide(std::move(piece));
  const std::lock_guard lock(mutex_);
  std::byte* const at = piece.real;
  pieces_[at] = std::move(piece);
  return at;
}

std::byte* EmulatedDevice::take_sparse(std::size_t bytes) {
  std::byte* const real = take_pages(bytes);
  protect_pages(real, {0, bytes}, /*there=*/false);
  return hide({bytes, real, nullptr, Granules(bytes, page_bytes())});
}

void EmulatedDevice::back(std::byte* at, std::size_t offset, std::size_t count) {
  const std::lock_guard lock(mutex_);
  Piece& piece = pieces_.at(at);
  if (!piece.sparse) return;
  const Granules::Taken taken = piece.sparse->take(offset, count);
  for (const Granules::Run& run : taken.fresh) protect_pages(piece.real, run, /*there=*/true);
  for (const Granules::Run& run : taken.reused) drop_pages(piece.real, run);
}

void EmulatedDevice::unback(std::byte* at, Granules::Run granules, std::uint64_t give) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(at);
  if (piece == pieces_.end() || !piece->second.sparse) return;
  for (const Granules::Run& run : piece->second.sparse->take_unused(granules, give)) {
    drop_pages(piece->second.real, run);
    protect_pages(piece->second.real, run, /*there=*/false);
  }
}

std::byte* EmulatedDevice::take_exported(std::size_t bytes) {
  if (!exports_) return take(bytes, /*pinned=*/false);
  auto shared = std::make_shared<SharedPages>(bytes);
  std::byte* const real = shared->data();
  return hide({bytes, real, std::move(shared)});
}

std::byte* EmulatedDevice::hide(Piece piece) {
  void* const p =
      ::mmap(nullptr, piece.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  auto* const at = static_cast<std::byte*>(p);
  const std::lock_guard lock(mutex_);
  pieces_[at] = std::move(piece);
  return at;
}

std::optional<SharedPlace> EmulatedDevice::place_of(const std::byte* at) const {
  const std::shared_lock lock(mutex_);
  const auto piece = pieces_.find(at);
  STARLING_CHECK(piece != pieces_.end());
  if (!piece->second.shared) return std::nullopt;
  return piece->second.shared->place();
}

void EmulatedDevice::give_back(std::byte* at, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(at);
  STARLING_CHECK(piece != pieces_.end());
  if (piece->second.real != at) ::munmap(at, bytes);
  if (!piece->second.shared) give_back_pages(piece->second.real, bytes);
  pieces_.erase(piece);
}

void EmulatedDevice::expect(std::byte* at, std::size_t offset, std::size_t count, bool used) {
  // Large pages need private memory.
  if (!place_of(at)) expect_pages(real(at, 0), offset, count, used);
}

void EmulatedDevice::prepare(std::byte* at, std::size_t offset, std::size_t count,
                             const std::stop_token& stop) {
  prepare_pages(real(at, 0), offset, count, stop);  // of sparse memory no more than is there
}

void EmulatedDevice::release(std::byte* at, std::size_t offset, std::size_t count) {
  real(at + offset, count);
  Granules::Given given{{}, {{offset, count}}};
  {
    const std::lock_guard lock(mutex_);
    if (auto& sparse = pieces_.at(at).sparse) given = sparse->give(offset, count);
  }
  for (const Granules::Run& run : given.shared)
    release_pages(real(at, 0), run.offset, run.count,
                  place_of(at) ? Pages::kShared : Pages::kPrivate);
  retire(at, given);
}

std::byte* EmulatedDevice::real(const void* address, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(address);
  const std::shared_lock lock(mutex_);
  auto piece = pieces_.upper_bound(at);
  STARLING_CHECK(piece != pieces_.begin());
  --piece;
  const auto offset = static_cast<std::size_t>(at - piece->first);
  STARLING_CHECK(offset <= piece->second.bytes);
  STARLING_CHECK(bytes <= piece->second.bytes - offset);
  if (piece->second.sparse) STARLING_CHECK(piece->second.sparse->used(offset, bytes));
  return piece->second.real + offset;
}

}  // namespace starling::kernels
