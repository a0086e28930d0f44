#include "actors/coordinator/key_changes.h"

namespace starling::actors {

std::string changes_of(const AllowList& before, const AllowList& after) {
  constexpr std::size_t kNamed = 8;
  std::string text;
  std::size_t changes = 0;
  const auto add = [&](const AllowList& from, const AllowList& in, const char* what) {
    for (const auto& [key, name] : from) {
      const auto other = in.find(key);
      if (other != in.end() && other->second == name) continue;
      if (++changes <= kNamed) text += (text.empty() ? "keys: " : ", ") + name + what;
    }
  };
  add(before, after, " revoked");
  add(after, before, " let in");
  if (changes > kNamed) text += " and " + std::to_string(changes - kNamed) + " more changes";
  return text;
}

}  // namespace starling::actors
