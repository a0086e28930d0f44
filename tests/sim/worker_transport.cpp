// The device transports of a simulated worker: the members' talk about them is production's.

#include <memory>
#include <utility>

#include "tests/sim/worker_process.h"
#include "tests/sim/world.h"

namespace starling::sim {

namespace {
// Attempts follow each other sooner than in production, as all else does here.
constexpr std::uint32_t kSooner = 50;
}  // namespace

std::unique_ptr<actors::EpochTransport> WorkerProcess::make_transport(const EpochId& epoch) {
  using Kind = actors::TransportReport::Kind;
  Link& l = links_.at(epoch);
  actors::TransportCalls use;
  use.prepare = [this, &l](collectives::TransportOptions& options) {
    options.staging_bytes =
        collectives::staging_bytes(world_.numbers().layout(), l.plan->holders, l.world(), l.self(),
                                   world_.settings().round_bytes);
    options.allocate = [](std::size_t bytes) {
      return std::shared_ptr<std::byte>(new std::byte[bytes](), std::default_delete<std::byte[]>());
    };
    options.connect_ms = world_.settings().transport_ms;
    options.round_ms = world_.settings().transport_ms;
  };
  use.retry_in = [this, epoch](std::uint32_t ms) {
    world_.after(ms * kMs / kSooner, [this, epoch] {
      submit([this, epoch] { on_transport({.epoch = epoch, .kind = Kind::kRetry}); });
    });
  };
  use.send = [&l](Rank to, Bytes word) {
    FrameHeader header;
    header.kind = FrameKind::kTransport;
    l.send(to, header, collectives::Payload(share(std::move(word))));
  };
  use.ready = [this, &l](collectives::DeviceTransport& transport, std::uint32_t attempt) {
    executor_.on_transport_ready(l.open, transport, attempt);
  };
  use.made = [](std::uint32_t, std::shared_ptr<collectives::Gate>) {};
  use.lost = [this, &l](std::uint32_t attempt, const Error& why) {
    executor_.on_transport_lost(l.open, attempt, Error(why.code(), why.text()));
  };
  use.round = [this, &l](std::uint32_t attempt, Result<> ended) {
    world_.count("device round");
    executor_.on_round(l.open, attempt, std::move(ended));
  };
  use.told = [](bool, const std::string&) {};
  use.others_left = [](Rank, const collectives::TransportLeft&) {};
  // Some hear that the transport is ready a few steps later than others.
  const auto say = [this](actors::TransportReport report) {
    const bool ready = report.kind == Kind::kReady;
    auto shared = std::make_shared<actors::TransportReport>(std::move(report));
    const auto heard = [this, shared] {
      submit([this, shared] { on_transport(std::move(*shared)); });
    };
    if (!ready) return heard();
    world_.after(World::draw(random_, world_.settings().transport_ready), heard);
  };
  return std::make_unique<actors::EpochTransport>(transport_support_, *l.plan, l.self(),
                                                  std::move(use), say);
}

void WorkerProcess::on_transport(actors::TransportReport report) {
  Link* l = link(report.epoch);
  if (!l || l->stopping) return;
  l->transport->on_said(std::move(report));
  read_parts();
}

void WorkerProcess::lose_transport(const EpochId& epoch, std::uint32_t attempt) {
  on_transport({epoch, attempt, actors::TransportReport::Kind::kFailed,
                Error(Code::kPeerLost, "the transport is lost"), false});
}

}  // namespace starling::sim
