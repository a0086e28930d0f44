#include "tools/bench/run_events.h"

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace starling::bench {
namespace {

using Json = nlohmann::json;

RunEvents::Epoch epoch_of(const Json& line) {
  RunEvents::Epoch epoch;
  epoch.t = line.at("t").get<double>();
  epoch.kind = line.at("kind").get<std::string>();
  if (line.at("begin").is_string()) epoch.begin = line.at("begin").get<std::string>();
  for (const Json& member : line.at("members"))
    epoch.members.push_back(member.at("name").get<std::string>());
  epoch.moves = line.at("moves").get<std::size_t>();
  if (const Json& p = line.at("pause"); p.is_object())
    epoch.pause = Pause{p.at("report").get<double>(),  p.at("plan").get<double>(),
                        p.at("connect").get<double>(), p.at("compute").get<double>(),
                        p.at("reduce").get<double>(),  p.at("vote").get<double>()};
  return epoch;
}

}  // namespace

double RunEvents::now() const {
  using std::chrono::nanoseconds;
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return origin_ns_ == 0
             ? 0
             : double(std::chrono::duration_cast<nanoseconds>(since).count() - origin_ns_) / 1e9;
}

Result<> RunEvents::read() {
  std::ifstream in(path_, std::ios::binary);
  if (!in) return ok();  // not begun
  in.seekg(static_cast<std::streamoff>(offset_));
  std::string added((std::istreambuf_iterator<char>(in)), {});
  offset_ += added.size();
  rest_ += added;
  std::size_t at = 0;
  for (std::size_t end; (end = rest_.find('\n', at)) != std::string::npos; at = end + 1) {
    STARLING_TRY(take(rest_.substr(at, end - at)));
  }
  rest_.erase(0, at);
  return ok();
}

Result<> RunEvents::take(const std::string& text) {
  try {
    const Json line = Json::parse(text);
    const std::string kind = line.at("ev").get<std::string>();
    const double t = line.at("t").get<double>();
    if (kind == "start") {
      origin_ns_ = line.at("monotonic_ns").get<std::int64_t>();
      micro_batches_ = line.at("micro_batches").get<std::uint32_t>();
      address_ = line.at("address").get<std::string>();
      keys_ = line.at("keys").get<std::string>();
    } else if (kind == "step") {
      const Step step{t, line.at("version").get<Version>(), line.at("ms").get<double>(),
                      line.at("world").get<std::uint32_t>()};
      if (step.version != steps_.size())
        return Error(Code::kCorrupt, "step " + std::to_string(step.version) + " follows " +
                                         std::to_string(steps_.size()) + " steps; " + path_);
      steps_.push_back(step);
    } else if (kind == "ledger") {
      std::set<MicroBatch> seen;
      for (const Json& row : line.at("workers")) seen.insert(row.at(0).get<MicroBatch>());
      if (seen.size() != micro_batches_ || line.at("workers").size() != micro_batches_ ||
          *seen.rbegin() + 1 != micro_batches_)
        return Error(Code::kCorrupt, "a step has not each of its micro-batches once: " + text);
    } else if (kind == "epoch") {
      epochs_.push_back(epoch_of(line));
    } else if (kind == "exposure") {
      exposed_ = line.at("segments").get<std::uint32_t>();
    } else if (kind == "worker") {
      Life& life = lives_[line.at("name").get<std::string>()];
      if (line.at("what") == "joined") {
        life = Life{t, line.at("pid").get<std::uint64_t>(), std::nullopt, {}};
      } else {
        life.ended = t;
        if (line.at("phase").is_string()) life.phase = line.at("phase").get<std::string>();
      }
    } else if (kind == "done" || kind == "failed") {
      over_ = true;
    }
  } catch (const Json::exception& e) {
    return Error(Code::kCorrupt, std::string(e.what()) + "; " + path_);
  }
  return ok();
}

}  // namespace starling::bench
