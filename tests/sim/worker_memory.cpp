#include "tests/sim/worker_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/bytes.h"
#include "tests/sim/worker_process.h"
#include "tests/sim/world.h"

namespace starling::sim {

using actors::Damage;

WorkerMemory::WorkerMemory(WorkerProcess& process)
    : process_(process), store_(process.store()), numbers_(process.world().numbers()) {}

// ---- A step -----------------------------------------------------------------------------------

collectives::Sums WorkerMemory::begin_reduce(std::uint32_t micro_batches) {
  share_ = micro_batches;
  store_.clear_totals();
  return store_.sums();
}

CompleteLanes WorkerMemory::complete_lanes(Version version) const {
  return {numbers_.seed(), version, numbers_.micro_batches(), numbers_.layout().uses_max()};
}

bool WorkerMemory::added(SegmentRange segments) const {
  if (process_.world().settings().plant_early_bucket && share_ > 1 &&
      store_.added_to(segments, share_ - 1))
    return true;
  return store_.added_to(segments, share_);
}

std::optional<Damage> WorkerMemory::check_sums(SegmentRange, Version, bool) {
  if (process_.computing()) process_.world().count("sums sent while computing");
  return std::nullopt;
}

std::optional<Damage> WorkerMemory::params_damage(Version version) const {
  if (store_.params_intact(version)) return std::nullopt;
  return Damage{"the working parameters", 0};
}

void WorkerMemory::compare_parameters(Version, Compared then) {
  World& world = process_.world();
  if (world.settings().plant_rows_first) then(std::nullopt);
  process_.takes_compare([this, &world, then = std::move(then)] {
    const auto damage = params_damage();
    if (damage) world.count("damage found before the rows left");
    if (!world.settings().plant_rows_first) return then(damage);
    if (damage) process_.kill("its working parameters changed");
  });
}

std::optional<Damage> WorkerMemory::begin_gather(Version version) {
  if (std::exchange(gathering_, version) != version) return std::nullopt;
  return params_damage(version);
}

actors::Measured WorkerMemory::measure(std::span<const SegmentId> owned, Version version,
                                       bool digest) {
  actors::Measured measured;
  ExactSum norm;
  for (const SegmentId s : owned) numbers_.add_norm(norm, store_.total_of(s));
  measured.norm = norm.words();
  if (digest) measured.digest = state_part(owned);
  if (!process_.world().settings().plant_unweighed)
    measured.wrong_total = store_.wrong_total(*holders_, self_);
  if (measured.wrong_total) return measured;
  store_.accepted_version = version;
  for (SegmentId s = 0; s < store_.accepted.size(); ++s)
    store_.accepted[s] = std::ranges::find((*holders_)[s], self_) != (*holders_)[s].end();
  return measured;
}

std::optional<Damage> WorkerMemory::apply(const StepRecord& record, double peak_rate) {
  const elastic::EpochRun& now = *process_.machine().run();
  const auto owns = [&](SegmentId s) { return now.plan->holders[s].front() == now.self; };
  for (SegmentId s = 0; s < store_.held.size(); ++s) {
    SegmentState& state = store_.states[s];
    if (!store_.held[s] || state.label != record.version) continue;
    Numbers::apply(state, store_.total_hash(s), record.norm, peak_rate, record.skipped);
    SegmentParams params = Numbers::params_of(state);
    if (process_.world().settings().plant_wrong_copy && !owns(s)) ++params.weights;
    store_.set_params(s, params, state.label);
  }
  return std::nullopt;
}

// ---- Copies and digests -----------------------------------------------------------------------

Bytes WorkerMemory::state_bytes(SegmentRange segments) const {
  ByteWriter states;
  for (const SegmentId s : segments) states.put(store_.states[s]);
  return std::move(states).take();
}

Result<> WorkerMemory::take_move(SegmentRange segments, Version, ByteView states) {
  ByteReader in(states);
  for (const SegmentId s : segments) {
    store_.held[s] = true;
    store_.states[s] = in.get<SegmentState>();
  }
  return ok();
}

Digest WorkerMemory::state_part(std::span<const SegmentId> segments) const {
  Digest part{};
  for (const SegmentId s : segments) part = part + Numbers::digest_of(s, store_.states[s]);
  return part;
}

Digest WorkerMemory::parameters_part(std::span<const SegmentId> segments) const {
  Digest part{};
  for (const SegmentId s : segments) part = part + Numbers::digest_of(s, store_.params[s]);
  return part;
}

// ---- Gather -----------------------------------------------------------------------------------

void WorkerMemory::publish(Version version, SegmentRange segments) {
  for (const SegmentId s : segments)
    store_.set_params(s, Numbers::params_of(store_.states[s]), version);
}

Bytes WorkerMemory::params(SegmentRange segments) {
  ByteWriter bytes;
  for (const SegmentId s : segments) {
    bytes.put(store_.params[s]);
    bytes.put(store_.params_sums[s]);
  }
  return std::move(bytes).take();
}

std::vector<std::uint64_t> WorkerMemory::checksums(SegmentRange segments) {
  std::vector<std::uint64_t> sums;
  for (const SegmentId s : segments) sums.push_back(store_.params_sums[s]);
  return sums;
}

Result<> WorkerMemory::set_params(Version version, SegmentRange segments, ByteView bytes) {
  ByteReader reader(bytes);
  for (const SegmentId s : segments) {
    const auto p = reader.get<SegmentParams>();
    const auto sum = reader.get<std::uint64_t>();
    if (sum != Numbers::hash_of({&p, 1}) && !process_.world().settings().plant_unproven_words)
      return Error(Code::kCorrupt, "parameters that are not as they were published");
    store_.set_params(s, p, version);
  }
  if (!reader.done()) return Error(Code::kCorrupt, "parameters of the wrong size");
  return ok();
}

// ---- From device to device --------------------------------------------------------------------

std::byte* WorkerMemory::sums(SegmentRange run) {
  auto& all = store_.accumulators;
  return reinterpret_cast<std::byte*>(&all[std::size_t{run.first} * kBlock]);
}

std::byte* WorkerMemory::totals(SegmentRange run) {
  auto& all = store_.totals;
  return reinterpret_cast<std::byte*>(&all[std::size_t{run.first} * kBlock]);
}

void WorkerMemory::add(SegmentRange run, std::span<const std::byte* const> received) {
  const std::size_t first = std::size_t{run.first} * kBlock;
  for (std::size_t i = 0; i < std::size_t{run.count} * kBlock; ++i) {
    auto sum = static_cast<std::uint32_t>(store_.accumulators[first + i]);
    for (const std::byte* from : received) {
      std::uint32_t x;
      std::memcpy(&x, from + i * sizeof x, sizeof x);
      sum += x;
    }
    store_.totals[first + i] = static_cast<std::int32_t>(sum);
  }
}

void WorkerMemory::take_totals(SegmentRange run, const std::byte* staged) {
  std::memcpy(totals(run), staged, numbers_.layout().bytes_of(run, What::kSums));
}

std::size_t WorkerMemory::parameter_bytes(SegmentRange run) const {
  return run.count * sizeof(SegmentParams);
}

std::byte* WorkerMemory::parameters(SegmentRange run) {
  return reinterpret_cast<std::byte*>(&store_.params[run.first]);
}

Bytes WorkerMemory::proofs(SegmentRange run) {
  ByteWriter out;
  for (const std::uint64_t sum : checksums(run)) out.put(sum);
  return std::move(out).take();
}

Result<> WorkerMemory::take_parameters(Version version, SegmentRange run, const std::byte* staged,
                                       ByteView proofs) {
  std::vector<SegmentParams> params(run.count);
  std::memcpy(params.data(), staged, parameter_bytes(run));
  ByteReader in(proofs);
  for (const SegmentParams& p : params)
    if (in.get<std::uint64_t>() != Numbers::hash_of({&p, 1}))
      return Error(Code::kCorrupt, "parameters that are not as they were published");
  if (!in.done()) return Error(Code::kCorrupt, "proofs of the wrong size");
  for (std::uint32_t i = 0; i < run.count; ++i)
    store_.set_params(run.first + i, params[i], version);
  return ok();
}

}  // namespace starling::sim
