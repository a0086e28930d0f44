#include "core/wire/step_codec.h"

#include <doctest/doctest.h>

#include "core/wire/limits.h"
#include "tests/core/wire_samples.h"

namespace starling {
namespace {

using samples::Maker;
using samples::same;

}  // namespace

TEST_CASE("step codec: records, votes and ledgers come back as they were sent") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Maker random(seed);
    const StepRecord record = random.progress().record;
    CHECK(same(decode_record(encode_record(record)).value(), record));
    const Vote vote = random.vote();
    CHECK(same(decode_vote(encode_vote(vote)).value(), vote));
    auto rows = random.progress().ledger;
    for (LedgerRow& row : rows) row.held_out.assign(random.below(4), 0.5);
    CHECK(same(decode_ledger(encode_ledger(rows)).value(), rows));
  }
}

// Goal: what a peer sends is taken whole or refused. Method: every length, and lists that say that
// they are longer than what follows, or than a vote may be.
TEST_CASE("step codec: what is cut, longer or says a wrong size is refused") {
  Maker random(1);
  const Bytes whole[] = {encode_record(random.progress().record), encode_vote(random.vote()),
                         encode_ledger({LedgerRow{1, 2, 3, 4, true, {}, 9, {0.5, 0.25}},
                                        LedgerRow{5, 6, 7, 8, false, {}, 10}})};
  const auto refused = [](std::size_t kind, ByteView bytes) {
    if (kind == 0) return !decode_record(bytes);
    return kind == 1 ? !decode_vote(bytes) : !decode_ledger(bytes);
  };
  for (std::size_t kind = 0; kind < 3; ++kind) {
    CAPTURE(kind);
    for (std::size_t n = 0; n < whole[kind].size(); ++n)
      CHECK(refused(kind, ByteView(whole[kind]).first(n)));
    Bytes longer = whole[kind];
    longer.push_back(0);
    CHECK(refused(kind, longer));
  }
  for (const std::uint32_t attempt : {limits::kAttempts, limits::kAttempts + 1, ~0u}) {
    Vote plain = random.vote();
    plain.differences.clear();
    Bytes vote = encode_vote(plain);  // it ends with the attempt and a count of no differences
    std::memcpy(vote.data() + vote.size() - 1 - sizeof attempt, &attempt, sizeof attempt);
    CHECK(refused(1, vote) == (attempt > limits::kAttempts));
  }
  for (const std::size_t count : {limits::kDifferences, limits::kDifferences + 1}) {
    Vote vote = random.vote();
    vote.differences.assign(limits::kDifferences, {});
    Bytes bytes = encode_vote(vote);
    const std::size_t row =
        3 * sizeof(std::uint64_t) + sizeof(MicroBatch) + 3 * sizeof(std::uint64_t);
    bytes.resize(bytes.size() + (count - limits::kDifferences) * row);
    bytes[bytes.size() - count * row - 1] = static_cast<std::uint8_t>(count);
    CHECK(refused(1, bytes) == (count > limits::kDifferences));
  }
  for (const std::uint32_t count : {65u, 0x80000000u, 0xffffffffu}) {
    Bytes vote = whole[1], ledger = whole[2];
    std::memcpy(vote.data() + sizeof(Version), &count, sizeof count);
    std::memcpy(ledger.data(), &count, sizeof count);
    CHECK(refused(1, vote));
    CHECK(refused(2, ledger));
  }
}

}  // namespace starling
