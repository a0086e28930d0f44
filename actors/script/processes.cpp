#include "actors/script/processes.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <future>
#include <utility>

#include "actors/script/data_reader.h"
#include "actors/script/requests.h"

namespace starling::actors::script {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTries = 4;     // processes for one request
constexpr int kHeldOut = 12;  // a script may evaluate all held-out data in one pass
constexpr std::chrono::milliseconds kFork{5000};  // once the imports are done

}  // namespace

Processes::Processes(const PythonSpec& spec, std::string isa,
                     const std::vector<TensorSpec>& tensors, DataReader& data)
    : script_(spec.script),
      isa_(std::move(isa)),
      data_(data),
      patience_(std::chrono::seconds(spec.patience_s)),
      patience_held_out_(std::chrono::seconds(spec.patience_s) * kHeldOut),
      likeness_(spec, tensors) {}

Result<Process> Processes::take_or_start() {
  {
    const MutexLock lock(mutex_);
    if (!waiting_.empty()) {
      Process process = std::move(waiting_.back());
      waiting_.pop_back();
      return process;
    }
  }
  return start();
}

// The thread that prepare() needs first starts all processes: a process has
// the priority of the thread that starts it. A pass may run behind other
// threads, and the process that takes the place of a lost one in it must not.
boost::asio::thread_pool& Processes::starter() {
  const MutexLock lock(mutex_);
  if (!starter_) starter_ = std::make_unique<boost::asio::thread_pool>(1);
  return *starter_;
}

// A fork of the process that has done the imports, where there is one to be had. One that is lost
// before it has forked anything is not tried again, nor is one whose first fork is lost (start()).
Result<std::unique_ptr<PythonChild>> Processes::start_child() {
  const bool first = !warm_;
  if (first && !no_warm_) {
    auto started = PythonChild::start_warm(script_, isa_, gpu_);
    if (started)
      warm_ = std::move(started).value();
    else
      no_warm_ = true;
  }
  if (warm_ && !no_warm_) {
    const auto patience = first ? patience_.most() : std::min(patience_.most(), kFork);
    auto forked = PythonChild::forked(*warm_, likeness_.hello(), patience);
    if (forked && forked.value()) return forked;
    if (forked || first) no_warm_ = true;
    warm_.reset();
  }
  return PythonChild::start(script_, isa_, gpu_);
}

Result<Process> Processes::start() {
  std::packaged_task<Result<std::unique_ptr<PythonChild>>()> starting(
      [this] { return start_child(); });
  boost::asio::post(starter(), [&starting] { starting(); });
  STARLING_TRY(child, starting.get_future().get());
  auto alike = likeness_.check(*child, patience_.most());
  if (!alike) {
    if (likeness_.versions().empty())
      no_warm_ = true;  // an import may be of a kind that forks break
    return std::move(alike).error();
  }
  Process process;
  process.child = std::move(child);
  process.reading = data_.begin();
  return process;
}

Result<> Processes::prepare(std::uint32_t processes) {
  std::size_t there = 0;
  {
    const MutexLock lock(mutex_);
    there = waiting_.size();
  }
  std::vector<std::future<Result<Process>>> starting;
  for (std::size_t i = there; i < processes; ++i)
    starting.push_back(std::async(std::launch::async, [this] { return start(); }));
  Result<> all = ok();
  for (auto& one : starting) {
    auto started = one.get();
    if (started)
      give_back(std::move(started).value());
    else
      all = std::move(started).error();
  }
  return all;
}

void Processes::give_back(Process process) {
  const std::uint8_t forget = static_cast<std::uint8_t>(Ask::kForget);
  if (!script::ask(*process.child, {&forget, 1}, {}, Patience::kMin)) return;
  process.mapped = {};
  const MutexLock lock(mutex_);
  waiting_.push_back(std::move(process));
}

std::vector<Process> Processes::take_waiting() {
  const MutexLock lock(mutex_);
  return std::exchange(waiting_, {});
}

// once(attempt): asks the process, which is there.
template <class Once>
Result<Bytes> Processes::try_with_others(Process& process, const Once& once) {
  std::string why;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto with_a_child = [&]() -> Result<Bytes> {
      if (!process.child) {
        STARLING_TRY(other, take_or_start());
        process = std::move(other);
      }
      return once(attempt);
    };
    auto reply = with_a_child();
    if (reply || reply.error().code() == Code::kBadInput) return reply;
    why = reply.error().text();
    process = {};
    if (told_) told_(why);
  }
  return Error(Code::kUnavailable, "the script's process was lost " + std::to_string(kTries) +
                                       " times in a row: " + why + "; " + script_);
}

Result<Bytes> Processes::ask(Process& process, ByteView request, std::span<const int> files) {
  return try_with_others(
      process, [&](int) { return script::ask(*process.child, request, files, patience_.most()); });
}

Result<Bytes> Processes::ask_for_pass(Process& process, ByteView request, bool held_out,
                                      const std::function<Result<>(Process&)>& before) {
  Patience& patience = held_out ? patience_held_out_ : patience_;
  return try_with_others(process, [&](int attempt) -> Result<Bytes> {
    STARLING_TRY(before(process));
    const auto begun = Clock::now();
    auto reply = script::ask(*process.child, request, {}, patience.of_pass(attempt));
    if (reply && attempt == 0) patience.took(Clock::now() - begun);
    return reply;
  });
}

}  // namespace starling::actors::script
