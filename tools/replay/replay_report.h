#pragma once
// A ReplayReport is what a replay leaves: whether it held, report.json, report.html. Pure.

#include <string>
#include <vector>

#include "tools/chaos/report.h"
#include "tools/judge/goodput.h"
#include "tools/judge/ledger.h"
#include "tools/replay/scenario.h"

namespace starling::replay {

struct ReplayReport {
  chaos::Report run;  // its plan, evidence and verdicts
  std::string trace;  // its file
  Stretch stretch;
  std::uint32_t scale = 1;
  std::size_t workers_most = 0;            // at once
  std::vector<judge::Rate> before, after;  // measured rates around the run; after: empty if given
  std::vector<judge::Point> nodes;         // of the trace, from 0 on
  std::vector<judge::Rate> rates;          // of both
  judge::Goodput goodput;
  judge::LedgerCount ledgers;
  double goodput_min = 0;  // wanted
};

// Fills verdicts, rates, goodput and ledgers from the rest.
void conclude(ReplayReport& report);

// Says why the exit code is 1; empty: it held. Micro-batches were lost or duplicated,
// the digest is not the undisturbed run's, one of P1 to P6 is broken, a fault had no
// effect, the goodput is too low, or the run did not last to the stretch's end.
std::vector<std::string> failures(const ReplayReport& report);

std::string summary(const ReplayReport& report);  // some lines for a terminal
std::string report_json(const ReplayReport& report);
std::string report_html(const ReplayReport& report);

}  // namespace starling::replay
