#include "core/wire/step_codec.h"

#include "core/base/check.h"
#include "core/wire/limits.h"

namespace starling {
namespace {

constexpr std::uint32_t kExactWordsMax = 64;
constexpr std::size_t kHeldOutNumbersMax = kHeldOutMax * (1 + kMetricsMax);

void put_metrics(ByteWriter& out, const std::vector<double>& metrics) {
  STARLING_CHECK(metrics.size() <= kMetricsMax);
  out.put(static_cast<std::uint8_t>(metrics.size()));
  for (const double metric : metrics) out.put(metric);
}

// Impossible values, here and below, make the bytes no record.
std::vector<double> get_metrics(ByteReader& in) {
  const auto count = in.get<std::uint8_t>();
  std::vector<double> metrics;
  if (count > kMetricsMax) in.get_bytes(in.remaining() + 1);
  for (std::size_t i = 0; i < count && in.good(); ++i) metrics.push_back(in.get<double>());
  return metrics;
}

void put_evaluation(ByteWriter& out, const std::vector<double>& evaluation) {
  STARLING_CHECK(evaluation.size() <= 1 + kMetricsMax);
  out.put(static_cast<std::uint8_t>(evaluation.size()));
  for (const double value : evaluation) out.put(value);
}

std::vector<double> get_evaluation(ByteReader& in) {
  const auto count = in.get<std::uint8_t>();
  std::vector<double> evaluation;
  if (count > 1 + kMetricsMax) in.get_bytes(in.remaining() + 1);
  for (std::size_t i = 0; i < count && in.good(); ++i) evaluation.push_back(in.get<double>());
  return evaluation;
}

// Of the byte that says whether a step is skipped. Records of builds that evaluated nothing have the
// first alone.
constexpr std::uint8_t kSkipped = 1, kEvaluated = 2;

void put_record(ByteWriter& out, const StepRecord& record) {
  out.put(record.version);
  out.put(record.loss);
  out.put(record.norm);
  out.put(record.tokens);
  const bool evaluated = !record.evaluation.empty();
  out.put(
      static_cast<std::uint8_t>((record.skipped ? kSkipped : 0) | (evaluated ? kEvaluated : 0)));
  out.put(record.ledger_hash);
  out.put(record.digest);
  put_metrics(out, record.metrics);
  out.put(record.scale.log2);
  out.put(record.scale.steps);
  if (evaluated) put_evaluation(out, record.evaluation);
}

StepRecord get_record(ByteReader& in) {
  StepRecord record;
  record.version = in.get<Version>();
  record.loss = in.get<double>();
  record.norm = in.get<double>();
  record.tokens = in.get<std::uint64_t>();
  const auto flags = in.get<std::uint8_t>();
  record.skipped = (flags & kSkipped) != 0;
  record.ledger_hash = in.get<std::uint64_t>();
  record.digest = in.get<Digest>();
  record.metrics = get_metrics(in);
  record.scale.log2 = in.get<std::uint8_t>();
  record.scale.steps = in.get<std::uint32_t>();
  if (record.scale.log2 > LossScaleRule::kMax) in.get_bytes(in.remaining() + 1);
  if ((flags & kEvaluated) != 0) record.evaluation = get_evaluation(in);
  return record;
}

Error malformed(const char* what) {
  return Error(Code::kCorrupt, std::string("malformed ") + what);
}

}  // namespace

Bytes encode_record(const StepRecord& record) {
  ByteWriter out;
  put_record(out, record);
  return std::move(out).take();
}

Result<StepRecord> decode_record(ByteView bytes) {
  ByteReader in(bytes);
  const StepRecord record = get_record(in);
  if (!in.done()) return malformed("step record");
  return record;
}

Bytes encode_ledger(const std::vector<LedgerRow>& rows) {
  ByteWriter out;
  out.put(static_cast<std::uint32_t>(rows.size()));
  for (const LedgerRow& row : rows) {
    out.put(row.micro_batch);
    out.put(row.worker);
    out.put(row.loss);
    out.put(row.tokens);
    out.put(static_cast<std::uint8_t>(row.finite));
    put_metrics(out, row.metrics);
    out.put(row.contribution);
    STARLING_CHECK(row.held_out.size() <= kHeldOutNumbersMax);
    out.put(static_cast<std::uint32_t>(row.held_out.size()));
    for (const double number : row.held_out) out.put(number);
  }
  return std::move(out).take();
}

Result<std::vector<LedgerRow>> decode_ledger(ByteView bytes) {
  constexpr std::size_t kRowBytes =
      4 + 8 + 8 + 8 + 1 + 1 + 8 + 4;  // without metrics and held-out data
  ByteReader in(bytes);
  const auto count = in.get<std::uint32_t>();
  if (!in.good() || in.remaining() < count * kRowBytes) return malformed("ledger");
  std::vector<LedgerRow> rows(count);
  for (LedgerRow& row : rows) {
    row.micro_batch = in.get<MicroBatch>();
    row.worker = in.get<std::uint64_t>();
    row.loss = in.get<double>();
    row.tokens = in.get<std::uint64_t>();
    row.finite = in.get<std::uint8_t>() != 0;
    row.metrics = get_metrics(in);
    row.contribution = in.get<std::uint64_t>();
    const auto numbers = in.get<std::uint32_t>();
    if (numbers > kHeldOutNumbersMax || in.remaining() < numbers * sizeof(double))
      return malformed("ledger");
    for (std::uint32_t i = 0; i < numbers; ++i) row.held_out.push_back(in.get<double>());
  }
  if (!in.done()) return malformed("ledger");
  return rows;
}

namespace {

void put_differences(ByteWriter& out, const std::vector<Difference>& differences) {
  STARLING_CHECK(differences.size() <= limits::kDifferences);
  out.put(static_cast<std::uint8_t>(differences.size()));
  for (const Difference& d : differences) {
    out.put(d.version);
    out.put(d.micro_batch);
    out.put(d.worker);
    out.put(d.row);
    out.put(d.first);
    out.put(d.second);
    out.put(d.by);
  }
}

std::vector<Difference> get_differences(ByteReader& in) {
  const auto count = in.get<std::uint8_t>();
  if (count > limits::kDifferences) in.get_bytes(in.remaining() + 1);
  std::vector<Difference> differences;
  for (std::size_t i = 0; i < count && in.good(); ++i) {
    Difference& d = differences.emplace_back();
    d.version = in.get<Version>();
    d.micro_batch = in.get<MicroBatch>();
    d.worker = in.get<std::uint64_t>();
    d.row = in.get<std::uint64_t>();
    d.first = in.get<std::uint64_t>();
    d.second = in.get<std::uint64_t>();
    d.by = in.get<std::uint64_t>();
  }
  return differences;
}

}  // namespace

Bytes encode_vote(const Vote& vote) {
  ByteWriter out;
  out.put(vote.version);
  out.put(static_cast<std::uint32_t>(vote.partial_norm.size()));
  for (std::uint64_t word : vote.partial_norm) out.put(word);
  out.put(vote.digest_part);
  out.put(vote.micro_batch_ns);
  out.put(vote.ready_for.term);
  out.put(vote.ready_for.counter);
  put_record(out, vote.record);
  out.put(static_cast<std::uint8_t>(vote.writing));
  out.put(static_cast<std::uint8_t>(vote.wants_checkpoint));
  out.put(vote.ready_attempt);
  put_differences(out, vote.differences);
  return std::move(out).take();
}

Result<Vote> decode_vote(ByteView bytes) {
  ByteReader in(bytes);
  Vote vote;
  vote.version = in.get<Version>();
  const auto words = in.get<std::uint32_t>();
  if (words > kExactWordsMax) return malformed("vote");
  for (std::uint32_t i = 0; i < words; ++i) vote.partial_norm.push_back(in.get<std::uint64_t>());
  vote.digest_part = in.get<Digest>();
  vote.micro_batch_ns = in.get<std::uint64_t>();
  vote.ready_for.term = in.get<std::uint64_t>();
  vote.ready_for.counter = in.get<std::uint64_t>();
  vote.record = get_record(in);
  vote.writing = in.get<std::uint8_t>() != 0;
  vote.wants_checkpoint = in.get<std::uint8_t>() != 0;
  vote.ready_attempt = in.get<std::uint32_t>();
  vote.differences = get_differences(in);
  if (!in.done() || vote.ready_attempt > limits::kAttempts) return malformed("vote");
  return vote;
}

}  // namespace starling
