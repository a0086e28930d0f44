#include "core/observe/event_memory.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/overloaded.h"

namespace starling {
namespace {

// Compares bits: 0 is not -0. Values that are not finite are one NaN, as in the file.
std::uint64_t bits_of(double value) {
  return std::isfinite(value) ? std::bit_cast<std::uint64_t>(value) : ~std::uint64_t{0};
}

std::uint64_t hash_of(const StepRecord& r) {
  const std::uint64_t words[] = {
      r.version,       bits_of(r.loss),
      bits_of(r.norm), r.tokens,
      r.skipped,       r.scale.log2,
      r.ledger_hash,   hash64(as_bytes(std::span<const Digest>(&r.digest, 1)))};
  return hash64(as_bytes(std::span<const std::uint64_t>(words)));
}

std::uint64_t hash_of(const event::Evaluated& evaluation) {
  ByteWriter bytes;
  bytes.put(bits_of(evaluation.loss));
  for (const double metric : evaluation.metrics) bytes.put(bits_of(metric));
  return hash64(std::move(bytes).take());
}

std::uint64_t hash_of(const event::LedgerPassed& ledger) {
  ByteWriter bytes;
  for (const auto& [m, worker] : ledger.workers) {
    bytes.put(m);
    bytes.put(worker);
  }
  return hash64(std::move(bytes).take());
}

// The place of this version in the ring, which grows with the versions until it is whole.
template <class T>
T& place(std::vector<T>& ring, std::size_t size, Version version) {
  const auto at = static_cast<std::size_t>(version % size);
  if (ring.size() <= at) ring.resize(at + 1);
  return ring[at];
}

}  // namespace

EventMemory::Told EventMemory::take(const Event& event) {
  const auto once = [this](const std::string& what) {
    return first(what) ? Told::kFirst : Told::kAgain;
  };
  return std::visit(
      Overloaded{
          [&](const event::StepPassed& e) {
            return known(records_, e.record.version, hash_of(e.record));
          },
          [&](const event::LedgerPassed& e) { return ledger(e); },
          [&](const event::Evaluated& e) { return known(evaluations_, e.version, hash_of(e)); },
          [&](const event::Restarted& e) { return restart(e); },
          [&](const event::WorkerChanged& e) {
            return once("worker " + std::to_string(e.id) + " " + to_string(e.what));
          },
          [&](const event::EpochFormed& e) { return once("epoch " + to_string(e.id)); },
          [&](const event::TransportChosen& e) {
            return once("path " + to_string(e.epoch) + (e.on_device ? " direct " : " host ") +
                        e.why);
          },
          [&](const event::Tainted& e) {
            return once("tainted " + std::to_string(e.id) + " " + e.reason);
          },
          [&](const event::Mismatch& e) {
            return once("mismatch " + std::to_string(e.version) + " " +
                        std::to_string(e.micro_batch.value()) + " " + std::to_string(e.worker) +
                        " " + std::to_string(e.by));
          },
          [&](const event::CoordinatorsChanged& e) {
            return once("coordinators " + std::to_string(e.index));
          },
          [&](const event::Done&) { return early_.empty() ? Told::kFirst : Told::kOther; },
          [](const OneOf<event::Started, event::Continued, event::Dropped, event::LeaderElected,
                         event::Exposed, event::CheckpointWritten, event::NoticeGiven,
                         event::Warning, event::Ended, event::Failed, event::Preparing,
                         event::AdminActed> auto&) { return Told::kFirst; },
      },
      event);
}

EventMemory::Told EventMemory::known(std::vector<Record>& ring, Version version,
                                     std::uint64_t hash) {
  Record& known = place(ring, kRecords, version);
  const bool never = known.version == kNoVersion || known.version < version;
  if (never) {
    known = {version, hash};
    return Told::kFirst;
  }
  if (known.version > version) return Told::kAgain;  // too long ago
  return known.hash == hash ? Told::kAgain : Told::kOther;
}

EventMemory::Told EventMemory::ledger(const event::LedgerPassed& ledger) {
  const std::size_t restarts = restarts_before(ledger.epoch);
  if (done_again(ledger.version, restarts)) return Told::kAgain;  // told too late
  Passed& known = place(ledgers_, kLedgers, ledger.version);
  const std::uint64_t hash = hash_of(ledger);
  const bool never = known.version == kNoVersion || known.version < ledger.version;
  if (never || restarts > known.restarts) {
    known = {ledger.version, hash, ledger.epoch, restarts};
    return Told::kFirst;
  }
  if (known.version > ledger.version || restarts < known.restarts) return Told::kAgain;
  if (known.hash == hash) return Told::kAgain;
  const std::size_t rows = ledger.workers.size() + 1;
  if (ledger.epoch <= known.epoch || early_rows_ + rows > kEarlyRows) return Told::kOther;
  early_rows_ += rows;
  early_.push_back(ledger);
  return Told::kEarly;
}

EventMemory::Told EventMemory::restart(const event::Restarted& restart) {
  const auto known = [&](const Restart& other) { return other.lost == restart.lost; };
  if (std::any_of(restarts_.begin(), restarts_.end(), known)) return Told::kAgain;
  restarts_.push_back({restart.lost, restart.version});
  return Told::kFirst;
}

std::vector<event::LedgerPassed> EventMemory::take_early() {
  early_rows_ = 0;
  return std::exchange(early_, {});
}

bool EventMemory::first(const std::string& text) {
  const std::uint64_t hash = hash64(as_bytes(std::span<const char>(text)));
  if (!words_.insert(hash).second) return false;
  order_.push_back(hash);
  if (order_.size() > kWords) {
    words_.erase(order_.front());
    order_.pop_front();
  }
  return true;
}

std::size_t EventMemory::restarts_before(const EpochId& epoch) const {
  return static_cast<std::size_t>(
      std::count_if(restarts_.begin(), restarts_.end(),
                    [&](const Restart& restart) { return restart.lost < epoch; }));
}

// Whether a step that passed after so many restarts was done again after a later one.
bool EventMemory::done_again(Version version, std::size_t after) const {
  return std::any_of(restarts_.begin() + static_cast<std::ptrdiff_t>(after), restarts_.end(),
                     [&](const Restart& restart) { return restart.version <= version; });
}

}  // namespace starling
