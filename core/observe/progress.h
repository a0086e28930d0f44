#pragma once
// ProgressLine shows people a running job: one live line on a terminal, plain lines elsewhere.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "core/base/ids.h"

namespace starling {

struct ProgressStep {
  Version version = 0;  // of the step's begin
  double loss = 0;
  std::uint64_t tokens = 0;  // of this step
  EpochId epoch;
  std::uint32_t world = 0;
  bool skipped = false;       // not finite: it changed nothing
  double ms = 0;              // it took; 0: not known
  std::size_t preparing = 0;  // workers that prepare to join
};

struct ProgressStyle {
  bool live = false;   // rewrite one line; else a line at a time
  bool color = false;  // only with live
  // Live on a terminal other than "dumb"; colours there unless NO_COLOR is set and not empty.
  static ProgressStyle of(std::FILE* out);
};

// Threads: belongs to one thread. Borrows `out`. Plain lines: the first step, the last, and at most
// one in two seconds between them; live: ten a second, and every twentieth of the steps leaves its
// line behind.
class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  // `unit`: of what a step's number of tokens counts.
  ProgressLine(std::FILE* out, ProgressStyle style, std::uint64_t steps,
               const char* unit = "tokens");
  ~ProgressLine();  // leaves the cursor at the start of a line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Steps between two calls may be left out: they count in the rate and in the time that is left.
  void step(const ProgressStep& step, Clock::time_point now = Clock::now());
  // A step that an earlier process has shown: what is skipped in a row counts it.
  void remember(const ProgressStep& step);
  // A line of its own that stays: "worker 3 lost".
  void say(const std::string& text);
  // "warning: .." on stderr, so that what reads the errors alone has it; a live line goes away before.
  void warn(const std::string& text);
  // The line that is shown stays, and what others print begins below it.
  void close();
  std::uint64_t steps() const { return steps_; }

 private:
  std::string line(const ProgressStep& step) const;
  void measure(std::uint64_t steps, Clock::duration time, double ms);

  std::FILE* const out_;
  const ProgressStyle style_;
  const std::uint64_t steps_;
  const char* const unit_;
  bool shown_ = false;  // a live line is on the terminal
  bool began_ = false;
  bool late_ = true;  // steps may come that are long over, one right behind the other
  Clock::time_point last_shown_{};
  Clock::time_point last_step_{};
  Version version_ = 0;        // of the last step
  double step_seconds_ = 0;    // smoothed; 0 = not known
  std::uint64_t skipped_ = 0;  // steps in a row, up to the last
};

// "0:07", "12:34", "3:04:05".
std::string clock_text(double seconds);

}  // namespace starling
