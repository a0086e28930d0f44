#include "core/observe/anomalies.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace starling {
namespace {

event::StepPassed step_with(Version version, double loss, double norm = 1) {
  event::StepPassed step;
  step.record.version = version;
  step.record.loss = loss;
  step.record.norm = norm;
  return step;
}

std::vector<std::string> told_of(Anomalies& anomalies, const std::vector<Event>& events) {
  std::vector<std::string> told;
  for (const Event& event : events)
    if (const auto warning = anomalies.take(event)) told.push_back(warning->text);
  return told;
}

// Losses that fall from 4 to 2 and scatter, as those of a small model do.
std::vector<double> falling(std::size_t steps) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.1);
  std::vector<double> losses;
  for (std::size_t i = 0; i < steps; ++i)
    losses.push_back(2 + 2 * std::exp(-static_cast<double>(i) / 100) + noise(random));
  return losses;
}

event::EpochFormed epoch_of(EpochId id, std::uint64_t members) {
  event::EpochFormed epoch;
  epoch.id = id;
  for (std::uint64_t i = 1; i <= members; ++i)
    epoch.members.push_back({.id = i, .name = "worker-" + std::to_string(i)});
  return epoch;
}

// Shares of a step, as many micro-batches for each member as said.
event::LedgerPassed ledger_of_shares(Version version, EpochId epoch,
                                     const std::vector<std::uint32_t>& shares) {
  event::LedgerPassed ledger{.version = version, .epoch = epoch};
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < shares.size(); ++i)
    for (std::uint32_t k = 0; k < shares[i]; ++k)
      ledger.workers.emplace_back(MicroBatch(next++), i + 1);
  return ledger;
}

}  // namespace

TEST_CASE("anomalies: a run that falls and scatters is none") {
  Anomalies anomalies((Job()));
  std::vector<Event> events;
  const auto losses = falling(1000);
  for (Version v = 0; v < losses.size(); ++v) events.push_back(step_with(v, losses[v], losses[v]));
  CHECK(told_of(anomalies, events).empty());
}

TEST_CASE("anomalies: a loss and a norm that leap are told once each, with what was before") {
  Anomalies anomalies((Job()));
  std::vector<Event> events;
  const auto losses = falling(600);
  for (Version v = 0; v < losses.size(); ++v) {
    const double loss = v == 300 || v == 301 ? 9 : losses[v];
    const double norm = v >= 500 ? 40 : 1 + 0.1 * (v % 3);  // it stays there
    events.push_back(step_with(v, loss, norm));
    events.push_back(events.back());  // every member tells it
  }
  const auto told = told_of(anomalies, events);
  REQUIRE(told.size() == 2);
  CHECK(told[0].starts_with(
      "the loss of step 300 is 9, those of the 64 steps before it are about 2."));
  CHECK(
      told[1] ==
      "the gradient's norm of step 500 is 40, those of the 64 steps before it are about 1.1 (1 to "
      "1.2)");
}

// Losses near zero with a long tail, as those of a small micro-batch of a model that has learned its data.
TEST_CASE("anomalies: a loss that is high now and then is none") {
  Anomalies anomalies((Job()));
  std::mt19937 random(3);
  std::lognormal_distribution<double> draw(-4, 1);
  std::vector<Event> events;
  for (Version v = 0; v < 500; ++v) {
    const double loss = draw(random);
    events.push_back(step_with(v, loss, 1 + loss));
  }
  const auto told = told_of(anomalies, events);
  CHECK_MESSAGE(told.empty(), (told.empty() ? "" : told.front()));
}

TEST_CASE(
    "anomalies: what is not finite or skipped is no leap, and skipped steps are told as such") {
  Anomalies anomalies((Job()));
  std::vector<Event> events;
  for (Version v = 0; v < 200; ++v)
    events.push_back(step_with(v, v == 150 ? std::numeric_limits<double>::infinity() : 3));
  event::StepPassed skipped = step_with(200, std::nan(""), 1e30);
  skipped.record.skipped = true;
  events.push_back(skipped);
  events.push_back(step_with(201, 3));
  const auto told = told_of(anomalies, events);
  REQUIRE(told.size() == 1);
  CHECK(told[0].starts_with("step 200 is skipped"));
}

TEST_CASE("anomalies: a worker that computes far less than the others is told once") {
  const EpochId first{1, 1}, second{1, 2};
  const auto run = [&](const std::vector<std::uint32_t>& shares, ShareRule rule) {
    Job job;
    job.elastic.shares = rule;
    Anomalies anomalies(job);
    std::vector<Event> events{epoch_of(first, shares.size())};
    for (Version v = 0; v < 200; ++v) events.push_back(ledger_of_shares(v, first, shares));
    return told_of(anomalies, events);
  };
  const auto told = run({10, 1, 9, 12}, ShareRule::kSpeed);
  REQUIRE(told.size() == 1);
  CHECK(told[0] ==
        "worker-2 has computed 64 micro-batches of the last 64 steps, the worker in the middle "
        "640: it "
        "is much slower than the others");
  CHECK(run({10, 4, 9, 12}, ShareRule::kSpeed).empty());
  CHECK(run({10, 1, 9, 12}, ShareRule::kEqual).empty());
  CHECK(run({10, 1}, ShareRule::kSpeed).empty());          // of two nobody knows which one is usual
  CHECK(run({0, 1, 3, 0, 2}, ShareRule::kSpeed).empty());  // fewer micro-batches than two for each

  // One that holds alone computes nothing, as it was told to.
  Anomalies roles((Job()));
  event::EpochFormed with_holder = epoch_of(first, 4);
  with_holder.members[1].role = WorkerRole::kHold;
  std::vector<Event> of_roles{with_holder};
  for (Version v = 0; v < 200; ++v) of_roles.push_back(ledger_of_shares(v, first, {10, 0, 9, 12}));
  CHECK(told_of(roles, of_roles).empty());

  // One that was given little at first, and then its share, is none; nor is one that is slow later on told but then.
  Anomalies late((Job()));
  std::vector<Event> shared{epoch_of(first, 3)};
  for (Version v = 0; v < 64; ++v) shared.push_back(ledger_of_shares(v, first, {10, 1, 9}));
  for (Version v = 64; v < 192; ++v) shared.push_back(ledger_of_shares(v, first, {7, 6, 7}));
  CHECK(told_of(late, shared).empty());
  shared.clear();
  for (Version v = 192; v < 320; ++v) shared.push_back(ledger_of_shares(v, first, {10, 1, 9}));
  CHECK(told_of(late, shared).size() == 1);

  // A group of others begins to count anew.
  Anomalies anomalies((Job()));
  std::vector<Event> events{epoch_of(first, 3)};
  for (Version v = 0; v < 120; ++v) events.push_back(ledger_of_shares(v, first, {10, 0, 9}));
  events.push_back(epoch_of(second, 3));
  for (Version v = 120; v < 240; ++v) events.push_back(ledger_of_shares(v, second, {10, 0, 9}));
  CHECK(told_of(anomalies, events).empty());
}

}  // namespace starling
