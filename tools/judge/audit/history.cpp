#include "tools/judge/audit/history.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tools/judge/audit/difference.h"
#include "tools/judge/audit/job_keys.h"
#include "tools/judge/audit/runs.h"

namespace starling::audit {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kWholeMax = std::uint64_t{1} << 60;
// These bound a job, so that places in the order of the samples stay below 2^60.
constexpr std::uint64_t kVersionMax = std::uint64_t{1} << 32;
constexpr std::uint64_t kMicroBatchesMax = 4096, kSequencesMax = 65536, kChunkSamplesMax = 1u << 26;

// Fields asks one line for its fields, and keeps the first error.
class Fields {
 public:
  explicit Fields(const Json& line) : line_(line) {}

  std::uint64_t whole(const char* key, std::uint64_t max = kWholeMax) {
    const Json* value = find(key);
    if (value && value->is_number_unsigned() && value->get<std::uint64_t>() <= max)
      return value->get<std::uint64_t>();
    return expected(key, "a whole number of at most " + std::to_string(max)), 0;
  }
  // The writer writes a number that is not finite as null.
  double number(const char* key) {
    const Json* value = find(key);
    if (value && value->is_number()) return value->get<double>();
    if (!value || !value->is_null()) expected(key, "a number");
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::string text(const char* key) {
    const Json* value = find(key);
    if (value && value->is_string()) return value->get<std::string>();
    return expected(key, "a text"), std::string();
  }
  bool truth(const char* key) {
    const Json* value = find(key);
    if (value && value->is_boolean()) return value->get<bool>();
    return expected(key, "true or false"), false;
  }
  EpochId epoch(const char* key) {
    const std::string text = this->text(key);
    const char* end = text.data() + text.size();
    EpochId id;
    auto at = std::from_chars(text.data(), end, id.term);
    if (at.ec == std::errc() && at.ptr != end && *at.ptr == '.') {
      at = std::from_chars(at.ptr + 1, end, id.counter);
      if (at.ec == std::errc() && at.ptr == end) return id;
    }
    return expected(key, "an epoch like \"1.7\""), EpochId{};
  }
  std::string digest(const char* key) {
    std::string text = this->text(key);
    if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
      expected(key, "32 hex digits");
    return text;
  }
  const Json* list(const char* key) {
    const Json* value = find(key);
    if (value && value->is_array()) return value;
    return expected(key, "a list"), nullptr;
  }
  bool has(const char* key) const {
    const auto it = line_.find(key);
    return it != line_.end() && !it->is_null();
  }

  void expected(const char* key, const std::string& what) {
    if (wrong_.empty())
      wrong_ = std::string(line_.contains(key) ? "has a wrong" : "has no") + " `" + key +
               "`, expected " + what;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  const Json* find(const char* key) const {
    const auto it = line_.find(key);
    return it == line_.end() ? nullptr : &*it;
  }
  const Json& line_;
  std::string wrong_;
};

StartFact start_of(Fields& f) {
  StartFact start;
  start.job_text = f.text("job");
  start.job = keys_of(start.job_text);
  start.fingerprint = f.text("fingerprint");
  start.data = f.digest("data");
  start.steps = f.whole("steps", kVersionMax);
  start.seed = f.whole("seed", std::numeric_limits<std::uint64_t>::max());
  start.micro_batches = static_cast<std::uint32_t>(f.whole("micro_batches", kMicroBatchesMax));
  start.sequences = static_cast<std::uint32_t>(f.whole("sequences", kSequencesMax));
  start.samples = f.whole("samples");
  if (f.has("chunk_samples"))
    start.chunk_samples = static_cast<std::uint32_t>(f.whole("chunk_samples", kChunkSamplesMax));
  start.tokens_per_step = f.whole("tokens_per_step");
  if (f.has("from")) start.from = Version(f.whole("from", kVersionMax));
  if (f.has("coordinator")) start.coordinator = f.text("coordinator");
  if (f.has("address")) start.address = f.text("address");
  if (f.has("monotonic_ns")) start.monotonic_ns = f.whole("monotonic_ns");
  const auto order = start.job.find("data.order");
  const bool lanes = order != start.job.end() && order->second == "\"lanes\"";
  if (start.samples != 0 && lanes != (start.chunk_samples != 0))
    f.expected("chunk_samples",
               lanes ? "that of the job's lanes" : "none, as the job has no lanes");
  if (start.micro_batches == 0) f.expected("micro_batches", "at least 1");
  if (start.sequences == 0) f.expected("sequences", "at least 1");
  if (start.chunk_samples != 0 && (start.samples % start.chunk_samples != 0 ||
                                   start.samples / start.chunk_samples < start.micro_batches))
    f.expected("chunk_samples", "whole chunks, at least as many as micro-batches");
  return start;
}

std::vector<double> metrics_of(Fields& f) {
  std::vector<double> metrics;
  const Json* list = f.has("metrics") ? f.list("metrics") : nullptr;
  if (!list) return metrics;
  for (const Json& metric : *list)
    metrics.push_back(metric.is_number() ? metric.get<double>()
                                         : std::numeric_limits<double>::quiet_NaN());
  return metrics;
}

StepFact step_of(Fields& f) {
  StepFact step;
  step.version = Version(f.whole("version", kVersionMax));
  step.epoch = f.epoch("epoch");
  step.loss = f.number("loss");
  step.norm = f.number("norm");
  if (f.has("rate")) step.rate = f.number("rate");
  step.tokens = f.whole("tokens");
  step.skipped = f.truth("skipped");
  step.ledger_hash = f.text("ledger_hash");
  if (f.has("scale")) step.scale = f.whole("scale");
  if (f.has("digest")) step.digest = f.digest("digest");
  step.metrics = metrics_of(f);
  return step;
}

EvaluationFact evaluation_of(Fields& f) {
  EvaluationFact evaluation;
  evaluation.version = Version(f.whole("version", kVersionMax));
  evaluation.loss = f.number("loss");
  evaluation.metrics = metrics_of(f);
  return evaluation;
}

LedgerFact ledger_of(Fields& f) {
  LedgerFact ledger;
  ledger.version = Version(f.whole("version", kVersionMax));
  ledger.epoch = f.epoch("epoch");
  if (const Json* rows = f.list("workers")) {
    ledger.rows.reserve(rows->size());
    for (const Json& row : *rows) {
      const bool pair = row.is_array() && row.size() == 2 && row[0].is_number_unsigned() &&
                        row[1].is_number_unsigned() && row[0].get<std::uint64_t>() <= 1u << 20;
      if (!pair) return f.expected("workers", "pairs of micro-batch and worker"), ledger;
      ledger.rows.emplace_back(row[0].get<MicroBatch>(), row[1].get<std::uint64_t>());
    }
  }
  return ledger;
}

EpochFact epoch_of(Fields& f) {
  EpochFact epoch;
  epoch.id = f.epoch("id");
  epoch.predecessor = f.epoch("predecessor");
  if (f.has("base")) epoch.base = Version(f.whole("base"));
  epoch.begins_at_vote = f.has("begin") && f.text("begin") == "vote";
  if (const Json* members = f.list("members"))
    for (const Json& member : *members) {
      if (!member.is_object() || !member.contains("id") || !member["id"].is_number_unsigned())
        return f.expected("members", "members with an id"), epoch;
      epoch.members.push_back(member["id"].get<std::uint64_t>());
    }
  return epoch;
}

TaintFact taint_of(Fields& f) {
  TaintFact taint;
  taint.worker = f.whole("id");
  taint.name = f.text("name");
  taint.first = Version(f.whole("first", kVersionMax));
  if (f.has("last")) taint.last = Version(f.whole("last", kVersionMax));
  taint.reason = f.text("reason");
  return taint;
}

MismatchFact mismatch_of(Fields& f) {
  MismatchFact mismatch;
  mismatch.version = Version(f.whole("version", kVersionMax));
  mismatch.micro_batch =
      MicroBatch(static_cast<std::uint32_t>(f.whole("micro_batch", kMicroBatchesMax)));
  mismatch.worker = f.whole("worker");
  mismatch.by = f.whole("by");
  if (f.has("wrong")) mismatch.wrong = f.whole("wrong");
  return mismatch;
}

template <class Fact>
Fact at(Line line, Fact fact) {
  fact.line = line;
  return fact;
}

void take_worker(Fields& f, History& h) {
  const std::uint64_t id = f.whole("id");
  const std::string what = f.text("what");
  h.names[id] = f.text("name");
  if (what == "lost") h.lost.insert(id);
  if (what == "fenced") h.left_out.insert(id);
  if (what == "left") h.left.insert(id);
}

// Takes warnings of a run that went on from a checkpoint (tools/starling/resume.cpp).
void take_warning(Fields& f, History& h) {
  const std::string text = f.text("text");
  if (text.find("the script has changed (") != std::string::npos) h.other_scripts.push_back(text);
}

void take_kind(const std::string& kind, Fields& f, History& h) {
  const Line line = h.lines;
  if (kind == "start")
    h.start = at(line, start_of(f));
  else if (kind == "step")
    h.steps.push_back(at(line, step_of(f)));
  else if (kind == "ledger")
    h.ledgers.push_back(at(line, ledger_of(f)));
  else if (kind == "evaluation")
    h.evaluations.push_back(at(line, evaluation_of(f)));
  else if (kind == "epoch")
    h.epochs.push_back(at(line, epoch_of(f)));
  else if (kind == "worker")
    take_worker(f, h);
  else if (kind == "exposure")
    h.exposures.push_back(
        {f.epoch("epoch"), f.whole("segments"), f.whole("copies_min"), f.whole("wanted")});
  else if (kind == "restart")
    h.restarts.push_back({Version(f.whole("version", kVersionMax)), f.epoch("lost"), line});
  else if (kind == "tainted")
    h.taints.push_back(at(line, taint_of(f)));
  else if (kind == "mismatch")
    h.mismatches.push_back(at(line, mismatch_of(f)));
  else if (kind == "warning")
    take_warning(f, h);
  else if (kind == "leader")
    h.led_terms.insert(f.whole("term"));
  else if (kind == "done")
    h.done.push_back(
        {Version(f.whole("version", kVersionMax)), f.digest("digest"), f.number("loss"), line});
  else if (kind == "dropped")
    h.gaps.push_back(std::to_string(f.whole("lines")) + " lines before line " +
                     std::to_string(line) + " are missing (" + f.text("why") + ")");
  else if (kind == "continued")
    h.gaps.push_back(f.text("coordinator") + " was away before line " + std::to_string(line));
  else if (kind == "ended")
    h.ended =
        EndedFact{f.text("reason"), Version(f.whole("version", kVersionMax)),
                  f.has("checkpoint") ? std::optional(Version(f.whole("checkpoint", kVersionMax)))
                                      : std::nullopt,
                  line};
  else if (kind == "failed")
    h.failed = FailedFact{f.whole("code"), f.text("reason")};
}

}  // namespace

std::optional<std::uint64_t> StartFact::job_number(const std::string& key) const {
  const auto it = job.find(key);
  if (it == job.end()) return std::nullopt;
  std::uint64_t value = 0;
  const char* end = it->second.data() + it->second.size();
  const auto read = std::from_chars(it->second.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

Result<> HistoryReader::take(std::string_view text) {
  ++history_.lines;
  const auto bad = [&](const std::string& what) {
    return Error(Code::kBadInput, "line " + std::to_string(history_.lines) + " " + what);
  };
  if (text.size() > kLineBytesMax)
    return bad("is longer than " + std::to_string(kLineBytesMax >> 20) + " MiB");
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return bad("is not a JSON object");
  Fields fields(line);
  const std::string kind = fields.text("ev");
  const bool first = history_.start.line == 0;
  if (fields.wrong().empty()) {
    if (first != (kind == "start"))
      return bad(first ? "is not `start`, which comes first" : "is a second `start`");
    // A worker that left before the end may tell a step after it.
    const bool late = kind == "step" || kind == "ledger" || kind == "evaluation";
    if (!history_.done.empty() && !history_.after_done && !late)
      history_.after_done = history_.lines;
    take_kind(kind, fields, history_);
  }
  if (!fields.wrong().empty())
    return bad(kind.substr(0, 32).append(kind.empty() ? "" : ": ").append(fields.wrong()));
  return ok();
}

Result<History> HistoryReader::finish(bool cut) && {
  if (history_.start.line == 0) return Error(Code::kBadInput, "has no `start`, expected a run");
  if (cut) history_.gaps.push_back("the last line is cut, as if its writer had ended within it");
  return std::move(history_);
}

std::string line_text(Line line) {
  const Line file = line >> kFileShift, number = line & ((Line{1} << kFileShift) - 1);
  return "line " + std::to_string(number) +
         (file == 0 ? "" : " of file " + std::to_string(file + 1));
}

std::string worker_text(const History& history, std::uint64_t id) {
  const auto name = history.names.find(id);
  return "worker " + std::to_string(id) +
         (name == history.names.end() ? "" : " (" + name->second + ")");
}

std::string workers_text(const History& history) {
  const std::size_t workers = history.names.size();
  return std::to_string(workers) + " worker" + (workers == 1 ? "" : "s") + ", " +
         std::to_string(history.lost.size()) + " lost, " + std::to_string(history.left_out.size()) +
         " left out, " + std::to_string(history.left.size()) + " left";
}

std::string why_incomplete(const History& history) {
  if (!history.gaps.empty()) return history.gaps.front();
  const std::string& name = history.start.coordinator;
  return name.empty() ? "" : "this is what " + name + " was told; --together takes more files";
}

namespace {

bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}
bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return same(x, y); });
}
bool same(const StepFact& a, const StepFact& b) {
  return a.version == b.version && same(a.loss, b.loss) && same(a.norm, b.norm) &&
         a.tokens == b.tokens && a.skipped == b.skipped && a.ledger_hash == b.ledger_hash &&
         a.digest == b.digest && a.scale == b.scale && same(a.metrics, b.metrics);
}
bool same(const EvaluationFact& a, const EvaluationFact& b) {
  return a.version == b.version && same(a.loss, b.loss) && same(a.metrics, b.metrics);
}
bool same(const LedgerFact& a, const LedgerFact& b) {
  return a.version == b.version && a.rows == b.rows;
}
bool same(const EpochFact& a, const EpochFact& b) {
  return a.id == b.id;
}
bool same(const ExposureFact& a, const ExposureFact& b) {
  return a.epoch == b.epoch;
}
bool same(const RestartFact& a, const RestartFact& b) {
  return a.lost == b.lost;
}
bool same(const TaintFact& a, const TaintFact& b) {
  return a.worker == b.worker && a.reason == b.reason;
}
bool same(const MismatchFact& a, const MismatchFact& b) {
  return a.version == b.version && a.micro_batch == b.micro_batch && a.worker == b.worker &&
         a.by == b.by;
}
bool same(const DoneFact& a, const DoneFact& b) {
  return a.version == b.version && a.digest == b.digest && same(a.loss, b.loss);
}

// Sorts by `key`, then by file; keeps the first of neighbours that are the same.
template <class Fact, class Key>
void unite(std::vector<Fact>& facts, Key key) {
  std::stable_sort(facts.begin(), facts.end(),
                   [&](const Fact& a, const Fact& b) { return key(a) < key(b); });
  facts.erase(std::unique(facts.begin(), facts.end(),
                          [](const Fact& a, const Fact& b) { return same(a, b); }),
              facts.end());
}

template <class Fact>
void append(std::vector<Fact>& to, std::vector<Fact> facts, Line file) {
  for (Fact& fact : facts) {
    if constexpr (requires { fact.line; }) fact.line |= file << kFileShift;
    to.push_back(std::move(fact));
  }
}

}  // namespace

Result<History> merge(std::vector<History> histories) {
  one_after_the_other(histories);
  History all;
  const auto bad = [](const std::string& text) { return Error(Code::kBadInput, text); };
  if (histories.empty()) return bad("nothing to merge");
  all.start = histories.front().start;
  all.start.coordinator.clear();
  // Data and other files may lie elsewhere from machine to machine.
  const auto job_of = [](const History& h) {
    auto job = h.start.job;
    for (const char* key : {"data.path", "data.cache", "data.cache_bytes", "checkpoint.dir"})
      job.erase(key);
    return job;
  };
  auto job = job_of(histories.front());
  for (Line file = 0; file < histories.size(); ++file) {
    History& h = histories[file];
    const std::string number = std::to_string(file + 1);
    if (file > 0 && !of_one_run(histories[file - 1], h)) {
      // This run went on, perhaps with more steps; the earlier end is a version on its way.
      if (const auto other = other_job(all.start, h.start); !other.empty())
        return bad("file " + number + " is of another job: " + other.front());
      job = job_of(h);
      all.start.job = h.start.job;
      all.start.steps = h.start.steps;
      std::erase_if(all.done, [&](const DoneFact& d) {
        const bool on_the_way = d.version < h.start.steps;
        if (on_the_way) all.earlier_ends.push_back(d);
        return on_the_way;
      });
      all.ended.reset();
      all.failed.reset();
    }
    if (job_of(h) != job) return bad("file " + number + " is of another job");
    const std::string& name = h.start.coordinator;
    if (!name.empty()) all.start.coordinator += (all.start.coordinator.empty() ? "" : ", ") + name;
    const std::string unknown(32, '0');
    if (all.start.data == unknown) all.start.data = h.start.data;
    if (h.start.data != unknown && h.start.data != all.start.data)
      return bad("file " + number + " is of other data");
    const std::string &first = all.start.fingerprint, &here = h.start.fingerprint;
    if (first.empty()) all.start.fingerprint = here;
    if (!first.empty() && !here.empty() && here != first)
      all.other_arithmetic.push_back("file " + number + " is of other arithmetic: " + here +
                                     " and " + first);
    if (h.start.seed != all.start.seed)
      return bad("file " + number + " is of seed " + std::to_string(h.start.seed) + ", file 1 of " +
                 std::to_string(all.start.seed));
    all.start.samples = std::max(all.start.samples, h.start.samples);
    all.start.chunk_samples = std::max(all.start.chunk_samples, h.start.chunk_samples);
    append(all.steps, std::move(h.steps), file);
    append(all.ledgers, std::move(h.ledgers), file);
    append(all.evaluations, std::move(h.evaluations), file);
    append(all.epochs, std::move(h.epochs), file);
    append(all.exposures, std::move(h.exposures), file);
    append(all.restarts, std::move(h.restarts), file);
    append(all.taints, std::move(h.taints), file);
    append(all.mismatches, std::move(h.mismatches), file);
    append(all.done, std::move(h.done), file);
    if (h.failed) all.failed = h.failed;
    if (h.ended) all.ended = h.ended;
    if (h.after_done && histories.size() == 1) all.after_done = h.after_done;
    all.names.merge(h.names);
    all.lost.merge(h.lost);
    all.left_out.merge(h.left_out);
    all.left.merge(h.left);
    all.led_terms.merge(h.led_terms);
    all.lines += h.lines;
    for (std::string& script : h.other_scripts)
      if (std::find(all.other_scripts.begin(), all.other_scripts.end(), script) ==
          all.other_scripts.end())
        all.other_scripts.push_back(std::move(script));
    for (const std::string& gap : h.gaps) all.gaps.push_back("file " + number + ": " + gap);
  }
  // A step may be told in the epoch in which it passed or where it was learned: take the first.
  unite(all.steps, [](const StepFact& s) { return std::pair(s.version, s.epoch); });
  unite(all.ledgers, [](const LedgerFact& l) { return std::pair(l.version, l.epoch); });
  unite(all.evaluations, [](const EvaluationFact& e) { return e.version; });
  unite(all.epochs, [](const EpochFact& e) { return e.id; });
  unite(all.exposures, [](const ExposureFact& e) { return e.epoch; });
  unite(all.restarts, [](const RestartFact& r) { return r.lost; });
  unite(all.taints, [](const TaintFact& t) { return std::tuple(t.worker, t.name, t.reason); });
  unite(all.mismatches,
        [](const MismatchFact& m) { return std::tuple(m.version, m.micro_batch, m.worker, m.by); });
  unite(all.done, [](const DoneFact& d) { return std::pair(d.version, d.digest); });
  return all;
}

}  // namespace starling::audit
