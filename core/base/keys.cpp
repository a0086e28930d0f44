#include "core/base/keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "core/base/check.h"
#include "core/base/fd.h"
#include "core/base/file_system.h"
#include "core/base/system_error.h"

namespace starling {
namespace {

constexpr const char* kHeader = "starling-keys 2";
constexpr const char* kEndLine = "end";  // and the number of keys; no key has such a name
constexpr const char* kFounders = "founders";
constexpr std::size_t kFileBytes = 4u << 20;
constexpr std::size_t kPairs = 8192;
constexpr std::size_t kNameLength = 64;
constexpr char kZ85[] =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

// The last line of a file with so many keys: one that is still being copied has another, or none.
std::string end_of(std::size_t keys) {
  return std::string(kEndLine) + " " + std::to_string(keys);
}

// Reads "founders N", N from 1 on.
Result<std::size_t> founders_in(const std::string& line, const std::string& where) {
  std::size_t number = 0;
  const char* const end = line.data() + line.size();
  const char* const at = line.data() + std::min(line.size(), std::string(kFounders).size() + 1);
  const auto [after, error] = std::from_chars(at, end, number);
  if (error == std::errc() && after == end && number > 0) return number;
  return bad_input(where + " must be \"" + kFounders + "\" and their number");
}

Result<> check_pair(const KeyPair& pair) {
  const auto fine = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  if (pair.name.empty() || pair.name.size() > kNameLength ||
      !std::all_of(pair.name.begin(), pair.name.end(), fine))
    return bad_input("a key's name must be 1 to 64 of a-z, 0-9, '-' and '.'");
  if (pair.name == kEndLine || pair.name == kFounders)
    return bad_input("no key can be named " + pair.name);
  STARLING_TRY(public_key, z85_decode(pair.public_key));
  if (public_key.size() != crypto_box_PUBLICKEYBYTES)
    return bad_input("public key of " + pair.name + " must have 40 characters");
  if (pair.secret_key.empty()) return ok();
  STARLING_TRY(secret_key, z85_decode(pair.secret_key));
  if (secret_key.size() != crypto_box_SECRETKEYBYTES)
    return bad_input("secret key of " + pair.name + " must have 40 characters");
  Bytes derived(crypto_box_PUBLICKEYBYTES);
  const bool derivable = crypto_scalarmult_base(derived.data(), secret_key.data()) == 0;
  sodium_memzero(secret_key.data(), secret_key.size());
  if (!derivable || derived != public_key)
    return bad_input("secret key of " + pair.name + " does not belong to its public key");
  return ok();
}

Result<std::string> read_text(int fd, const std::string& path) {
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("cannot read key file", path);
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > kFileBytes) return bad_input("key file " + path + " has more than 4 MiB");
  }
}

// The files of a folder of split keys, without others that lie beside them (join tokens, links).
Result<std::set<std::string>> files_of(const std::string& folder) {
  std::set<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error), end;
  for (; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (name == "client" || role_of(name) != Role::kObserver) found.insert(at->path().string());
    if (found.size() > kPairs)
      return bad_input("more than " + std::to_string(kPairs) + " keys; " + folder);
  }
  if (error) return bad_input("cannot read the folder of keys " + folder + ": " + error.message());
  return found;
}

// Adds the keys of `part`: a name's pair may be known with its secret in one file and without it in
// others.
Result<> merge(std::map<std::string, KeyPair>& all, const KeyRing& part) {
  for (const KeyPair& pair : part.pairs()) {
    KeyPair& known = all.try_emplace(pair.name, pair).first->second;
    if (known.public_key != pair.public_key)
      return bad_input("name " + pair.name + " is there twice");
    if (known.secret_key.empty()) known.secret_key = pair.secret_key;
  }
  return ok();
}

Result<> write_text(int fd, const std::string& text, const std::string& path, bool synced) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("cannot write key file", path);
    done += static_cast<std::size_t>(n);
  }
  if (synced && ::fsync(fd) != 0) return system_error("cannot write key file", path);
  return ok();
}

}  // namespace

std::string z85_encode(ByteView bytes) {
  STARLING_CHECK(bytes.size() % 4 == 0);
  std::string text;
  text.reserve(bytes.size() / 4 * 5);
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    const std::uint32_t group = std::uint32_t{bytes[i]} << 24 | std::uint32_t{bytes[i + 1]} << 16 |
                                std::uint32_t{bytes[i + 2]} << 8 | bytes[i + 3];
    for (std::uint32_t divisor : {85u * 85 * 85 * 85, 85u * 85 * 85, 85u * 85, 85u, 1u})
      text += kZ85[group / divisor % 85];
  }
  return text;
}

Result<Bytes> z85_decode(const std::string& text) {
  if (text.size() % 5 != 0) return bad_input("length of a Z85 text must be a multiple of 5");
  Bytes bytes;
  bytes.reserve(text.size() / 5 * 4);
  for (std::size_t i = 0; i < text.size(); i += 5) {
    std::uint64_t group = 0;
    for (std::size_t j = i; j < i + 5; ++j) {
      const void* at = std::memchr(kZ85, text[j], sizeof kZ85 - 1);
      if (at == nullptr) return bad_input("a Z85 text has a character that does not belong to it");
      group = group * 85 + static_cast<std::uint64_t>(static_cast<const char*>(at) - kZ85);
    }
    if (group > 0xffffffffu) return bad_input("a group of a Z85 text is too large");
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<std::uint8_t>(group >> shift));
  }
  return bytes;
}

KeyPair make_key_pair(std::string name) {
  STARLING_CHECK(sodium_init() >= 0);
  Bytes public_key(crypto_box_PUBLICKEYBYTES);
  Bytes secret_key(crypto_box_SECRETKEYBYTES);
  STARLING_CHECK(crypto_box_keypair(public_key.data(), secret_key.data()) == 0);
  KeyPair pair{std::move(name), z85_encode(public_key), z85_encode(secret_key)};
  sodium_memzero(secret_key.data(), secret_key.size());
  return pair;
}

KeyRing KeyRing::generate(std::size_t coordinators, std::size_t workers, std::size_t spares) {
  KeyRing ring;
  if (spares > 0) ring.founders_ = coordinators;
  const auto add_group = [&ring](const std::string& prefix, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      ring.pairs_.push_back(make_key_pair(prefix + "-" + std::to_string(i)));
  };
  add_group("coordinator", coordinators + spares);
  add_group("worker", workers);
  ring.pairs_.push_back(make_key_pair("client"));
  ring.pairs_.push_back(make_key_pair("admin"));
  return ring;
}

Role role_of(const std::string& name) {
  const auto numbered = [&name](const std::string& prefix) {
    return name.size() > prefix.size() && name.rfind(prefix, 0) == 0 &&
           name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
  };
  if (numbered("worker-")) return Role::kWorker;
  if (name == "admin" || (name.starts_with("admin-") && name.size() > 6)) return Role::kAdmin;
  return numbered("coordinator-") ? Role::kCoordinator : Role::kObserver;
}

std::string enrolled_name(const std::string& public_key) {
  STARLING_CHECK(sodium_init() >= 0);
  std::uint8_t hash[crypto_generichash_BYTES];
  crypto_generichash(hash, sizeof hash, reinterpret_cast<const unsigned char*>(public_key.data()),
                     public_key.size(), nullptr, 0);
  std::uint64_t number = 0;
  for (int i = 0; i < 8; ++i) number = number << 8 | hash[i];
  constexpr std::uint64_t kFirst = 100'000'000'000;  // twelve digits, none of them a leading zero
  return "worker-" + std::to_string(kFirst + number % (9 * kFirst));
}

Result<KeyRing> KeyRing::load_for(const std::string& path, const std::string& name) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return load(path);
  return load((std::filesystem::path(path) / name).string());
}

Result<KeyRing> KeyRing::load(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    STARLING_TRY(files, files_of(path));
    if (files.empty()) return bad_input("no key file is in the folder " + path);
    KeyRing ring;
    std::map<std::string, KeyPair> all;
    for (const std::string& file : files) {
      STARLING_TRY(part, load(file));
      if (auto merged = merge(all, part); !merged) return std::move(merged).error().in(file);
      if (file != *files.begin() && part.founders_ != ring.founders_)
        return bad_input("it has other founders than " + *files.begin() + "; " + file);
      ring.founders_ = part.founders_;
    }
    for (auto& [name, pair] : all) ring.pairs_.push_back(std::move(pair));
    // Sort as generate() does: coordinator-10 is behind coordinator-2.
    std::stable_sort(ring.pairs_.begin(), ring.pairs_.end(),
                     [](const auto& a, const auto& b) { return a.name.size() < b.name.size(); });
    return ring;
  }
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_error("cannot open key file", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error("cannot look at key file", path);
  if (!S_ISREG(status.st_mode)) return bad_input("key file " + path + " is not a file");
  auto text = read_text(file.get(), path);
  if (!text) return std::move(text).error();
  auto ring = parse(text.value());
  sodium_memzero(text.value().data(), text.value().size());
  if (!ring) return std::move(ring).error().in("reading key file " + path);
  if (ring.value().has_secrets() && is_open_to_others(status, ::geteuid()))
    return bad_input("key file " + path +
                     " holds secret keys and can be read by others; expected mode 0600");
  return ring;
}

Result<KeyRing> KeyRing::parse(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kHeader)
    return bad_input(std::string("line 1 must be \"") + kHeader + "\"");
  KeyRing ring;
  bool whole = false;
  for (std::size_t number = 2; std::getline(lines, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    const std::string where = "line " + std::to_string(number);
    if (whole) return bad_input("nothing may follow the last line, \"end\"; " + where);
    std::istringstream words(line);
    KeyPair pair;
    std::string rest;
    words >> pair.name >> pair.public_key >> pair.secret_key >> rest;
    if (pair.name == kEndLine) {
      whole = line == end_of(ring.pairs_.size());
      if (!whole) break;
      continue;
    }
    if (pair.name == kFounders) {
      STARLING_TRY(founders, founders_in(line, where));
      if (ring.founders_ != 0 || !ring.pairs_.empty())
        return bad_input(where + " must come before all keys, and once");
      ring.founders_ = founders;
      continue;
    }
    if (pair.public_key.empty() || !rest.empty())
      return bad_input(where + " must have a name, a public key and perhaps a secret key");
    if (ring.pairs_.size() >= kPairs)
      return bad_input("more than " + std::to_string(kPairs) + " keys; " + where);
    auto added = ring.add(std::move(pair));
    if (!added) return std::move(added).error().in(where);
  }
  if (!whole)
    return bad_input("it is not whole, or was changed by hand: it has " +
                     std::to_string(ring.pairs_.size()) + " keys, and its last line must be \"" +
                     end_of(ring.pairs_.size()) + "\"");
  if (const std::size_t all = ring.numbered("coordinator").size(); ring.founders_ > all)
    return bad_input("it has keys of " + std::to_string(all) + " coordinators and " +
                     std::to_string(ring.founders_) + " founders");
  return ring;
}

Result<> KeyRing::save(const std::string& path, bool synced) const {
  const mode_t mode = has_secrets() ? 0600 : 0644;
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (file.get() < 0 && errno == EEXIST)
    return bad_input("key file " + path + " exists already and is not replaced");
  if (file.get() < 0) return system_error("cannot create key file", path);
  auto written = write_text(file.get(), format(), path, synced);
  if (!written) ::unlink(path.c_str());
  return written;
}

Result<> KeyRing::replace(const std::string& path) const {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return system_error("cannot look at key file", path);
  const std::string fresh = path + ".new";
  const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.get() < 0) return system_error("cannot create key file", fresh);
  ::fchmod(file.get(), has_secrets() ? status.st_mode & 0740 : status.st_mode & 0777);
  // The user that runs the job may not be the one that changes its keys.
  [[maybe_unused]] const int owner = ::fchown(file.get(), status.st_uid, status.st_gid);
  auto written = write_text(file.get(), format(), fresh, true);
  if (written && ::rename(fresh.c_str(), path.c_str()) != 0)
    written = system_error("cannot replace key file", path);
  if (!written) ::unlink(fresh.c_str());
  return written;
}

Result<> KeyRing::split(const std::string& folder, bool synced) const {
  if (::mkdir(folder.c_str(), 0700) != 0)
    return errno == EEXIST
               ? bad_input("folder " + folder + " exists already; keys are not replaced")
               : system_error("cannot make the folder", folder);
  for (const KeyPair& pair : pairs_) {
    if (pair.secret_key.empty()) continue;
    STARLING_TRY(part, part_for(pair.name));
    STARLING_TRY(part.save((std::filesystem::path(folder) / pair.name).string(), synced));
  }
  return ok();
}

std::string KeyRing::format() const {
  std::string text = std::string(kHeader) + "\n";
  if (founders_ != 0) text += std::string(kFounders) + " " + std::to_string(founders()) + "\n";
  for (const KeyPair& pair : pairs_) {
    text += pair.name + " " + pair.public_key;
    if (!pair.secret_key.empty()) text += " " + pair.secret_key;
    text += "\n";
  }
  return text + end_of(pairs_.size()) + "\n";
}

Result<> KeyRing::add(KeyPair pair) {
  STARLING_TRY(check_pair(pair));
  for (const KeyPair& other : pairs_) {
    if (other.name == pair.name) return bad_input("name " + pair.name + " is there twice");
    if (other.public_key == pair.public_key)
      return bad_input("key of " + pair.name + " is also that of " + other.name);
  }
  pairs_.push_back(std::move(pair));
  return ok();
}

std::size_t KeyRing::founders() const {
  const std::size_t all = numbered("coordinator").size();
  return founders_ == 0 ? all : std::min(founders_, all);
}

const KeyPair* KeyRing::find(const std::string& name) const {
  for (const KeyPair& pair : pairs_)
    if (pair.name == name) return &pair;
  return nullptr;
}

bool KeyRing::has_secrets() const {
  return std::any_of(pairs_.begin(), pairs_.end(),
                     [](const KeyPair& pair) { return !pair.secret_key.empty(); });
}

KeyRing KeyRing::public_part() const {
  KeyRing ring = *this;
  for (KeyPair& pair : ring.pairs_) pair.secret_key.clear();
  return ring;
}

Result<KeyRing> KeyRing::part_for(const std::string& name) const {
  if (find(name) == nullptr) return bad_input("no key is named " + name);
  const bool all = role_of(name) == Role::kCoordinator;
  KeyRing ring;
  ring.founders_ = founders_;
  for (KeyPair pair : pairs_) {
    if (!all && pair.name != name && role_of(pair.name) != Role::kCoordinator) continue;
    if (pair.name != name) pair.secret_key.clear();
    ring.pairs_.push_back(std::move(pair));
  }
  return ring;
}

bool KeyRing::remove(const std::string& name) {
  return std::erase_if(pairs_, [&](const KeyPair& pair) { return pair.name == name; }) > 0;
}

AllowList KeyRing::allow_list() const {
  AllowList list;
  for (const KeyPair& pair : pairs_) list.emplace(pair.public_key, pair.name);
  return list;
}

std::vector<KeyPair> KeyRing::numbered(const std::string& prefix) const {
  std::vector<KeyPair> group;
  for (const KeyPair& pair : pairs_) {
    const std::string number =
        pair.name.rfind(prefix + "-", 0) == 0 ? pair.name.substr(prefix.size() + 1) : "";
    if (!number.empty() &&
        std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; }))
      group.push_back(pair);
  }
  return group;
}

}  // namespace starling
