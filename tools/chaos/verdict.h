#pragma once
// A Verdict judges a promise of docs/design.md, section 2, from
// evidence gathered outside the processes that made it. Pure.

#include <string>
#include <vector>

#include "tools/chaos/deed.h"

namespace starling::chaos {

enum class Finding : std::uint8_t { kHeld = 1, kBroken, kNotTested };
const char* to_string(Finding finding);  // "held", "broken", "not tested"

struct Verdict {
  std::string promise;  // "P1"
  std::string title;    // "same bits"
  Finding finding = Finding::kNotTested;
  std::string why;  // what it rests on, what is wrong, or why it was not tested
};

// Judges P1 to P8, in order, then whether every fault had its effect.
std::vector<Verdict> judge(const Evidence& evidence);
bool all_held(const std::vector<Verdict>& verdicts);  // none is broken
// Returns false if none of the plan's faults was done, so that no promise was tested.
bool anything_done(const Evidence& evidence);
// Says "every promise held", "every promise that was tested held; not tested: P4, P5", or "BROKEN".
std::string conclusion(const std::vector<Verdict>& verdicts);

// Says, if the run ended for lack of state, which segment had all its copies at killed
// workers, by the last placement that was told. None: some worker should have had a copy.
std::optional<std::string> last_copies_taken(const Evidence& evidence);

}  // namespace starling::chaos
