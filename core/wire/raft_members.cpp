#include "core/wire/raft_members.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/wire/limits.h"

namespace starling {

bool is_group(const RaftMembers& members) {
  const auto& voters = members.voters;
  if (voters.empty() || voters.size() > limits::kVoters || members.next > limits::kSeats)
    return false;
  for (std::size_t i = 0; i < voters.size(); ++i)
    if (voters[i] >= members.next || (i > 0 && voters[i] <= voters[i - 1])) return false;
  const auto votes = [&](std::uint32_t place) {
    return std::binary_search(voters.begin(), voters.end(), place);
  };
  if (members.learner && (*members.learner >= members.next || votes(*members.learner)))
    return false;
  const bool others = voters.size() > 1 || members.learner;
  return !members.leaving || (votes(*members.leaving) && others);
}

// next, learner + 1, leaving + 1, voters: four bytes each.
Bytes encode_members(const RaftMembers& members) {
  STARLING_CHECK(is_group(members));
  ByteWriter bytes;
  bytes.put(members.next);
  bytes.put(members.learner ? *members.learner + 1 : std::uint32_t{0});
  bytes.put(members.leaving ? *members.leaving + 1 : std::uint32_t{0});
  for (const std::uint32_t voter : members.voters) bytes.put(voter);
  return std::move(bytes).take();
}

Result<RaftMembers> decode_members(ByteView bytes) {
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  Error bad(Code::kCorrupt, "not the members of a group");
  if (bytes.size() % kWord != 0 || bytes.size() < 4 * kWord) return bad;
  std::vector<std::uint32_t> words(bytes.size() / kWord);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  RaftMembers members;
  members.next = words[0];
  if (words[1] != 0) members.learner = words[1] - 1;
  if (words[2] != 0) members.leaving = words[2] - 1;
  members.voters.assign(words.begin() + 3, words.end());
  if (!is_group(members)) return bad;
  return members;
}

}  // namespace starling
