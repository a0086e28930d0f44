#pragma once
// A Comparison says where two runs of one job part: the first version
// at which loss, norm or digest are not the same bits (P1). Pure.

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/judge/audit/history.h"

namespace starling::audit {

struct Difference {
  Version version = 0;
  std::string what;  // "digest", "loss", ..
  std::string a, b;
};

// Lists what differs in job and data of two runs, so that steps that both have may differ
// too; empty: no difference. The length of a job is no difference, that of its schedule is.
std::vector<std::string> other_job(const StartFact& a, const StartFact& b);

inline bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

struct Comparison {
  // The differences of job and data that forbid a comparison. Empty: the two can be compared.
  std::vector<std::string> other_job;
  std::vector<std::string> notes;
  std::uint64_t steps = 0;            // compared: told by both
  std::uint64_t digests = 0;          // compared: of the same version, final ones among them
  std::uint64_t evaluations = 0;      // compared: of the same version
  std::optional<Version> same_state;  // the last version whose digests are equal before `first`
  std::optional<Difference> first;
  std::optional<bool> same_end;  // final digests; none: not both have one of one version
};

// Compares, for each version v in turn, its digest, then what step v made of it: a digest
// that differs where the step before had the same loss and norm points at that step's apply.
Comparison compare(const History& a, const History& b);

}  // namespace starling::audit
