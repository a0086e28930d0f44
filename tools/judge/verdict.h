#pragma once
// A Verdict says whether a run kept a promise (docs/design.md, section 2).

#include <cstdint>
#include <string>

namespace starling::judge {

enum class Finding : std::uint8_t {
  kHeld = 1,
  kBroken,    // `why` names the first place
  kNotShown,  // nothing speaks against the promise, but nothing shows it
};

struct Verdict {
  std::string promise;  // "P1"
  std::string title;    // "same bits"
  Finding finding = Finding::kNotShown;
  std::string why;  // what it rests on, what is wrong, or why it is not shown
};

}  // namespace starling::judge
