#include "elastic/protocol/step_work.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/evaluation_sum.h"
#include "core/base/exact_sum.h"
#include "core/base/hash.h"

namespace starling::elastic {

void StepWork::open() {
  ledger_.assign(ledger_.size(), std::nullopt);
  for (const auto& [m, row] : done_) enter(row);
}

std::vector<MicroBatch> StepWork::deal(const std::vector<Rank>& shares, Rank self) {
  STARLING_CHECK(shares.size() == ledger_.size());
  share_.clear();
  for (MicroBatch m = 0; m < shares.size(); ++m)
    if (shares[m] == self) share_.insert(m);
  std::vector<MicroBatch> todo;
  for (MicroBatch m : share_)
    if (!done_.count(m)) todo.push_back(m);
  return todo;
}

bool StepWork::dealt_to(const std::vector<Rank>& shares, Rank self) const {
  return std::all_of(done_.begin(), done_.end(), [&](const auto& d) {
    return shares.size() == ledger_.size() && shares[d.first] == self;
  });
}

bool StepWork::add(const LedgerRow& row) {
  if (!share_.count(row.micro_batch)) return false;
  done_[row.micro_batch] = row;
  return true;
}

bool StepWork::arrived(const std::vector<LedgerRow>& rows) {
  for (const LedgerRow& row : rows) {
    if (row.micro_batch >= ledger_.size() || ledger_[row.micro_batch]) return false;
    enter(row);
  }
  return true;
}

bool StepWork::share_done() const {
  return left() == 0;
}

std::uint32_t StepWork::left() const {
  return static_cast<std::uint32_t>(
      std::count_if(share_.begin(), share_.end(), [&](MicroBatch m) { return !done_.count(m); }));
}

std::vector<LedgerRow> StepWork::share_rows() const {
  std::vector<LedgerRow> rows;
  for (MicroBatch m : share_) rows.push_back(done_.at(m));
  return rows;
}

std::vector<MicroBatch> StepWork::done() const {
  std::vector<MicroBatch> all;
  for (const auto& [m, row] : done_) all.push_back(m);
  return all;
}

bool StepWork::complete() const {
  return std::all_of(ledger_.begin(), ledger_.end(),
                     [](const auto& row) { return row.has_value(); });
}

std::vector<LedgerRow> StepWork::rows() const {
  std::vector<LedgerRow> all;
  for (const auto& row : ledger_)
    if (row) all.push_back(*row);
  return all;
}

StepRecord StepWork::record(Version version) const {
  StepRecord record;
  record.version = version;
  ExactSum loss;
  std::vector<ExactSum> metrics;
  std::vector<bool> measured;  // each is finite in every row
  EvaluationSum evaluation;
  ByteWriter bytes;
  for (const LedgerRow& row : rows()) {
    if (row.finite && std::isfinite(row.loss))
      loss.add(row.loss);
    else
      record.skipped = true;
    record.tokens += row.tokens;
    evaluation.add(row.held_out, evaluation_width_);
    bytes.put(row.micro_batch);
    bytes.put(row.loss);
    bytes.put(row.tokens);
    bytes.put(static_cast<std::uint8_t>(row.finite));
    bytes.put(row.contribution);
    if (row.metrics.size() > metrics.size()) {
      metrics.resize(row.metrics.size());
      measured.resize(row.metrics.size(), true);
    }
    for (std::size_t i = 0; i < row.metrics.size(); ++i) {
      bytes.put(row.metrics[i]);
      if (std::isfinite(row.metrics[i]))
        metrics[i].add(row.metrics[i]);
      else
        measured[i] = false;
    }
  }
  for (std::size_t i = 0; i < metrics.size(); ++i)
    record.metrics.push_back(measured[i] ? metrics[i].value() / static_cast<double>(ledger_.size())
                                         : std::numeric_limits<double>::quiet_NaN());
  record.evaluation = evaluation.means();
  const Bytes text = std::move(bytes).take();
  record.ledger_hash = hash64(text);
  // The mean of finite losses would look like progress, and 0 (of none) like perfection.
  record.loss = record.skipped ? std::numeric_limits<double>::quiet_NaN()
                               : loss.value() / static_cast<double>(ledger_.size());
  return record;
}

void StepWork::clear() {
  share_.clear();
  done_.clear();
}

void StepWork::clear_done() {
  done_.clear();
}

void StepWork::check_invariants() const {
  if (!done_.empty()) STARLING_CHECK(done_.rbegin()->first < ledger_.size());
  if (!share_.empty()) STARLING_CHECK(*share_.rbegin() < ledger_.size());
}

}  // namespace starling::elastic
