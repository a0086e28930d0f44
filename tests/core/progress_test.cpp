#include "core/observe/progress.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "tests/core/has.h"
#include "tests/core/observe_helpers.h"

namespace starling {

TEST_CASE("progress: plain lines, few of them, the first and the last among them") {
  std::FILE* out = std::tmpfile();
  const ProgressLine::Clock::time_point start{};
  {
    ProgressLine progress(out, {}, 100);
    for (Version v = 0; v < 100; ++v)
      progress.step({v, 2.5, 4096, {3, 2}, 4}, start + std::chrono::milliseconds(100 * (v + 1)));
  }
  const std::string text = text_of(out);
  std::fclose(out);
  CHECK(std::count(text.begin(), text.end(), '\n') == 6);  // 10 s, one in two seconds, and the last
  CHECK(has(text, "step 1/100  loss 2.5000  epoch 3.2  4 workers\n"));
  CHECK(has(text, "step 21/100  loss 2.5000  40960 tokens/s  epoch 3.2  4 workers  0:08 left\n"));
  CHECK(has(text, "step 100/100  loss 2.5000  40960 tokens/s  epoch 3.2  4 workers\n"));
  CHECK_FALSE(has(text, "\x1b"));
}

TEST_CASE(
    "progress: workers that prepare to join stand beside those that train, if there are any") {
  std::FILE* out = std::tmpfile();
  {
    ProgressLine progress(out, {}, 100);
    ProgressLine::Clock::time_point now{};
    ProgressStep step{0, 2.5, 4096, {3, 2}, 2};
    for (const std::size_t preparing : {0u, 1u, 3u, 0u}) {
      step.preparing = preparing;
      progress.step(step, now);
      ++step.version;
      now += std::chrono::seconds(2);
    }
  }
  const std::string text = text_of(out);
  std::fclose(out);
  CHECK(has(text, "step 1/100  loss 2.5000  epoch 3.2  2 workers\n"));
  CHECK(has(text, "epoch 3.2  2 workers  1 prepares  3:16 left\n"));
  CHECK(has(text, "epoch 3.2  2 workers  3 prepare  3:14 left\n"));
  CHECK(has(text, "epoch 3.2  2 workers  3:12 left\n"));
}

TEST_CASE("progress: live, one line that is rewritten; colours only when wanted") {
  for (const bool color : {false, true}) {
    std::FILE* out = std::tmpfile();
    {
      ProgressLine progress(out, {true, color}, 2);
      progress.step({0, 2.5, 4096, {1, 1}, 1}, ProgressLine::Clock::time_point{});
      progress.say("worker 3 lost");
      progress.step({1, 2.25, 4096, {1, 1}, 1},
                    ProgressLine::Clock::time_point{} + std::chrono::seconds(1));
    }
    const std::string text = text_of(out);
    std::fclose(out);
    CHECK(has(text,
              "\r\x1b[K"
              "worker 3 lost\n"));
    CHECK(has(text, "1 worker\n"));
    CHECK(has(text, "\x1b[1m") == color);
  }
}

TEST_CASE(
    "progress: on a terminal a twentieth of the lines stays, and a unit is what it is called") {
  std::FILE* out = std::tmpfile();
  const ProgressLine::Clock::time_point start{};
  {
    ProgressLine progress(out, {true, false}, 100, "samples");
    for (Version v = 0; v < 100; ++v)
      progress.step({v, 2.5, 64, {1, 1}, 2}, start + std::chrono::milliseconds(v + 1));
  }
  const std::string text = text_of(out);
  std::fclose(out);
  CHECK(std::count(text.begin(), text.end(), '\n') == 20);
  CHECK(has(text, "step 5/100  loss 2.5000  64000 samples/s"));
  CHECK(has(text, "step 95/100"));
  CHECK_FALSE(has(text, "tokens"));
}

// A worker looks at its newest step twenty times a second, however many there were in between.
TEST_CASE("progress: steps that were not told count in the rate and in the time that is left") {
  for (const bool live : {false, true}) {
    std::FILE* out = std::tmpfile();
    const ProgressLine::Clock::time_point start{};
    {
      ProgressLine progress(out, {live, false}, 4000);
      for (Version v = 3; v < 4000; v += 7)
        progress.step({v, 2.5, 4096, {3, 2}, 4}, start + std::chrono::milliseconds(10 * (v + 1)));
    }
    const std::string text = text_of(out);
    std::fclose(out);
    CHECK(has(text, "  409600 tokens/s"));
    CHECK(has(
        text,
        live ? "step 3602/4000  loss 2.5000  409600 tokens/s  epoch 3.2  4 workers  0:04 left\n"
             : "step 207/4000  loss 2.5000  409600 tokens/s  epoch 3.2  4 workers  0:38 left\n"));
    CHECK(std::count(text.begin(), text.end(), '\n') == 20);
  }
}

TEST_CASE("progress: a restart from a checkpoint goes back, and the rate stays") {
  std::FILE* out = std::tmpfile();
  const ProgressLine::Clock::time_point start{};
  {
    ProgressLine progress(out, {}, 100);
    progress.step({49, 2.5, 4096, {1, 1}, 4}, start);
    progress.step({50, 2.5, 4096, {1, 1}, 4}, start + std::chrono::seconds(1));
    progress.step({9, 2.5, 4096, {2, 1}, 4}, start + std::chrono::seconds(60));
  }
  const std::string text = text_of(out);
  std::fclose(out);
  CHECK(has(text, "step 10/100  loss 2.5000  4096 tokens/s  epoch 2.1  4 workers  1:30 left\n"));
}

// A coordinator that begins again hears in a moment of the steps that passed while it was away.
TEST_CASE("progress: steps that come late have the rate that they had, also after a pause") {
  std::FILE* out = std::tmpfile();
  ProgressLine::Clock::time_point now{};
  {
    ProgressLine progress(out, {true, false}, 100);
    for (Version v = 0; v < 30; ++v)  // in a moment
      progress.step({v, 2.5, 4096, {1, 1}, 4, false, 100}, now += std::chrono::microseconds(10));
    for (Version v = 30; v < 50; ++v)  // as they pass
      progress.step({v, 2.5, 4096, {1, 1}, 4, false, 100}, now += std::chrono::milliseconds(100));
    now += std::chrono::milliseconds(500);  // it is stopped
    for (Version v = 50; v < 75; ++v)
      progress.step({v, 2.5, 4096, {1, 1}, 4, false, 100}, now += std::chrono::microseconds(10));
  }
  const std::string text = text_of(out);
  std::fclose(out);
  CHECK(has(text, "step 30/100  loss 2.5000  40960 tokens/s  epoch 1.1  4 workers  0:07 left"));
  CHECK(has(text, "step 50/100  loss 2.5000  40960 tokens/s  epoch 1.1  4 workers  0:05 left"));
  CHECK(has(text, "step 75/100  loss 2.5000  39693 tokens/s  epoch 1.1  4 workers  0:03 left"));
}

TEST_CASE("progress: steps that an earlier process has shown count as skipped in a row") {
  std::FILE* out = std::tmpfile();
  {
    ProgressLine progress(out, {}, 100);
    for (const bool skipped : {true, false, true, true}) progress.remember({.skipped = skipped});
    progress.step({4, std::nan(""), 4096, {1, 1}, 4, true}, ProgressLine::Clock::time_point{});
  }
  const std::string text = text_of(out);
  std::fclose(out);
  CHECK(has(text, "skipped, 3 in a row"));
}

// What comes after it, on whatever stream, begins at the start of a line.
TEST_CASE("progress: a live line that is left is ended once") {
  std::FILE* out = std::tmpfile();
  {
    ProgressLine progress(out, {true, false}, 2);
    progress.step({0, 2.5, 4096, {1, 1}, 1}, ProgressLine::Clock::time_point{});
    progress.close();
    progress.close();
    progress.say("done");
  }
  const std::string text = text_of(out);
  std::fclose(out);
  CHECK(has(text, "1 worker\ndone\n"));
}

TEST_CASE("progress: a file is no terminal") {
  std::FILE* out = std::tmpfile();
  CHECK_FALSE(ProgressStyle::of(out).live);
  CHECK_FALSE(ProgressStyle::of(out).color);
  std::fclose(out);
  CHECK(clock_text(0) == "0:00");
  CHECK(clock_text(59.6) == "1:00");
  CHECK(clock_text(3 * 3600 + 245) == "3:04:05");
  CHECK(clock_text(std::nan("")) == "0:00");
}

}  // namespace starling
