#include <algorithm>
#include <utility>

#include "core/base/exit.h"
#include "elastic/protocol/worker.h"

// The end of a worker's life (docs/design.md, section 6), and what it says before.

namespace starling::elastic {

using namespace worker_event;
using namespace worker_command;

// Ends at once: the group may wait for its new life.
void Worker::on_message(const Fenced& m) {
  const std::string why = m.reason.empty() ? "" : ", as " + m.reason;
  exit(kExitDone, "left out of the group" + why + ": starting a new life", /*fenced=*/true);
}

void Worker::on_message(const Released&) {
  // A worker that an admin drains has announced nothing itself.
  exit_when_acknowledged(
      {kExitDone, false, "left as announced", std::nullopt, false, leave_until_ms_.has_value()});
}

void Worker::on_message(const Ended& m) {
  Exit last{m.exit_code, false, m.reason, m, false, leave_until_ms_.has_value()};
  // Every worker is told of the end, also one that was left out, has left, or comes late.
  last.trained = m.exit_code == 0 && version_ == config_.steps && parameters_complete_;
  exit_when_acknowledged(std::move(last));
}

void Worker::on_message(const Noted& m) {
  if (!unacknowledged_.acknowledge(m.version)) return;
  send_unacknowledged(/*at_once=*/1);  // one more for each one noted
  if (finished_ && !last_) say_finished();
}

// A worker that leaves, or was absent at the end, may be the only one that knows a step.
void Worker::exit_when_acknowledged(Exit exit) {
  last_ = std::move(exit);
  unacknowledged_.restart_retries();
  send_unacknowledged();
  end_if_acknowledged();
}

// The worker takes part in nothing any more but the steps that no coordinator has noted.
void Worker::say_last_words(const WorkerEvent& event) {
  if (const auto* tick = std::get_if<worker_event::Tick>(&event)) {
    last_ms_ += std::min(tick->now_ms - now_ms_, kLookMs);
    now_ms_ = tick->now_ms;
    if (now_ms_ - sent_ms_ >= config_.retry_ms) {
      sent_ms_ = now_ms_;
      send_unacknowledged();
    }
  } else if (const auto* received = std::get_if<Received>(&event)) {
    if (const auto* noted = std::get_if<Noted>(&received->body)) on_message(*noted);
  }
  end_if_acknowledged();
}

void Worker::end_if_acknowledged() {
  const bool too_late =
      last_ms_ >= config_.last_words_ms || (leave_until_ms_ && now_ms_ >= *leave_until_ms_);
  if (unacknowledged_.empty() || too_late || config_.bugs.leave_unacknowledged)
    exit(*std::exchange(last_, {}));
}

void Worker::exit(int code, const std::string& reason, bool fenced) {
  exit({code, fenced, reason, std::nullopt, false, false});
}

void Worker::exit(Exit last) {
  gone_ = true;
  for (auto* run : {&run_, &next_})
    if (*run && (*run)->self != kNoRank) emit(Stop{(*run)->plan->id});
  emit(std::move(last));
}

}  // namespace starling::elastic
