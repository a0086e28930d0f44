#include "tools/chaos/story.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace starling::chaos {
namespace {

using Json = nlohmann::json;

std::string text_or_none(const Json& line, const char* key) {
  const auto value = line.find(key);
  return value != line.end() && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<double> number_or_none(const Json& line, const char* key) {
  const Json& value = line.at(key);
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

EpochSeen epoch_of(const Json& line) {
  EpochSeen epoch;
  epoch.id = line.at("id").get<std::string>();
  epoch.kind = line.at("kind").get<std::string>();
  epoch.predecessor = line.at("predecessor").get<std::string>();
  epoch.cause = line.at("cause").get<std::string>();
  for (const Json& m : line.at("members"))
    epoch.members.push_back({m.at("id").get<std::uint64_t>(), m.at("name").get<std::string>(),
                             m.value("draining", false)});
  if (!line.at("base").is_null()) epoch.base = line.at("base").get<Version>();
  epoch.holders = line.at("holders").get<decltype(epoch.holders)>();
  epoch.detect_ms = number_or_none(line, "detect_ms");
  epoch.form_ms = number_or_none(line, "form_ms");
  epoch.resume_ms = number_or_none(line, "resume_ms");
  epoch.moves = line.at("moves").get<std::size_t>();
  if (const auto p = line.find("pause"); p != line.end() && p->is_object())
    epoch.pause = PauseSeen{p->at("report").get<double>(),  p->at("plan").get<double>(),
                            p->at("connect").get<double>(), p->at("compute").get<double>(),
                            p->at("reduce").get<double>(),  p->at("vote").get<double>()};
  return epoch;
}

StepSeen step_of(const Json& line) {
  StepSeen step;
  step.epoch = text_or_none(line, "epoch");
  step.loss = number_or_none(line, "loss");
  step.norm = number_or_none(line, "norm");
  step.ms = line.at("ms").get<double>();
  step.world = line.at("world").get<std::uint32_t>();
  return step;
}

void add_parsed(Story& story, const Json& line) {
  const double t = line.at("t").get<double>();
  const std::string kind = line.at("ev").get<std::string>();
  if (kind == "start") {
    if (story.started) story.oddities.push_back("a second `start`");
    story.started = true;
    story.steps = line.at("steps").get<std::uint64_t>();
    story.micro_batches = line.at("micro_batches").get<std::uint64_t>();
    story.monotonic_ns = line.at("monotonic_ns").get<std::int64_t>();
    story.name = line.at("name").get<std::string>();
    story.address = line.at("address").get<std::string>();
    story.keys = line.at("keys").get<std::string>();
    return;
  }
  if (!story.started) story.oddities.push_back("`" + kind + "` before `start`");
  if (story.done) story.oddities.push_back("`" + kind + "` after `done`");
  if (kind == "worker") {
    story.workers.push_back({t, line.at("id").get<std::uint64_t>(),
                             line.at("what").get<std::string>(), line.at("name").get<std::string>(),
                             line.at("pid").get<int>(), text_or_none(line, "phase")});
  } else if (kind == "epoch") {
    story.epochs.push_back(epoch_of(line));
    story.epochs.back().t = t;
  } else if (kind == "step") {
    story.step_lines.emplace_back(line.at("version").get<Version>(), step_of(line));
    story.step_lines.back().second.t = t;
  } else if (kind == "ledger") {
    std::vector<LedgerRowSeen> rows;
    for (const Json& row : line.at("workers"))
      rows.push_back({row.at(0).get<std::uint64_t>(), row.at(1).get<std::uint64_t>()});
    story.ledger_lines.emplace_back(line.at("version").get<Version>(), std::move(rows));
  } else if (kind == "exposure") {
    story.exposures.push_back(
        {t, line.at("epoch").get<std::string>(), line.at("segments").get<std::uint32_t>(),
         line.at("copies_min").get<std::uint32_t>(), line.at("wanted").get<std::uint32_t>()});
  } else if (kind == "leader") {
    story.leaders.push_back({t, line.at("term").get<std::uint64_t>(),
                             line.at("coordinator").get<std::uint32_t>(), line.at("pid").get<int>(),
                             line.at("election_ms").get<double>()});
  } else if (kind == "restart") {
    story.restarts.push_back(
        {t, line.at("version").get<Version>(), line.at("lost").get<std::string>()});
  } else if (kind == "warning") {
    story.warnings.push_back(line.at("text").get<std::string>());
  } else if (kind == "done") {
    story.done =
        DoneSeen{t, line.at("version").get<Version>(), line.at("digest").get<std::string>()};
  } else if (kind == "failed") {
    story.failed = FailedSeen{t, line.at("code").get<int>(), line.at("reason").get<std::string>()};
  }
}

}  // namespace

bool EpochSeen::has(std::uint64_t worker) const {
  return std::any_of(members.begin(), members.end(),
                     [&](const MemberSeen& m) { return m.id == worker; });
}

std::vector<std::vector<std::uint64_t>> EpochSeen::holders_by_segment() const {
  constexpr std::uint64_t kSegmentsMax = 1u << 22;  // of any job; more is damage
  std::vector<std::vector<std::uint64_t>> by_segment;
  for (std::size_t rank = 0; rank < holders.size() && rank < members.size(); ++rank)
    for (const auto& [first, count] : holders[rank]) {
      const std::uint64_t end = std::uint64_t{first} + count;
      if (end > kSegmentsMax) continue;
      if (by_segment.size() < end) by_segment.resize(end);
      for (std::uint64_t s = first; s < end; ++s) by_segment[s].push_back(members[rank].id);
    }
  return by_segment;
}

void Story::add(const std::string& line) {
  try {  // parse, at and get throw where a line is not what it should be
    add_parsed(*this, Json::parse(line));
  } catch (const Json::exception& error) {
    oddities.push_back("a line that is no event: " + line.substr(0, 80));
  }
}

std::map<Version, StepSeen> Story::committed() const {
  std::map<Version, StepSeen> steps_seen;
  for (const auto& [version, step] : step_lines) steps_seen.emplace(version, step);
  return steps_seen;
}

double Story::now() const {
  using std::chrono::nanoseconds;
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return started
             ? 1e-9 * double(std::chrono::duration_cast<nanoseconds>(since).count() - monotonic_ns)
             : 0;
}

double Story::median_step_ms() const {
  std::vector<double> ms;
  for (const auto& [version, step] : step_lines)
    if (version >= 2) ms.push_back(step.ms);
  return median(std::move(ms));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<std::string> Tail::lines() {
  std::vector<std::string> finished;
  std::ifstream file(path_, std::ios::binary);
  if (!file) return finished;
  file.seekg(static_cast<std::streamoff>(offset_));
  char buffer[65536];
  do {
    file.read(buffer, sizeof buffer);
    rest_.append(buffer, static_cast<std::size_t>(file.gcount()));
    offset_ += static_cast<std::uint64_t>(file.gcount());
  } while (file);
  std::size_t at = 0;
  for (std::size_t end; (end = rest_.find('\n', at)) != std::string::npos; at = end + 1)
    finished.push_back(rest_.substr(at, end - at));
  rest_.erase(0, at);
  return finished;
}

Story read_story(const std::string& path) {
  Story story;
  Tail tail(path);
  for (const std::string& line : tail.lines()) story.add(line);
  if (!tail.rest().empty()) story.oddities.push_back("the last line is cut");
  return story;
}

}  // namespace starling::chaos
