#include "tools/starling/group.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

#include "collectives/tcp/socket.h"
#include "core/base/address.h"
#include "core/base/environment.h"
#include "core/base/file_system.h"
#include "core/base/hash.h"
#include "core/base/text.h"
#include "core/wire/limits.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScheme = "tcp://";
constexpr std::chrono::milliseconds kAskAgain{50};

// Lists the workers' files of a folder of split keys, worker-2 before worker-10.
Result<std::vector<std::string>> worker_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (role_of(name) == Role::kWorker) names.push_back(name);
  }
  if (error) return bad_input("cannot read the folder of keys " + folder + ": " + error.message());
  if (names.empty()) return bad_input("no key of a worker is in " + folder);
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  for (std::string& name : names) name = (fs::path(folder) / name).string();
  return names;
}

}  // namespace

JobId job_id_of(const KeyRing& ring) {
  std::string all = "starling job";
  for (const KeyPair& pair : ring.numbered("coordinator")) all += "\n" + pair.public_key;
  const Digest digest = hash128({reinterpret_cast<const std::uint8_t*>(all.data()), all.size()});
  JobId id;
  static_assert(sizeof id == sizeof digest);
  std::memcpy(id.data(), digest.data(), sizeof id);
  return id;
}

namespace {

// Makes all processes of the machine mean the same by this host.
std::string host_meant(const std::string& host) {
  return host == "localhost" ? "127.0.0.1" : host;
}

}  // namespace

Result<std::vector<actors::GatewayOptions::Server>> coordinators_at(const KeyRing& ring,
                                                                    const std::string& addresses) {
  const auto pairs = ring.numbered("coordinator");
  if (pairs.empty()) return bad_input("the keys must have one of coordinator-0, have none");
  STARLING_TRY(places, parse_addresses(addresses));
  const std::size_t founders = ring.founders(), spares = pairs.size() - founders;
  if (places.size() < founders || places.size() > pairs.size())
    return bad_input("expected the addresses of all " + std::to_string(founders) +
                     " coordinators of the keys, in order" +
                     (spares == 0 ? ""
                                  : ", and of their " + std::to_string(spares) +
                                        " spares as far as they are known") +
                     ", got \"" + addresses + "\"");
  std::vector<actors::GatewayOptions::Server> servers;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (i >= places.size()) {
      servers.push_back({pairs[i].name, "", pairs[i].public_key});
      continue;
    }
    if (means_everywhere(places[i].host))
      return bad_input("nobody reaches " + pairs[i].name + " at " + to_string(places[i]) +
                       "; expected an address of its machine");
    const Address address{host_meant(places[i].host), places[i].port};
    servers.push_back({pairs[i].name, kScheme + to_string(address), pairs[i].public_key});
  }
  return servers;
}

void pass_on(const Seats& seats) {
  std::string text;
  for (const Seat& seat : seats.seats)
    text += (text.empty() ? "" : ",") + std::to_string(seat.place) + "=" + seat.address;
  if (!text.empty()) ::setenv(name_of(EnvVar::kSeats), text.c_str(), 1);
}

Seats passed_on() {
  std::istringstream text(environment().value(EnvVar::kSeats));
  ::unsetenv(name_of(EnvVar::kSeats));
  Seats seats;
  for (std::string word; std::getline(text, word, ',');) {
    Seat seat;
    const char* const end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, seat.place);
    if (error != std::errc() || at == end || *at != '=') continue;
    seat.address.assign(at + 1, end);
    seats.seats.push_back(std::move(seat));
  }
  return seats;
}

void add_seats(const Seats& seats, Seats& known) {
  for (const Seat& seat : seats.seats) {
    const auto same = std::find_if(known.seats.begin(), known.seats.end(),
                                   [&](const Seat& other) { return other.place == seat.place; });
    if (same == known.seats.end())
      known.seats.push_back(seat);
    else
      same->address = seat.address;
  }
}

Result<std::string> address_to_listen(const std::string& text) {
  STARLING_TRY(address, parse_address(text));
  STARLING_TRY(host, collectives::numeric_address(host_meant(address.host)));
  return kScheme + to_string(Address{std::move(host), address.port});
}

Result<std::string> host_of(const std::string& host) {
  if (means_everywhere(host))
    return Error(Code::kBadInput,
                 "--host must be an address at which others reach this machine, is " + host);
  STARLING_TRY(listens, address_to_listen(to_string(Address{host, 0})));
  STARLING_TRY(address, parse_address(listens));
  return address.host;
}

Result<std::string> own_address(const std::vector<actors::GatewayOptions::Server>& coordinators,
                                std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    std::string why;
    for (const auto& coordinator : coordinators) {
      if (coordinator.address.empty()) continue;
      STARLING_TRY(at, parse_address(coordinator.address));
      auto own = collectives::address_towards(at.host, at.port);
      if (own) return own;
      why = own.error().text();
    }
    if (std::chrono::steady_clock::now() >= until)
      return Error(Code::kUnavailable,
                   "cannot tell which address of this machine the others reach, " + why +
                       "; --host says it");
    std::this_thread::sleep_for(kAskAgain);
  }
}

std::string address_to_tell(const Address& listens) {
  if (!means_everywhere(listens.host)) return to_string(listens);
  // Ask for the route to an address of the documentation range: no packet is sent.
  for (const char* outside : {"192.0.2.1", "2001:db8::1"})
    if (auto own = collectives::address_towards(outside, 9))
      return to_string(Address{own.value(), listens.port});
  return to_string(Address{"127.0.0.1", listens.port});
}

Result<std::string> join_text(const std::string& value) {
  if (is_join_token(value) || value.find(':') != std::string::npos) return value;
  const int fd = ::open(value.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return bad_input(
        "expected a join token, a file with one, or host:port of the coordinators; \"" +
        value.substr(0, 300) + "\" is no file: " + std::strerror(errno));
  struct stat status {};
  const bool file = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  std::string text(file ? 65537 : 0, '\0');
  const ssize_t size = file ? ::read(fd, text.data(), text.size()) : -1;
  ::close(fd);
  if (size < 0) return bad_input("cannot read the join token in " + value);
  text.resize(static_cast<std::size_t>(size));
  const auto last = text.find_last_not_of(" \t\r\n");
  text.erase(last == std::string::npos ? 0 : last + 1);
  if (!is_join_token(text)) return bad_input("no join token is in " + value);
  const auto token = parse_join_token(text);
  const bool is_secret = !token || !token.value().is_public();
  if (is_secret && is_open_to_others(status, ::geteuid()))
    return bad_input("the join token in " + value + " can be read by others; expected mode 0600");
  return text;
}

Result<TakenKey> TakenKey::take(const std::string& path, const std::string& name) {
  if (!name.empty() && role_of(name) != Role::kWorker)
    return bad_input("--name expects the key of a worker, worker-N, is " + name);
  const bool folder = fs::is_directory(path);
  std::vector<std::string> files{path};
  if (folder && !name.empty()) files = {(fs::path(path) / name).string()};
  if (folder && name.empty()) {
    STARLING_TRY(found, worker_files(path));
    files = std::move(found);
  }
  bool known = false;
  for (const std::string& file : files) {
    STARLING_TRY(ring, KeyRing::load(file));
    const auto& pairs = ring.pairs();
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const bool wanted =
          name.empty() ? role_of(pairs[i].name) == Role::kWorker : pairs[i].name == name;
      if (!wanted || pairs[i].secret_key.empty()) continue;
      known = true;
      STARLING_TRY(lock, KeyLock::take(file, i, pairs[i].public_key));
      if (lock) return TakenKey(pairs[i], ring, std::move(lock));
    }
  }
  const std::string what = name.empty() ? "a worker" : name;
  if (!known) return bad_input("no secret key of " + what + " is in " + path);
  return bad_input(name.empty() ? "all worker keys of " + path + " are in use on this machine"
                                : "the key of " + name + " is in use by another process; " + path);
}

Result<std::string> read_identity_token(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const int error = errno;
  struct stat status {};
  const bool file = fd >= 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  std::string text(limits::kTokenBytes + 256, '\0');
  const ssize_t size = file ? ::read(fd, text.data(), text.size()) : -1;
  if (fd >= 0) ::close(fd);
  if (size < 0)
    return bad_input("identity: cannot read the token in " + path + ": " +
                     (fd < 0 ? std::strerror(error) : "it is no file"));
  text.resize(static_cast<std::size_t>(size));
  text = trimmed(text);
  if (text.empty()) return bad_input("identity: no token is in " + path);
  if (text.size() > limits::kTokenBytes)
    return bad_input("identity: the token in " + path + " has more than 15 KiB");
  return text;
}

TakenKey TakenKey::make(const JoinToken& token) {
  KeyPair pair = make_key_pair("worker");
  pair.name = enrolled_name(pair.public_key);
  return TakenKey(std::move(pair), token.keys, KeyLock());
}

Result<TakenKey> TakenKey::take(const JoinToken& token) {
  const KeyPair& pair = token.worker();
  STARLING_TRY(lock, KeyLock::take("", 0, pair.public_key));
  if (!lock)
    return bad_input("the key of " + pair.name +
                     " is in use by another process; every worker needs a "
                     "join token of its own");
  return TakenKey(pair, token.keys, std::move(lock));
}

Result<LogLevel> log_level(const std::string& text) {
  const auto level = parse_log_level(text);
  if (!level) return bad_input("--log must be debug, info, warn, error or off, is " + text);
  return *level;
}

}  // namespace starling::tools
