#include "core/formats/checkpoint_owner.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/formats/checkpoint.h"
#include "core/formats/synced_file.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr const char* kFormat = "starling-checkpoints";
constexpr std::size_t kBytesMax = std::size_t{64} << 20;  // a manifest has the job's text as well
constexpr std::size_t kHashesMax = 10000;
// A writer has the file whole within milliseconds of making it; one that was killed between leaves
// half of it.
constexpr milliseconds kWriting{5000};
constexpr milliseconds kLookAgain{20};

Error failed(const std::string& what, const std::string& path) {
  return Error(Code::kBadInput, what + " " + path + ": " + std::strerror(errno));
}

// None if there is no such file.
Result<std::optional<std::string>> text_of(const std::string& path) {
  // Do not block: opening a pipe would wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::optional<std::string>();
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0) {
    auto error = failed("cannot read", path);
    if (fd >= 0) ::close(fd);
    return error;
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd);
    return Error(Code::kBadInput, "expected a file; " + path);
  }
  std::string text;
  std::array<char, 65536> buffer;
  ssize_t n = 0;
  while ((n = ::read(fd, buffer.data(), buffer.size())) > 0 && text.size() <= kBytesMax)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  auto error = failed("cannot read", path);
  ::close(fd);
  if (n < 0) return error;
  return std::optional<std::string>(std::move(text));
}

// Whether this call has made the file; false: it is there already.
Result<bool> make_file(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0 && errno == EEXIST) return false;
  if (fd < 0) return failed("cannot create", path);
  std::size_t at = 0;
  bool good = true;
  while (good && at < text.size()) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n >= 0) at += static_cast<std::size_t>(n);
    good = n >= 0 || errno == EINTR;
  }
  good = good && ::fsync(fd) == 0;
  auto error = failed("cannot write", path);
  good = ::close(fd) == 0 && good;
  if (good) return true;
  ::unlink(path.c_str());
  return error;
}

// `says`: the file that names the other job.
Error of_another_job(const std::string& job, const std::string& says) {
  const auto at = job.find("\nname = ");
  const auto begin = at == std::string::npos ? job.size() : at + 8;
  const std::string name = job.substr(begin, job.find('\n', begin) - begin);
  return Error(Code::kBadInput, "checkpoint folder is of another job" +
                                    (name.empty() ? name : ", " + name) +
                                    ", expected one for this job alone; " + says + " has that job");
}

// Errors: kBadInput  the newest checkpoint that can be read is of another job than these.
Result<> look_at_newest(const std::string& dir, const CheckpointOwner& mine) {
  STARLING_TRY(versions, list_checkpoints(dir));
  for (auto version = versions.rbegin(); version != versions.rend(); ++version) {
    const auto manifest = read_manifest(dir, *version);
    if (!manifest) continue;
    if (mine.has(manifest.value().state_hash)) return ok();
    return of_another_job(manifest.value().job,
                          checkpoint_folder(dir, *version) + "/manifest.json");
  }
  return ok();
}

}  // namespace

bool CheckpointOwner::has(std::uint64_t state_hash) const {
  return std::find(state_hashes.begin(), state_hashes.end(), state_hash) != state_hashes.end();
}

std::string format_checkpoint_owner(const CheckpointOwner& owner) {
  Json hashes = Json::array();
  for (const std::uint64_t hash : owner.state_hashes) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    hashes.push_back(text);
  }
  const Json json = {{"format", kFormat}, {"state_hashes", std::move(hashes)}, {"job", owner.job}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<CheckpointOwner> parse_checkpoint_owner(std::string_view text) {
  const auto corrupt = [&] {
    return Error(Code::kCorrupt, "expected the owner of a folder of checkpoints, is " +
                                     std::to_string(text.size()) + " bytes of something else");
  };
  if (text.size() > kBytesMax) return corrupt();
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return corrupt();
  try {  // at() and get() throw where something is missing or of another kind
    if (json.at("format") != kFormat) return corrupt();
    CheckpointOwner owner;
    const Json& hashes = json.at("state_hashes");
    if (!hashes.is_array() || hashes.empty() || hashes.size() > kHashesMax) return corrupt();
    for (const Json& hash : hashes) {
      const auto digits = hash.get<std::string>();
      std::uint64_t value = 0;
      const char* end = digits.data() + digits.size();
      const auto read = std::from_chars(digits.data(), end, value, 16);
      if (digits.size() != 16 || read.ec != std::errc() || read.ptr != end) return corrupt();
      owner.state_hashes.push_back(value);
    }
    owner.job = json.at("job").get<std::string>();
    return owner;
  } catch (const Json::exception&) {
    return corrupt();
  }
}

std::string checkpoint_owner_file(const std::string& dir) {
  return (fs::path(dir) / "owner.json").string();
}

Result<std::optional<CheckpointOwner>> read_checkpoint_owner(const std::string& dir) {
  const std::string path = checkpoint_owner_file(dir);
  const auto until = std::chrono::steady_clock::now() + kWriting;
  for (;;) {
    STARLING_TRY(text, text_of(path));
    if (!text) return std::optional<CheckpointOwner>();
    auto owner = parse_checkpoint_owner(*text);
    if (owner) return std::optional<CheckpointOwner>(std::move(owner).value());
    if (std::chrono::steady_clock::now() > until)
      return Error(Code::kBadInput, "cannot tell whose checkpoint folder it is: " +
                                        owner.error().text() + "; " + path);
    std::this_thread::sleep_for(kLookAgain);
  }
}

Result<bool> claim_checkpoints(const std::string& dir, std::uint64_t state_hash,
                               std::uint64_t accepts, const std::string& job) {
  const std::string path = checkpoint_owner_file(dir);
  CheckpointOwner mine;
  if (accepts != 0 && accepts != state_hash) mine.state_hashes.push_back(accepts);
  mine.state_hashes.push_back(state_hash);
  mine.job = job;
  STARLING_TRY(owner, read_checkpoint_owner(dir));
  if (!owner) {
    STARLING_TRY(look_at_newest(dir, mine));  // of a build that made no owner file
    STARLING_TRY(made, make_file(path, format_checkpoint_owner(mine)));
    if (made) return true;
    STARLING_TRY(faster, read_checkpoint_owner(dir));
    owner = std::move(faster);
  }
  if (!owner) return Error(Code::kBadInput, "another process removes what this one makes; " + path);
  if (owner->state_hashes.back() == state_hash) return false;
  if (!owner->has(state_hash) && (accepts == 0 || !owner->has(accepts)))
    return of_another_job(owner->job, path);
  CheckpointOwner next = *owner;
  std::erase(next.state_hashes, state_hash);
  next.state_hashes.push_back(state_hash);
  next.job = job;
  const std::string text = format_checkpoint_owner(next);
  const ByteView bytes = as_bytes(std::span<const char>(text));
  STARLING_TRY(write_synced_file(path, std::span<const ByteView>(&bytes, 1)));
  return false;
}

void remove_own_checkpoints(const std::string& dir, std::uint64_t state_hash, Version below,
                            const std::vector<Version>& kept) {
  const auto owner = read_checkpoint_owner(dir);
  if (!owner || !owner.value() || owner.value()->state_hashes.back() != state_hash) return;
  remove_checkpoints(dir, below, kept, owner.value()->state_hashes);
}

void withdraw_own_checkpoints(const std::string& dir, std::uint64_t state_hash, Version above) {
  const auto owner = read_checkpoint_owner(dir);
  if (!owner || !owner.value() || owner.value()->state_hashes.back() != state_hash) return;
  withdraw_checkpoints(dir, above, owner.value()->state_hashes);
}

void give_up_checkpoints(const std::string& dir) {
  std::error_code ignored;
  fs::remove(checkpoint_owner_file(dir), ignored);
}

}  // namespace starling
