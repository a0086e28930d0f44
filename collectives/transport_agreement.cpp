#include "collectives/transport_agreement.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/check.h"

namespace starling::collectives {
namespace {

using namespace transport_command;

constexpr std::size_t kIdBytesMax = 1024, kTextBytesMax = 256;
enum class Kind : std::uint8_t { kOffer = 1, kRefusal = 2, kLeft = 3 };

ByteView text_bytes(const std::string& text) {
  return as_bytes(std::span<const char>(text).first(std::min(text.size(), kTextBytesMax)));
}

std::string text_of(ByteView bytes) {
  return {bytes.begin(), bytes.end()};
}

Error malformed() {
  return {Code::kCorrupt, "malformed word about a transport"};
}

}  // namespace

Bytes encode_transport_message(const TransportMessage& word) {
  ByteWriter out;
  if (const auto* offer = std::get_if<TransportOffer>(&word)) {
    STARLING_CHECK(offer->id.size() <= kIdBytesMax);
    out.put(Kind::kOffer);
    out.put(offer->attempt);
    out.put_sized(text_bytes(offer->library));
    out.put_sized(offer->id);
  } else if (const auto* left = std::get_if<TransportLeft>(&word)) {
    out.put(Kind::kLeft);
    out.put(left->epoch.term);
    out.put(left->epoch.counter);
    out.put(left->attempt);
    out.put(static_cast<std::uint8_t>(left->revoked));
  } else {
    const auto& refusal = std::get<TransportRefusal>(word);
    out.put(Kind::kRefusal);
    out.put(refusal.attempt);
    out.put(static_cast<std::uint8_t>(refusal.for_good));
    out.put_sized(text_bytes(refusal.reason));
  }
  return std::move(out).take();
}

Result<TransportMessage> decode_transport_message(ByteView bytes) {
  ByteReader in(bytes);
  const auto kind = in.get<Kind>();
  if (kind == Kind::kOffer) {
    TransportOffer offer;
    offer.attempt = in.get<std::uint32_t>();
    const ByteView library = in.get_sized(), id = in.get_sized();
    if (!in.done() || library.size() > kTextBytesMax || id.size() > kIdBytesMax) return malformed();
    offer.library = text_of(library);
    offer.id.assign(id.begin(), id.end());
    return TransportMessage(std::move(offer));
  }
  if (kind == Kind::kLeft) {
    TransportLeft left;
    left.epoch.term = in.get<std::uint64_t>();
    left.epoch.counter = in.get<std::uint64_t>();
    left.attempt = in.get<std::uint32_t>();
    left.revoked = in.get<std::uint8_t>() != 0;
    if (!in.done()) return malformed();
    return TransportMessage(left);
  }
  if (kind != Kind::kRefusal) return malformed();
  TransportRefusal refusal;
  refusal.attempt = in.get<std::uint32_t>();
  refusal.for_good = in.get<std::uint8_t>() != 0;
  const ByteView reason = in.get_sized();
  if (!in.done() || reason.size() > kTextBytesMax) return malformed();
  refusal.reason = text_of(reason);
  return TransportMessage(std::move(refusal));
}

TransportAgreement::TransportAgreement(Rank self, std::uint32_t world, std::string library,
                                       std::string reason)
    : self_(self), world_(world), library_(std::move(library)), reason_(std::move(reason)) {
  STARLING_CHECK(self < world);
}

TransportCommands TransportAgreement::begin() {
  if (self_ != 0 || world_ == 1) return {};
  if (!library_.empty()) return next_attempt();
  over_ = true;
  return {Say{false, reason_}};
}

TransportCommands TransportAgreement::next_attempt() {
  ++attempt_;
  return {MakeId{attempt_}};
}

TransportCommands TransportAgreement::id_made(std::uint32_t attempt, Bytes id) {
  STARLING_CHECK(self_ == 0);
  if (attempt != attempt_) return {};
  TransportCommands commands;
  for (Rank to = 1; to < world_; ++to)
    commands.push_back(Send{to, TransportOffer{attempt, library_, id}});
  commands.push_back(Connect{attempt, std::move(id)});
  return commands;
}

TransportCommands TransportAgreement::ready(std::uint32_t attempt) {
  if (attempt != attempt_ || self_ != 0) return {};
  return {Say{true, library_ + (attempt == 1 ? "" : ", attempt " + std::to_string(attempt))}};
}

TransportCommands TransportAgreement::failed(std::uint32_t attempt, const std::string& reason,
                                             bool for_good) {
  if (attempt != attempt_) return {};
  if (self_ == 0) return lost(for_good, reason);
  return {GiveUp{}, Send{0, TransportRefusal{attempt, for_good, reason}}};
}

Result<TransportCommands> TransportAgreement::on_word(Rank from, const TransportMessage& word) {
  if (const auto* refusal = std::get_if<TransportRefusal>(&word)) {
    if (self_ != 0 || refusal->attempt == 0 || refusal->attempt > attempt_)
      return Error(Code::kCorrupt, "a refusal of a transport that was not offered");
    if (refusal->attempt != attempt_) return TransportCommands{};
    return lost(refusal->for_good, "rank " + std::to_string(from) + ": " + refusal->reason);
  }
  STARLING_CHECK(std::holds_alternative<TransportOffer>(word));
  const auto& offer = std::get<TransportOffer>(word);
  if (from != 0 || offer.attempt <= attempt_)
    return Error(Code::kCorrupt, "an offer of a transport that is not rank 0's next one");
  attempt_ = offer.attempt;
  if (offer.library == library_)
    return TransportCommands{GiveUp{}, Connect{offer.attempt, offer.id}};
  const std::string why = library_.empty() ? reason_ : "it has " + library_;
  return TransportCommands{GiveUp{}, Send{0, TransportRefusal{offer.attempt, true, why}}};
}

// Rank 0 ends an attempt. Of several members' words on one attempt the first counts.
TransportCommands TransportAgreement::lost(bool for_good, const std::string& reason) {
  if (over_ || (waiting_ && !for_good)) return {};
  const std::size_t tries = std::size(kRetryMs) + 1;
  over_ = for_good || attempt_ >= tries;
  TransportCommands commands{GiveUp{}};
  if (over_) {
    waiting_ = false;
    commands.push_back(Say{false, reason});
    return commands;
  }
  waiting_ = true;
  commands.push_back(
      Say{false, reason + "; again in " + std::to_string(kRetryMs[attempt_ - 1] / 1000) + " s"});
  commands.push_back(RetryIn{kRetryMs[attempt_ - 1]});
  return commands;
}

TransportCommands TransportAgreement::retry() {
  if (!waiting_) return {};
  waiting_ = false;
  return next_attempt();
}

}  // namespace starling::collectives
