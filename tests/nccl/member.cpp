#include "tests/nccl/member.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "tests/nccl/fake_nccl.h"

namespace starling::collectives {
namespace {

constexpr std::chrono::minutes kPatience{2};

class NoStream : public Stream {
 public:
  bool idle() override { return true; }
  void* native() const override { return nullptr; }
};

std::uint8_t byte_of(std::uint64_t seed, std::size_t from, std::size_t to, std::size_t i) {
  const std::uint64_t x = (seed * 1000003 + from * 4099 + to * 257 + i) * 0x9E3779B97F4A7C15ull;
  return static_cast<std::uint8_t>(x >> 56);
}

std::size_t sum(const std::vector<std::size_t>& sizes) {
  std::size_t all = 0;
  for (const std::size_t bytes : sizes) all += bytes;
  return all;
}

template <class Function>
Function in_fake(const char* name) {
  void* const library = dlopen(std::getenv("STARLING_NCCL"), RTLD_NOW | RTLD_LOCAL);
  STARLING_CHECK_MSG(library != nullptr, dlerror());
  const auto found = reinterpret_cast<Function>(dlsym(library, name));
  STARLING_CHECK(found != nullptr);
  return found;
}

}  // namespace

Table everybody_to_everybody(std::uint32_t world, std::size_t bytes) {
  Table table(world, std::vector<std::vector<std::size_t>>(world));
  for (std::uint32_t from = 0; from < world; ++from)
    for (std::uint32_t to = 0; to < world; ++to)
      if (from != to) table[from][to] = {bytes};
  return table;
}

Member::Member(kernels::Device& device, MemberOptions options)
    : device_(options.place == Place::kHost ? kernels::host_device() : device),
      options_(options),
      make_stream_([&device, place = options.place]() -> std::shared_ptr<Stream> {
        if (place == Place::kHost) return std::make_shared<NoStream>();
        return device.make_stream();
      }) {
  auto opened = open_nccl({options.on_stuck, options.on_end});
  STARLING_CHECK_MSG(opened.has_value(), opened.error().text());
  library_ = std::move(opened).value();
}

Member::~Member() {
  await_end();
}

void Member::await_end() {
  drop();
  library_.reset();
}

void Member::connect(Seat seat, const Bytes& id, std::size_t staging_bytes) {
  seat_ = seat;
  staging_bytes_ = staging_bytes;
  drop();
  const std::lock_guard lock(connecting_);
  transport_ = make_transport(id);
}

void Member::connect_beside(const Bytes& id) {
  const std::lock_guard lock(connecting_);
  next_transport_ = make_transport(id);
}

std::unique_ptr<DeviceTransport> Member::make_transport(const Bytes& id) {
  const std::shared_ptr<kernels::Queue> queue = device_.make_queue();
  TransportOptions options;
  options.self = Rank(seat_.rank);
  options.world = seat_.world;
  options.id = id;
  options.staging_bytes = staging_bytes_;
  options.allocate = [this](std::size_t bytes) {
    auto memory = std::make_shared<kernels::Memory>(device_.allocate(bytes));
    std::byte* const at = memory->data();
    return std::shared_ptr<std::byte>(at, [this, memory](std::byte*) {
      if (on_release) on_release();
    });
  };
  options.enter_thread = [this] { device_.enter_thread(); };
  options.stream = make_stream_();
  options.copy_in = [queue](std::byte* to, ByteView from) {
    queue->copy_in(to, from);
    queue->wait();
  };
  options.copy_out = [queue](std::span<std::uint8_t> to, const std::byte* from) {
    queue->copy_out(to, from);
    queue->wait();
  };
  options.connect_ms = options_.connect_ms;
  options.round_ms = options_.round_ms;
  options.end_ms = options_.end_ms;
  options.leave_ms = options_.leave_ms;
  options.others_left = gate;
  options.keep_memory = [this] { return device_.keep_memory(); };
  const auto note = [this](const std::string& event) {
    { const std::lock_guard connected(connecting_); }
    if (on_event) on_event(event);
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    changed_.notify_all();
  };
  TransportEvents events;
  events.on_ready = [note] { note("ready"); };
  events.on_failed = [note](Error error) { note("failed: " + error.text()); };
  events.on_round = [note](Result<> round) {
    note(round ? "round" : "round: " + round.error().text());
  };
  events.on_left = [this](bool revoked) {
    if (on_left) on_left(revoked);
  };
  return library_->connect(std::move(options), std::move(events));
}

void Member::exchange(const Table& table, std::uint64_t seed) {
  std::vector<Transfer> sends, receives;
  Bytes content;
  for (std::size_t to = 0; to < seat_.world; ++to)
    for (std::size_t i = 0; i < sum(table[seat_.rank][to]); ++i)
      content.push_back(byte_of(seed, seat_.rank, to, i));
  sent_.push_back(device_.allocate(content.size()));
  std::byte* const sent = sent_.back().data();
  device_.make_queue()->copy_in(sent, content);
  std::size_t out = 0, in = 0;
  for (std::size_t peer = 0; peer < seat_.world; ++peer) {
    const auto rank = Rank(static_cast<std::uint32_t>(peer));
    for (const std::size_t bytes : table[seat_.rank][peer]) {
      sends.push_back({rank, sent + out, bytes});
      out += bytes;
    }
    for (const std::size_t bytes : table[peer][seat_.rank]) {
      receives.push_back({rank, transport_->staging() + in, bytes});
      in += bytes;
    }
  }
  STARLING_CHECK(in <= staging_bytes_);
  transport_->exchange(std::move(sends), std::move(receives));
}

bool Member::right(const Table& table, std::uint64_t seed) const {
  std::size_t at = 0;
  for (std::size_t from = 0; from < seat_.world; ++from) {
    Bytes got(sum(table[from][seat_.rank]));
    if (got.empty()) continue;
    copy_out(got, transport_->staging() + at);
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != byte_of(seed, from, seat_.rank, i)) return false;
    at += got.size();
  }
  return true;
}

bool Member::staging_is_zero() const {
  Bytes got(staging_bytes_);
  copy_out(got, transport_->staging());
  return std::all_of(got.begin(), got.end(), [](std::uint8_t b) { return b == 0; });
}

void Member::copy_out(std::span<std::uint8_t> to, const std::byte* from) const {
  const auto queue = device_.make_queue();
  queue->copy_out(to, from);
  queue->wait();
}

std::string Member::next() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kPatience, [this] { return !events_.empty(); })) return "nothing";
  std::string event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::size_t Member::told() const {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

std::string Member::peek() const {
  const std::lock_guard lock(mutex_);
  return events_.empty() ? "" : events_.front();
}

void Member::forget() {
  const std::lock_guard lock(mutex_);
  events_.clear();
}

void give_orders(const std::string& orders) {
  in_fake<decltype(&fake_nccl_orders)>("fake_nccl_orders")(orders.c_str());
}

Counts counts() {
  FakeNcclCounts c{};
  in_fake<decltype(&fake_nccl_counts)>("fake_nccl_counts")(&c);
  return {c.communicators, c.threads, c.roots, c.begun, c.groups, c.hung, c.revoked, c.aborted};
}

void await(std::int64_t Counts::*count, std::int64_t value) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (counts().*count < value) {
    STARLING_CHECK(std::chrono::steady_clock::now() < until);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Figures figures() {
  namespace fs = std::filesystem;
  Figures f;
  f.files = std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "Threads:") words >> f.threads;
    if (word == "VmRSS:") words >> f.rss_kb;
  }
  return f;
}

}  // namespace starling::collectives
