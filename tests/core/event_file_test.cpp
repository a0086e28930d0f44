// The file of events: gone on with by a process that begins again, whole lines whatever the disk
// does, and a bounded memory of what it has.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/formats/job_file.h"
#include "core/observe/event_line.h"
#include "core/observe/events.h"
#include "core/observe/line_file.h"
#include "tests/core/data_folder.h"
#include "tests/core/observe_helpers.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<std::string> kinds_of(const std::string& path) {
  std::vector<std::string> kinds;
  for (const Json& line : lines_of(path)) kinds.push_back(line.at("ev"));
  return kinds;
}

event::LedgerPassed long_ledger(Version version) {
  event::LedgerPassed ledger{version, kEpoch, {}};
  for (MicroBatch m = 0; m < 1024; ++m) ledger.workers.emplace_back(m, 5 + m % 8);
  return ledger;
}

event::StepPassed step_of(Version version, double loss, std::uint64_t ledger_hash = 7) {
  return {{version, loss, 1, 20, false, ledger_hash}, kEpoch, 1, 1};
}

Job digits() {
  return load_job("examples/mlp/digits.toml").value();
}

event::Started start_at(const Job& job, const std::string& name = "coordinator-1") {
  event::Started started = start_of(job);
  started.coordinator = name;
  return started;
}

EventWriter::Owner owner_of(const Job& job, const std::string& name = "coordinator-1") {
  return {job_hash(job), job.name, name};
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// A limit of file sizes is an error of the write, as a full disk is.
class FullDisk {
 public:
  explicit FullDisk(std::size_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

// Goal: a coordinator is started again with its own command line.
// Method: a first life that ends in the middle of a line, then a second one that is told everything
// again, as a coordinator that replays its log tells it, and something new.
TEST_CASE("events: a file is gone on with by the same coordinator of the same job") {
  const ObserveFolder folder("events");
  const Job job = digits();
  {
    const auto writer = EventWriter::open(folder.path(), owner_of(job)).value();
    REQUIRE(writer->start(start_at(job)));
    REQUIRE(writer->write(event::WorkerChanged{5, WorkerChange::kJoined, "a"}));
    REQUIRE(writer->write(step_of(0, 2.5)));
    REQUIRE(writer->write(ledger_of(0, kEpoch, 5, 6)));
  }
  const auto whole = fs::file_size(folder.file());
  std::ofstream(folder.file(), std::ios::app) << R"({"t":1.0,"ev":"st)";
  {
    const auto writer = EventWriter::open(folder.path(), owner_of(job)).value();
    CHECK(fs::file_size(folder.file()) == whole);
    REQUIRE(writer->start(start_at(job)));
    CHECK_FALSE(writer->write(event::WorkerChanged{5, WorkerChange::kJoined, "a"}).value());
    CHECK_FALSE(writer->write(step_of(0, 2.5)).value());
    CHECK_FALSE(writer->write(ledger_of(0, kEpoch, 5, 6)).value());
    CHECK(writer->write(step_of(0, 2.25)).error().code() == Code::kInternal);
    CHECK(writer->write(step_of(1, 2.25, 8)).value());
  }
  CHECK(kinds_of(folder.file()) ==
        std::vector<std::string>{"start", "worker", "step", "ledger", "continued", "step"});
  const auto lines = lines_of(folder.file());
  CHECK(lines[4]["cut_bytes"] == 17);
  CHECK(lines[4]["coordinator"] == "coordinator-1");
  for (std::size_t i = 1; i < lines.size(); ++i) {
    CHECK(lines[i]["t"].get<double>() >= lines[i - 1]["t"].get<double>());
    CHECK(utc_of(lines[i]["time"]) >= utc_of(lines[i - 1]["time"]));
  }
}

TEST_CASE("events: the file of another job, coordinator or run is refused, and says whose it is") {
  const ObserveFolder folder("events");
  const Job job = digits();
  REQUIRE(EventWriter::open(folder.path(), owner_of(job)).value()->start(start_at(job)));
  Job other = job;
  other.seed += 1;
  const std::string of_job = EventWriter::open(folder.path(), owner_of(other)).error().text();
  CHECK_MESSAGE(of_job.find("another one by its keys") != std::string::npos, of_job);
  const std::string of_other =
      EventWriter::open(folder.path(), owner_of(job, "coordinator-2")).error().text();
  CHECK_MESSAGE(of_other.find("at coordinator-1, expected those of") != std::string::npos,
                of_other);
  CHECK(EventWriter::open(folder.path()).error().code() == Code::kBadInput);
  CHECK(kinds_of(folder.file()) == std::vector<std::string>{"start"});
}

// Goal: a full disk costs lines, not the run, and never half a line.
TEST_CASE("events: a full disk is told, leaves whole lines, and what is missing is counted") {
  const ObserveFolder folder("events");
  std::string missing;
  {
    const auto writer = EventWriter::open(folder.path()).value();
    REQUIRE(writer->write(event::Warning{"first"}));
    REQUIRE(writer->flush());
    const FullDisk full(2000);
    for (int i = 0; i < 100; ++i)
      REQUIRE(writer->write(event::Warning{"line " + std::to_string(i)}));
    std::optional<std::string> news;
    while (!(news = writer->news())) ::usleep(1000);
    CHECK_MESSAGE(news->find("cannot be written (File too large)") != std::string::npos, *news);
    CHECK_FALSE(writer->news());  // once
    missing = writer->finish();
  }
  const std::size_t there = lines_of(folder.file()).size();  // each is whole, or parse() throws
  CHECK(fs::file_size(folder.file()) <= 2000);
  CHECK(there > 5);
  CHECK_MESSAGE(missing.find(std::to_string(101 - there) + " lines") != std::string::npos, missing);
}

TEST_CASE("events: nothing is missing when the disk has room again in time") {
  const ObserveFolder folder("events");
  {
    const auto writer = EventWriter::open(folder.path()).value();
    {
      const FullDisk full(2000);
      for (int i = 0; i < 100; ++i)
        REQUIRE(writer->write(event::Warning{"line " + std::to_string(i)}));
      while (!writer->news()) ::usleep(1000);
    }
    CHECK(writer->finish().empty());
  }
  CHECK(lines_of(folder.file()).size() == 100);
}

// Goal: a disk that hangs costs a bounded memory, and the file says what it lacks.
// Method: a pipe that nobody reads stands for it.
TEST_CASE("events: while the file takes nothing a bounded part waits, steps are dropped first") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const auto before = resident_bytes();
  const auto writer = EventWriter::into(ends[1]);
  constexpr std::uint64_t kSteps = 1500;
  for (Version v = 0; v < kSteps; ++v) {
    REQUIRE(writer->write(step_of(v, 2.5)));
    REQUIRE(writer->write(long_ledger(v)));
  }
  REQUIRE(writer->write(event::EpochFormed{{9, 9}}));
  CHECK(resident_bytes() < before + (std::size_t{64} << 20));

  std::string text;
  std::vector<char> buffer(1 << 20);
  while (text.find("\"9.9\"") == std::string::npos) {
    const auto n = ::read(ends[0], buffer.data(), buffer.size());
    REQUIRE(n > 0);
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  std::size_t lines = 0, dropped = 0;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const Json line = Json::parse(text.substr(at, end - at));
    if (line.at("ev") == "dropped")
      dropped += line.at("lines").get<std::size_t>();
    else
      ++lines;
  }
  CHECK(dropped > kSteps / 4);
  CHECK(lines + dropped == 2 * kSteps + 1);
  ::close(ends[0]);
}

// Goal: a run may be as long as it likes.
// Method: as many steps as take 320 MB with 16 bytes for each row of their ledgers, each told by
// two members.
TEST_CASE("events: what is remembered of steps is bounded") {
  EventMemory memory;
  event::LedgerPassed ledger = long_ledger(0);
  const auto begin = resident_bytes();
  for (Version v = 0; v < 20'000; ++v) {
    ledger.version = v;
    const auto step = step_of(v, 2.5, v);
    REQUIRE(memory.take(step) == EventMemory::Told::kFirst);
    REQUIRE(memory.take(step) == EventMemory::Told::kAgain);
    REQUIRE(memory.take(ledger) == EventMemory::Told::kFirst);
    REQUIRE(memory.take(ledger) == EventMemory::Told::kAgain);
  }
  CHECK(resident_bytes() < begin + (std::size_t{16} << 20));
}

// Prints the curve of a writer's memory over so many steps; 1000000 take half an hour.
TEST_CASE("events: the memory of a writer" *
          doctest::skip(std::getenv("STARLING_EVENT_STEPS") == nullptr)) {
  const std::uint64_t steps = std::stoull(std::getenv("STARLING_EVENT_STEPS"));
  const auto writer = EventWriter::into(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  event::LedgerPassed ledger = long_ledger(0);
  for (Version v = 0; v < steps; ++v) {
    for (int member = 0; member < 2; ++member) {
      ledger.version = v;
      REQUIRE(writer->write(step_of(v, 2.5, v)));
      REQUIRE(writer->write(ledger));
    }
    if (v % 100 == 99) REQUIRE(writer->flush());
    if (v % (steps / 20) == 0)
      std::printf("%10llu steps  %6.1f MiB\n", static_cast<unsigned long long>(v),
                  static_cast<double>(resident_bytes()) / (1 << 20));
  }
  CHECK(resident_bytes() < std::size_t{100} << 20);
}

TEST_CASE("events: records are compared a quarter of a million steps back") {
  EventMemory memory;
  using Told = EventMemory::Told;
  for (Version v = 0; v <= EventMemory::kRecords; ++v)
    REQUIRE(memory.take(step_of(v, 1)) == Told::kFirst);
  CHECK(memory.take(step_of(1, 2)) == Told::kOther);
  CHECK(memory.take(step_of(1, 1)) == Told::kAgain);
  CHECK(memory.take(step_of(0, 2)) == Told::kAgain);  // longer ago: not written twice, at least
}

TEST_CASE("events: times of the day read back") {
  CHECK(utc_text(1772366400000125) == "2026-03-01T12:00:00.000125Z");
  CHECK(utc_of("2026-03-01T12:00:00.000125Z") == 1772366400000125);
  CHECK(utc_of("2026-03-01T12:00:00Z") == 1772366400000000);
  CHECK(utc_of("noon") == 0);
}

// Goal: a disk that is full for a while costs no record its end. Method: records with line ends within, and a limit of
// the size of files that a record does not fit below, lifted later.
TEST_CASE("line file: what a failed write left of a record is cut off where the record began") {
  const DataFolder folder;
  const std::string path = folder.write("file", "");
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const rlimit low{250, old_limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  std::string wanted;
  {
    LineFile file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC),
                  [](std::uint64_t) { return std::string(); },
                  {.retry = std::chrono::milliseconds(1), .patience = std::chrono::seconds(1)});
    for (const char letter : {'a', 'b', 'c', 'd'}) {
      const std::string record = std::string(40, letter) + "\n" + std::string(59, letter);
      file.put(record, /*minor=*/false);
      wanted += record;
    }
    CHECK_FALSE(file.flush());
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
    CHECK(file.flush());
    CHECK(file.finish() == 0);
  }
  ::signal(SIGXFSZ, old_handler);
  std::ifstream file(path, std::ios::binary);
  CHECK(std::string{std::istreambuf_iterator<char>(file), {}} == wanted);
}

}  // namespace starling
