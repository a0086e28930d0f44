#pragma once
// A Report is what a chaos run leaves for people and programs:
// report.json, junit.xml. Pure: values in, text out.

#include <string>
#include <vector>

#include "tools/chaos/plan.h"
#include "tools/judge/deed.h"
#include "tools/judge/pauses.h"
#include "tools/judge/promises.h"

namespace starling::chaos {

struct Report {
  std::string job;     // its name
  std::string repeat;  // the one command that does this again
  std::string links;   // how they were disturbed; empty: they were not
  Plan plan;
  judge::Evidence evidence;
  std::vector<judge::Verdict> verdicts;
  std::vector<judge::Pause> pauses;
  double seconds = 0;  // both runs together
};

std::string report_json(const Report& report);
// Writes one test case for each promise; broken is a failure, not tested is skipped.
std::string report_junit(const Report& report);

// Writes "P1 same bits        held: ..."
std::string line_of(const judge::Verdict& verdict);

}  // namespace starling::chaos
