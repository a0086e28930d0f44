#include "collectives/tcp/handshake.h"

#include <string_view>
#include <utility>

#include "collectives/tcp/socket.h"
#include "core/base/check.h"

namespace starling::collectives {

namespace {

Mac transcript_mac(const EpochSecret& secret, std::string_view role, const Hello& hello,
                   const Answer& answer, ByteView shared = {}) {
  ByteWriter transcript;
  transcript.put_text(std::string(role));
  transcript.put(hello);
  transcript.put(answer.prefix);
  transcript.put(answer.nonce);
  transcript.put(answer.exchange);
  transcript.put_bytes(shared);
  return mac(secret.key, std::move(transcript).take());
}

struct BothKeys {
  AeadKey to_acceptor{}, to_dialler{};
};

std::optional<BothKeys> both_keys(const EpochSecret& secret, const Hello& hello,
                                  const Answer& answer, const KeyExchange::Public& other) {
  KeyExchange::Shared shared{};
  if (answer.prefix.seal == FrameSeal::kSecret) {
    const auto exchanged = secret.exchange.with(other);
    if (!exchanged) return std::nullopt;
    shared = *exchanged;
  }
  return BothKeys{transcript_mac(secret, "to acceptor", hello, answer, shared),
                  transcript_mac(secret, "to dialler", hello, answer, shared)};
}

std::string name_of(FrameSeal seal) {
  switch (seal) {
    case FrameSeal::kPlain:
      return "without keys";
    case FrameSeal::kTagged:
      return "with tags";
    case FrameSeal::kSecret:
      return "encrypted";
  }
  return "in a way unknown here";
}

}  // namespace

FrameSeal seal_of(SealRule rule, const std::string& host) {
  if (rule == SealRule::kOff) return FrameSeal::kPlain;
  return rule == SealRule::kAuto && loopback(host) ? FrameSeal::kTagged : FrameSeal::kSecret;
}

Hello make_hello(const EpochSecret& secret, Rank to) {
  STARLING_CHECK(secret.self < to && to < secret.members.size());
  Hello hello;
  hello.prefix.seal = secret.seals[to];
  hello.job = secret.job;
  hello.epoch = secret.epoch;
  hello.from = secret.self;
  hello.to = to;
  hello.from_who = secret.members[secret.self];
  hello.to_who = secret.members[to];
  random_bytes(hello.nonce);
  hello.exchange = secret.exchange.public_half();
  return hello;
}

std::string prefix_fault(const Prefix& theirs, const Prefix& ours) {
  if (theirs.version != ours.version)
    return "it speaks version " + std::to_string(theirs.version) +
           " of the protocol between workers, this one " + std::to_string(ours.version);
  if (theirs.seal != ours.seal)
    return "it sends frames " + name_of(theirs.seal) + ", this one " + name_of(ours.seal) +
           "; [elastic].seal must be the same at all workers";
  return {};
}

bool hello_fits(const EpochSecret& secret, const Hello& hello) {
  return hello.prefix.magic == Prefix::kMagic && hello.prefix.version == Prefix::kVersion &&
         hello.job == secret.job && hello.epoch == secret.epoch && hello.to == secret.self &&
         hello.from < secret.self && hello.from_who == secret.members[hello.from] &&
         hello.to_who == secret.members[secret.self];
}

Prefix prefix_of(const EpochSecret& secret) {
  Prefix prefix;
  prefix.seal = secret.seals[secret.self];
  return prefix;
}

Answer make_answer(const EpochSecret& secret, const Hello& hello) {
  Answer answer;
  answer.prefix = prefix_of(secret);
  random_bytes(answer.nonce);
  answer.exchange = secret.exchange.public_half();
  answer.mac = transcript_mac(secret, "acceptor", hello, answer);
  return answer;
}

std::optional<Proof> make_proof(const EpochSecret& secret, const Hello& hello,
                                const Answer& answer) {
  if (!equal(answer.mac, transcript_mac(secret, "acceptor", hello, answer))) return std::nullopt;
  return Proof{transcript_mac(secret, "dialler", hello, answer)};
}

bool proof_holds(const EpochSecret& secret, const Hello& hello, const Answer& answer,
                 const Proof& proof) {
  return equal(proof.mac, transcript_mac(secret, "dialler", hello, answer));
}

std::optional<ConnectionKeys> dialler_keys(const EpochSecret& secret, const Hello& hello,
                                           const Answer& answer) {
  const auto keys = both_keys(secret, hello, answer, answer.exchange);
  if (!keys) return std::nullopt;
  return ConnectionKeys{answer.prefix.seal, keys->to_acceptor, keys->to_dialler};
}

std::optional<ConnectionKeys> acceptor_keys(const EpochSecret& secret, const Hello& hello,
                                            const Answer& answer) {
  const auto keys = both_keys(secret, hello, answer, hello.exchange);
  if (!keys) return std::nullopt;
  return ConnectionKeys{answer.prefix.seal, keys->to_dialler, keys->to_acceptor};
}

}  // namespace starling::collectives
