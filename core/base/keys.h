#pragma once
// CURVE keys say which processes may speak in a job. `starling keys` makes one pair for every
// coordinator, a ring of worker pairs, one for clients (observers) and one for an admin; a process takes
// one name of the ring, and the allow list is the public halves. Keys are Z85 text of 40 characters
// (ZeroMQ RFC 32, CURVE RFC 26).
//
// The file is text, one key a line, so that a person can see what is in it:
//
//   starling-keys 2
//   coordinator-0 PUBLIC SECRET
//   worker-0 PUBLIC
//   end 2
//
// The last line says how many keys there are, so that a file that is still being copied is not taken
// for one of fewer keys.
// With spares, keys of coordinators that may take the place of lost ones while the job runs, the
// second line says how many coordinators begin the group, the first in the file: `founders 3`. All
// others are spares. A file without spares has no such line.
// A line without a secret is a public half. A file with secrets has mode 0600, and one that others
// can read is refused (is_open_to_others()). Nothing in here prints a secret; error texts name lines
// and names only.
//
// For many machines the keys are split: a folder has one file for each process, under the name of
// its key, with what that process needs and no other secret.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling {

inline constexpr std::size_t kZ85KeyLength = 40;

// Z85 text of bytes whose number is a multiple of 4 (checked), and back. Error (kBadInput): wrong
// length or character, or a group above 2^32-1.
std::string z85_encode(ByteView bytes);
Result<Bytes> z85_decode(const std::string& text);

struct KeyPair {
  std::string name;        // [a-z0-9.-], at most 64 characters
  std::string public_key;  // Z85
  std::string secret_key;  // Z85; empty: only the public half is known
  bool operator==(const KeyPair&) const = default;
};

// A fresh pair from the system's random source.
KeyPair make_key_pair(std::string name);

// AllowList maps a public key (Z85) to the name of its owner.
using AllowList = std::map<std::string, std::string>;

// What the owner of a key may say, by the key's name: worker-N what workers and their guards say,
// coordinator-N what Raft says, `admin` and admin-NAME what steers the run (docs/steer.md). All other
// names, `client` first, may look and say nothing.
enum class Role { kObserver, kWorker, kCoordinator, kAdmin };
Role role_of(const std::string& name);

// The name of a worker's key that was made for one life and let in by a token: worker- and twelve digits, which
// follow from the public half (Z85), so that all coordinators give it alike.
std::string enrolled_name(const std::string& public_key);

// Keys with distinct names and distinct public halves. A value; not shared between threads.
class KeyRing {
 public:
  // coordinator-0.., worker-0.., and one each named `client` and `admin`. The last `spares` of coordinators +
  // spares are not there when the group begins.
  static KeyRing generate(std::size_t coordinators, std::size_t workers, std::size_t spares = 0);
  // Loads a file, or all files of a folder of split keys. Errors (kBadInput): cannot be read, not a
  // key file (says which line), not whole, a secret that does not belong to its public half, a name
  // or key twice, or secrets that others than the owner can read.
  static Result<KeyRing> load(const std::string& path);
  // Loads what the process of this name needs: its file of such a folder, or the file at `path`.
  static Result<KeyRing> load_for(const std::string& path, const std::string& name);
  static Result<KeyRing> parse(const std::string& text);

  // Writes a new file, mode 0600 if there are secrets in it, else 0644; an existing file is never
  // replaced (kBadInput), since a lost secret cannot be made again. `synced`: it outlives a crash
  // of the machine.
  Result<> save(const std::string& path, bool synced = true) const;
  // Replaces a file in one step: a reader sees the old text or the new one.
  Result<> replace(const std::string& path) const;
  // Makes a folder, mode 0700, with a file for each pair that has a secret: part_for() of its name.
  Result<> split(const std::string& folder, bool synced = true) const;
  std::string format() const;

  // kBadInput: name or key is there already, or not well-formed.
  Result<> add(KeyPair pair);
  bool remove(const std::string& name);                // false: there was none
  const KeyPair* find(const std::string& name) const;  // null if there is none
  const std::vector<KeyPair>& pairs() const { return pairs_; }
  // Returns how many coordinators begin the group, the first of numbered("coordinator"): all, unless
  // there are spares.
  std::size_t founders() const;
  bool has_secrets() const;
  // The public halves, which may be shown to all.
  KeyRing public_part() const;
  // The keys that one process needs: its own pair and the public halves of the coordinators; a
  // coordinator needs those of all others, its allow list. kBadInput: no such name.
  Result<KeyRing> part_for(const std::string& name) const;
  AllowList allow_list() const;
  // Pairs whose names are "PREFIX-" and a number, in the order of the file: the places of a group.
  std::vector<KeyPair> numbered(const std::string& prefix) const;

 private:
  std::vector<KeyPair> pairs_;
  std::size_t founders_ = 0;  // 0: all coordinators
};

}  // namespace starling
