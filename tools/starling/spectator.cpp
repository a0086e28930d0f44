#include "tools/starling/spectator.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/base/overloaded.h"

namespace starling::tools {
namespace {

constexpr std::uint64_t kDiverged = 10;                   // steps in a row
constexpr std::size_t kLossesMax = std::size_t{1} << 16;  // 1 MiB
constexpr std::size_t kEpochsMax = 1000;                  // more lines than a picture has room for

}  // namespace

std::string done_text(const event::Done& done) {
  char text[128];
  std::snprintf(text, sizeof text, "done: version %llu, loss %.6g, digest %s",
                static_cast<unsigned long long>(done.version), done.loss,
                to_string(done.digest).c_str());
  return text;
}

const char* unit_of(const Job& job) {
  return std::holds_alternative<GptSpec>(job.model) ? "tokens" : "samples";
}

Spectator::Spectator(const Job& job)
    : line_(stdout, ProgressStyle::of(stdout), job.steps, unit_of(job)) {}

void Spectator::show(const Event& event) {
  std::visit(
      Overloaded{
          [&](const event::StepPassed& e) { show_step(e); },
          [&](const event::EpochFormed& e) { show_epoch(e); },
          [&](const event::WorkerChanged& e) {
            // Later the epoch says which workers have come.
            if (e.what != WorkerChange::kJoined || !epoch_seen())
              say(e.name + " " + to_string(e.what));
          },
          [&](const event::Restarted& e) {
            say("restart from the checkpoint of step " + std::to_string(e.version) + " (" +
                e.cause + ")");
          },
          [&](const event::NoticeGiven& e) {
            say(e.name + " has notice from " + e.source + (e.text.empty() ? "" : ": " + e.text));
          },
          [&](const event::TransportChosen& e) {
            if (e.on_device) say("bytes go from device to device (" + e.why + ")");
          },
          [&](const event::Warning& e) { warn(e.text); },
          [&](const event::Dropped& e) {
            warn(std::to_string(e.lines) + " events are missing, as " + e.why);
          },
          // A warning says these when they happen, and doubt() at the end.
          [&](const event::Tainted& e) { doubted_from_ = std::min(doubted_from_, e.first); },
          [&](const event::Mismatch& e) {
            doubted_from_ = std::min(doubted_from_, e.version);
            ++mismatches_;
          },
          // These events are for files, and ends also for the caller of the run.
          [](const OneOf<event::Started, event::Continued, event::LedgerPassed,
                         event::LeaderElected, event::Exposed, event::CheckpointWritten,
                         event::Done, event::Ended, event::Failed> auto&) {},
      },
      event);
}

void Spectator::show_epoch(const event::EpochFormed& epoch) {
  // A prepared plan has no base: it begins about at the present version.
  const Version about = last_ ? *last_ + 1 : Version{0};
  const Version base = epoch.base.value_or(0);
  EpochMark mark{base != 0 ? base : about,
                 to_string(epoch.id) + " " + to_string(epoch.kind) + ", " +
                     std::to_string(epoch.members.size()) +
                     (epoch.members.size() == 1 ? " worker" : " workers")};
  say("epoch " + mark.label + (epoch.cause.empty() ? "" : " (" + epoch.cause + ")"));
  if (epochs_.size() < kEpochsMax) epochs_.push_back(std::move(mark));
}

void Spectator::show_step(const event::StepPassed& step) {
  const StepRecord& record = step.record;
  if (last_ && record.version <= *last_) return;  // every member tells every step
  last_ = record.version;
  world_ = step.world;
  if (steps_++ % every_ == 0) losses_.push_back({record.version, record.loss});
  if (losses_.size() == kLossesMax) {
    for (std::size_t i = 0; 2 * i < losses_.size(); ++i) losses_[i] = losses_[2 * i];
    losses_.resize((losses_.size() + 1) / 2);
    every_ *= 2;
  }
  line_.step({record.version, record.loss, record.tokens, step.epoch, step.world, record.skipped});
}

std::string Spectator::diverged() const {
  const std::uint64_t skipped = line_.skipped_in_a_row();
  if (skipped == 0 || (skipped < kDiverged && skipped < steps_)) return "";
  return "diverged: the last " + std::to_string(skipped) +
         " steps were skipped, each with a micro-batch that is not finite (NaN or infinity); the "
         "model is that of version " +
         std::to_string(*last_ + 1 - skipped);
}

std::string Spectator::doubt() const {
  if (doubted_from_ == kNoVersion) return "";
  std::string text = "the result is in doubt from step " + std::to_string(doubted_from_) + " on: ";
  if (mismatches_ == 0)
    text += "\"tainted\" in events.jsonl says why";
  else if (mismatches_ == 1)
    text += "a micro-batch had other bits when it was computed again";
  else
    text +=
        std::to_string(mismatches_) + " micro-batches had other bits when they were computed again";
  return text + "; docs/data.md says how to go on without the doubt";
}

Result<> Spectator::save_curve(const std::string& path, const std::string& title) const {
  return write_loss_svg(path, title, losses_, epochs_);
}

}  // namespace starling::tools
