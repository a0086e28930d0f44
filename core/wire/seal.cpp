#include "core/wire/seal.h"

#include <string>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/wire/limits.h"

namespace starling {
namespace {

constexpr std::uint32_t kSealMagic = 0x31437453;  // "StC1"

std::uint64_t seal_checksum(ByteView prefix, ByteView payload) {
  return hash64(payload, hash64(prefix));
}

}  // namespace

Bytes seal(SealKind kind, ByteView payload) {
  ByteWriter out;
  out.put(kSealMagic);
  out.put(kSealVersion);
  out.put(static_cast<std::uint16_t>(kind));
  out.put(static_cast<std::uint64_t>(payload.size()));
  Bytes sealed = std::move(out).take();
  const std::uint64_t checksum = seal_checksum(sealed, payload);
  sealed.reserve(kSealBytes + payload.size());
  const auto* p = reinterpret_cast<const std::uint8_t*>(&checksum);
  sealed.insert(sealed.end(), p, p + sizeof checksum);
  STARLING_CHECK(sealed.size() == kSealBytes);
  sealed.insert(sealed.end(), payload.begin(), payload.end());
  return sealed;
}

std::optional<std::uint16_t> seal_version(ByteView message) {
  ByteReader in(message);
  const auto magic = in.get<std::uint32_t>();
  const auto version = in.get<std::uint16_t>();
  if (!in.good() || magic != kSealMagic) return std::nullopt;
  return version;
}

bool says_version(ByteView message) {
  ByteReader in(message);
  in.get<std::uint32_t>();
  in.get<std::uint16_t>();
  const auto kind = in.get<std::uint16_t>();
  return seal_version(message) && in.good() &&
         kind == static_cast<std::uint16_t>(SealKind::kVersion);
}

Result<ByteView> unseal(SealKind kind, ByteView message) {
  if (message.size() > limits::kMessageBytes)
    return Error(Code::kCorrupt, "message has " + std::to_string(message.size()) +
                                     " bytes, expected at most " +
                                     std::to_string(limits::kMessageBytes));
  ByteReader in(message);
  const auto magic = in.get<std::uint32_t>();
  const auto version = in.get<std::uint16_t>();
  const auto found = in.get<std::uint16_t>();
  const auto length = in.get<std::uint64_t>();
  const auto checksum = in.get<std::uint64_t>();
  if (!in.good()) return Error(Code::kCorrupt, "message is shorter than its prefix");
  if (magic != kSealMagic) return Error(Code::kCorrupt, "not a starling message");
  if (version != kSealVersion)
    return Error(Code::kStale, "message has protocol version " + std::to_string(version) +
                                   ", expected " + std::to_string(kSealVersion));
  if (found != static_cast<std::uint16_t>(kind))
    return Error(Code::kCorrupt, "message is of kind " + std::to_string(found) + ", expected " +
                                     std::to_string(static_cast<unsigned>(kind)));
  if (length != in.remaining())
    return Error(Code::kCorrupt, "message has " + std::to_string(in.remaining()) +
                                     " bytes of payload, its prefix says " +
                                     std::to_string(length));
  const ByteView payload = in.get_bytes(length);
  if (seal_checksum(message.first(16), payload) != checksum)
    return Error(Code::kCorrupt, "checksum of a message does not hold");
  return payload;
}

}  // namespace starling
