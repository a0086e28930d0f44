#include "collectives/tcp/handshake.h"

#include <string_view>

#include "core/base/check.h"

namespace starling::collectives {

namespace {

Mac transcript_mac(const EpochSecret& secret, std::string_view role, const Hello& hello,
                   const Nonce& answer) {
  ByteWriter transcript;
  transcript.put_bytes({reinterpret_cast<const std::uint8_t*>(role.data()), role.size()});
  transcript.put(hello);
  transcript.put(answer);
  return mac(secret.key, std::move(transcript).take());
}

}  // namespace

Hello make_hello(const EpochSecret& secret, Rank to) {
  STARLING_CHECK(secret.self < to && to < secret.members.size());
  Hello hello;
  hello.job = secret.job;
  hello.epoch = secret.epoch;
  hello.from = secret.self;
  hello.to = to;
  hello.from_who = secret.members[secret.self];
  hello.to_who = secret.members[to];
  random_bytes(hello.nonce);
  return hello;
}

bool hello_fits(const EpochSecret& secret, const Hello& hello) {
  return hello.magic == Hello::kMagic && hello.job == secret.job && hello.epoch == secret.epoch &&
         hello.to == secret.self && hello.from < secret.self &&
         hello.from_who == secret.members[hello.from] &&
         hello.to_who == secret.members[secret.self];
}

Answer make_answer(const EpochSecret& secret, const Hello& hello) {
  Answer answer;
  random_bytes(answer.nonce);
  answer.mac = transcript_mac(secret, "acceptor", hello, answer.nonce);
  return answer;
}

std::optional<Proof> make_proof(const EpochSecret& secret, const Hello& hello,
                                const Answer& answer) {
  if (!equal(answer.mac, transcript_mac(secret, "acceptor", hello, answer.nonce)))
    return std::nullopt;
  return Proof{transcript_mac(secret, "dialler", hello, answer.nonce)};
}

bool proof_holds(const EpochSecret& secret, const Hello& hello, const Answer& answer,
                 const Proof& proof) {
  return equal(proof.mac, transcript_mac(secret, "dialler", hello, answer.nonce));
}

}  // namespace starling::collectives
