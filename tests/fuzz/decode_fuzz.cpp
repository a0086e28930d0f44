// What a peer can reach before anybody trusts it: the decoders of envelopes and log entries, and
// the key file's parser; and of the small frames of a step. First byte of the input: which one, and
// whether the rest is sealed first (so that a fuzzer gets past the checksum). An accepted message
// must be one that we could have sent: encoding it again checks all limits, and decoding that must
// give the same bytes once more.

#include <cstdint>
#include <string>

#include "core/base/check.h"
#include "core/base/keys.h"
#include "core/wire/codec.h"
#include "core/wire/seal.h"
#include "core/wire/step_codec.h"

using namespace starling;

namespace {

void check_envelope(ByteView bytes) {
  const auto first = decode(bytes);
  if (!first) return;
  const Bytes again = encode(first.value());
  const auto second = decode(again);
  STARLING_CHECK(second.has_value());
  STARLING_CHECK(encode(second.value()) == again);
}

void check_entry(ByteView bytes) {
  const auto first = decode_entry(bytes);
  if (!first) return;
  const Bytes again = encode_entry(first.value());
  const auto second = decode_entry(again);
  STARLING_CHECK(second.has_value());
  STARLING_CHECK(encode_entry(second.value()) == again);
}

void check_keys(ByteView bytes) {
  const auto ring = KeyRing::parse({bytes.begin(), bytes.end()});
  if (!ring) return;
  const auto again = KeyRing::parse(ring.value().format());
  STARLING_CHECK(again.has_value());
  STARLING_CHECK(again.value().pairs() == ring.value().pairs());
}

// The byte of a flag is taken as it comes and written as 0 or 1, so it is the second round that
// must give the same bytes.
template <class Decode, class Encode>
void check_step(ByteView bytes, Decode decode, Encode encode) {
  const auto first = decode(bytes);
  if (!first) return;
  const Bytes again = encode(first.value());
  const auto second = decode(again);
  STARLING_CHECK(second.has_value());
  STARLING_CHECK(encode(second.value()) == again);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteView rest(data + 1, size - 1);
  switch (data[0] % 8) {
    case 0:
      check_envelope(rest);
      break;
    case 1:
      check_entry(rest);
      break;
    case 2:
      check_envelope(seal(SealKind::kEnvelope, rest));
      break;
    case 3:
      check_entry(seal(SealKind::kEntry, rest));
      break;
    case 4:
      check_keys(rest);
      break;
    case 5:
      check_step(rest, decode_record, encode_record);
      break;
    case 6:
      check_step(rest, decode_vote, encode_vote);
      break;
    default:
      check_step(rest, decode_ledger, encode_ledger);
      break;
  }
  return 0;
}
