#include "core/formats/checkpoint_owner.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/formats/checkpoint.h"

namespace starling {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr const char* kOwner = "owner.json";
constexpr const char* kFormat = "starling-checkpoints";
constexpr std::size_t kBytesMax = std::size_t{64} << 20;  // a manifest has the job's text as well
constexpr std::size_t kHashesMax = 10000;
// A writer has the file whole within milliseconds of making it; one that was killed between leaves
// half of it.
constexpr milliseconds kWriting{5000};
constexpr milliseconds kLookAgain{20};

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
Result<> look_at_newest(const Storage& storage, const CheckpointOwner& mine) {
  STARLING_TRY(versions, list_checkpoints(storage));
  for (auto version = versions.rbegin(); version != versions.rend(); ++version) {
    const auto manifest = read_manifest(storage, *version);
    if (!manifest) continue;
    if (mine.has(manifest.value().state_hash)) return ok();
    return of_another_job(manifest.value().job,
                          storage.place(checkpoint_folder(*version)) + "/manifest.json");
  }
  return ok();
}

// The owner's hashes, if the job with that one is the last owner of the store.
std::optional<std::vector<std::uint64_t>> hashes_of_last_owner(const Storage& storage,
                                                               std::uint64_t state_hash) {
  const auto owner = read_checkpoint_owner(storage);
  if (!owner || !owner.value() || owner.value()->state_hashes.back() != state_hash)
    return std::nullopt;
  return owner.value()->state_hashes;
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

Result<std::optional<CheckpointOwner>> read_checkpoint_owner(const Storage& storage) {
  const auto until = std::chrono::steady_clock::now() + kWriting;
  for (;;) {
    STARLING_TRY(text, storage.get(kOwner, kBytesMax));
    if (!text) return std::optional<CheckpointOwner>();
    auto owner = parse_checkpoint_owner(*text);
    if (owner) return std::optional<CheckpointOwner>(std::move(owner).value());
    if (std::chrono::steady_clock::now() > until)
      return Error(Code::kBadInput,
                   "cannot tell whose checkpoint folder it is (once no run uses it, the file "
                   "may be removed): " +
                       owner.error().text() + "; " + storage.place(kOwner));
    std::this_thread::sleep_for(kLookAgain);
  }
}

Result<bool> claim_checkpoints(Storage& storage, std::uint64_t state_hash, std::uint64_t accepts,
                               const std::string& job) {
  const std::string path = storage.place(kOwner);
  CheckpointOwner mine;
  if (accepts != 0 && accepts != state_hash) mine.state_hashes.push_back(accepts);
  mine.state_hashes.push_back(state_hash);
  mine.job = job;
  STARLING_TRY(owner, read_checkpoint_owner(storage));
  if (!owner) {
    STARLING_TRY(look_at_newest(storage, mine));  // of a build that made no owner file
    STARLING_TRY(made, storage.put_new(kOwner, format_checkpoint_owner(mine)));
    if (made) return true;
    STARLING_TRY(faster, read_checkpoint_owner(storage));
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
  STARLING_TRY(storage.put(kOwner, std::span<const ByteView>(&bytes, 1)));
  return false;
}

void remove_own_checkpoints(Storage& storage, std::uint64_t state_hash, Version below,
                            const std::vector<Version>& kept) {
  if (const auto mine = hashes_of_last_owner(storage, state_hash))
    remove_checkpoints(storage, below, kept, *mine);
}

void withdraw_own_checkpoints(Storage& storage, std::uint64_t state_hash, Version above) {
  if (const auto mine = hashes_of_last_owner(storage, state_hash))
    withdraw_checkpoints(storage, above, *mine);
}

void doubt_own_checkpoints(Storage& storage, std::uint64_t state_hash, Version from) {
  if (const auto mine = hashes_of_last_owner(storage, state_hash))
    doubt_checkpoints(storage, from, *mine);
}

void give_up_checkpoints(Storage& storage) {
  storage.remove(kOwner);
}

}  // namespace starling
