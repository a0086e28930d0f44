#include "actors/worker/worker_counters.h"

#include <doctest/doctest.h>

#include <string>

#include "actors/worker/data_stall.h"

namespace starling::actors {
namespace {

std::string text_of(const WorkerCounters& counters, WorkPhase phase) {
  Exposition out(MetricsFormat::kPrometheus);
  counters.write(out, phase);
  return std::move(out).text();
}

bool has(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

TEST_CASE("worker's metrics: time, micro-batches and bytes stand under what they went into") {
  WorkerCounters counters;
  counters.micro_batches = 7;
  counters.again = 1;
  counters.steps = 3;
  counters.computing_ns = 1'500'000'000;
  counters.data_wait_ns = 250'000'000;
  FrameCounts::add(counters.frames.sent, FrameKind::kGather, 4096);
  FrameCounts::add(counters.frames.received, FrameKind::kTransport, 64);
  FrameCounts::add(counters.frames.sent, FrameKind::kAlive, 40);  // is no word
  FrameCounts::add(counters.frames.sent, FrameKind(200), 40);     // is no kind
  counters.control.dropped[std::size_t(Drop::kNewcomer)] = 5;
  const std::string text = text_of(counters, WorkPhase::kReduce);
  for (const char* line :
       {"starling_worker_micro_batches_total{again=\"false\"} 7",
        "starling_worker_micro_batches_total{again=\"true\"} 1", "starling_worker_steps_total 3",
        "starling_worker_seconds_total{part=\"computing\"} 1.5",
        "starling_worker_seconds_total{part=\"data\"} 0.25",
        "starling_worker_seconds_total{part=\"parameters\"} 0",
        "starling_worker_sent_bytes_total{kind=\"gather\"} 4096",
        "starling_worker_sent_bytes_total{kind=\"contribution\"} 0",
        "starling_worker_received_bytes_total{kind=\"transport\"} 64",
        "starling_worker_phase{phase=\"reduce\"} 1", "starling_worker_phase{phase=\"vote\"} 0",
        "starling_dropped_messages_total{reason=\"newcomer\"} 5",
        "starling_dropped_messages_total{reason=\"wrong_job\"} 0"})
    CHECK_MESSAGE(has(text, line), line);
  CHECK(text.find("alive") == std::string::npos);
}

// Times of two threads in windows of ten seconds.
TEST_CASE("data stall: a worker whose threads wait for data most of a window says how much") {
  DataStall stall;
  constexpr std::uint64_t kSecond = 1'000'000'000;
  std::uint64_t at = 1'000'000;  // ms
  DataStall::Times times;
  CHECK(stall.look(times, at) == 0);  // the first window begins
  const auto window = [&](std::uint64_t waited, std::uint64_t working) {
    times.waited += waited * kSecond;
    times.working += working * kSecond;
    return stall.look(times, at += DataStall::kWindowMs);
  };
  CHECK(window(9, 11) == 0);
  CHECK(window(10, 10) == 50);
  CHECK(window(19, 1) == 95);
  CHECK(stall.look(times, at + 5) == 95);
  CHECK(window(0, 0) == 95);  // nothing was done, and nothing is known to be better
  CHECK(window(20, 0) == 100);
  CHECK(window(1, 19) == 0);
}

// A worker waits for its first data, reads a long file once, or starts late: that is no stall.
TEST_CASE("data stall: a part of a window is no window") {
  DataStall stall;
  CHECK(stall.look({9'000'000'000, 0}, 40'000) == 0);  // nothing is known of before the first look
  stall = DataStall();
  stall.look({}, 50'000);
  CHECK(stall.look({5'000'000'000, 0}, 50'000 + DataStall::kWindowMs - 1) == 0);
  CHECK(stall.look({5'000'000'000, 6'000'000'000}, 50'000 + DataStall::kWindowMs) == 0);
}

}  // namespace
}  // namespace starling::actors
