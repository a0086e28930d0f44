#pragma once
// Drafts holds checkpoints that are being written: from the members' shards to a complete one
// (docs/design.md, section 6, Checkpoints). It owns the drafts, the digests that votes carried for
// them, and the request for a last checkpoint; no other class writes these.
//
// A draft is open while shards come in, then it is being stored, or given up. It ends when a
// checkpoint of its version or a later one is published.
//
// Threads: none; a value that belongs to its leader. Borrows the leader's config and the group.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/wire/messages.h"
#include "elastic/membership/group.h"
#include "elastic/membership/leader_config.h"

namespace starling::elastic {

namespace draft_command {
struct Store {  // all shards are there: write the manifest; -> Drafts::stored()
  Checkpoint checkpoint;
  StepRecord record;  // of step version-1
  std::vector<Shard> shards;
};
// Remove the folders of versions below `below` but these, and all above `above`; manifests of versions
// above `doubted` say that they are in doubt from there on.
struct Tidy {
  Version below = 0;
  std::vector<Version> kept;
  Version above = kNoVersion;
  Version doubted = kNoVersion;
};
struct Propose {  // the manifest is there: it exists when this is committed
  Published published;
};
struct Warn {
  std::string text;
};
}  // namespace draft_command
using DraftCommand = std::variant<draft_command::Store, draft_command::Tidy, draft_command::Propose,
                                  draft_command::Warn>;
using DraftCommands = std::vector<DraftCommand>;

class Drafts {
 public:
  Drafts(const LeaderConfig& config, const Group& group) : config_(config), group_(group) {}
  Drafts(LeaderConfig&&, const Group&) = delete;  // it is borrowed

  struct Origin {
    const Join* standard;  // has the group's fingerprint; null: no worker has, nothing is stored
    Digest data;           // Checkpoint's
    Version doubted_from = kNoVersion;  // Checkpoint's
  };
  // A member's shard, or why there is none; `name` is the member's.
  DraftCommands take(const std::string& name, const ShardWritten& part, const Origin& origin);
  // Takes what the votes of a step that has passed say.
  DraftCommands passed(const StepRecord& record, const Origin& origin);
  // The manifest of this version is written, or why it is not.
  DraftCommands stored(Version version, const std::string& error);
  DraftCommands published(Version version);

  // Requests a checkpoint of a version above the newest complete one, until there is one. False:
  // one is requested already, or this job has no checkpoints.
  bool ask();
  const std::optional<Version>& asked_above() const { return asked_above_; }
  void withdraw_ask() { asked_above_.reset(); }
  // The last that could not be written since one was complete; none: there is no such.
  struct GivenUp {
    Version version = 0;
    std::string why;
  };
  const std::optional<GivenUp>& given_up() const { return given_up_; }
  // Whether one that was asked for is with the store already.
  bool stores_asked() const;

  // Shards of open drafts may be lost with the last epoch: a requested one moves to a later one.
  void epoch_begins();
  void forget();  // the versions that come are written anew
  // Drops all drafts and removes the folders of checkpoints above this version, which are void.
  DraftCommands withdraw_above(Version version);

  void check_invariants() const;

 private:
  enum class State : std::uint8_t { kOpen, kStoring, kGivenUp };
  struct Draft {
    Checkpoint checkpoint;  // its digest: of the segments that are there
    StepRecord record;      // of step version-1
    std::vector<Shard> shards;
    std::vector<bool> segments;  // that are there
    State state = State::kOpen;
  };

  Draft* draft_of(const ShardWritten& part);
  void make_room(Version version);
  bool wanted(Version version) const;
  void store_if_complete(Version version, const Origin& origin);
  void give_up(Version version, const std::string& why);
  draft_command::Tidy tidy_below(Version version) const;

  const LeaderConfig& config_;
  const Group& group_;
  DraftCommands commands_;  // of the call being handled

  std::map<Version, Draft> drafts_;
  std::map<Version, Digest> digests_;  // of versions that are written, as the votes say
  std::optional<GivenUp> given_up_;
  std::optional<Version> asked_above_;  // a checkpoint above this version is asked for
};

}  // namespace starling::elastic
