#pragma once
// A PlaceClaim asks the group for a place of its own, for a coordinator that joins it while the job runs
// (docs/decisions/068-a-place-is-filled-once.md). Until the place is given to the life of its log it takes part in
// nothing, and without that log never again: it may have voted.
//
// Threads: none; PlaceClaim is a value.

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling::actors {

class PlaceClaim {
 public:
  // Reads the life of the log in the folder `dir` from its file `life`, or writes a new one, synced. `log_lost`: the
  // log is as new. Errors: kBadInput  the log was lost since the place was given, or the file cannot be read or written.
  static Result<PlaceClaim> open(const std::string& dir, std::uint32_t place, bool log_lost);

  // `address`: where others reach this coordinator. `replaces`: the one that goes when this one votes.
  // `job_hash`: of its job file, which the group compares.
  ChangeAsked question(const std::string& address, std::optional<std::uint32_t> replaces,
                       std::uint64_t job_hash) const;

  // Notes on disk that the log of this life takes part from now on. Errors: as open().
  Result<> begin();
  bool has_begun() const { return begun_; }

 private:
  Result<> save() const;

  std::string path_;
  std::uint32_t place_ = 0;
  Nonce life_;
  bool begun_ = false;
};

}  // namespace starling::actors
