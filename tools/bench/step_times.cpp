#include "tools/bench/step_times.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <span>

#include "core/base/file_system.h"
#include "tools/bench/figures.h"

namespace starling::bench {
namespace {

using actors::kStepMarks;
using actors::StepMark;
using actors::StepTimes;

constexpr auto kComputed = static_cast<std::size_t>(StepMark::kComputed);
constexpr auto kPassed = static_cast<std::size_t>(StepMark::kPassed);
constexpr auto kTold = static_cast<std::size_t>(StepMark::kTold);
constexpr auto kGathered = static_cast<std::size_t>(StepMark::kGathered);

constexpr const char* kHead =
    "version,world,begun,computed,checked,reduced,digested,normed,passed,applied,told,"
    "gathered,begun_work,computed_work,checked_work,reduced_work,digested_work,"
    "normed_work,passed_work,applied_work,told_work,gathered_work,computing,state_check,"
    "totals_check,sent_bytes";
constexpr std::size_t kColumns = 2 * kStepMarks + 6;
constexpr std::size_t kLinesMax = actors::StepClock::kStepsMax;

std::array<std::int64_t, kColumns> columns_of(const StepTimes& times) {
  std::array<std::int64_t, kColumns> columns{static_cast<std::int64_t>(times.version), times.world};
  std::copy(times.at_ns.begin(), times.at_ns.end(), columns.begin() + 2);
  std::copy(times.work_ns.begin(), times.work_ns.end(), columns.begin() + 2 + kStepMarks);
  const std::array<std::int64_t, 4> rest{times.computing_ns, times.state_check_ns,
                                         times.totals_check_ns,
                                         static_cast<std::int64_t>(times.sent_bytes)};
  std::copy(rest.begin(), rest.end(), columns.end() - 4);
  return columns;
}

StepTimes times_of(const std::array<std::int64_t, kColumns>& columns) {
  StepTimes times;
  times.version = static_cast<Version>(columns[0]);
  times.world = static_cast<std::uint32_t>(columns[1]);
  std::copy_n(columns.begin() + 2, kStepMarks, times.at_ns.begin());
  std::copy_n(columns.begin() + 2 + kStepMarks, kStepMarks, times.work_ns.begin());
  times.computing_ns = columns[kColumns - 4];
  times.state_check_ns = columns[kColumns - 3];
  times.totals_check_ns = columns[kColumns - 2];
  times.sent_bytes = static_cast<std::uint64_t>(columns[kColumns - 1]);
  return times;
}

// Returns false if the line has other columns, or one that is no number from 0 on.
bool read_columns(const std::string& line, std::array<std::int64_t, kColumns>& columns) {
  const char* at = line.data();
  const char* const end = at + line.size();
  for (std::size_t i = 0; i < kColumns; ++i) {
    const auto [rest, error] = std::from_chars(at, end, columns[i]);
    if (error != std::errc() || columns[i] < 0) return false;
    const bool last = i + 1 == kColumns;
    if (last != (rest == end) || (!last && *rest != ',')) return false;
    at = rest + 1;
  }
  return true;
}

double ms(std::int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

// Returns all workers' times of each version that all of them tell.
std::map<Version, std::vector<const StepTimes*>> by_version(
    const std::vector<std::vector<StepTimes>>& workers, std::size_t skipped) {
  std::map<Version, std::vector<const StepTimes*>> versions;
  for (const auto& worker : workers)
    for (const StepTimes& times : worker) versions[times.version].push_back(&times);
  std::erase_if(versions, [&](const auto& v) { return v.second.size() != workers.size(); });
  for (; skipped > 0 && !versions.empty(); --skipped) versions.erase(versions.begin());
  return versions;
}

// Splits a step's stages into computing, checking checksums and the rest. A step
// begins when the one before was told, so with the gather of its own parameters:
// `first` is the time until the last micro-batch was computed, `gather` that
// until the parameters were there. Computing meanwhile counts as computing.
template <class Stage>
StepParts parts_of(Stage stage, std::int64_t first, std::int64_t gather, std::int64_t computing,
                   std::int64_t checking) {
  StepParts parts;
  computing = std::min(computing, first);
  gather = std::min(gather, first - computing);
  // Noting the parameters' checksums reads as much as comparing them.
  const std::int64_t noted = std::min(stage(StepMark::kChecked), gather);
  parts.compute = ms(computing);
  parts.gather = ms(gather - noted);
  parts.hand_over = ms(first - computing - gather);
  parts.reduce = ms(stage(StepMark::kReduced));
  parts.norm = ms(stage(StepMark::kNormed));
  parts.vote = ms(stage(StepMark::kPassed));
  const double checked = ms(std::min(checking, stage(StepMark::kApplied)));
  parts.apply = ms(stage(StepMark::kApplied)) - checked;
  parts.telling = ms(stage(StepMark::kTold));
  parts.checksums =
      checked + ms(noted) + ms(stage(StepMark::kChecked)) + ms(stage(StepMark::kDigested));
  return parts;
}

std::int64_t checking_of(const StepTimes& times) {
  return 2 * times.state_check_ns + times.totals_check_ns;
}

StepParts times_of_parts(std::span<const StepTimes* const> before,
                         std::span<const StepTimes* const> workers) {
  std::array<std::int64_t, kStepMarks> through{};  // when the last worker was
  std::int64_t computing = 0, checking = 0, told = 0, gathered = 0;
  for (const StepTimes* times : before) {
    told = std::max(told, times->at_ns[kTold]);
    gathered = std::max(gathered, times->at_ns[kGathered]);
  }
  for (const StepTimes* times : workers) {
    for (std::size_t k = 0; k < kStepMarks; ++k) through[k] = std::max(through[k], times->at_ns[k]);
    computing = std::max(computing, times->computing_ns);
    checking = std::max(checking, checking_of(*times));
  }
  const auto stage = [&](StepMark mark) {
    const auto k = static_cast<std::size_t>(mark);
    return through[k] - through[k - 1];
  };
  StepParts parts =
      parts_of(stage, through[kComputed] - told, gathered - told, computing, checking);
  const auto first = std::min_element(
      workers.begin(), workers.end(),
      [](const auto* a, const auto* b) { return a->at_ns[kPassed] < b->at_ns[kPassed]; });
  parts.commit = ms((*first)->at_ns[kPassed] - through[kPassed - 1]);
  return parts;
}

StepParts work_of_parts(std::span<const StepTimes* const> before,
                        std::span<const StepTimes* const> workers) {
  std::int64_t checking = 0, first = 0, gather = 0;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const auto& work = before[w]->work_ns;
    checking = std::max(checking, checking_of(*workers[w]));
    first = std::max(first, workers[w]->work_ns[kComputed] - work[kTold]);
    gather = std::max(gather, work[kGathered] - work[kTold]);
  }
  const auto stage = [&](StepMark mark) {
    const auto k = static_cast<std::size_t>(mark);
    std::int64_t most = 0;
    for (const StepTimes* times : workers)
      most = std::max(most, times->work_ns[k] - times->work_ns[k - 1]);
    return most;
  };
  return parts_of(stage, first, gather, 0, checking);
}

}  // namespace

Result<> save_step_times(const std::string& path, const std::vector<StepTimes>& times) {
  std::ofstream file(path);
  file << kHead << '\n';
  for (const StepTimes& step : times) {
    const auto columns = columns_of(step);
    for (std::size_t i = 0; i < kColumns; ++i) file << (i ? "," : "") << columns[i];
    file << '\n';
  }
  file.close();
  if (!file) return Error(Code::kBadInput, "cannot write " + path);
  return ok();
}

Result<std::vector<StepTimes>> load_step_times(const std::string& path) {
  STARLING_TRY(is_file(path, "a file of step times"));
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line != kHead)
    return Error(Code::kBadInput, "no file of step times; " + path);
  std::vector<StepTimes> times;
  std::array<std::int64_t, kColumns> columns{};
  while (std::getline(file, line)) {
    if (times.size() >= kLinesMax || !read_columns(line, columns))
      return Error(Code::kBadInput, "line " + std::to_string(times.size() + 2) +
                                        " is not the times of a step; " + path);
    times.push_back(times_of(columns));
  }
  return times;
}

std::vector<StepParts> step_parts(const std::vector<std::vector<StepTimes>>& workers,
                                  std::size_t skipped, Of of) {
  std::vector<StepParts> parts;
  const auto versions = by_version(workers, skipped);
  for (auto it = versions.begin(); it != versions.end(); ++it) {
    const auto before = versions.find(it->first - 1);
    if (it->first == 0 || before == versions.end()) continue;
    parts.push_back(of == Of::kTime ? times_of_parts(before->second, it->second)
                                    : work_of_parts(before->second, it->second));
  }
  return parts;
}

double bytes_a_step(const std::vector<std::vector<StepTimes>>& workers, std::size_t skipped) {
  const auto sent = [](const auto& version) {
    double bytes = 0;
    for (const StepTimes* times : version.second) bytes += static_cast<double>(times->sent_bytes);
    return bytes;
  };
  std::vector<double> bytes;
  const auto versions = by_version(workers, skipped);
  for (auto it = versions.begin(); it != versions.end(); ++it)
    if (const auto before = versions.find(it->first - 1); it->first > 0 && before != versions.end())
      bytes.push_back(sent(*it) - sent(*before));
  return quantile(std::move(bytes), 0.5);
}

double predicted_bytes(std::uint64_t parameters, std::uint32_t workers) {
  return 8.0 * static_cast<double>(parameters) * (workers - 1);
}

}  // namespace starling::bench
