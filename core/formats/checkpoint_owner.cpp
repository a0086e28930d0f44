#include "core/formats/checkpoint_owner.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/base/process_identity.h"

namespace starling {
namespace {

using OrderedJson = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr const char* kOwner = "owner.json";
constexpr const char* kOwnerFormat = "starling-checkpoints";
constexpr std::size_t kBytesMax = std::size_t{64} << 20;  // a manifest has the job's text as well
constexpr std::size_t kHashesMax = 10000;
constexpr std::size_t kBeforeMax = 16;  // owners that get the store back
// A store may make an object piece by piece (Storage::put_new()): a writer has it whole within
// milliseconds; one that was killed between leaves half of it.
constexpr milliseconds kWriting{5000};
constexpr milliseconds kLookAgain{20};

// The reverse of to_string(JobId).
std::optional<JobId> run_of(const std::string& digits) {
  JobId run;
  if (digits.size() != 2 * run.size()) return std::nullopt;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const char* at = digits.data() + 2 * i;
    const auto read = std::from_chars(at, at + 2, run[i], 16);
    if (read.ec != std::errc() || read.ptr != at + 2) return std::nullopt;
  }
  return run;
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
Result<> look_at_newest(const Storage& storage, const CheckpointOwner& mine) {
  STARLING_TRY(versions, list_checkpoints(storage));
  for (auto version = versions.rbegin(); version != versions.rend(); ++version) {
    auto manifest = read_manifest(storage, *version);
    if (!manifest && !is_damage(manifest.error())) return std::move(manifest).error();
    if (!manifest) continue;
    if (mine.has(manifest.value().state_hash)) return ok();
    return of_another_job(manifest.value().job,
                          storage.place(checkpoint_folder(*version)) + "/manifest.json");
  }
  return ok();
}

bool of_other_run(const CheckpointOwner& owner, const JobId& run) {
  return owner.run != JobId{} && owner.run != run;
}

bool is_before(const CheckpointOwner& owner, const JobId& run) {
  return std::any_of(owner.before.begin(), owner.before.end(),
                     [&](const CheckpointOwner& earlier) { return earlier.run == run; });
}

Error of_newer_run(const Storage& storage, const CheckpointOwner& owner, const JobId& run) {
  if (is_before(owner, run))
    return Error(
        Code::kStale,
        "a newer run of this job has the checkpoint folder and has written none there yet, "
        "so this run writes and removes nothing there (it does again when that one ends "
        "without a checkpoint, or, once that one is over, when the file is removed); " +
            storage.place(kOwner));
  return Error(Code::kStale,
               "a newer run of this job has the checkpoint folder, so this run writes and removes "
               "nothing there any more (to go on with this one, end the newer one and start this "
               "one again with --resume); " +
                   storage.place(kOwner));
}

// The owner's hashes, if the writer's job and run are the last owner of the store, and no later leader.
// Errors: as read_checkpoint_owner().
Result<std::optional<std::vector<std::uint64_t>>> hashes_if_held(const Storage& storage,
                                                                 const CheckpointWriter& writer) {
  using Hashes = std::optional<std::vector<std::uint64_t>>;
  STARLING_TRY(owner, read_checkpoint_owner(storage));
  if (!owner || owner->state_hashes.back() != writer.state_hash) return Hashes();
  if (of_other_run(*owner, writer.run) || owner->term > writer.term) return Hashes();
  return Hashes(owner->state_hashes);
}

// Errors: kBadInput  the owner is another job.
Result<> same_job(const CheckpointOwner& owner, const CheckpointWriter& writer,
                  const std::string& path) {
  if (owner.has(writer.state_hash) || (writer.accepts != 0 && owner.has(writer.accepts)))
    return ok();
  return of_another_job(owner.job, path);
}

Result<> put_owner(Storage& storage, const CheckpointOwner& owner) {
  return storage.replace(kOwner, format_checkpoint_owner(owner));
}

CheckpointOwner first_owner(const CheckpointWriter& writer) {
  CheckpointOwner owner;
  if (writer.accepts != 0 && writer.accepts != writer.state_hash)
    owner.state_hashes.push_back(writer.accepts);
  owner.state_hashes.push_back(writer.state_hash);
  owner.job = writer.job;
  owner.run = writer.run;
  owner.process = writer.process;
  return owner;
}

// Without those before it.
OrderedJson json_of(const CheckpointOwner& owner) {
  OrderedJson hashes = OrderedJson::array();
  for (const std::uint64_t hash : owner.state_hashes) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    hashes.push_back(text);
  }
  OrderedJson json = {{"state_hashes", std::move(hashes)},
                      {"run", to_string(owner.run)},
                      {"term", owner.term},
                      {"job", owner.job}};
  if (!owner.process.empty()) json["process"] = owner.process;
  return json;
}

// The reverse; none if a value is wrong. Throws OrderedJson::exception where one is missing or of another kind.
std::optional<CheckpointOwner> owner_of(const OrderedJson& json) {
  CheckpointOwner owner;
  const OrderedJson& hashes = json.at("state_hashes");
  if (!hashes.is_array() || hashes.empty() || hashes.size() > kHashesMax) return std::nullopt;
  for (const OrderedJson& hash : hashes) {
    const auto digits = hash.get<std::string>();
    std::uint64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, value, 16);
    if (digits.size() != 16 || read.ec != std::errc() || read.ptr != end) return std::nullopt;
    owner.state_hashes.push_back(value);
  }
  owner.job = json.at("job").get<std::string>();
  if (!json.contains("run")) return owner;
  const auto run = run_of(json.at("run").get<std::string>());
  if (!run || !json.at("term").is_number_unsigned()) return std::nullopt;
  owner.run = *run;
  owner.term = json.at("term").get<std::uint64_t>();
  if (json.contains("process")) owner.process = json.at("process").get<std::string>();
  return owner;
}

// Makes the one before an owner, which has published nothing, the owner.
void go_back(CheckpointOwner& owner) {
  CheckpointOwner next = std::move(owner.before.back());
  owner.before.pop_back();
  next.before = std::move(owner.before);
  owner = std::move(next);
}

// Takes the store from runs that were killed before they had published something.
Result<CheckpointOwner> without_dead(Storage& storage, CheckpointOwner owner) {
  const std::size_t before = owner.before.size();
  while (!owner.before.empty() && is_over(owner.process)) go_back(owner);
  if (owner.before.size() == before) return owner;
  STARLING_TRY(put_owner(storage, owner));
  return owner;
}

// Whether it is the beginning of what format_checkpoint_owner() writes, and no more.
bool is_half(std::string_view text) {
  const std::string begin = "{\n \"format\": \"" + std::string(kOwnerFormat) + "\"";
  return (text.size() < begin.size() ? begin.starts_with(text) : text.starts_with(begin)) &&
         !OrderedJson::accept(text);
}

// As read_checkpoint_owner(). Sets `half` if there is half of one, for long.
Result<std::optional<CheckpointOwner>> read_owner(const Storage& storage, bool& half) {
  const auto until = std::chrono::steady_clock::now() + kWriting;
  for (;;) {
    STARLING_TRY(text, storage.get(kOwner, kBytesMax));
    if (!text) return std::optional<CheckpointOwner>();
    auto owner = parse_checkpoint_owner(*text);
    if (owner) return std::optional<CheckpointOwner>(std::move(owner).value());
    const bool late = std::chrono::steady_clock::now() > until;
    half = late && is_half(*text);
    if (half) return std::optional<CheckpointOwner>();
    if (late)
      return Error(Code::kBadInput,
                   "cannot tell whose checkpoint folder it is (once no run uses it, the file "
                   "may be removed): " +
                       owner.error().text() + "; " + storage.place(kOwner));
    std::this_thread::sleep_for(kLookAgain);
  }
}

// The owner of the store, which is made if there is none.
Result<CheckpointOwner> owner_or_made(Storage& storage, const CheckpointWriter& writer) {
  bool half = false;
  STARLING_TRY(owner, read_owner(storage, half));
  if (owner) return without_dead(storage, std::move(*owner));
  CheckpointOwner mine = first_owner(writer);
  STARLING_TRY(look_at_newest(storage, mine));  // of a build that made no owner file
  if (half) {
    STARLING_TRY(put_owner(storage, mine));
    return mine;
  }
  STARLING_TRY(made, storage.put_new(kOwner, format_checkpoint_owner(mine)));
  if (made) return mine;
  STARLING_TRY(faster, read_checkpoint_owner(storage));
  if (faster) return std::move(*faster);
  return Error(Code::kBadInput,
               "another process removes what this one makes; " + storage.place(kOwner));
}

}  // namespace

bool CheckpointOwner::has(std::uint64_t state_hash) const {
  return std::find(state_hashes.begin(), state_hashes.end(), state_hash) != state_hashes.end();
}

std::string format_checkpoint_owner(const CheckpointOwner& owner) {
  OrderedJson json = {{"format", kOwnerFormat}};
  json.update(json_of(owner));
  if (!owner.before.empty()) {
    OrderedJson before = OrderedJson::array();
    for (const CheckpointOwner& earlier : owner.before) before.push_back(json_of(earlier));
    json["before"] = std::move(before);
  }
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Result<CheckpointOwner> parse_checkpoint_owner(std::string_view text) {
  const auto corrupt = [&] {
    return Error(Code::kCorrupt, "expected the owner of a folder of checkpoints, is " +
                                     std::to_string(text.size()) + " bytes of something else");
  };
  if (text.size() > kBytesMax) return corrupt();
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return corrupt();
  try {  // at() and get() throw where something is missing or of another kind
    if (json.at("format") != kOwnerFormat) return corrupt();
    auto owner = owner_of(json);
    if (!owner) return corrupt();
    if (!json.contains("before")) return std::move(*owner);
    const OrderedJson& before = json.at("before");
    if (!before.is_array() || before.size() > kBeforeMax) return corrupt();
    for (const OrderedJson& each : before) {
      auto earlier = owner_of(each);
      if (!earlier) return corrupt();
      owner->before.push_back(std::move(*earlier));
    }
    return std::move(*owner);
  } catch (const OrderedJson::exception&) {
    return corrupt();
  }
}

Result<std::optional<CheckpointOwner>> read_checkpoint_owner(const Storage& storage) {
  bool half = false;
  return read_owner(storage, half);
}

Result<> may_take_checkpoints(const Storage& storage, const CheckpointWriter& writer) {
  STARLING_TRY(owner, read_checkpoint_owner(storage));
  return owner ? same_job(*owner, writer, storage.place(kOwner))
               : look_at_newest(storage, first_owner(writer));
}

Result<> take_checkpoints(Storage& storage, const CheckpointWriter& writer) {
  STARLING_TRY(owner, owner_or_made(storage, writer));
  STARLING_TRY(same_job(owner, writer, storage.place(kOwner)));
  CheckpointOwner next = owner;
  if (of_other_run(owner, writer.run)) {
    next.before.push_back(owner);
    next.before.back().before.clear();
  }
  std::erase_if(next.before, [&](const CheckpointOwner& o) { return o.run == writer.run; });
  if (next.before.size() > kBeforeMax) next.before.erase(next.before.begin());
  std::erase(next.state_hashes, writer.state_hash);
  next.state_hashes.push_back(writer.state_hash);
  next.job = writer.job;
  next.run = writer.run;
  next.process = writer.process;
  next.term = 0;  // a new group counts from the start
  return next == owner ? Result<>(ok()) : put_owner(storage, next);
}

Result<> hold_checkpoints(Storage& storage, const CheckpointWriter& writer) {
  STARLING_TRY(owner, owner_or_made(storage, writer));
  STARLING_TRY(same_job(owner, writer, storage.place(kOwner)));
  if (of_other_run(owner, writer.run)) return of_newer_run(storage, owner, writer.run);
  if (owner.term > writer.term)
    return Error(Code::kStale,
                 "a newer leader of this run writes the checkpoints; " + storage.place(kOwner));
  CheckpointOwner next = owner;
  next.run = writer.run;
  next.term = writer.term;
  return next == owner ? Result<>(ok()) : put_owner(storage, next);
}

Result<> still_of_run(Storage& storage, const JobId& run) {
  auto read = read_checkpoint_owner(storage);
  // An owner that is gone or cannot be read is the publisher's business.
  if (!read || !read.value() || !of_other_run(*read.value(), run)) return ok();
  STARLING_TRY(owner, without_dead(storage, std::move(*read.value())));
  return of_other_run(owner, run) ? Result<>(of_newer_run(storage, owner, run)) : ok();
}

bool newer_run_is_idle(const Storage& storage, const JobId& run) {
  const auto owner = read_checkpoint_owner(storage);
  return owner && owner.value() && of_other_run(*owner.value(), run) &&
         is_before(*owner.value(), run);
}

Result<> publish_own_checkpoint(Storage& storage, const CheckpointWriter& writer,
                                const Manifest& manifest) {
  STARLING_TRY(hold_checkpoints(storage, writer));
  STARLING_TRY(publish_checkpoint(storage, manifest));
  STARLING_TRY(owner, read_checkpoint_owner(storage));
  if (!owner || owner->run != writer.run || owner->before.empty()) return ok();
  owner->before.clear();
  return put_owner(storage, *owner);
}

void remove_own_checkpoints(Storage& storage, const CheckpointWriter& writer, Version below,
                            const std::vector<Version>& kept) {
  const auto mine = hashes_if_held(storage, writer);
  if (mine && mine.value()) remove_checkpoints(storage, below, kept, *mine.value());
}

Result<> withdraw_own_checkpoints(Storage& storage, const CheckpointWriter& writer, Version above) {
  STARLING_TRY(mine, hashes_if_held(storage, writer));
  return mine ? withdraw_checkpoints(storage, above, *mine) : Result<>(ok());
}

Result<> doubt_own_checkpoints(Storage& storage, const CheckpointWriter& writer, Version from) {
  STARLING_TRY(mine, hashes_if_held(storage, writer));
  return mine ? doubt_checkpoints(storage, from, *mine) : Result<>(ok());
}

void give_up_checkpoints(Storage& storage, const JobId& run) {
  const auto read = read_checkpoint_owner(storage);
  if (!read || !read.value()) return;
  CheckpointOwner owner = *read.value();
  if (owner.run != run) {
    const auto mine = [&](const CheckpointOwner& earlier) { return earlier.run == run; };
    if (std::erase_if(owner.before, mine) > 0) (void)put_owner(storage, owner);
    return;
  }
  std::erase_if(owner.before, [](const CheckpointOwner& o) { return is_over(o.process); });
  if (!owner.before.empty()) {
    go_back(owner);
    (void)put_owner(storage, owner);
    return;
  }
  const auto there = list_checkpoints(storage);
  if (there && there.value().empty()) (void)storage.remove(kOwner);
}

}  // namespace starling
