#pragma once
// A run seen from outside: its events.jsonl, read as it grows (core/observe/events.h has the
// fields).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling::bench {

class RunEvents {
 public:
  struct Step {
    double t = 0;  // seconds on the run's clock, as all times here
    Version version = 0;
    double ms = 0;
    std::uint32_t world = 0;
  };
  struct Epoch {
    double t = 0;
    std::string kind, begin;
    std::vector<std::string> members;  // names, by rank
    std::size_t moves = 0;
    std::optional<Pause> pause;
  };
  struct Life {
    double joined = 0;
    std::uint64_t pid = 0;
    std::optional<double> ended;
    std::string phase;  // of a death, as its guard told it
  };

  explicit RunEvents(std::string folder) : path_(folder + "/events.jsonl") {}

  // Reads the lines that were added. kCorrupt: a line is damaged, a step came out of order, or a
  // ledger does not have each of the step's micro-batches once.
  Result<> read();

  // The run's clock now; 0 before its start was read.
  double now() const;

  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Epoch>& epochs() const { return epochs_; }
  const std::map<std::string, Life>& lives() const { return lives_; }  // the last one by name
  std::uint32_t exposed() const { return exposed_; }
  std::uint32_t micro_batches() const { return micro_batches_; }
  const std::string& address() const { return address_; }
  const std::string& keys() const { return keys_; }
  bool over() const { return over_; }

 private:
  Result<> take(const std::string& line);

  const std::string path_;
  std::size_t offset_ = 0;
  std::string rest_;  // of a line whose end is not there yet
  std::int64_t origin_ns_ = 0;
  std::uint32_t micro_batches_ = 0;
  std::string address_, keys_;
  std::vector<Step> steps_;
  std::vector<Epoch> epochs_;
  std::map<std::string, Life> lives_;
  std::uint32_t exposed_ = 0;
  bool over_ = false;
};

}  // namespace starling::bench
