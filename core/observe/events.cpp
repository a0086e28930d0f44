#include "core/observe/events.h"

#include <cstdio>
#include <utility>
#include <variant>

#include "core/base/text.h"
#include "core/observe/event_line.h"

namespace starling {
namespace {

std::string step_text(const StepRecord& r) {
  char text[224];
  std::snprintf(text, sizeof text,
                "loss %.17g norm %.17g tokens %llu skipped %d ledger %s digest %s", r.loss, r.norm,
                static_cast<unsigned long long>(r.tokens), int(r.skipped),
                hex(r.ledger_hash).c_str(), to_string(r.digest).c_str());
  return text;
}

std::string loss_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

bool of_step(const Event& event) {
  return std::holds_alternative<event::StepPassed>(event) ||
         std::holds_alternative<event::Evaluated>(event) ||
         std::holds_alternative<event::LedgerPassed>(event);
}

bool end(const Event& event) {
  return std::holds_alternative<event::Done>(event) ||
         std::holds_alternative<event::Ended>(event) ||
         std::holds_alternative<event::Failed>(event);
}

}  // namespace

event::Started start_of(const Job& job) {
  event::Started started;
  started.job = format_job(job);
  started.job_hash = job_hash(job);
  started.name = job.name;
  started.steps = job.steps;
  started.micro_batches = job.micro_batches;
  started.sequences = job.micro_batch_sequences;
  started.seed = job.seed;
  started.tokens_per_step = std::uint64_t{job.micro_batches} * job.micro_batch_sequences *
                            input_of(job.model).value_or(ModelInput{}).positions;
  return started;
}

EventWriter::EventWriter() = default;

EventWriter::~EventWriter() = default;

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

Result<bool> EventWriter::start(event::Started started) {
  if (cut_bytes_)
    return write(event::Continued{std::move(started.coordinator), monotonic_ns(), *cut_bytes_});
  started.monotonic_ns = opened_ns_;
  return write(std::move(started));
}

Result<bool> EventWriter::write(const Event& event) {
  switch (memory_.take(event)) {
    case EventMemory::Told::kOther:
      return two_stories(event);
    case EventMemory::Told::kAgain:
    case EventMemory::Told::kEarly:
      return false;
    case EventMemory::Told::kFirst:
      break;
  }
  const bool written = put(event);
  if (std::holds_alternative<event::Restarted>(event))
    for (event::LedgerPassed& ledger : memory_.take_early()) {
      STARLING_TRY(write(std::move(ledger)));
    }
  return written;
}

Result<bool> EventWriter::copy(const Event& event) {
  if (!of_step(event) && !memory_.first(event_text(event))) return false;
  return write(event);
}

Error EventWriter::two_stories(const Event& event) const {
  if (const auto* step = std::get_if<event::StepPassed>(&event))
    return Error(Code::kInternal, "two records of version " + std::to_string(step->record.version) +
                                      " differ: one has " + step_text(step->record) +
                                      ", the one before it is in " + path_);
  if (const auto* evaluation = std::get_if<event::Evaluated>(&event))
    return Error(Code::kInternal, "two evaluations of version " +
                                      std::to_string(evaluation->version) +
                                      " differ: one has loss " + loss_text(evaluation->loss) +
                                      ", the one before it is in " + path_);
  const auto* ledger = std::get_if<event::LedgerPassed>(&event);
  const Version version = ledger ? ledger->version : memory_.early().front().version;
  return Error(Code::kInternal, "two ledgers of version " + std::to_string(version) +
                                    " differ, as if a micro-batch were counted for two workers; " +
                                    path_);
}

bool EventWriter::put(const Event& event) {
  if (over_ && !of_step(event)) return false;
  over_ = over_ || end(event);
  // While an older file is read its events are not written again: they are in the file.
  if (file_) file_->put(event_line(event, opened_ns_), /*minor=*/of_step(event));
  for (const auto& sink : sinks_) sink->on(event);
  return true;
}

}  // namespace starling
