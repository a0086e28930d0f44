#include "tools/starling/group.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/hash.h"
#include "core/base/mac.h"

namespace starling::tools {
namespace {

Error bad(std::string text) {
  return Error(Code::kBadInput, std::move(text));
}

}  // namespace

Result<std::string> coordinator_address(std::string text) {
  constexpr const char* kScheme = "tcp://";
  if (text.rfind(kScheme, 0) == 0) text.erase(0, std::strlen(kScheme));
  const auto colon = text.rfind(':');
  const bool number = colon != std::string::npos && colon + 1 < text.size() &&
                      text.find_first_not_of("0123456789", colon + 1) == std::string::npos &&
                      text.size() - colon <= 6 && std::stoul(text.substr(colon + 1)) <= 65535;
  if (!number || colon == 0)
    return bad("an address must be host:port with a port up to 65535, is \"" + text + "\"");
  return kScheme + text;
}

JobId job_id_of(const KeyRing& ring) {
  std::string all = "starling job";
  for (const KeyPair& pair : ring.numbered("coordinator")) all += "\n" + pair.public_key;
  const Digest digest = hash128({reinterpret_cast<const std::uint8_t*>(all.data()), all.size()});
  JobId id;
  static_assert(sizeof id == sizeof digest);
  std::memcpy(id.data(), digest.data(), sizeof id);
  return id;
}

Result<std::vector<actors::GatewayOptions::Server>> coordinators_at(const KeyRing& ring,
                                                                    const std::string& addresses) {
  const auto pairs = ring.numbered("coordinator");
  if (pairs.empty()) return bad("the key file must have a key of coordinator-0, has none");
  std::vector<actors::GatewayOptions::Server> servers;
  std::size_t at = 0;
  while (at <= addresses.size()) {
    const auto comma = std::min(addresses.find(',', at), addresses.size());
    STARLING_TRY(address, coordinator_address(addresses.substr(at, comma - at)));
    at = comma + 1;
    if (servers.size() == pairs.size()) {
      servers.clear();
      break;
    }
    const KeyPair& pair = pairs[servers.size()];
    servers.push_back({pair.name, std::move(address), pair.public_key});
  }
  if (servers.size() != pairs.size())
    return bad("expected the addresses of all " + std::to_string(pairs.size()) +
               " coordinators of the key file, in order, got \"" + addresses + "\"");
  return servers;
}

Result<TakenKey> TakenKey::take(const KeyRing& ring, const std::string& path,
                                const std::string& name) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return bad("cannot open key file " + path + ": " + std::strerror(errno));
  TakenKey taken({}, file);
  bool known = false;
  const auto& pairs = ring.pairs();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const bool wanted =
        name.empty() ? pairs[i].name.rfind("worker-", 0) == 0 : pairs[i].name == name;
    if (!wanted || pairs[i].secret_key.empty()) continue;
    known = true;
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(i);
    lock.l_len = 1;
    if (::fcntl(file, F_OFD_SETLK, &lock) != 0) continue;
    taken.pair_ = pairs[i];
    return taken;
  }
  const std::string what = name.empty() ? "a worker" : name;
  if (!known) return bad("key file " + path + " has no secret key of " + what);
  return bad(name.empty() ? "all worker keys of " + path + " are in use on this machine"
                          : "the key of " + name + " is in use by another process; " + path);
}

TakenKey::TakenKey(TakenKey&& other) noexcept
    : pair_(std::move(other.pair_)), file_(std::exchange(other.file_, -1)) {}

TakenKey::~TakenKey() {
  if (file_ >= 0) ::close(file_);
}

Result<LogLevel> log_level(const std::string& text) {
  const auto level = parse_log_level(text);
  if (!level) return bad("--log must be debug, info, warn, error or off, is " + text);
  return *level;
}

std::uint64_t fresh_nonce() {
  std::uint8_t bytes[8];
  random_bytes(bytes);
  std::uint64_t nonce = 0;
  std::memcpy(&nonce, bytes, sizeof nonce);
  return nonce | 1;
}

}  // namespace starling::tools
