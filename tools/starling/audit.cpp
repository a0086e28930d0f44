// `starling audit` says what the events of a run prove, and where two runs part.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/exit.h"
#include "core/data/dataset.h"
#include "core/job/section.h"
#include "tools/judge/audit/difference.h"
#include "tools/judge/audit/promises.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using audit::History;
using job_words::shown;
using judge::Finding;

constexpr std::size_t kTextBytes = 4096;  // of a line for people, which has texts from the file

// Returns true if text follows the last line, as if its writer had ended within it.
Result<bool> read_lines(std::ifstream& file, audit::HistoryReader& reader) {
  std::string text;
  std::vector<char> buffer(1 << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) ||
         file.gcount() > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(file.gcount()));
    std::size_t at = 0;
    for (std::size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      STARLING_TRY(reader.take(std::string_view(text).substr(at, end - at)));
    }
    text.erase(0, at);
    if (text.size() > audit::kLineBytesMax) {
      STARLING_TRY(reader.take(text));  // says what is wrong with it
    }
  }
  if (file.bad()) return Error(Code::kBadInput, "cannot be read");
  return !text.empty();
}

// A coordinator that was started by hand has no data; this machine, if it has them, can count.
void count_samples(History& history) {
  if (history.start.samples != 0) return;
  const auto job = parse_job(history.start.job_text, "/");
  if (!job) return;
  const auto data = Dataset::open(job.value());
  if (!data) return;
  history.start.samples = data.value()->samples();
  if (const auto lanes = data.value()->lanes()) history.start.chunk_samples = lanes->chunk_samples;
}

Result<History> read_history(const std::string& run) {
  std::error_code error;
  const bool folder = fs::is_directory(run, error);
  const std::string path = folder ? (fs::path(run) / "events.jsonl").string() : run;
  const std::string where = "reading " + path;
  if (!fs::is_regular_file(path, error))
    return Error(Code::kBadInput,
                 std::string(fs::exists(path, error) ? "no regular file" : "no such file") +
                     ", expected a run's folder or its events.jsonl; " + where);
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(Code::kBadInput, "cannot be opened; " + where);
  audit::HistoryReader reader;
  auto read = read_lines(file, reader);
  if (!read) return std::move(read).error().in(where);
  auto history = std::move(reader).finish(/*cut=*/read.value());
  if (!history) return std::move(history).error().in(where);
  count_samples(history.value());
  return history;
}

Result<> write_json(const std::string& path, const OrderedJson& json) {
  if (path.empty()) return ok();
  std::ofstream file(path);
  file << json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return Error(Code::kBadInput, "cannot write " + path);
  return ok();
}

std::string counted(std::uint64_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

Result<OrderedJson> show_sample(const History& history, std::uint64_t sample) {
  const std::uint64_t samples = history.start.samples;
  if (history.start.own_order())
    return Error(Code::kBadInput,
                 "--sample: which samples a micro-batch has is the script's to say");
  if (samples == 0)
    return Error(Code::kBadInput, "--sample: how many samples the data have is not told");
  if (sample >= samples)
    return Error(Code::kBadInput, "--sample must be below " + std::to_string(samples) + ", is " +
                                      std::to_string(sample));
  OrderedJson json = OrderedJson::array();
  const auto uses = audit::uses_of(history, sample);
  for (const audit::Use& use : uses) {
    std::string workers;
    for (const std::uint64_t id : use.workers)
      workers += (workers.empty() ? "" : " and ") + worker_text(history, id);
    std::printf("sample %llu, pass %llu: step %llu, micro-batch %u, place %u, by %s\n",
                static_cast<unsigned long long>(sample), static_cast<unsigned long long>(use.pass),
                static_cast<unsigned long long>(use.step), use.micro_batch.value(), use.place,
                workers.empty() ? "nobody that the ledger names" : workers.c_str());
    json.push_back({{"pass", use.pass},
                    {"step", use.step},
                    {"micro_batch", use.micro_batch},
                    {"place", use.place},
                    {"workers", use.workers}});
  }
  if (uses.empty())
    std::printf("sample %llu: not used yet\n", static_cast<unsigned long long>(sample));
  return json;
}

Result<History> read_all(const AuditCommand& command) {
  if (command.runs.size() == 1) return read_history(command.runs.front());
  std::vector<History> histories;
  for (const std::string& run : command.runs) {
    STARLING_TRY(history, read_history(run));
    histories.push_back(std::move(history));
  }
  return audit::merge(std::move(histories));
}

Result<int> audit_one(const AuditCommand& command) {
  STARLING_TRY(history, read_all(command));
  const audit::StartFact& start = history.start;
  const auto name = start.job.find("job.name");
  const char* a_pass = start.own_order() ? " a pass" : "";
  std::string runs;
  for (const std::string& run : command.runs) runs += (runs.empty() ? "" : " + ") + run;
  std::printf("%s: job %s, %s of %u micro-batches of %u, %s%s, %s\n", runs.c_str(),
              name == start.job.end() ? "?" : name->second.c_str(),
              counted(start.steps, "step").c_str(), start.micro_batches, start.sequences,
              counted(start.samples, "sample").c_str(), a_pass,
              audit::workers_text(history).c_str());
  bool held = true;
  OrderedJson promises = OrderedJson::array();
  for (const judge::Verdict& verdict : audit::audit(history)) {
    held = held && verdict.finding == Finding::kHeld;
    std::printf("%s %-13s %-9s  %s\n", verdict.promise.c_str(), verdict.title.c_str(),
                audit::proof_text(verdict.finding), shown(verdict.why, kTextBytes).c_str());
    promises.push_back({{"promise", verdict.promise},
                        {"title", verdict.title},
                        {"verdict", audit::proof_text(verdict.finding)},
                        {"text", verdict.why}});
  }
  OrderedJson json{{"run", runs}, {"held", held}, {"promises", promises}};
  if (command.sample) {
    STARLING_TRY(uses, show_sample(history, *command.sample));
    json["sample"] = *command.sample;
    json["uses"] = std::move(uses);
  }
  STARLING_TRY(write_json(command.json, json));
  return held ? 0 : 1;
}

void show_comparison(const audit::Comparison& c) {
  const auto compared = counted(c.steps, "step") + " and " + counted(c.digests, "digest") +
                        (c.evaluations ? ", " + counted(c.evaluations, "evaluation") : "");
  if (!c.first) {
    std::printf("same: %s compared\n", compared.c_str());
  } else {
    const std::string same = c.same_state
                                 ? "same state up to version " + std::to_string(*c.same_state)
                                 : "no digest before it is the same";
    std::printf("differ: first at step %llu: %s %s and %s (%s; %s compared)\n",
                static_cast<unsigned long long>(c.first->version), c.first->what.c_str(),
                c.first->a.c_str(), c.first->b.c_str(), same.c_str(), compared.c_str());
  }
  if (c.same_end)
    std::printf("final digests: %s\n", *c.same_end ? "same" : "differ");
  else
    std::printf("final digests: not compared, the runs do not both end at one version\n");
}

// Shows a compared file's faults: false if it refutes itself. A doubt is a note.
bool show_faults(const std::string& run, const History& history) {
  bool sound = true;
  for (const judge::Verdict& verdict : audit::audit(history)) {
    if (verdict.finding != Finding::kBroken) continue;
    sound = false;
    std::printf("%s is refuted: %s, %s\n", run.c_str(), verdict.promise.c_str(),
                shown(verdict.why, kTextBytes).c_str());
  }
  for (const audit::TaintFact& taint : history.taints)
    std::printf("note: %s is in doubt from step %llu on: %s: %s\n", run.c_str(),
                static_cast<unsigned long long>(taint.first), shown(taint.name).c_str(),
                shown(taint.reason, kTextBytes).c_str());
  return sound;
}

Result<int> audit_two(const AuditCommand& command) {
  if (command.sample) return Error(Code::kBadInput, "--sample asks about one run, two are given");
  STARLING_TRY(a, read_history(command.runs[0]));
  STARLING_TRY(b, read_history(command.runs[1]));
  const audit::Comparison c = audit::compare(a, b);
  for (const std::string& note : c.notes)
    std::printf("note: %s\n", shown(note, kTextBytes).c_str());
  bool sound = show_faults(command.runs[0], a);
  sound = show_faults(command.runs[1], b) && sound;
  OrderedJson json{{"a", command.runs[0]},
                   {"b", command.runs[1]},
                   {"comparable", c.other_job.empty()},
                   {"other_job", c.other_job},
                   {"notes", c.notes}};
  int code = kExitBadInput;
  if (!c.other_job.empty()) {
    fail(kExitBadInput,
         "not comparable: " + c.other_job.front() +
             (c.other_job.size() == 1 ? ""
                                      : ", and " + std::to_string(c.other_job.size() - 1) +
                                            " more; --json FILE lists them"));
  } else if (c.steps == 0) {
    fail(kExitBadInput, "not comparable: there is no step that both runs have");
  } else {
    show_comparison(c);
    code = c.first || !sound ? 1 : 0;
    json["sound"] = sound;
    json["same"] = !c.first;
    json["steps"] = c.steps;
    json["digests"] = c.digests;
    if (c.evaluations) json["evaluations"] = c.evaluations;
    if (c.same_state) json["same_state"] = *c.same_state;
    if (c.first)
      json["first"] = {{"version", c.first->version},
                       {"what", c.first->what},
                       {"a", c.first->a},
                       {"b", c.first->b}};
    if (c.same_end) json["same_end"] = *c.same_end;
  }
  STARLING_TRY(write_json(command.json, json));
  return code;
}

}  // namespace

int audit(const AuditCommand& command) {
  if (command.runs.size() > 2 && !command.together)
    return fail(kExitBadInput,
                "one run is audited, or two are compared; --together takes the files of several "
                "coordinators as those of one run");
  const bool one = command.together || command.runs.size() == 1;
  const auto code = one ? audit_one(command) : audit_two(command);
  return code ? code.value() : fail(code.error());
}

}  // namespace starling::tools
