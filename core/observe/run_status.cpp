#include "core/observe/run_status.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/overloaded.h"
#include "core/observe/event_line.h"
#include "core/observe/event_reader.h"
#include "core/observe/loss_curve.h"
#include "core/observe/metrics.h"
#include "core/observe/newcomers.h"
#include "core/observe/progress.h"

namespace starling {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSmooth = 0.1;  // part of a step's time in the smoothed one

const char* word_of(RunStatus::State state) {
  switch (state) {
    case RunStatus::State::kWaiting:
      return "waiting";
    case RunStatus::State::kTraining:
      return "training";
    case RunStatus::State::kDone:
      return "done";
    case RunStatus::State::kEnded:
      return "ended";
    case RunStatus::State::kFailed:
      return "failed";
  }
  return "";
}

template <class... Values>
std::string text(const char* format, Values... values) {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

std::string counted(std::uint64_t count, const char* one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

// Returns ", 0:12 ago"; nothing where the time is not known.
std::string ago(double at, double now) {
  return at > 0 ? ", " + clock_text(std::max(0.0, now - at)) + " ago" : "";
}

// Returns the seconds; null where they are not known.
Json since(double at, double now) {
  return at > 0 ? Json(std::max(0.0, now - at)) : Json();
}

// A text of a file or of another machine on one line of a terminal.
std::string plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 32 || c == 127; }, ' ');
  return text;
}

std::string row(const std::string& subject, const std::string& rest) {
  std::string line = "  " + subject;
  line.resize(std::max<std::size_t>(line.size() + 1, 14), ' ');
  return plain(line + rest);
}

}  // namespace

void RunStatus::take(const Event& event, double at) {
  last_at_ = std::max(last_at_, at);
  std::visit(
      Overloaded{
          [&](const event::Started& e) {
            name_ = e.name;
            coordinator_ = e.coordinator;
            steps_ = e.steps;
            from_ = next_ = e.from;
            begun_ = at;
          },
          [&](const event::Continued&) {
            if (begun_ > 0) return;
            begun_ = at;
            in_steps_s_ = 0;
          },
          [&](const event::Dropped&) {},
          [&](const event::WorkerChanged& e) {
            preparing_.erase(e.name);
            joined_ += e.what == WorkerChange::kJoined ? 1 : 0;
            left_ += e.what == WorkerChange::kLeft ? 1 : 0;
            lost_ += e.what == WorkerChange::kLost ? 1 : 0;
            fenced_ += e.what == WorkerChange::kFenced ? 1 : 0;
          },
          [&](const event::Preparing& e) { preparing_[e.name] = at; },
          [&](const event::EpochFormed& e) { add(e, at); },
          [&](const event::TransportChosen&) {},
          [&](const event::StepPassed& e) { add(e); },
          [&](const event::LedgerPassed&) {},
          [&](const event::LeaderElected& e) {
            if (!leader_ || leader_->term <= e.term) leader_ = e;
          },
          [&](const event::Exposed& e) { exposed_ = e; },
          [&](const event::CheckpointWritten& e) {
            checkpoint_ = std::max(checkpoint_.value_or(e.version), e.version);
            checkpoint_at_ = at;
          },
          [&](const event::Restarted& e) {
            ++restarts_;
            next_ = e.version;
          },
          [&](const event::NoticeGiven&) {},
          [&](const event::Tainted& e) { doubted_from_ = std::min(doubted_from_, e.first); },
          [&](const event::Mismatch& e) { doubted_from_ = std::min(doubted_from_, e.version); },
          [&](const event::Warning& e) {
            ++warnings_;
            warning_ = e.text;
            warning_at_ = at;
          },
          [&](const event::Done& e) {
            state_ = State::kDone;
            next_ = e.version;
            digest_ = to_string(e.digest);
          },
          [&](const event::Ended& e) {
            state_ = State::kEnded;
            reason_ = e.reason;
          },
          [&](const event::Failed& e) {
            state_ = State::kFailed;
            reason_ = e.reason;
          },
          [&](const event::Evaluated& e) { evaluated_ = e; },
      },
      event);
}

Result<> RunStatus::take_line(std::string_view line) {
  // Most of a file, and of nothing that is shown.
  if (line.find("\"ev\":\"ledger\"") != line.npos) return ok();
  STARLING_TRY(read, read_event(line));
  if (read.event) take(*read.event, static_cast<double>(utc_of(read.time)) / 1e6);
  return ok();
}

void RunStatus::add(const event::EpochFormed& epoch, double at) {
  if (!over()) state_ = State::kTraining;
  epoch_ = epoch;
  epoch_->holders.clear();
  epoch_->owned.clear();
  epoch_at_ = at;
  not_timed_ += epoch.detect_ms || epoch.form_ms || epoch.resume_ms ? 0 : 1;
  pauses_.detect += epoch.detect_ms.value_or(0) / 1000;
  pauses_.form += epoch.form_ms.value_or(0) / 1000;
  pauses_.resume += epoch.resume_ms.value_or(0) / 1000;
}

void RunStatus::add(const event::StepPassed& step) {
  const double seconds = step.ms / 1000;
  smoothed_s_ = step_ ? smoothed_s_ + kSmooth * (seconds - smoothed_s_) : seconds;
  in_steps_s_ += seconds;
  skipped_ += step.record.skipped ? 1 : 0;
  next_ = std::max(next_, step.record.version + 1);
  step_ = step;
}

double RunStatus::seconds_left() const {
  if (over() || !step_ || smoothed_s_ <= 0) return std::numeric_limits<double>::quiet_NaN();
  return smoothed_s_ * static_cast<double>(steps_ > next_ ? steps_ - next_ : 0);
}

std::string RunStatus::json(double now) const {
  Json out{{"job", name_}, {"state", word_of(state_)}, {"step", next_}, {"steps", steps_}};
  if (from_ > 0) out["from"] = from_;
  if (!digest_.empty()) out["digest"] = digest_;
  if (!reason_.empty()) out["reason"] = reason_;
  if (last_at_ > 0) out["last_event_seconds"] = std::max(0.0, now - last_at_);
  if (step_) {
    out["loss"] = step_->record.loss;  // NaN becomes null
    out["step_seconds"] = smoothed_s_;
    if (const double left = seconds_left(); !std::isnan(left)) out["seconds_left"] = left;
  }
  if (evaluated_) out["evaluation"] = {{"step", evaluated_->version}, {"loss", evaluated_->loss}};
  if (epoch_) {
    Json members = Json::array();
    for (const event::EpochMember& member : epoch_->members)
      members.push_back({{"rank", members.size()},
                         {"name", member.name},
                         {"id", member.id},
                         {"leaves", member.draining}});
    out["epoch"] = {{"id", to_string(epoch_->id)},
                    {"kind", to_string(epoch_->kind)},
                    {"cause", epoch_->cause},
                    {"seconds", since(epoch_at_, now)},
                    {"members", members}};
  }
  Json preparing = Json::array();
  for (const auto& [name, since] : preparing_)
    if (now - since < static_cast<double>(Newcomers::kPatience.count())) preparing.push_back(name);
  out["preparing"] = preparing;
  if (leader_) out["leader"] = {{"coordinator", leader_->coordinator}, {"term", leader_->term}};
  if (exposed_)
    out["copies"] = {{"fewest", exposed_->copies_min},
                     {"wanted", exposed_->wanted},
                     {"segments_below", exposed_->segments}};
  if (checkpoint_)
    out["checkpoint"] = {{"step", *checkpoint_}, {"seconds", since(checkpoint_at_, now)}};
  out["workers"] = {{"joined", joined_}, {"left", left_}, {"lost", lost_}, {"fenced", fenced_}};
  out["pause_seconds"] = {
      {"detect", pauses_.detect}, {"form", pauses_.form}, {"resume", pauses_.resume}};
  out["epochs_not_timed"] = not_timed_;
  out["restarts"] = restarts_;
  out["skipped_steps"] = skipped_;
  if (begun_ > 0) out["effective_time_ratio"] = effective(now);
  if (doubted_from_ != kNoVersion) out["doubted_from_step"] = doubted_from_;
  out["warnings"] = warnings_;
  if (!warning_.empty()) out["last_warning"] = warning_;
  // Texts come from users, who may have written them in another coding.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double RunStatus::effective(double now) const {
  const double time = (over() ? last_at_ : std::max(now, last_at_)) - begun_;
  return time > 0 ? std::min(1.0, in_steps_s_ / time) : 0;
}

std::string RunStatus::state_line(double now) const {
  std::string line = (name_.empty() ? "a run" : name_) + ": " + word_of(state_);
  if (steps_ > 0)
    line += text(", step %llu of %llu (%.1f %%)", static_cast<unsigned long long>(next_),
                 static_cast<unsigned long long>(steps_),
                 100 * static_cast<double>(next_) / static_cast<double>(steps_));
  if (step_) {
    line += text(", loss %.4f", step_->record.loss);
    if (!over()) {
      line += ", " + counted(epoch_ ? epoch_->members.size() : step_->world, "worker");
      line += text(", %.1f ms a step", 1000 * smoothed_s_);
      line += ", " + clock_text(seconds_left()) + " left";
    }
  }
  if (!digest_.empty()) line += ", digest " + digest_;
  if (!reason_.empty()) line += ": " + reason_;
  // A run that waits for workers, and one that stands still, say nothing.
  constexpr double kQuietS = 10;
  if (!over() && last_at_ > 0 && now - last_at_ > kQuietS)
    line += ", nothing told for " + clock_text(now - last_at_);
  return plain(line);
}

std::vector<std::string> RunStatus::lines(double now) const {
  std::vector<std::string> out{state_line(now)};
  if (leader_ && !over())
    out.push_back(
        row("leader", "coordinator-" + std::to_string(leader_->coordinator) + ", term " +
                          std::to_string(leader_->term) +
                          (coordinator_.empty() ? "" : ", the last that it was elected for")));
  if (epoch_ && !over()) {
    const std::string cause = epoch_->cause.empty() ? "" : " (" + epoch_->cause + ")";
    out.push_back(row("epoch", label_of(*epoch_) + cause + ago(epoch_at_, now)));
    for (std::size_t i = 0; i < epoch_->members.size(); ++i)
      out.push_back(row("rank " + std::to_string(i),
                        epoch_->members[i].name + (epoch_->members[i].draining ? "  leaves" : "")));
  }
  for (const auto& [name, since] : preparing_)
    if (!over() && now - since < static_cast<double>(Newcomers::kPatience.count()))
      out.push_back(row("prepares", name + ", since " + clock_text(std::max(0.0, now - since))));
  if (exposed_ && !over() && exposed_->segments > 0)
    out.push_back(row("copies", counted(exposed_->segments, "segment") + " with fewer than " +
                                    std::to_string(exposed_->wanted) + ", the fewest " +
                                    std::to_string(exposed_->copies_min)));
  if (checkpoint_)
    out.push_back(
        row("checkpoint", "step " + std::to_string(*checkpoint_) + ago(checkpoint_at_, now)));
  if (evaluated_)
    out.push_back(row("held out", text("loss %.4f at step %llu", evaluated_->loss,
                                       static_cast<unsigned long long>(evaluated_->version))));
  if (const std::string line = sums(now); !line.empty()) out.push_back(row("so far", line));
  if (skipped_ > 0) out.push_back(row("skipped", counted(skipped_, "step") + ", not finite"));
  if (doubted_from_ != kNoVersion)
    out.push_back(row("in doubt", "from step " + std::to_string(doubted_from_) + " on"));
  if (!warning_.empty())
    out.push_back(
        row("warning", warning_ + ago(warning_at_, now) +
                           (warnings_ > 1 ? ", " + std::to_string(warnings_) + " in all" : "")));
  return out;
}

std::string RunStatus::sums(double now) const {
  if (!step_ || begun_ <= 0) return "";
  std::string line = counted(lost_ + fenced_, "worker") + " lost, " + std::to_string(left_) +
                     " left, " + std::to_string(joined_) + " joined";
  if (restarts_ > 0) line += ", " + counted(restarts_, "restart");
  if (not_timed_ == 0) line += text("; pauses %.1f s in all", pauses_.all());
  const double time = (over() ? last_at_ : std::max(now, last_at_)) - begun_;
  return line + text("; %.1f %% of ", 100 * effective(now)) + clock_text(time) + " in steps";
}

void StatusSink::on(const Event& event) {
  const std::lock_guard lock(mutex_);
  status_.take(event, unix_time());
}

void StatusSink::remember(const Event& event) {
  const std::lock_guard lock(mutex_);
  status_.take(event, 0);
}

RunStatus StatusSink::now() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace starling
