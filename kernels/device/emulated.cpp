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
    run_here(job, job.gradient, job.exponents, job.sums, job.weighted, job.outside, job.broken);
  }
  void gather(const GatherJob& job) override {
    run_here(job, job.gradient, job.blocks, job.values);
    device_.out_ += std::size_t{job.count} * kBlock * sizeof(float);
  }
  void weigh(const WeighJob& job) override { run_here(job, job.sums, job.weighted); }
  void sum(const SumJob& job) override { run_here(job, job.sums, job.a, job.b); }
  void wide_means(const WideJob& job) override {
    run_here(job, job.totals, job.exponents, job.blocks, job.ends, job.entries, job.means,
             job.largest);
  }
  void squares(const SquaresJob& job) override {
    run_here(job, job.totals, job.exponents, job.used, job.wide.blocks, job.wide.means,
             job.wide.largest, job.bins, job.weighted);
  }
  void apply(const ApplyJob& job) override {
    run_here(job, job.totals, job.used, job.groups, job.wide.blocks, job.wide.means,
             job.wide.largest, job.exponents, job.weights, job.first, job.second, job.checksums);
  }
  void publish(const PublishJob& job) override {
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
    run_here(job, job.exponents, job.arrays[0], job.arrays[1], job.arrays[2], job.checksums);
  }
  void digest(const DigestJob& job) override {
    run_here(job, job.exponents, job.arrays[0], job.arrays[1], job.arrays[2], job.used,
             job.digests);
  }
  void wait() override {}

 private:
  // Runs a copy of the job whose fields `addresses` are replaced by the real addresses.
  template <class Job, class... Address>
  void run_here(const Job& job, const Address&... addresses) {
    Job here = job;
    const auto move = [&](const auto& address) {
      if (address == nullptr) return;
      const auto offset =
          reinterpret_cast<const char*>(&address) - reinterpret_cast<const char*>(&job);
      const std::byte* there = device_.real(address, 1);
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
  if (!place_of(at)) expect_pages(real(at, offset + count), offset, count, used);
}

void EmulatedDevice::prepare(std::byte* at, std::size_t offset, std::size_t count,
                             const std::stop_token& stop) {
  prepare_pages(real(at, offset + count), offset, count, stop);
}

void EmulatedDevice::release(std::byte* at, std::size_t offset, std::size_t count) {
  release_pages(real(at, offset + count), offset, count,
                place_of(at) ? Pages::kShared : Pages::kPrivate);
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
  return piece->second.real + offset;
}

}  // namespace starling::kernels
