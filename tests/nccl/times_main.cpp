// What communicators take, and that nothing of them stays: two processes on one device make, use
// and give up one transport after the other. One JSON object a line.
//
//   transport_times [--isa cuda|emulated] [--cycles N] [--bytes N]
//
// Over the library that STARLING_NCCL names, or NCCL as workers find it. Exit code 0; 1 if
// something is not as it should be, or there is no such device or library; 2 for bad arguments.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device/device.h"
#include "tests/nccl/process.h"
#include "tests/nccl/serve.h"

namespace starling::collectives {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string isa = "cuda";
  int cycles = 50;
  std::size_t bytes = 16u << 20;  // of a round, from each to the other
  bool member = false;            // this process is one of the two
};

[[noreturn]] void wrong(const std::string& what) {
  std::fprintf(stderr, "transport_times: %s\n", what.c_str());
  std::exit(1);
}

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

void tell(const char* name, std::vector<double> ms) {
  if (ms.empty()) return;
  const double first = ms.front(), second = ms.size() > 1 ? ms[1] : first;
  std::sort(ms.begin(), ms.end());
  std::printf(
      "{\"name\":\"%s\",\"n\":%zu,\"first_ms\":%.3f,\"second_ms\":%.3f,\"median_ms\":%.3f,"
      "\"worst_ms\":%.3f}\n",
      name, ms.size(), first, second, ms[ms.size() / 2], ms.back());
  std::fflush(stdout);
}

class Pair {
 public:
  explicit Pair(const Options& options)
      : options_(options),
        a_({.command = {"/proc/self/exe", "--member", "--isa", options.isa}}),
        b_({.command = {"/proc/self/exe", "--member", "--isa", options.isa}}) {}

  // A transport for both, a round over it, and its end; of every third transport in the middle of
  // another round.
  void cycle(int number) {
    auto begun = Clock::now();
    const std::string id = a_.ask("id");
    ids_.push_back(ms_since(begun));
    begun = Clock::now();
    connect(a_, 0, id);
    connect(b_, 1, id);
    hear("ready");
    made_.push_back(ms_since(begun));
    const std::string round =
        " " + std::to_string(options_.bytes) + " " + std::to_string(number + 1);
    begun = Clock::now();
    a_.say("exchange" + round);
    b_.say("exchange" + round);
    hear("round");
    rounds_.push_back(ms_since(begun));
    for (Process* process : {&a_, &b_})
      if (process->ask("right" + round) != "right") wrong("a round brought other bytes");
    if (number % 3 == 2) a_.say("exchange" + round);
    begun = Clock::now();
    a_.say("drop");
    b_.say("drop");
    rest(begun);
  }

  // The other process does not come.
  void give_up_while_making() {
    connect(a_, 0, a_.ask("id"));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto begun = Clock::now();
    a_.say("drop");
    if (a_.ask("rest") != "rest")
      wrong("a transport that was given up while it was made does not end");
    given_up_.push_back(ms_since(begun));
  }

  // Of both processes together.
  Figures figures() {
    Figures sum;
    for (Process* process : {&a_, &b_}) {
      Figures f;
      std::istringstream(process->ask("figures")) >> f.threads >> f.files >> f.rss_kb;
      if (f.threads == 0) wrong("a process does not answer");
      sum.threads += f.threads;
      sum.files += f.files;
      sum.rss_kb += f.rss_kb;
    }
    return sum;
  }

  void report() const {
    tell("id", ids_);
    tell("making", made_);
    tell("round", rounds_);
    tell("revoke", revoked_);
    tell("abort", aborted_);
    tell("end", ended_);
    tell("given up while made", given_up_);
  }

 private:
  void connect(Process& process, int rank, const std::string& id) const {
    process.say("connect " + std::to_string(rank) + " 2 " + id + " " +
                std::to_string(options_.bytes));
  }
  void hear(const std::string& wanted) {
    a_.say("next");
    b_.say("next");
    for (Process* process : {&a_, &b_}) {
      const std::string said = process->hear();
      if (said == wanted) continue;
      if (said != "end") wrong("instead of " + wanted + ": " + said);
      process->status();
      wrong("a process ended, which said: " + process->complaints());
    }
  }
  void rest(Clock::time_point begun) {
    a_.say("rest");
    b_.say("rest");
    for (Process* process : {&a_, &b_})
      if (process->hear() != "rest") wrong("a transport does not end");
    ended_.push_back(ms_since(begun));
    double revoke_us = 0, abort_us = 0;
    std::istringstream(a_.ask("ends")) >> revoke_us >> abort_us;
    revoked_.push_back(revoke_us / 1000);
    aborted_.push_back(abort_us / 1000);
  }

  const Options options_;
  Process a_, b_;
  std::vector<double> ids_, made_, rounds_, revoked_, aborted_, ended_, given_up_;
};

int measure(const Options& options) {
  Pair pair(options);
  const int first = std::min(10, options.cycles / 2);  // until what is taken once has been taken
  for (int cycle = 0; cycle < first; ++cycle) pair.cycle(cycle);
  // NCCL's thread of an id waits for all its ranks for ever, so each of these leaves one.
  for (int i = 0; i < 3; ++i) pair.give_up_while_making();
  const auto before = pair.figures();
  for (int cycle = first; cycle < options.cycles; ++cycle) pair.cycle(cycle);
  const auto after = pair.figures();
  pair.report();
  std::printf(
      "{\"name\":\"left\",\"cycles\":%d,\"threads_before\":%ld,\"threads\":%ld,\"files_before\":%"
      "ld,"
      "\"files\":%ld,\"rss_kb_before\":%ld,\"rss_kb\":%ld}\n",
      options.cycles, long(before.threads), long(after.threads), long(before.files),
      long(after.files), long(before.rss_kb), long(after.rss_kb));
  if (after.threads != before.threads || after.files != before.files)
    wrong("threads or files are left");
  return 0;
}

}  // namespace
}  // namespace starling::collectives

int main(int argc, char** argv) {
  using namespace starling;
  collectives::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--member") {
      options.member = true;
      continue;
    }
    if (word == "--isa")
      options.isa = value;
    else if (word == "--cycles")
      options.cycles = std::atoi(value);
    else if (word == "--bytes")
      options.bytes = std::strtoull(value, nullptr, 10);
    else
      options.cycles = 0;
    ++i;
  }
  if (options.cycles < 2 || options.bytes == 0) {
    std::fprintf(stderr, "usage: transport_times [--isa cuda|emulated] [--cycles N] [--bytes N]\n");
    return 2;
  }
  // Two of one GPU are two hosts to NCCL.
  ::setenv("STARLING_NCCL_SHARED_GPU", "1", /*overwrite=*/0);
  // The parent opens no device, as that would take a part of the GPU's time.
  if (!options.member) return collectives::measure(options);
  auto device = kernels::open_device(options.isa);
  if (!device) {
    std::fprintf(stderr, "transport_times: %s\n", device.error().text().c_str());
    return 2;
  }
  collectives::serve(*device.value(), {});
  return 0;
}
