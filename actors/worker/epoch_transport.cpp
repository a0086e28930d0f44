#include "actors/worker/epoch_transport.h"

#include <utility>
#include <variant>

#include "core/base/check.h"

namespace starling::actors {

using namespace collectives::transport_command;

EpochTransport::EpochTransport(const TransportSupport& transports, const Plan& plan, Rank self,
                               TransportCalls use, std::function<void(TransportReport)> say)
    : library_(transports.library.get()),
      epoch_(plan.id),
      self_(self),
      world_(static_cast<std::uint32_t>(plan.members.size())),
      use_(std::move(use)),
      say_(std::move(say)),
      talk_(self, world_, library_ && !for_good() ? library_->name() : "",
            library_ ? library_->closed() : transports.why) {}

EpochTransport::~EpochTransport() = default;

void EpochTransport::begin() {
  carry_out(talk_.begin());
}

Result<> EpochTransport::on_word(Rank from, ByteView word) {
  STARLING_TRY(decoded, collectives::decode_transport_message(word));
  if (const auto* left = std::get_if<collectives::TransportLeft>(&decoded)) {
    use_.others_left(from, *left);
    return ok();
  }
  STARLING_TRY(commands, talk_.on_word(from, decoded));
  if (const auto* refusal = std::get_if<collectives::TransportRefusal>(&decoded))
    why_ = Error(Code::kUnavailable, refusal->reason);
  carry_out(std::move(commands));
  return ok();
}

void EpochTransport::on_said(TransportReport said) {
  if (over_) return;
  if (said.kind == TransportReport::Kind::kRetry) return carry_out(talk_.retry());
  if (!transport_ || said.attempt != attempt_) return;
  switch (said.kind) {
    case TransportReport::Kind::kReady:
      use_.ready(*transport_, attempt_);
      return carry_out(talk_.ready(attempt_));
    case TransportReport::Kind::kRound:
      return use_.round(attempt_, said.error ? Result<>(*std::move(said.error)) : ok());
    case TransportReport::Kind::kFailed:
      why_ = std::move(said.error);
      return carry_out(talk_.failed(attempt_, why_->text(), for_good()));
    case TransportReport::Kind::kRetry:
    case TransportReport::Kind::kLeft:
      return;
  }
}

void EpochTransport::give_up() {
  over_ = true;
  drop(Error(Code::kUnavailable, "the epoch is over"));
}

void EpochTransport::drop(const Error& why) {
  const auto transport = std::move(transport_);
  if (!transport) return;
  transport->doom();
  use_.lost(attempt_, why);
}

void EpochTransport::carry_out(collectives::TransportCommands commands) {
  for (auto& command : commands) {
    if (over_) return;
    std::visit([this](auto& c) { carry_out(c); }, command);
  }
}

void EpochTransport::carry_out(Send& c) {
  use_.send(c.to, collectives::encode_transport_message(c.word));
}

void EpochTransport::carry_out(MakeId& c) {
  auto id = library_->make_id();
  carry_out(id ? talk_.id_made(c.attempt, std::move(id).value())
               : talk_.failed(c.attempt, id.error().text(), for_good()));
}

void EpochTransport::carry_out(GiveUp&) {
  const std::optional<Error> why = std::exchange(why_, std::nullopt);
  if (!why) return drop(Error(Code::kUnavailable, "another attempt follows"));
  drop(*why);
}

void EpochTransport::carry_out(Say& c) {
  const std::string settings = c.on_device ? library_->settings() : "";
  use_.told(c.on_device, settings.empty() ? c.why : c.why + ", " + settings);
}

void EpochTransport::carry_out(RetryIn& c) {
  use_.retry_in(c.ms);
}

void EpochTransport::carry_out(collectives::transport_command::Connect& c) {
  const auto says = [say = say_, epoch = epoch_, attempt = c.attempt](TransportReport::Kind kind,
                                                                      std::optional<Error> error) {
    say({epoch, attempt, kind, std::move(error), false});
  };
  using Kind = TransportReport::Kind;
  collectives::TransportEvents events;
  events.on_ready = [=] { says(Kind::kReady, std::nullopt); };
  events.on_failed = [=](Error error) { says(Kind::kFailed, std::move(error)); };
  events.on_round = [=](Result<> ended) {
    says(Kind::kRound, ended ? std::nullopt : std::optional(std::move(ended).error()));
  };
  collectives::TransportOptions options;
  options.self = self_;
  options.world = world_;
  options.id = std::move(c.id);
  options.others_left = std::make_shared<collectives::Gate>();
  use_.prepare(options);
  events.on_left = [say = say_, epoch = epoch_, attempt = c.attempt](bool revoked) {
    say({epoch, attempt, Kind::kLeft, std::nullopt, revoked});
  };
  attempt_ = c.attempt;
  use_.made(attempt_, options.others_left);
  transport_ = library_->connect(std::move(options), std::move(events));
}

}  // namespace starling::actors
