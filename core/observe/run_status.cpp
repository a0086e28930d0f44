#include "core/observe/run_status.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
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

using OrderedJson = nlohmann::ordered_json;

constexpr double kSmooth = 0.1;  // part of a step's time in the smoothed one
constexpr double kQuietS = 10;

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
OrderedJson since(double at, double now) {
  return at > 0 ? OrderedJson(std::max(0.0, now - at)) : OrderedJson();
}

OrderedJson json_of(const Machine& machine) {
  OrderedJson out{{"processors", machine.processors},
                  {"memory", machine.memory},
                  {"memory_free", machine.memory_free},
                  {"open_files", machine.open_files},
                  {"disk_free", machine.disk_free},
                  {"first_gradient_seconds", double(machine.first_gradient_ns) / 1e9},
                  {"clock_ahead_seconds", double(machine.clock_ahead_ms) / 1e3}};
  if (!machine.device.empty()) out["device"] = machine.device;
  return out;
}

std::string row(const std::string& subject, const std::string& rest) {
  std::string line = "  " + subject;
  line.resize(std::max<std::size_t>(line.size() + 1, 14), ' ');
  return on_one_line(line + rest);
}

}  // namespace

std::string on_one_line(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are controls of terminals, too.
    const bool c1 = byte == 0xc2 && i + 1 < text.size() && (text[i + 1] & 0xe0) == 0x80;
    if (c1) text[i + 1] = ' ';
    if (c1 || byte < 32 || byte == 127) text[i] = ' ';
  }
  return text;
}

void RunStatus::take(const Event& event, double at) {
  last_at_ = std::max(last_at_, at);
  std::visit(
      Overloaded{
          [&](const event::Started& e) {
            name_ = e.name;
            coordinator_ = e.coordinator;
            steps_ = e.steps;
            from_ = next_ = e.from;
            begun_ = got_on_at_ = at;
          },
          [&](const event::Continued&) {},
          [&](const event::Dropped&) {},
          [&](const event::WorkerChanged& e) {
            preparing_.erase(e.name);
            leaving_.erase(e.name);
            if (e.what == WorkerChange::kJoined)
              there_[e.id] = e;
            else if (there_.erase(e.id) > 0)
              gone_.insert(e.id);
            joined_ += e.what == WorkerChange::kJoined ? 1 : 0;
            left_ += e.what == WorkerChange::kLeft ? 1 : 0;
            lost_ += e.what == WorkerChange::kLost ? 1 : 0;
            fenced_ += e.what == WorkerChange::kFenced ? 1 : 0;
          },
          [&](const event::Preparing& e) { preparing_[e.name] = at; },
          [&](const event::EpochFormed& e) { add(e, at); },
          [&](const event::TransportChosen&) {},
          [&](const event::StepPassed& e) { add(e, at); },
          [&](const event::LedgerPassed& e) {
            if (!again_) return;
            next_ = std::max(next_, e.version + 1);
            got_on_at_ = at;
          },
          [&](const event::LeaderElected& e) {
            if (!leader_ || leader_->term <= e.term) leader_ = e;
          },
          [&](const event::Exposed& e) { exposed_ = e; },
          [&](const event::CheckpointWritten& e) {
            if (checkpoint_ && *checkpoint_ >= e.version) return;  // told again, as by a new leader
            checkpoint_ = e.version;
            checkpoint_at_ = at;
          },
          [&](const event::Restarted& e) {
            ++restarts_;
            next_ = e.version;
            again_ = true;
            got_on_at_ = at;
            if (checkpoint_ == e.version) return;
            checkpoint_ = e.version;  // a newer one could not be read
            checkpoint_at_ = 0;
          },
          [&](const event::NoticeGiven& e) {
            if (e.leave) leaving_.insert(e.name);
          },
          [&](const event::CoordinatorsChanged& e) {
            if (coordinators_ && coordinators_->index > e.index) return;
            coordinators_ = e;
          },
          [&](const event::AdminActed& e) {
            if (!e.worker.empty()) leaving_.insert(e.worker);
          },
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
  // Most of a file, and of interest only where steps are done again.
  if (!again_ && line.find("\"ev\":\"ledger\"") != line.npos) return ok();
  STARLING_TRY(read, read_event(line));
  if (read.event) take(*read.event, static_cast<double>(utc_of(read.time)) / 1e6);
  return ok();
}

void RunStatus::add(const event::EpochFormed& epoch, double at) {
  if (!over()) state_ = State::kTraining;
  if (!epoch_ || epoch_->id != epoch.id) gone_.clear();
  if (!step_) got_on_at_ = at;
  forced_ = forced_ || epoch.kind == PlanKind::kForced;
  epoch_ = epoch;
  epoch_->holders.clear();
  epoch_->owned.clear();
  epoch_at_ = at;
}

void RunStatus::add(const event::StepPassed& step, double at) {
  // Its time is that since the step before, so it has the pause of its epoch.
  const double seconds = std::isfinite(step.ms) && step.ms > 0 ? step.ms / 1000 : 0;
  const double pause = forced_ && step_ ? std::max(0.0, seconds - smoothed_s_) : 0;
  const double in_step = seconds - pause;
  smoothed_s_ = step_ ? smoothed_s_ + kSmooth * (in_step - smoothed_s_) : in_step;
  in_steps_s_ += in_step;
  pauses_s_ += pause;
  skipped_ += step.record.skipped ? 1 : 0;
  next_ = std::max(next_, step.record.version + 1);
  got_on_at_ = at;
  forced_ = again_ = false;
  step_ = step;
}

double RunStatus::quiet_s(double now) const {
  const double since = state_ == State::kWaiting ? last_at_ : got_on_at_;
  return !over() && since > 0 && now - since > kQuietS ? now - since : 0;
}

double RunStatus::seconds_left(double now) const {
  if (over() || again_ || quiet_s(now) > 0 || !step_ || smoothed_s_ <= 0)
    return std::numeric_limits<double>::quiet_NaN();
  return smoothed_s_ * static_cast<double>(steps_ > next_ ? steps_ - next_ : 0);
}

std::string RunStatus::json(double now) const {
  OrderedJson out{{"job", name_}, {"state", word_of(state_)}, {"step", next_}, {"steps", steps_}};
  if (from_ > 0) out["from"] = from_;
  if (!digest_.empty()) out["digest"] = digest_;
  if (!reason_.empty()) out["reason"] = reason_;
  if (last_at_ > 0) out["last_event_seconds"] = std::max(0.0, now - last_at_);
  if (again_) out["again"] = true;
  if (step_) {
    out["loss"] = step_->record.loss;  // NaN becomes null
    if (step_->rate) out["rate"] = *step_->rate;
    out["step_seconds"] = smoothed_s_;
    if (const double left = seconds_left(now); !std::isnan(left)) out["seconds_left"] = left;
  }
  if (evaluated_) out["evaluation"] = {{"step", evaluated_->version}, {"loss", evaluated_->loss}};
  if (epoch_) {
    OrderedJson members = OrderedJson::array();
    for (const event::EpochMember& member : epoch_->members) {
      const event::WorkerChanged worker = joining_of(member);
      members.push_back({{"rank", members.size()},
                         {"name", member.name},
                         {"id", member.id},
                         {"pid", worker.pid},
                         {"role", to_string(member.role)},
                         {"leaves", leaves(member)}});
      if (worker.machine != Machine{}) members.back()["machine"] = json_of(worker.machine);
    }
    out["epoch"] = {{"id", to_string(epoch_->id)},
                    {"kind", to_string(epoch_->kind)},
                    {"cause", epoch_->cause},
                    {"seconds", since(epoch_at_, now)},
                    {"members", members}};
  }
  OrderedJson joined = OrderedJson::array(), preparing = OrderedJson::array();
  for (const event::WorkerChanged& worker : waiting_members())
    joined.push_back({{"name", worker.name}, {"id", worker.id}, {"pid", worker.pid}});
  out["joined"] = joined;
  for (const auto& [name, since] : preparing_)
    if (now - since < static_cast<double>(Newcomers::kPatience.count())) preparing.push_back(name);
  out["preparing"] = preparing;
  if (coordinators_) {
    auto& names = out["coordinators"] = nlohmann::ordered_json::array();
    for (const std::uint32_t place : coordinators_->places)
      names.push_back(names_of_coordinators({place}));
  }
  if (leader_) out["leader"] = {{"coordinator", leader_->coordinator}, {"term", leader_->term}};
  if (exposed_)
    out["copies"] = {{"fewest", exposed_->copies_min},
                     {"wanted", exposed_->wanted},
                     {"segments_below", exposed_->segments}};
  if (checkpoint_)
    out["checkpoint"] = {{"step", *checkpoint_}, {"seconds", since(checkpoint_at_, now)}};
  out["workers"] = {{"joined", joined_}, {"left", left_}, {"lost", lost_}, {"fenced", fenced_}};
  out["pause_seconds"] = pauses_s_;
  out["restarts"] = restarts_;
  out["skipped_steps"] = skipped_;
  if (begun_ > 0) out["effective_time_ratio"] = effective(now);
  if (doubted_from_ != kNoVersion) out["doubted_from_step"] = doubted_from_;
  out["warnings"] = warnings_;
  if (!warning_.empty()) out["last_warning"] = warning_;
  // Texts come from users, who may have written them in another coding.
  return out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

event::WorkerChanged RunStatus::joining_of(const event::EpochMember& member) const {
  const auto worker = there_.find(member.id);
  return worker == there_.end() ? event::WorkerChanged{} : worker->second;
}

std::vector<event::WorkerChanged> RunStatus::waiting_members() const {
  std::vector<event::WorkerChanged> waiting;
  for (const auto& [id, worker] : there_) {
    const auto is_it = [id = id](const event::EpochMember& member) { return member.id == id; };
    if (!epoch_ || std::none_of(epoch_->members.begin(), epoch_->members.end(), is_it))
      waiting.push_back(worker);
  }
  return waiting;
}

bool RunStatus::leaves(const event::EpochMember& member) const {
  return member.draining || leaving_.contains(member.name);
}

double RunStatus::seconds(double now) const {
  return (over() ? last_at_ : std::max(now, last_at_)) - begun_;
}

double RunStatus::effective(double now) const {
  const double time = seconds(now);
  return time > 0 ? std::min(1.0, in_steps_s_ / time) : 0;
}

std::string RunStatus::state_line(double now) const {
  std::string line = (name_.empty() ? "a run" : name_) + ": " + word_of(state_);
  if (steps_ > 0)
    line += text(", step %llu of %llu (%.1f %%)", static_cast<unsigned long long>(next_),
                 static_cast<unsigned long long>(steps_),
                 100 * static_cast<double>(next_) / static_cast<double>(steps_));
  if (again_) line += " again";
  if (step_ && !again_) {
    line += text(", loss %.4f", step_->record.loss);
    if (!over()) {
      if (step_->rate) line += text(", rate %.3g", *step_->rate);
      line += ", " + counted(epoch_ ? epoch_->members.size() : step_->world, "worker");
      if (quiet_s(now) == 0) line += text(", %.1f ms a step", 1000 * smoothed_s_);
      if (const double left = seconds_left(now); !std::isnan(left))
        line += ", " + clock_text(left) + " left";
    }
  }
  if (!digest_.empty()) line += ", digest " + digest_;
  if (!reason_.empty()) line += ": " + reason_;
  // A run that waits for workers, stands still or is dead says nothing of that.
  if (const double quiet = quiet_s(now); quiet > 0)
    line +=
        (state_ == State::kWaiting ? ", nothing told for " : ", no step for ") + clock_text(quiet);
  return on_one_line(line);
}

std::vector<std::string> RunStatus::lines(double now) const {
  std::vector<std::string> out{state_line(now)};
  if (leader_ && !over())
    out.push_back(
        row("leader", "coordinator-" + std::to_string(leader_->coordinator) + ", term " +
                          std::to_string(leader_->term) +
                          (coordinator_.empty() ? "" : ", the last that it was elected for")));
  if (coordinators_ && !over())
    out.push_back(row("group", names_of_coordinators(coordinators_->places)));
  if (epoch_ && !over()) {
    const std::string cause = epoch_->cause.empty() ? "" : " (" + epoch_->cause + ")";
    out.push_back(row("epoch", label_of(*epoch_) + cause + ago(epoch_at_, now)));
    for (std::size_t i = 0; i < epoch_->members.size(); ++i) {
      const event::EpochMember& member = epoch_->members[i];
      const std::uint64_t pid = joining_of(member).pid;
      out.push_back(row("rank " + std::to_string(i),
                        member.name + (pid > 0 ? ", process " + std::to_string(pid) : "") +
                            (gone_.contains(member.id) ? ", gone" : "") +
                            (member.role == WorkerRole::kHold      ? ", holds alone"
                             : member.role == WorkerRole::kCompute ? ", computes alone"
                                                                   : "") +
                            (leaves(member) ? ", leaves" : "")));
    }
  }
  if (!over())
    for (const event::WorkerChanged& worker : waiting_members())
      out.push_back(row(
          "joined", worker.name + ", process " + std::to_string(worker.pid) + ", in no epoch yet"));
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
  if (!step_ || begun_ <= 0 || state_ == State::kFailed) return "";
  std::string line = counted(lost_, "worker") + " lost, ";
  if (fenced_ > 0) line += std::to_string(fenced_) + " fenced, ";
  line += std::to_string(left_) + " left, " + std::to_string(joined_) + " joined";
  if (restarts_ > 0) line += ", " + counted(restarts_, "restart");
  line += text("; pauses %.1f s in all", pauses_s_);
  return line + text("; %.1f %% of ", 100 * effective(now)) + clock_text(seconds(now)) +
         " in steps";
}

void StatusSink::on(const Event& event) {
  const MutexLock lock(mutex_);
  status_.take(event, unix_time());
}

void StatusSink::remember(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const MutexLock lock(mutex_);
  for (std::string line; std::getline(file, line);)
    if (!file.eof()) (void)status_.take_line(line);  // the last one may be half written
}

RunStatus StatusSink::now() const {
  const MutexLock lock(mutex_);
  return status_;
}

}  // namespace starling
