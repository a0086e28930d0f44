#pragma once
// The verdict on each promise of docs/design.md, section 2, from evidence gathered outside the
// processes that made them. Pure.

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
  std::string why;  // what it rests on, what is wrong, or why nothing can be said
};

// P1 to P8, in order, then one of whether every fault had its effect.
std::vector<Verdict> judge(const Evidence& evidence);
bool all_held(const std::vector<Verdict>& verdicts);  // none is broken
// "every promise held", "every promise that was tested held; not tested: P4, P5", or "BROKEN".
// False: of the faults that the plan has none was done, so nothing was put to the test.
bool anything_done(const Evidence& evidence);
std::string conclusion(const std::vector<Verdict>& verdicts);

// If the run ended for lack of state: which segment had all its copies at workers that were killed,
// as far as the placement that was told last goes. None: somebody should have had a copy.
std::optional<std::string> last_copies_taken(const Evidence& evidence);

}  // namespace starling::chaos
