#include "kernels/cuda/queue.h"

#include <doctest/doctest.h>

#include <limits>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/base/proof.h"
#include "kernels/device/host_jobs.h"
#include "tests/cuda/twin.h"
#include "tests/kernels/grid_group.h"
#include "tests/kernels/grid_history.h"

namespace starling::kernels::cuda {
namespace {

// Keeps for a scope that work is done only when it is waited for.
struct LateWork {
  LateWork() { imitation::set_work(imitation::Work::kLate); }
  ~LateWork() { imitation::set_work(imitation::Work::kAtOnce); }
};

TEST_CASE("cuda device: says what it is, gives zeros, and has an end to its memory") {
  CudaDevice device(0);
  CHECK(device.name().starts_with("cuda "));
  CHECK(device.name().find(" SMs, ") != std::string::npos);
  CHECK_FALSE(device.host_memory());
  const Memory pinned = device.pinned(1000);
  CHECK(pinned.host());
  for (std::size_t i = 0; i < pinned.size(); ++i) REQUIRE(pinned.data()[i] == std::byte{0});
  CHECK_THROWS_AS(device.allocate(std::numeric_limits<std::size_t>::max() / 2), std::bad_alloc);
  const Memory memory = device.allocate(100);  // the error was an answer
  CHECK_FALSE(memory.host());
}

TEST_CASE("cuda device: memory of other threads, queues of others again") {
  CudaDevice device(0);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&device, t] {
      const auto queue = device.make_queue();
      Array<int> array(device, 1000);
      const std::vector<int> values(1000, t);
      array.copy_in(*queue, 0, values);
      std::vector<int> copy(1000);
      array.copy_out(*queue, 0, copy);
      queue->wait();
      CHECK(copy == values);
      array.release(10, 20);
      array.copy_out(*queue, 0, copy);
      queue->wait();
      CHECK(std::count(copy.begin(), copy.end(), 0) == (t == 0 ? 1000 : 20));
    });
}

// The queue's own pinned memory is written again while copies from it are under way only if something
// is wrong; the lists' are gone as soon as a call returns.
TEST_CASE("cuda queue: lists and seeds may be gone when a call returns, however many there are") {
  CudaDevice device(0);
  const LateWork late;
  const Place place = place_of(20'000 * std::uint64_t{kBlock}, 1);
  Random random(1);
  Twin<std::int32_t> sums(device, made<std::int32_t>(place.layout.elements(), [&] {
                            return static_cast<std::int32_t>(random());
                          }));
  Twin<std::uint64_t> weighted(device, std::vector<std::uint64_t>(place.count()), In::kPinned);
  run(WeighJob{.sums = sums.host(),
               .segments = SegmentList(place.layout, place.segments),
               .weighted = weighted.host()});
  CudaQueue queue(device);
  for (std::size_t at = 0, n = 1; at < place.count(); at += n, n = 2 * n + 1) {
    n = std::min(n, place.count() - at);
    const std::vector<SegmentId> some(place.segments.begin() + static_cast<std::ptrdiff_t>(at),
                                      place.segments.begin() + static_cast<std::ptrdiff_t>(at + n));
    queue.weigh({.sums = sums.there(),
                 .segments = SegmentList(place.layout, some),
                 .weighted = weighted.there() + at});
  }
  queue.wait();
  STARLING_CHECK_TWIN(weighted, device);

  // A list and seeds that do not fit what is left of that memory.
  Twin<float> values(device, std::vector<float>(place.layout.elements(), 1.5f));
  Twin<std::int16_t> exponents(device, std::vector<std::int16_t>(place.layout.blocks(), -3));
  const auto seeds = made<std::uint64_t>(place.count(), [&] { return random(); });
  const SegmentList list(place.layout, place.segments);
  ChecksumJob job{.exponents = exponents.host(),
                  .arrays = {values.host(), nullptr, nullptr},
                  .segments = list,
                  .seeds = seeds.data(),
                  .checksums = weighted.host()};
  run(job);
  job.exponents = exponents.there();
  job.arrays[0] = values.there();
  job.checksums = weighted.there();
  CudaQueue fresh(device);
  fresh.checksum(job);
  fresh.wait();
  STARLING_CHECK_TWIN(weighted, device);
}

TEST_CASE("cuda queue: no segments, no blocks") {
  CudaDevice device(0);
  CudaQueue queue(device);
  Array<std::uint32_t> counts = Array<std::uint32_t>::pinned(device, 2);
  counts.all()[0] = counts.all()[1] = 7;
  const Segments none{nullptr, 0};
  queue.add({.segments = none, .outside = counts.data(), .broken = counts.data() + 1});
  queue.weigh({.segments = none});
  queue.wide_means({});
  Array<std::uint64_t> bins = Array<std::uint64_t>::pinned(device, 512);
  bins.all()[3] = 5;
  queue.squares({.segments = none, .bins = bins.data()});
  queue.apply({.segments = none});
  queue.publish({.segments = none});
  queue.checksum({.segments = none});
  queue.digest({.segments = none});
  queue.zero(nullptr, 0);
  queue.copy_in(nullptr, {});
  queue.copy_out({}, nullptr);
  queue.wait();
  CHECK(counts.all()[0] == 0);
  CHECK(counts.all()[1] == 0);
  CHECK(bins.all()[3] == 5);
}

// Goal: nothing is read before it is waited for. Method: a whole training on a device whose work is done
// late, and in any order of threads, against the host.
TEST_CASE("cuda queue: a training's states are the host's, however late work is done") {
  CudaDevice device(0);
  const Layout layout = small_layout();
  Job job = small_job(6);
  const History host = train(layout, job, host_device(), 2, 0);
  imitation::clear_launches();
  in_every_order([&] {
    const LateWork late;
    const History there = train(layout, job, device, 2, 0);
    CHECK(there.records == host.records);
    CHECK(there.digests == host.digests);
    CHECK(there.parameters == host.parameters);
  });
  std::string ran;
  for (const auto& kernel : imitation::launches()) ran += kernel.kernel + "\n";
  for (const char* kernel :
       {"add_kernel", "finish_add_kernel", "wide_kernel", "squares_kernel", "finish_squares_kernel",
        "apply_kernel", "publish_kernel", "checksum_kernel", "digest_kernel"}) {
    CAPTURE(kernel);
    CHECK(ran.find(kernel) != std::string::npos);
  }
  MESSAGE("on the imitation ran\n" << imitation::launches_table());
}

}  // namespace
}  // namespace starling::kernels::cuda
