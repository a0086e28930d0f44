// The device transports of a simulated worker: attempts to make them, what becomes of them, and its
// memory as they see it.

#include <algorithm>
#include <utility>

#include "core/base/hash.h"
#include "tests/sim/worker_process.h"
#include "tests/sim/world.h"

namespace starling::sim {

using namespace elastic::worker_event;

// ---- Memory -----------------------------------------------------------------------------------

std::byte* Link::sums(SegmentRange run) {
  auto& all = process.store().accumulators;
  return reinterpret_cast<std::byte*>(&all[std::size_t{run.first} * kBlock]);
}

std::byte* Link::totals(SegmentRange run) {
  auto& all = process.store().totals;
  return reinterpret_cast<std::byte*>(&all[std::size_t{run.first} * kBlock]);
}

void Link::add(SegmentRange run, std::span<const std::byte* const> received) {
  Store& store = process.store();
  const std::size_t first = std::size_t{run.first} * kBlock;
  for (std::size_t i = 0; i < std::size_t{run.count} * kBlock; ++i) {
    auto sum = static_cast<std::uint32_t>(store.accumulators[first + i]);
    for (const std::byte* from : received) {
      std::uint32_t x;
      std::memcpy(&x, from + i * sizeof x, sizeof x);
      sum += x;
    }
    store.totals[first + i] = static_cast<std::int32_t>(sum);
  }
}

void Link::take_totals(SegmentRange run, const std::byte* staged) {
  std::memcpy(totals(run), staged, process.world().numbers().layout().bytes_of(run, What::kSums));
}

std::size_t Link::parameter_bytes(SegmentRange run) const {
  return run.count * sizeof(SegmentParams);
}

std::byte* Link::parameters(SegmentRange run) {
  return reinterpret_cast<std::byte*>(&process.store().params[run.first]);
}

Bytes Link::proofs(SegmentRange run) {
  ByteWriter out;
  for (const std::uint64_t sum : checksums(run)) out.put(sum);
  return std::move(out).take();
}

Result<> Link::take_parameters(Version version, SegmentRange run, const std::byte* staged,
                               ByteView proofs) {
  std::vector<SegmentParams> params(run.count);
  std::memcpy(params.data(), staged, parameter_bytes(run));
  ByteReader in(proofs);
  for (const SegmentParams& p : params)
    if (in.get<std::uint64_t>() != Numbers::hash_of({&p, 1}))
      return Error(Code::kCorrupt, "parameters that are not as they were published");
  if (!in.done()) return Error(Code::kCorrupt, "proofs of the wrong size");
  for (std::uint32_t i = 0; i < run.count; ++i)
    process.store().set_params(run.first + i, params[i], version);
  return ok();
}

// ---- Transports ---------------------------------------------------------------------------

// Ranks begin at different times, and those who wait for one that never does give up.
void WorkerProcess::try_transport(Link& l) {
  const Span ready = world_.settings().transport_ready;
  if (ready.high == 0 || l.world() == 1) return;
  ++l.attempt;
  world_.after(World::draw(random_, ready), [this, epoch = l.plan->id, attempt = l.attempt] {
    submit([this, epoch, attempt] { connect_transport(epoch, attempt); });
  });
}

Link* WorkerProcess::link_of_transport(const EpochId& epoch, std::uint32_t attempt) {
  Link* l = link(epoch);
  return l && !l->stopping && l->attempt == attempt ? l : nullptr;
}

void WorkerProcess::connect_transport(const EpochId& epoch, std::uint32_t attempt) {
  Link* l = link_of_transport(epoch, attempt);
  if (!l) return;
  collectives::TransportOptions options;
  options.self = l->self();
  options.world = l->world();
  options.id = world_.transport_id(epoch, attempt);
  options.staging_bytes =
      collectives::staging_bytes(world_.numbers().layout(), l->plan->holders, l->world(), l->self(),
                                 world_.settings().round_bytes);
  options.allocate = [](std::size_t bytes) {
    return std::shared_ptr<std::byte>(new std::byte[bytes](), std::default_delete<std::byte[]>());
  };
  options.connect_ms = world_.settings().transport_ms;
  options.round_ms = world_.settings().transport_ms;
  const auto tell = [this](std::function<void()> what) { submit(std::move(what)); };
  collectives::TransportEvents events;
  // Some hear of it a few steps later than others.
  events.on_ready = [this, tell, epoch, attempt] {
    world_.after(random_.range(0, world_.settings().transport_ready.high),
                 [this, tell, epoch, attempt] {
                   tell([this, epoch, attempt] {
                     Link* now = link_of_transport(epoch, attempt);
                     if (!now) return;
                     now->transport_ready = true;
                     now->frames.use(*now->transport, attempt);
                     handle(TransportReady{epoch, attempt});
                   });
                 });
  };
  events.on_failed = [this, tell, epoch, attempt](const Error&) {
    tell([this, epoch, attempt] { lose_transport(epoch, attempt); });
  };
  events.on_round = [this, tell, epoch, attempt](const Result<>& ended) {
    tell([this, epoch, attempt, why = ended ? std::string() : ended.error().text()] {
      Link* now = link_of_transport(epoch, attempt);
      if (!now) return;
      world_.count("device round");
      Result<> round = ok();
      if (!why.empty()) round = Error(Code::kPeerLost, why);
      take(*now, now->frames.on_round(attempt, std::move(round)));
      read_parts();
    });
  };
  l->transport = world_.transports().connect(std::move(options), std::move(events));
}

void WorkerProcess::lose_transport(const EpochId& epoch, std::uint32_t attempt) {
  Link* l = link_of_transport(epoch, attempt);
  if (!l) return;
  take(*l, l->frames.lose_transport(attempt, Error(Code::kPeerLost, "the transport is lost")));
  l->transport.reset();
  l->transport_ready = false;
  try_transport(*l);
  handle(TransportLost{epoch, attempt});
}

}  // namespace starling::sim
