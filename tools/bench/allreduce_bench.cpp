// This measures how fast an all-reduce of int32 over the TCP mesh is, between processes on
// one machine, and whether a ring beats the direct way (docs/decisions/001-direct-reduce.md).
//
// Bus bandwidth is 2 (W-1)/W times the array's bytes over the median time: what each rank must send
// and receive at least. The bound is loopback TCP: 2.5 to 3 GB/s for one pair of threads, shared by
// all ranks that have no core of their own.
//
// It measures the same for connections whose frames are encrypted (`_sealed`) or have
// a checksum only (`_plain`), beside the tags of one machine, and the cipher alone.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/add.h"
#include "collectives/all_reduce.h"
#include "collectives/session.h"
#include "collectives/tcp/listener.h"
#include "collectives/tcp/mesh.h"
#include "core/base/aead.h"
#include "core/base/hash.h"
#include "core/base/mac.h"
#include "core/base/mutex.h"
#include "tools/bench/bench.h"
#include "tools/bench/figures.h"

namespace starling::bench {
namespace {

using namespace collectives;
using Clock = std::chrono::steady_clock;

// ---- A ring, for comparison --------------------------------------------------------------------

// A Ring does reduce-scatter and all-gather around r -> r+1, in pieces, each
// forwarded as it comes: 2 (W-1) hops (Patarasuk and Yuan, JPDC 69, 2009).
class Ring {
 public:
  Ring(std::span<const std::int32_t> in, std::span<std::int32_t> out, const AllReduceOptions& o)
      : in_(in), out_(out), options_(o), missing_(in.size()) {
    if (o.world == 1) std::copy(in.begin(), in.end(), out.begin());
    if (o.world == 1) missing_ = 0;
  }

  void start(FrameSender& sender) {
    started_ = true;
    if (options_.world == 1) return;
    const std::size_t step = options_.piece_bytes / sizeof(std::int32_t);
    const std::size_t n = size_of(options_.self);
    for (std::size_t at = 0; at < n; at += step) {
      FrameHeader header;
      header.kind = FrameKind::kContribution;
      header.first = SegmentId(at);  // the field of segments counts elements here
      header.count = 0;              // hops so far
      const auto piece = in_.subspan(first_of(options_.self) + at, std::min(step, n - at));
      forward(header, Payload().append_borrowed(as_bytes(piece)), sender);
    }
  }

  Result<> on_frame(Rank, const Frame& frame, FrameSender& sender) {
    FrameHeader header = frame.header;
    const bool total = header.kind == FrameKind::kTotal;
    const std::uint32_t world = options_.world, hops = header.count + 1;
    const std::uint32_t behind = (hops + (total ? world - 1 : 0)) % world;
    const std::uint32_t slice = (options_.self + world - behind) % world;
    const std::size_t n = frame.payload->size() / sizeof(std::int32_t);
    if (hops >= world || header.first + n > size_of(slice))
      return Error(Code::kCorrupt, "a frame of no slice");
    const std::size_t at = first_of(slice) + header.first;
    const auto out = out_.subspan(at, n);
    if (total) {
      copy_sums(out, *frame.payload);
    } else {
      add_sums(out, in_.subspan(at, n), *frame.payload);
    }
    const bool complete = total || hops == world - 1;
    if (complete) missing_ -= n;
    header.count = hops;
    if (!total && complete) header.kind = FrameKind::kTotal, header.count = 0;
    const bool last = total && hops == world - 1;
    if (!last)
      forward(header,
              total ? Payload(frame.payload)
                    : Payload().append_borrowed(as_bytes(std::span<const std::int32_t>(out))),
              sender);
    return ok();
  }

  bool done() const { return started_ && missing_ == 0; }

 private:
  std::size_t first_of(std::uint32_t slice) const { return in_.size() * slice / options_.world; }
  std::size_t size_of(std::uint32_t slice) const { return first_of(slice + 1) - first_of(slice); }
  void forward(FrameHeader header, Payload payload, FrameSender& sender) const {
    header.version = options_.version;
    sender.send(Rank((options_.self + 1) % options_.world), header, std::move(payload));
  }

  const std::span<const std::int32_t> in_;
  const std::span<std::int32_t> out_;
  const AllReduceOptions options_;
  std::size_t missing_;  // elements of `out` that are not final
  bool started_ = false;
};

// ---- One rank ---------------------------------------------------------------------------------

// A Runner runs one operation after the other on a mesh; the version counts them.
class Runner {
 public:
  Runner(const MeshOptions& options, Listener& listener)
      : session_(static_cast<std::uint32_t>(options.peers.size()), 0),
        mesh_(options, events(), listener) {
    mesh_.start();
    wait_for(connected_);
  }

  // Calls `make(version)` for an operation and runs it; false if the epoch broke.
  template <class Operation, class Make>
  bool run(Make make) {
    {
      const MutexLock lock(mutex_);
      const Version version = session_.version() + 1;
      auto operation = std::make_shared<Operation>(make(version));
      on_frame_ = [this, operation](Rank from, const Frame& frame) {
        if (!operation->on_frame(from, frame, mesh_)) fail();
        if (operation->done()) finish();
      };
      done_ = false;
      operation->start(mesh_);
      if (operation->done()) finish();
      auto waited = session_.set_version(version);
      if (!waited) fail();
      if (waited)
        for (const Arrival& a : waited.value()) on_frame_(a.from, a.frame);
    }
    wait_for(done_);
    return !failed_;
  }

 private:
  MeshEvents events() {
    MeshEvents events;
    events.on_connected = [this] { set(connected_); };
    events.on_broken = [this](Rank, const std::string&, LinkFault) { fail(); };
    events.on_frame = [this](Rank from, Frame frame) {
      const MutexLock lock(mutex_);
      auto now = session_.on_frame(from, std::move(frame));
      if (!now) return fail();
      for (const Arrival& a : now.value()) on_frame_(a.from, a.frame);
    };
    return events;
  }
  void finish() { set(done_); }
  void fail() {
    failed_ = true;
    set(connected_);
    set(done_);
  }
  static void set(std::atomic<bool>& flag) {
    flag = true;
    flag.notify_all();
  }
  static void wait_for(const std::atomic<bool>& flag) { flag.wait(false); }

  Mutex mutex_;
  Session session_ STARLING_GUARDED_BY(mutex_);
  std::function<void(Rank, const Frame&)> on_frame_ STARLING_GUARDED_BY(mutex_);
  std::atomic<bool> connected_{false}, done_{false}, failed_{false};
  Mesh mesh_;  // last: its callbacks use the rest
};

// ---- Processes --------------------------------------------------------------------------------

constexpr const char* kBroken = "an all-reduce gave a wrong sum or broke";

struct ReduceCase {
  const char* algorithm;
  std::size_t bytes;
  std::uint32_t repetitions;
};

bool write_all(int fd, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  for (std::size_t sent = 0; sent < size;) {
    const ssize_t n = write(fd, bytes + sent, size - sent);
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

bool read_all(int fd, void* data, std::size_t size) {
  auto* bytes = static_cast<char*>(data);
  for (std::size_t have = 0; have < size;) {
    const ssize_t n = read(fd, bytes + have, size - have);
    if (n <= 0) return false;
    have += static_cast<std::size_t>(n);
  }
  return true;
}

std::vector<ReduceCase> cases(bool quick) {
  const auto times = [quick](std::uint32_t n) { return quick ? 5 : n; };
  return {{"direct", 4, times(1000)},      {"direct", 4u << 10, times(1000)},
          {"ring", 4u << 10, times(1000)}, {"direct", 1u << 20, times(200)},
          {"ring", 1u << 20, times(200)},  {"direct", 16u << 20, times(40)},
          {"ring", 16u << 20, times(40)}};
}

// Times each repetition in milliseconds; empty if a sum is wrong or the epoch broke.
template <class Operation>
std::vector<double> measure(Runner& rank, Rank self, std::uint32_t world, std::size_t n,
                            std::uint32_t count) {
  std::vector<std::int32_t> in(n), out[2];
  for (auto& o : out) o.resize(n);
  for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<std::int32_t>(i * (self + 1));
  std::vector<double> samples;
  const std::uint32_t warm_up = 3 + count / 10;
  for (std::uint32_t k = 0; k < count + warm_up; ++k) {
    const auto begin = Clock::now();
    // Two results take turns: the totals sent last may still be on their way to a slower rank, but
    // those before have arrived, since every rank has contributed to the operation after them.
    const bool fine = rank.template run<Operation>([&](Version version) {
      AllReduceOptions options;
      options.self = self;
      options.world = world;
      options.version = version;
      return Operation(in, out[k % 2], options);
    });
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    if (!fine) return {};
    if (k >= warm_up) samples.push_back(took.count());
  }
  const std::uint32_t factor = world * (world + 1) / 2;
  for (std::size_t i = 0; i < n; ++i)
    for (const auto& o : out)
      if (static_cast<std::uint32_t>(o[i]) != static_cast<std::uint32_t>(i) * factor) return {};
  // No rank may free memory that a slower rank still waits for.
  const std::int32_t nothing = 0;
  std::int32_t sum = 0;
  rank.template run<AllReduce>([&](Version version) {
    AllReduceOptions options;
    options.self = self;
    options.world = world;
    options.version = version;
    return AllReduce({&nothing, 1}, {&sum, 1}, options);
  });
  return samples;
}

// Runs a forked process: it tells its port, learns all ports, and, as rank 0, tells the samples.
int child(Rank self, std::uint32_t world, std::span<const ReduceCase> cases, const EpochKey& key,
          SealRule seal, int from_parent, int to_parent) {
  auto listener = Listener::open({});
  if (!listener) return 1;
  const std::uint16_t port = listener.value()->port();
  std::vector<std::uint16_t> ports(world);
  if (!write_all(to_parent, &port, sizeof port)) return 1;
  if (!read_all(from_parent, ports.data(), ports.size() * sizeof port)) return 1;
  MeshOptions options;
  options.epoch = {1, 1};
  options.key = key;
  options.seal = seal;
  options.self = self;
  for (Rank r = 0; r < world; ++r)
    options.peers.push_back({{r, Nonce(r.value() + 1)}, "127.0.0.1", ports[r]});
  Runner rank(options, *listener.value());
  for (const ReduceCase& c : cases) {
    const std::size_t n = c.bytes / sizeof(std::int32_t);
    const bool ring = c.algorithm == std::string("ring");
    const auto samples = ring ? measure<Ring>(rank, self, world, n, c.repetitions)
                              : measure<AllReduce>(rank, self, world, n, c.repetitions);
    if (samples.empty()) return 1;
    if (self == 0 && !write_all(to_parent, samples.data(), c.repetitions * sizeof(double)))
      return 1;
  }
  return 0;
}

void print(const Options& options, const ReduceCase& c, std::uint32_t world, const char* seal,
           std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2], p99 = ms[(ms.size() - 1) * 99 / 100];
  const double bus_gbs = 2.0 * (world - 1) / world * static_cast<double>(c.bytes) / median / 1e6;
  const std::string name = std::string("allreduce_") + c.algorithm + "_w" + std::to_string(world) +
                           "_" + std::to_string(c.bytes) + "B" + seal;
  const char* format = options.json ? "{\"name\":\"%s\",\"n\":%zu,\"unit\":\"ms\",\"median\":%.4g,"
                                      "\"p99\":%.4g,\"min\":%.4g,\"bus_gbs\":%.3g}\n"
                                    : "%-44s %5zu %-10s %10.4g %10.4g %10.4g %8.3g GB/s\n";
  if (options.json) {
    std::fprintf(options.out, format, name.c_str(), ms.size(), median, p99, ms[0], bus_gbs);
  } else {
    std::fprintf(options.out, format, name.c_str(), ms.size(), "ms", median, p99, ms[0], bus_gbs);
  }
}

struct Process {
  pid_t pid = -1;
  Fd to, from;
};

bool start(Process& process, Rank self, std::uint32_t world, std::span<const ReduceCase> cases,
           const EpochKey& key, SealRule seal, std::vector<Process>& others) {
  int down[2], up[2];
  if (pipe(down) != 0) return false;
  Fd down_read(down[0]), down_write(down[1]);
  if (pipe(up) != 0) return false;
  Fd up_read(up[0]), up_write(up[1]);
  process.pid = fork();
  if (process.pid < 0) return false;
  if (process.pid == 0) {
    others.clear();  // their pipes
    down_write.reset();
    up_read.reset();
    _exit(child(self, world, cases, key, seal, down_read.get(), up_write.get()));
  }
  process.to = std::move(down_write);
  process.from = std::move(up_read);
  return true;
}

// Runs one group of processes through all cases: `told` gets each one's samples, milliseconds.
bool run_group(std::uint32_t world, std::span<const ReduceCase> cases, SealRule seal,
               const std::function<void(const ReduceCase&, std::vector<double>)>& told) {
  EpochKey key{};
  random_bytes(key);
  std::vector<Process> processes(world);
  bool fine = true;
  for (Rank r = 0; r < world && fine; ++r) {
    Process process;
    fine = start(process, r, world, cases, key, seal, processes);
    processes[r] = std::move(process);
  }
  std::vector<std::uint16_t> ports(world);
  for (Rank r = 0; r < world && fine; ++r)
    fine = read_all(processes[r].from.get(), &ports[r], sizeof ports[r]);
  for (Rank r = 0; r < world && fine; ++r)
    fine = write_all(processes[r].to.get(), ports.data(), ports.size() * sizeof ports[r]);
  for (const ReduceCase& c : cases) {
    std::vector<double> samples(c.repetitions);
    fine =
        fine && read_all(processes[0].from.get(), samples.data(), samples.size() * sizeof(double));
    if (fine) told(c, std::move(samples));
  }
  for (Process& process : processes) {
    process.to.reset();
    process.from.reset();
    int status = 0;
    if (process.pid > 0) fine = waitpid(process.pid, &status, 0) > 0 && status == 0 && fine;
  }
  return fine;
}

// Prints bytes a second on one line: the fastest of some rounds over a frame's bytes.
void print_rate(const Options& options, const char* name,
                const std::function<void(ByteView, std::uint8_t*)>& pass) {
  const Bytes in(kFrameBytes, 0x5a);
  Bytes out(kFrameBytes);
  double fastest = 0;
  for (int i = 0; i < (options.quick ? 20 : 400); ++i) {
    const auto begin = Clock::now();
    pass(in, out.data());
    const std::chrono::duration<double> took = Clock::now() - begin;
    fastest = std::max(fastest, double(kFrameBytes) / took.count() / 1e9);
  }
  std::fprintf(
      options.out,
      options.json ? "{\"name\":\"%s\",\"unit\":\"GB/s\",\"max\":%.3g}\n" : "%-44s %.3g GB/s\n",
      name, fastest);
}

void print_ciphers(const Options& options) {
  Aead sealing(AeadKey{1}, Aead::Way::kSeal);
  volatile std::uint64_t used = 0;
  print_rate(options, "frame_checksum", [&](ByteView in, std::uint8_t*) { used = hash64(in); });
  print_rate(options, "frame_tag", [&](ByteView in, std::uint8_t*) {
    sealing.begin();
    sealing.cover(in);
    sealing.tag();
  });
  print_rate(options, "frame_encrypt", [&](ByteView in, std::uint8_t* out) {
    sealing.begin();
    sealing.crypt(in, out);
    sealing.tag();
  });
}

std::vector<ReduceCase> direct_only(std::vector<ReduceCase> all) {
  std::erase_if(all, [](const ReduceCase& c) { return c.algorithm != std::string("direct"); });
  return all;
}

}  // namespace

int bench_allreduce(const Options& options) {
  bool fine = true;
  for (std::uint32_t world = 2; world <= 4 && fine; ++world) {
    const auto measured = [&](SealRule seal, const char* name,
                              const std::vector<ReduceCase>& which) {
      std::fflush(options.out);
      return run_group(world, which, seal, [&](const ReduceCase& c, std::vector<double> samples) {
        print(options, c, world, name, std::move(samples));
      });
    };
    const auto all = cases(options.quick);
    fine = measured(SealRule::kAuto, "", all) &&
           measured(SealRule::kOn, "_sealed", direct_only(all)) &&
           measured(SealRule::kOff, "_plain", direct_only(all));
  }
  if (fine) print_ciphers(options);
  if (!fine) std::fprintf(stderr, "starling-bench: %s\n", kBroken);
  return fine ? 0 : 1;
}

Result<double> all_reduce_ms(std::uint32_t world, std::size_t bytes) {
  const ReduceCase one[] = {{"direct", bytes, 5}};
  double median = 0;
  const bool fine =
      run_group(world, one, SealRule::kAuto, [&](const ReduceCase&, std::vector<double> samples) {
        median = quantile(std::move(samples), 0.5);
      });
  if (!fine) return Error(Code::kInternal, kBroken);
  return median;
}

}  // namespace starling::bench
