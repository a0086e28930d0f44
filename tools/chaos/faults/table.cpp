#include "tools/chaos/faults/table.h"

#include <algorithm>

namespace starling::chaos {
namespace {

#define STARLING_NAME_KIND(name) &faults::name,
constexpr const FaultKind* kTable[] = {STARLING_FAULT_KINDS(STARLING_NAME_KIND)};
#undef STARLING_NAME_KIND

}  // namespace

std::span<const FaultKind* const> fault_kinds() {
  return kTable;
}

std::string known_kinds() {
  std::string known;
  for (const FaultKind* kind : kTable) {
    if (!known.empty()) known += ", ";
    known += kind->word;
  }
  return known;
}

std::string kinds_that(bool FaultKind::*what) {
  std::string words;
  for (const FaultKind* kind : kTable) {
    if (!(kind->*what)) continue;
    if (!words.empty()) words += ',';
    words += kind->word;
  }
  return words;
}

Result<std::vector<const FaultKind*>> parse_kinds(const std::string& words) {
  std::vector<const FaultKind*> kinds;
  std::size_t at = 0;
  while (at <= words.size()) {
    const auto comma = std::min(words.find(',', at), words.size());
    const std::string word = words.substr(at, comma - at);
    at = comma + 1;
    const auto found = std::find_if(std::begin(kTable), std::end(kTable),
                                    [&](const FaultKind* kind) { return kind->word == word; });
    if (found == std::end(kTable))
      return Error(Code::kBadInput, "unknown kind of fault \"" + word.substr(0, 64) +
                                        "\", known are " + known_kinds());
    if (std::find(kinds.begin(), kinds.end(), *found) != kinds.end())
      return Error(Code::kBadInput, "kind of fault \"" + word + "\" is named twice");
    kinds.push_back(*found);
  }
  return kinds;
}

}  // namespace starling::chaos
