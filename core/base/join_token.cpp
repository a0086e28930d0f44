#include "core/base/join_token.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/hash.h"

namespace starling {
namespace {

constexpr const char* kAnyVersion = "starling-join-";
constexpr const char* kVersion = "starling-join-1.";
constexpr const char* kAddresses = "# ";
constexpr std::size_t kTokenBytesMax = 64u << 10;
constexpr int kBase64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING;

std::uint64_t check_sum(const std::string& text) {
  return hash64(as_bytes(std::span<const char>(text)));
}

// The only pair with a secret, if it is a worker's.
const KeyPair* only_worker(const KeyRing& keys) {
  const KeyPair* found = nullptr;
  for (const KeyPair& pair : keys.pairs()) {
    if (pair.secret_key.empty()) continue;
    if (found != nullptr || role_of(pair.name) != Role::kWorker) return nullptr;
    found = &pair;
  }
  return found;
}

Result<JoinToken> token_of(KeyRing keys, const std::string& addresses) {
  if (keys.numbered("coordinator").empty()) return bad_input("no key of a coordinator is there");
  const bool fine = !addresses.empty() && std::all_of(addresses.begin(), addresses.end(),
                                                      [](char c) { return c > ' ' && c <= '~'; });
  if (!fine) return bad_input("a join token needs the addresses of the coordinators");
  return JoinToken{addresses, std::move(keys)};
}

}  // namespace

const KeyPair& JoinToken::worker() const {
  const KeyPair* pair = only_worker(keys);
  STARLING_CHECK(pair != nullptr);
  return *pair;
}

bool JoinToken::operator==(const JoinToken& other) const {
  return addresses == other.addresses && keys.pairs() == other.keys.pairs() &&
         keys.founders() == other.keys.founders();
}

Result<JoinToken> make_join_token(const KeyRing& ring, const std::string& name,
                                  const std::string& addresses) {
  if (role_of(name) != Role::kWorker)
    return bad_input("a join token is for a worker, not for " + name);
  STARLING_TRY(part, ring.part_for(name));
  if (!only_worker(part)) return bad_input("the secret key of " + name + " is not here");
  return token_of(std::move(part), addresses);
}

Result<JoinToken> make_public_join_token(const KeyRing& ring, const std::string& addresses) {
  KeyRing part = ring.public_part();
  for (const KeyPair& pair : ring.pairs())
    if (role_of(pair.name) != Role::kCoordinator) part.remove(pair.name);
  return token_of(std::move(part), addresses);
}

std::string format_join_token(const JoinToken& token) {
  std::string text = kAddresses + token.addresses + "\n" + token.keys.format();
  const std::uint64_t sum = check_sum(text);
  char bytes[sizeof sum];
  std::memcpy(bytes, &sum, sizeof sum);
  text.append(bytes, sizeof bytes);
  std::string line(sodium_base64_ENCODED_LEN(text.size(), kBase64), '\0');
  sodium_bin2base64(line.data(), line.size(), reinterpret_cast<const unsigned char*>(text.data()),
                    text.size(), kBase64);
  sodium_memzero(text.data(), text.size());
  line.resize(std::strlen(line.c_str()));
  return kVersion + line;
}

bool is_join_token(const std::string& text) {
  return text.rfind(kAnyVersion, 0) == 0;
}

Result<JoinToken> parse_join_token(const std::string& line) {
  if (line.size() > kTokenBytesMax) return bad_input("the join token has more than 64 KiB");
  if (line.rfind(kVersion, 0) != 0)
    return bad_input(std::string("a join token must begin with ") + kVersion);
  const std::string encoded = line.substr(std::strlen(kVersion));
  std::string text(encoded.size(), '\0');
  std::size_t size = 0;
  const auto cut = [] {
    return bad_input("the join token is not whole; was all of its line copied?");
  };
  std::uint64_t sum = 0;
  if (sodium_base642bin(reinterpret_cast<unsigned char*>(text.data()), text.size(), encoded.data(),
                        encoded.size(), nullptr, &size, nullptr, kBase64) != 0 ||
      size < sizeof sum)
    return cut();
  text.resize(size);
  std::memcpy(&sum, text.data() + size - sizeof sum, sizeof sum);
  text.resize(size - sizeof sum);
  const auto end = text.find('\n');
  if (sum != check_sum(text) || text.rfind(kAddresses, 0) != 0 || end == std::string::npos)
    return cut();
  auto keys = KeyRing::parse(text.substr(end + 1));
  const std::size_t begin = std::strlen(kAddresses);
  JoinToken token;
  token.addresses = text.substr(begin, end - begin);
  sodium_memzero(text.data(), text.size());
  if (!keys) return std::move(keys).error().in("reading the join token");
  token.keys = std::move(keys).value();
  if ((!token.is_public() && !only_worker(token.keys)) ||
      token.keys.numbered("coordinator").empty() || token.addresses.empty())
    return bad_input(
        "the join token must have the coordinators' keys and addresses, and no secret but one "
        "worker's key");
  return token;
}

}  // namespace starling
