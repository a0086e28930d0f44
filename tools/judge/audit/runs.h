#pragma once
// These join runs of one job that went on one after the other, each from the last's checkpoint.

#include <vector>

#include "tools/judge/audit/history.h"

namespace starling::audit {

// True for files of a run's coordinators, of one of them and of `starling run`, or copies of one.
bool of_one_run(const History& a, const History& b);

// Puts the files of later runs behind those of earlier ones, by the version at which they
// begin, and makes one story of them: ids of epochs and of workers begin anew in every run,
// so those of a later run are moved above those before it, and steps that it does again are
// told as a restart. One that failed before its first step is left out. Files of one run begin at one version, at the same coordinators.
void one_after_the_other(std::vector<History>& histories);

}  // namespace starling::audit
