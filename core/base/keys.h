#pragma once
// CURVE keys: who may speak in a job. `starling keys` makes one pair for every coordinator, a ring
// of worker pairs and one for clients (observers, commands); a process takes one name of the ring,
// and the allow list is the public halves. Keys are Z85 text of 40 characters (ZeroMQ RFC 32, CURVE
// RFC 26).
//
// The file is text, one key a line, so that a person can see what is in it:
//
//   starling-keys 1
//   coordinator-0 PUBLIC SECRET
//   worker-0 PUBLIC
//
// A line without a secret is a public half. A file with secrets has mode 0600, and one that others
// can read is refused. Nothing in here prints a secret; error texts name lines and names only.

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

// Public key (Z85) -> name of whom it belongs to.
using AllowList = std::map<std::string, std::string>;

// Keys with distinct names and distinct public halves. A value; not shared between threads.
class KeyRing {
 public:
  // coordinator-0.., worker-0.., and one named `client`.
  static KeyRing generate(std::size_t coordinators, std::size_t workers);
  // Errors (kBadInput): cannot be read, not a key file (says which line), a secret that does not
  // belong to its public half, a name or key twice, or secrets that others than the owner can read.
  static Result<KeyRing> load(const std::string& path);
  static Result<KeyRing> parse(const std::string& text);

  // Writes a new file, mode 0600 if there are secrets in it, else 0644; an existing file is never
  // replaced (kBadInput), since a lost secret cannot be made again.
  Result<> save(const std::string& path) const;
  std::string format() const;

  // kBadInput: name or key is there already, or not well-formed.
  Result<> add(KeyPair pair);
  const KeyPair* find(const std::string& name) const;  // null if there is none
  const std::vector<KeyPair>& pairs() const { return pairs_; }
  bool has_secrets() const;
  // The public halves: what may be shown to everybody.
  KeyRing public_part() const;
  // What one process needs: its own pair, and the public halves of all others. kBadInput: no such
  // name.
  Result<KeyRing> part_for(const std::string& name) const;
  AllowList allow_list() const;
  // Names that begin with "PREFIX-" and a number, in the order of the file: the places of a group.
  std::vector<KeyPair> numbered(const std::string& prefix) const;

 private:
  std::vector<KeyPair> pairs_;
};

}  // namespace starling
