#pragma once
// A FaultKind answers all that plans, the disturber, the judge and reports ask about one kind:
// it is one file of this folder and one line of table.h; no other code tells kinds apart.

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/judge/deed.h"

namespace starling::chaos {

struct Fault;
class Numbers;
class Disturbance;

// A Beginning is a run at its start, as far as it says which faults can be done.
struct Beginning {
  std::size_t workers = 0, workers_min = 0;  // fewer than the latter never stay
  bool all_awake = false;                    // workers_min counts only workers that are not stopped
  std::uint32_t coordinators = 0;
  bool checkpoints = false;  // the job writes some
  bool last_copies = false;  // the last worker with some state may be killed
};

struct FaultKind {
  const char* word;  // in plans, reports and --kinds

  // These keys of [[fault]] the kind can use, beside at_s, kind and target.
  struct Keys {
    bool count = true, nodes = false, for_s = false, back_s = false, share = false, delay_s = false;
    std::uint32_t count_min = 1;  // also the plan's default
  };
  Keys keys;
  bool usual = false;     // drawn without --kinds
  bool attached = false;  // can be done to a run of another owner

  // The change of a link that the kind needs (links.h).
  enum class Link : std::uint8_t { kNothing, kCut, kApart, kDelay, kFlip };
  Link link = Link::kNothing;

  // Fills in what a drawn fault has beyond time and target; null: no more. Pure.
  void (*draw)(Fault& fault, Numbers& numbers, double lease_s) = nullptr;
  // Says why no fault of the kind can be done in a run that begins
  // so, without joins; empty: one can. Null: one always can. Pure.
  std::string (*impossible)(const Beginning& run) = nullptr;
  // Does the fault, or holds it back, and says what must be seen of it. Never null.
  void (*begin)(Disturbance& it) = nullptr;
  // The job is over, perhaps during the fault: this gives
  // back what the fault took. Null: it took nothing.
  void (*end)(Disturbance& it) = nullptr;

  judge::Judged judged;

  judge::Shown shown;
};

}  // namespace starling::chaos
