#include "core/observe/events.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/observe/event_line.h"

namespace starling {
namespace {

using Json = EventJson;

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

}  // namespace

EventWriter::EventWriter() = default;

EventWriter::~EventWriter() = default;

bool EventWriter::first_of_worker(std::uint64_t id, const std::string& what) {
  return memory_.first("worker " + std::to_string(id) + " " + what);
}

bool EventWriter::first_of_epoch(const std::string& id) {
  return memory_.first("epoch " + id);
}

template <class J>
Result<bool> EventWriter::write(const char* kind, J&& fields) {
  const std::string_view what = kind;
  const bool step = what == "step" || what == "ledger";
  if (over_ && !step) return false;
  over_ = over_ || what == "done" || what == "failed";
  if (!file_) return true;  // what is told is in the file already
  file_->put(event_line(kind, std::forward<J>(fields), opened_ns_), /*minor=*/step);
  return true;
}

template Result<bool> EventWriter::write(const char*, Json&&);

std::optional<std::string> EventWriter::news() {
  auto news = file_ ? file_->news() : std::nullopt;
  if (news) news = path_ + " " + *news;
  return news;
}

std::string EventWriter::finish() {
  const std::uint64_t missing = file_ ? file_->finish() : 0;
  if (missing == 0) return "";
  return path_ + " is incomplete, " + std::to_string(missing) + " lines of it could not be written";
}

Result<bool> EventWriter::start(const Job& job, const std::string& fingerprint, const Digest& data,
                                std::uint64_t samples, const std::string& address,
                                const std::string& keys, Version from,
                                const std::string& coordinator) {
  if (cut_bytes_)
    return write("continued", Json{{"coordinator", coordinator},
                                   {"monotonic_ns", monotonic_ns()},
                                   {"cut_bytes", *cut_bytes_}});
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
                             {"address", address},
                             {"keys", keys},
                             {"coordinator", coordinator}});
}

Result<bool> EventWriter::worker(const Incarnation& who, WorkerChange what, const std::string& name,
                                 std::uint64_t pid, std::optional<WorkPhase> phase,
                                 const std::string& reason) {
  if (!first_of_worker(who.counter, to_string(what))) return false;
  return write("worker", Json{{"id", who.counter},
                              {"what", to_string(what)},
                              {"name", name},
                              {"pid", pid},
                              {"phase", phase ? Json(to_string(*phase)) : Json(nullptr)},
                              {"reason", reason.empty() ? Json(nullptr) : Json(reason)}});
}

Result<bool> EventWriter::epoch(const Plan& plan, const EpochTimes& times) {
  if (!first_of_epoch(to_string(plan.id))) return false;
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

Result<bool> EventWriter::step(const StepRecord& record, const EpochId& epoch, std::uint32_t world,
                               double ms) {
  const auto told = memory_.record(record);
  if (told == EventMemory::Told::kOther)
    return Error(Code::kInternal, "two records of version " + std::to_string(record.version) +
                                      " differ: one has " + shown(record) +
                                      ", the one before it is in " + path_);
  if (told != EventMemory::Told::kFirst) return false;
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
  return write("step", std::move(line));
}

Result<bool> EventWriter::ledger(Version version, const EpochId& epoch,
                                 const std::vector<LedgerRow>& rows) {
  return ledger({version, epoch, workers_of(rows)});
}

Result<bool> EventWriter::ledger(EventMemory::Ledger ledger) {
  switch (memory_.ledger(ledger)) {
    case EventMemory::Told::kOther:
      return Error(Code::kInternal, two_ledgers(ledger.version) + "; " + path_);
    case EventMemory::Told::kAgain:
    case EventMemory::Told::kEarly:
      return false;
    case EventMemory::Told::kFirst:
      break;
  }
  return write("ledger", Json{{"version", ledger.version},
                              {"epoch", to_string(ledger.epoch)},
                              {"workers", ledger.workers}});
}

Result<bool> EventWriter::exposure(const EpochId& epoch, std::uint32_t segments,
                                   std::uint32_t copies_min, std::uint32_t wanted) {
  return write("exposure", Json{{"epoch", to_string(epoch)},
                                {"segments", segments},
                                {"copies_min", copies_min},
                                {"wanted", wanted}});
}

Result<bool> EventWriter::checkpoint(Version version, const std::string& path) {
  return write("checkpoint", Json{{"version", version}, {"path", path}});
}

Result<bool> EventWriter::restart(Version version, const EpochId& lost, const std::string& cause) {
  if (!memory_.restart(version, lost)) return false;
  STARLING_TRY(
      write("restart", Json{{"version", version}, {"lost", to_string(lost)}, {"cause", cause}}));
  for (EventMemory::Ledger& ledger : memory_.take_early()) {
    STARLING_TRY(this->ledger(std::move(ledger)));
  }
  return true;
}

Result<bool> EventWriter::notice(const Incarnation& who, const std::string& name,
                                 const Notice& notice) {
  return write("notice", Json{{"id", who.counter},
                              {"name", name},
                              {"source", notice.source},
                              {"leave", notice.leave},
                              {"seconds",
                               notice.leave ? Json(double(notice.notice_ms) / 1e3) : Json(nullptr)},
                              {"text", notice.text}});
}

Result<bool> EventWriter::leader(std::uint64_t term, std::uint32_t coordinator, std::uint64_t pid,
                                 std::uint64_t election_ms) {
  return write("leader", Json{{"term", term},
                              {"coordinator", coordinator},
                              {"pid", pid},
                              {"election_ms", election_ms}});
}

Result<bool> EventWriter::warning(const std::string& text) {
  return write("warning", Json{{"text", text}});
}

Result<bool> EventWriter::dropped(std::uint64_t lines, const std::string& why) {
  return write("dropped", Json{{"lines", lines}, {"why", why}});
}

Result<bool> EventWriter::done(Version version, const Digest& digest, double loss) {
  if (!memory_.early().empty())
    return Error(Code::kInternal, two_ledgers(memory_.early().front().version) + "; " + path_);
  return write("done", Json{{"version", version}, {"digest", to_string(digest)}, {"loss", loss}});
}

Result<bool> EventWriter::failed(int code, const std::string& reason) {
  return write("failed", Json{{"code", code}, {"reason", reason}});
}

}  // namespace starling
