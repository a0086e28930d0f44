#include "core/observe/events.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace starling {
namespace {

using Json = nlohmann::ordered_json;  // fields in the order of the header

std::int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json pause_of(const std::optional<Pause>& pause) {
  if (!pause) return nullptr;
  return {{"report", pause->report_ms},   {"plan", pause->plan_ms},
          {"connect", pause->connect_ms}, {"compute", pause->compute_ms},
          {"reduce", pause->reduce_ms},   {"vote", pause->vote_ms}};
}

Json members_of(const Plan& plan) {
  Json members = Json::array();
  for (Rank rank = 0; rank < plan.members.size(); ++rank) {
    const Member& m = plan.members[rank];
    members.push_back({{"rank", rank},
                       {"id", m.who.counter},
                       {"name", m.name},
                       {"joiner", m.joiner},
                       {"draining", m.draining}});
  }
  return members;
}

// Per rank the segments that it holds, as ranges.
Json holders_of(const Plan& plan) {
  std::vector<std::vector<std::pair<SegmentId, std::uint32_t>>> ranges(plan.members.size());
  for (SegmentId s = 0; s < plan.holders.size(); ++s) {
    for (const Rank rank : plan.holders[s]) {
      if (rank >= ranges.size()) continue;
      auto& mine = ranges[rank];
      if (!mine.empty() && mine.back().first + mine.back().second == s) {
        ++mine.back().second;
      } else {
        mine.emplace_back(s, 1);
      }
    }
  }
  return ranges;
}

Json owned_of(const Plan& plan) {
  std::vector<std::uint32_t> owned(plan.members.size());
  for (const auto& holders : plan.holders)
    if (!holders.empty() && holders.front() < owned.size()) ++owned[holders.front()];
  return owned;
}

std::string shown(const StepRecord& r) {
  char text[224];
  std::snprintf(text, sizeof text,
                "loss %.17g norm %.17g tokens %llu skipped %d ledger %s digest %s", r.loss, r.norm,
                static_cast<unsigned long long>(r.tokens), int(r.skipped),
                hex(r.ledger_hash).c_str(), to_string(r.digest).c_str());
  return text;
}

// By bits: a NaN equals itself, and 0 is not -0.
bool same_bits(const StepRecord& a, const StepRecord& b) {
  const auto bits = [](double d) { return std::bit_cast<std::uint64_t>(d); };
  return a.version == b.version && bits(a.loss) == bits(b.loss) && bits(a.norm) == bits(b.norm) &&
         a.tokens == b.tokens && a.skipped == b.skipped && a.ledger_hash == b.ledger_hash &&
         a.digest == b.digest;
}

// [[micro-batch, worker], ..] in the order of micro-batches.
std::vector<std::pair<MicroBatch, std::uint64_t>> workers_of(const std::vector<LedgerRow>& rows) {
  std::vector<std::pair<MicroBatch, std::uint64_t>> workers;
  for (const LedgerRow& row : rows) workers.emplace_back(row.micro_batch, row.worker);
  std::sort(workers.begin(), workers.end());
  return workers;
}

std::string two_ledgers(Version version) {
  return "two ledgers of version " + std::to_string(version) +
         " differ, as if a micro-batch were counted for two workers";
}

constexpr std::size_t kEarlyMax = 4096;

}  // namespace

struct EventWriter::Kept {
  struct Ledger {
    Version version = 0;
    EpochId epoch;
    LedgerWorkers workers;
  };
  std::unordered_map<Version, StepRecord> records;
  struct Restart {
    EpochId lost;
    Version version = 0;
  };
  bool over = false;  // `done` or `failed` is written
  // By version and number of restarts before the epoch in which it passed.
  std::map<std::pair<Version, std::size_t>, Ledger> ledgers;
  std::vector<Restart> restarts;  // by epoch
  // Of several coordinators one may tell of a step that was done again before another tells why.
  std::vector<Ledger> early;
  // Lines of other kinds, without their time; of workers and epochs what they tell of, since a
  // leader tells what the one before it may have told already, and knows less of it.
  std::unordered_set<std::string> told;
  bool first(const std::string& what) { return told.insert(what).second; }
  bool first_of_worker(std::uint64_t id, const std::string& what) {
    return first("worker " + std::to_string(id) + " " + what);
  }
  bool first_of_epoch(const std::string& id) { return first("epoch " + id); }

  std::size_t restarts_before(const EpochId& epoch) const {
    return static_cast<std::size_t>(
        std::count_if(restarts.begin(), restarts.end(),
                      [&](const Restart& restart) { return restart.lost < epoch; }));
  }
  // Whether a step that passed after so many restarts was done again after a later one.
  bool done_again(Version version, std::size_t after) const {
    return std::any_of(restarts.begin() + static_cast<std::ptrdiff_t>(after), restarts.end(),
                       [&](const Restart& restart) { return restart.version <= version; });
  }
};

EventWriter::EventWriter() : kept_(std::make_unique<Kept>()) {}

EventWriter::~EventWriter() {
  if (fd_ >= 0) ::close(fd_);  // gives the lock back
}

Result<std::unique_ptr<EventWriter>> EventWriter::open(const std::string& folder) {
  const auto refused = [&](const std::string& why) {
    return Error(Code::kBadInput, "output directory " + why + "; " + folder);
  };
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return refused("cannot be made (" + error.message() + ")");

  std::unique_ptr<EventWriter> writer(new EventWriter);
  writer->path_ = (std::filesystem::path(folder) / "events.jsonl").string();
  writer->fd_ = ::open(writer->path_.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  struct stat status {};
  if (writer->fd_ < 0 || ::fstat(writer->fd_, &status) != 0)
    return refused(std::string("cannot be written (") + std::strerror(errno) + ")");
  if (!S_ISREG(status.st_mode)) return refused("has an events.jsonl that is not a regular file");
  if (::flock(writer->fd_, LOCK_EX | LOCK_NB) != 0)
    return refused("is in use by another run, expected one of its own");
  // Asked again under the lock: a run may have written and ended in between.
  if (::fstat(writer->fd_, &status) != 0 || status.st_size != 0)
    return refused("already holds a run (events.jsonl), expected a new or empty one");
  writer->opened_ns_ = monotonic_ns();
  return writer;
}

std::unique_ptr<EventWriter> EventWriter::into(int fd) {
  std::unique_ptr<EventWriter> writer(new EventWriter);
  writer->path_ = "a pipe";
  writer->fd_ = fd;
  writer->opened_ns_ = monotonic_ns();
  return writer;
}

template <class J>
Result<> EventWriter::write(const char* kind, J&& fields) {
  const std::string_view what = kind;
  if (kept_->over && what != "step" && what != "ledger") return ok();
  kept_->over = kept_->over || what == "done" || what == "failed";
  Json line;
  line["t"] = static_cast<double>((monotonic_ns() - opened_ns_) / 1000) / 1e6;  // to microseconds
  line["ev"] = kind;
  line.update(std::forward<J>(fields));
  // Names and causes may come from elsewhere: what is not UTF-8 is replaced, not thrown at.
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::size_t at = 0;
  while (at < text.size()) {
    const auto n = ::write(fd_, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return Error(Code::kBadInput,
                   std::string("cannot write events (") + std::strerror(errno) + "); " + path_);
    at += static_cast<std::size_t>(n);
  }
  return ok();
}

Result<> EventWriter::start(const Job& job, const std::string& fingerprint, const Digest& data,
                            std::uint64_t samples, const std::string& address,
                            const std::string& keys, Version from) {
  const auto* gpt = std::get_if<GptSpec>(&job.model);
  const std::uint64_t sequences = std::uint64_t{job.micro_batches} * job.micro_batch_sequences;
  return write("start", Json{{"job", format_job(job)},
                             {"job_hash", hex(job_hash(job))},
                             {"fingerprint", fingerprint},
                             {"name", job.name},
                             {"steps", job.steps},
                             {"micro_batches", job.micro_batches},
                             {"sequences", job.micro_batch_sequences},
                             {"seed", job.seed},
                             {"samples", samples},
                             {"from", from},
                             {"tokens_per_step", sequences * (gpt ? gpt->context : 1)},
                             {"data", to_string(data)},
                             {"monotonic_ns", opened_ns_},
                             {"time", utc_now()},
                             {"address", address},
                             {"keys", keys}});
}

Result<> EventWriter::worker(const Incarnation& who, WorkerChange what, const std::string& name,
                             std::uint64_t pid, std::optional<WorkPhase> phase,
                             const std::string& reason) {
  if (!kept_->first_of_worker(who.counter, to_string(what))) return ok();
  return write("worker", Json{{"id", who.counter},
                              {"what", to_string(what)},
                              {"name", name},
                              {"pid", pid},
                              {"phase", phase ? Json(to_string(*phase)) : Json(nullptr)},
                              {"reason", reason.empty() ? Json(nullptr) : Json(reason)}});
}

Result<> EventWriter::epoch(const Plan& plan, const EpochTimes& times) {
  if (!kept_->first_of_epoch(to_string(plan.id))) return ok();
  const bool based = plan.kind != PlanKind::kPrepared;
  return write("epoch", Json{{"id", to_string(plan.id)},
                             {"kind", to_string(plan.kind)},
                             {"predecessor", to_string(plan.predecessor)},
                             {"members", members_of(plan)},
                             {"base", based ? Json(plan.base) : Json(nullptr)},
                             {"begin", based ? Json(to_string(plan.begin)) : Json(nullptr)},
                             {"cause", plan.cause},
                             {"holders", holders_of(plan)},
                             {"owned", owned_of(plan)},
                             {"moves", plan.moves.size()},
                             {"detect_ms", or_null(times.detect_ms)},
                             {"form_ms", or_null(times.form_ms)},
                             {"resume_ms", or_null(times.resume_ms)},
                             {"pause", pause_of(times.pause)}});
}

Result<> EventWriter::step(const StepRecord& record, const EpochId& epoch, std::uint32_t world,
                           double ms) {
  STARLING_TRY(step_once(record, epoch, world, ms));
  return ok();
}

Result<bool> EventWriter::step_once(const StepRecord& record, const EpochId& epoch,
                                    std::uint32_t world, double ms) {
  const auto [kept, first] = kept_->records.emplace(record.version, record);
  if (!first && same_bits(kept->second, record)) return false;
  if (!first) {
    return Error(Code::kInternal, "two records of version " + std::to_string(record.version) +
                                      " differ: " + shown(kept->second) + ", then " +
                                      shown(record) + "; " + path_);
  }
  Json line{{"version", record.version},
            {"epoch", to_string(epoch)},
            {"loss", record.loss},
            {"norm", record.norm},
            {"tokens", record.tokens},
            {"ms", ms},
            {"world", world},
            {"skipped", record.skipped},
            {"ledger_hash", hex(record.ledger_hash)}};
  if (record.digest != Digest{}) line["digest"] = to_string(record.digest);
  STARLING_TRY(write("step", std::move(line)));
  return true;
}

Result<> EventWriter::ledger(Version version, const EpochId& epoch,
                             const std::vector<LedgerRow>& rows) {
  STARLING_TRY(ledger_once(version, epoch, workers_of(rows)));
  return ok();
}

Result<bool> EventWriter::ledger_once(Version version, const EpochId& epoch,
                                      const LedgerWorkers& workers) {
  const std::size_t restarts = kept_->restarts_before(epoch);
  const auto [kept, first] =
      kept_->ledgers.emplace(std::pair(version, restarts), Kept::Ledger{version, epoch, workers});
  if (!first && kept->second.workers == workers) return false;
  if (!first && epoch > kept->second.epoch && kept_->early.size() < kEarlyMax) {
    kept_->early.push_back({version, epoch, workers});
    return false;
  }
  if (!first) return Error(Code::kInternal, two_ledgers(version) + "; " + path_);
  if (kept_->done_again(version, restarts)) return false;  // told too late
  STARLING_TRY(write(
      "ledger", Json{{"version", version}, {"epoch", to_string(epoch)}, {"workers", workers}}));
  return true;
}

Result<> EventWriter::exposure(const EpochId& epoch, std::uint32_t segments,
                               std::uint32_t copies_min, std::uint32_t wanted) {
  return write("exposure", Json{{"epoch", to_string(epoch)},
                                {"segments", segments},
                                {"copies_min", copies_min},
                                {"wanted", wanted}});
}

Result<> EventWriter::checkpoint(Version version, const std::string& path) {
  return write("checkpoint", Json{{"version", version}, {"path", path}});
}

Result<> EventWriter::restart(Version version, const EpochId& lost, const std::string& cause) {
  STARLING_TRY(restart_once(version, lost, cause));
  return ok();
}

Result<bool> EventWriter::restart_once(Version version, const EpochId& lost,
                                       const std::string& cause) {
  const auto known = [&](const Kept::Restart& restart) { return restart.lost == lost; };
  if (std::any_of(kept_->restarts.begin(), kept_->restarts.end(), known)) return false;
  kept_->restarts.push_back({lost, version});
  STARLING_TRY(
      write("restart", Json{{"version", version}, {"lost", to_string(lost)}, {"cause", cause}}));
  for (const Kept::Ledger& ledger : std::exchange(kept_->early, {})) {
    STARLING_TRY(ledger_once(ledger.version, ledger.epoch, ledger.workers));
  }
  return true;
}

Result<> EventWriter::notice(const Incarnation& who, const std::string& name,
                             const Notice& notice) {
  return write("notice", Json{{"id", who.counter},
                              {"name", name},
                              {"source", notice.source},
                              {"leave", notice.leave},
                              {"seconds",
                               notice.leave ? Json(double(notice.notice_ms) / 1e3) : Json(nullptr)},
                              {"text", notice.text}});
}

Result<> EventWriter::leader(std::uint64_t term, std::uint32_t coordinator, std::uint64_t pid,
                             std::uint64_t election_ms) {
  return write("leader", Json{{"term", term},
                              {"coordinator", coordinator},
                              {"pid", pid},
                              {"election_ms", election_ms}});
}

Result<> EventWriter::warning(const std::string& text) {
  return write("warning", Json{{"text", text}});
}

Result<> EventWriter::done(Version version, const Digest& digest, double loss) {
  if (!kept_->early.empty())
    return Error(Code::kInternal, two_ledgers(kept_->early.front().version) + "; " + path_);
  return write("done", Json{{"version", version}, {"digest", to_string(digest)}, {"loss", loss}});
}

Result<> EventWriter::failed(int code, const std::string& reason) {
  return write("failed", Json{{"code", code}, {"reason", reason}});
}

namespace {

// Null is what a number that is not finite was written as; all of those are one NaN here.
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

EpochId epoch_of(const Json& line, const char* key = "epoch") {
  const std::string text = line.at(key).get<std::string>();
  std::size_t dot = 0;
  EpochId epoch;
  epoch.term = std::stoull(text, &dot);
  epoch.counter = std::stoull(text.substr(dot + 1));  // throws where it is missing
  return epoch;
}

StepRecord record_of(const Json& line) {
  StepRecord record;
  record.version = line.at("version").get<Version>();
  record.loss = number_of(line.at("loss"));
  record.norm = number_of(line.at("norm"));
  record.tokens = line.at("tokens").get<std::uint64_t>();
  record.skipped = line.at("skipped").get<bool>();
  record.ledger_hash = std::stoull(line.at("ledger_hash").get<std::string>(), nullptr, 16);
  if (line.contains("digest")) {
    const std::string digest = line.at("digest").get<std::string>();  // the high word first
    record.digest = {std::stoull(digest.substr(16), nullptr, 16),
                     std::stoull(digest.substr(0, 16), nullptr, 16)};
  }
  return record;
}

}  // namespace

Result<bool> EventWriter::copy(const std::string& text) {
  try {  // at() and get() throw where a line lacks something
    Json line = Json::parse(text);
    const std::string kind = line.at("ev").get<std::string>();
    if (kind == "step") {
      const double ms = number_of(line.at("ms"));
      const auto world = line.at("world").get<std::uint32_t>();
      return step_once(record_of(line), epoch_of(line), world, ms);
    }
    if (kind == "ledger") {
      const auto version = line.at("version").get<Version>();
      return ledger_once(version, epoch_of(line), line.at("workers").get<LedgerWorkers>());
    }
    if (kind == "restart")
      return restart_once(line.at("version").get<Version>(), epoch_of(line, "lost"),
                          line.at("cause").get<std::string>());
    line.erase("t");
    line.erase("ev");
    const bool first = kind == "worker" ? kept_->first_of_worker(line.at("id").get<std::uint64_t>(),
                                                                 line.at("what").get<std::string>())
                       : kind == "epoch" ? kept_->first_of_epoch(line.at("id").get<std::string>())
                                         : kept_->first(kind + line.dump());
    if (!first) return false;
    STARLING_TRY(write(kind.c_str(), std::move(line)));
    return true;
  } catch (const std::exception& error) {
    return Error(Code::kBadInput,
                 std::string("not a line of events (") + error.what() + "); " + text.substr(0, 80));
  }
}

}  // namespace starling
