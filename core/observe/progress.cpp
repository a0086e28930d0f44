#include "core/observe/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "core/base/environment.h"
#include "core/observe/line_format.h"

namespace starling {
namespace {

constexpr auto kLivePause = std::chrono::milliseconds(100);
constexpr auto kPlainPause = std::chrono::seconds(2);
constexpr std::uint64_t kStay = 20;  // live lines that stay, of a run of so many steps or more
constexpr double kPause = 4;         // times a step: behind it steps may come late
constexpr double kInTime = 0.5;      // of its own time: a step that comes later is not late
constexpr double kSmoothing = 0.1;   // weight of the newest step

constexpr const char* kClear = "\r\x1b[K";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kPlain = "\x1b[0m";

}  // namespace

ProgressStyle ProgressStyle::of(std::FILE* out) {
  ProgressStyle style;
  style.live = ::isatty(::fileno(out)) == 1 && environment().value(EnvVar::kTerm) != "dumb";
  style.color = style.live && environment().value(EnvVar::kNoColor).empty();
  return style;
}

ProgressLine::ProgressLine(std::FILE* out, ProgressStyle style, std::uint64_t steps,
                           const char* unit)
    : out_(out), style_(style), steps_(steps), unit_(unit) {}

ProgressLine::~ProgressLine() {
  close();
}

void ProgressLine::close() {
  if (shown_) std::fputc('\n', out_);
  shown_ = false;
  std::fflush(out_);
}

void ProgressLine::remember(const ProgressStep& step) {
  skipped_ = step.skipped ? skipped_ + 1 : 0;
}

void ProgressLine::step(const ProgressStep& step, Clock::time_point now) {
  skipped_ = step.skipped ? skipped_ + 1 : 0;
  const std::uint64_t before = began_ ? std::uint64_t{version_} + 1 : 0;
  const std::uint64_t done = step.version + 1;
  if (began_ && done > before) measure(done - before, now - last_step_, step.ms);
  version_ = step.version;
  last_step_ = now;
  const bool last = done >= steps_;
  const auto pause = style_.live ? Clock::duration(kLivePause) : Clock::duration(kPlainPause);
  const std::uint64_t part = std::max<std::uint64_t>(1, steps_ / kStay);
  const bool stays = style_.live && !last && steps_ >= kStay && done / part > before / part;
  const bool due = !began_ || last || stays || now - last_shown_ >= pause;
  began_ = true;
  if (!due) return;
  last_shown_ = now;
  std::fprintf(out_, style_.live ? "%s%s" : "%s%s\n", style_.live ? kClear : "",
               line(step).c_str());
  shown_ = style_.live;
  if (stays) close();
  std::fflush(out_);
}

// Takes `steps` steps of the same length: a worker looks at its newest step now and then, and step()
// is not called for those between two looks. A coordinator that begins again, or was stopped, hears of
// steps in a moment that took longer: then their own time counts, until they come as they pass.
void ProgressLine::measure(std::uint64_t steps, Clock::duration time, double ms) {
  const auto n = static_cast<double>(steps);
  double seconds = std::chrono::duration<double>(time).count() / n;
  const bool after = late_ && seconds < kInTime * ms / 1000;
  late_ = after || (step_seconds_ > 0 && seconds > kPause * step_seconds_);
  if (after) seconds = ms / 1000;
  const double old = step_seconds_ > 0 ? std::pow(1 - kSmoothing, n) : 0;
  step_seconds_ = old * step_seconds_ + (1 - old) * seconds;
}

void ProgressLine::warn(const std::string& text) {
  if (shown_) std::fputs(kClear, out_);
  shown_ = false;
  last_shown_ = {};
  std::fflush(out_);
  write_line(LogLevel::kWarn, "warning: ", text);
}

void ProgressLine::say(const std::string& text) {
  std::fprintf(out_, "%s%s\n", shown_ ? kClear : "", text.c_str());
  shown_ = false;  // the next step draws the live line again
  last_shown_ = {};
  std::fflush(out_);
}

std::string ProgressLine::line(const ProgressStep& step) const {
  const std::uint64_t done = step.version + 1;
  char text[200];
  std::snprintf(text, sizeof text, "step %llu/%llu  %sloss %.4f%s", (unsigned long long)done,
                (unsigned long long)steps_, style_.color ? kBold : "", step.loss,
                style_.color ? kPlain : "");
  std::string out = text;
  if (skipped_ > 0) out += "  skipped, " + std::to_string(skipped_) + " in a row";
  if (step_seconds_ > 0) {
    std::snprintf(text, sizeof text, "  %.0f %s/s",
                  static_cast<double>(step.tokens) / step_seconds_, unit_);
    out += text;
  }
  if (step.epoch) out += "  epoch " + to_string(step.epoch);
  std::snprintf(text, sizeof text, "  %u worker%s", step.world, step.world == 1 ? "" : "s");
  out += text;
  if (step.preparing > 0)
    out += "  " + std::to_string(step.preparing) + (step.preparing == 1 ? " prepares" : " prepare");
  if (step_seconds_ > 0 && done < steps_)
    out += "  " + clock_text(step_seconds_ * static_cast<double>(steps_ - done)) + " left";
  return out;
}

std::string clock_text(double seconds) {
  if (!(seconds >= 0)) seconds = 0;
  const auto all = static_cast<unsigned long long>(std::llround(std::min(seconds, 3.6e9)));
  char text[32];
  if (all < 3600) {
    std::snprintf(text, sizeof text, "%llu:%02llu", all / 60, all % 60);
  } else {
    std::snprintf(text, sizeof text, "%llu:%02llu:%02llu", all / 3600, all / 60 % 60, all % 60);
  }
  return text;
}

}  // namespace starling
