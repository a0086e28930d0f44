#include "tests/sim/run_seeds.h"

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "core/base/bytes.h"
#include "core/base/check.h"

namespace starling::sim {
namespace {

// One record of the pipe: a seed that begins (kBegun), or its outcome.
constexpr std::uint8_t kBegun = 1, kDone = 2;
// A run takes milliseconds; one that does not come back is stuck inside a machine. Of the
// processor, so that a busy computer does not matter.
constexpr int kSecondsMax = 10;

void limit_processor_time() {
  const itimerval limit{{0, 0}, {kSecondsMax, 0}};
  STARLING_CHECK(::setitimer(ITIMER_VIRTUAL, &limit, nullptr) == 0);
}

void write_all(int fd, const Bytes& bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + at, bytes.size() - at);
    STARLING_CHECK(n > 0);
    at += static_cast<std::size_t>(n);
  }
}

Bytes read_all(int fd) {
  Bytes bytes;
  std::uint8_t buffer[1 << 14];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
    bytes.insert(bytes.end(), buffer, buffer + n);
  return bytes;
}

Bytes begun(std::uint64_t seed) {
  ByteWriter writer;
  writer.put(kBegun);
  writer.put(seed);
  return std::move(writer).take();
}

Bytes done(std::uint64_t seed, const Outcome& o) {
  ByteWriter writer;
  writer.put(kDone);
  writer.put(seed);
  writer.put(o.event_hash);
  writer.put(o.events);
  writer.put(o.ended_at);
  writer.put(o.exit_code);
  writer.put_text(o.violation);
  writer.put(static_cast<std::uint32_t>(o.coverage.size()));
  for (const auto& [what, times] : o.coverage) {
    writer.put_text(what);
    writer.put(times);
  }
  return std::move(writer).take();
}

// What a child wrote before it ended, and how it ended.
struct Ending {
  Bytes written;
  int status = 0;  // waitpid's
};

std::string describe(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGVTALRM)
    return "no end after " + std::to_string(kSecondsMax) + " s of computing";
  if (WIFSIGNALED(status)) return "the process ended by signal " + std::to_string(WTERMSIG(status));
  return "a check failed in the process";
}

BatchResult parse(const Ending& child) {
  BatchResult result;
  ByteReader reader(child.written);
  while (reader.remaining() > 0) {
    const auto kind = reader.get<std::uint8_t>();
    const auto seed = reader.get<std::uint64_t>();
    if (kind == kBegun) {
      result.runs.push_back({describe(child.status), seed});
      continue;
    }
    Verdict& run = result.runs.back();
    run.event_hash = reader.get<std::uint64_t>();
    run.events = reader.get<std::uint64_t>();
    run.ended_at = reader.get<Micros>();
    run.exit_code = reader.get<int>();
    run.violation = reader.get_text();
    const auto counters = reader.get<std::uint32_t>();
    for (std::uint32_t i = 0; i < counters && reader.good(); ++i) {
      const std::string what = reader.get_text();
      result.coverage[what] += reader.get<std::uint64_t>();
    }
    result.events += run.events;
  }
  // A process that goes on after a sanitizer's report says so in its exit status alone.
  if (child.status != 0 && !result.runs.empty() && result.runs.back().violation.empty())
    result.runs.back().violation = describe(child.status);
  result.seeds = result.runs.size();
  return result;
}

// Forks, lets the child write, and returns what came of it.
Ending in_child(const std::function<void(int fd)>& work) {
  int fds[2];
  STARLING_CHECK(::pipe(fds) == 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  STARLING_CHECK(child >= 0);
  if (child == 0) {
    ::close(fds[0]);
    work(fds[1]);
    ::_exit(0);
  }
  ::close(fds[1]);
  Ending ending{read_all(fds[0])};
  ::close(fds[0]);
  ::waitpid(child, &ending.status, 0);
  return ending;
}

void merge(BatchResult& into, BatchResult&& part) {
  for (auto& run : part.runs) into.runs.push_back(std::move(run));
  for (const auto& [what, times] : part.coverage) into.coverage[what] += times;
  into.seeds += part.seeds;
  into.events += part.events;
}

}  // namespace

const Verdict* BatchResult::violated() const {
  for (const Verdict& run : runs)
    if (!run.violation.empty()) return &run;
  return nullptr;
}

BatchResult run_seeds(std::uint64_t first, std::uint64_t count, const Draw& draw,
                      bool until_violation) {
  BatchResult result;
  while (result.seeds < count) {
    const std::uint64_t from = first + result.seeds;
    BatchResult part = parse(in_child([&](int fd) {
      for (std::uint64_t seed = from; seed < first + count; ++seed) {
        write_all(fd, begun(seed));
        limit_processor_time();
        const Outcome outcome = World(draw(seed)).run();
        write_all(fd, done(seed, outcome));
        if (until_violation && !outcome.violation.empty()) return;
      }
    }));
    STARLING_CHECK(part.seeds > 0);
    const bool found = part.violated() != nullptr;
    merge(result, std::move(part));
    if (found && until_violation) break;
  }
  return result;
}

SeedRange seeds_of_environment(const char* variable, SeedRange usual) {
  const char* text = std::getenv(variable);
  if (!text) return usual;
  char* end = nullptr;
  SeedRange range{std::strtoull(text, &end, 10), 1};
  if (*end == ':') range.count = std::strtoull(end + 1, nullptr, 10);
  return range;
}

Verdict run_isolated(const std::function<Outcome(bool)>& run, bool trace) {
  const BatchResult result = parse(in_child([&](int fd) {
    write_all(fd, begun(0));
    const bool asked = trace || std::getenv("STARLING_SIM_TRACE") != nullptr;
    write_all(fd, done(0, run(asked)));
  }));
  return result.runs.front();
}

}  // namespace starling::sim
