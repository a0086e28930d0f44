#pragma once
// Judges the promises of docs/design.md, section 2, from evidence
// gathered outside the processes that made them. Pure.

#include <optional>
#include <string>
#include <vector>

#include "tools/judge/deed.h"
#include "tools/judge/verdict.h"

namespace starling::judge {

const char* to_string(Finding finding);  // "held", "broken", "not tested"

// Judges P1 to P8, in order, then whether every fault had its effect.
std::vector<Verdict> verdicts_of(const Evidence& evidence);
bool all_held(const std::vector<Verdict>& verdicts);  // none is broken
// Returns false if none of the plan's faults was done, so that no promise was tested.
bool anything_done(const Evidence& evidence);
// Says "every promise held", "every promise that was tested held; not tested: P4, P5", or "BROKEN".
std::string conclusion(const std::vector<Verdict>& verdicts);

// Says, if the run ended for lack of state, which segment had all its copies at killed
// workers, by the last placement that was told. None: some worker should have had a copy.
std::optional<std::string> last_copies_taken(const Evidence& evidence);

}  // namespace starling::judge
