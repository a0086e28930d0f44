#pragma once
// The curves of a run as an event file of TensorBoard.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/observe/event_sink.h"
#include "core/observe/line_file.h"

namespace starling {

// Scalars by version, each once, under the names that logs of scripts have (docs/pytorch.md):
//   loss, norm, rate, workers, ms, and NAME of what a script measures beside its loss
//   validation.loss, validation.NAME, and validation.perplexity of a language model
// Where a run computes steps a second time, from a checkpoint, the sink has TensorBoard forget the earlier scalars of
// these steps.
class TensorboardSink : public EventSink {
 public:
  // Begins a new file in `folder`, which it makes. `begins`: the run has no step yet, so curves that are there are
  // another's. Errors: kBadInput  it cannot be written, or has those of another run.
  static Result<std::unique_ptr<TensorboardSink>> make(const Job& job, const std::string& folder,
                                                       bool begins);
  void on(const Event& event) override;

 private:
  TensorboardSink(const Job& job, int fd);
  struct Scalar {
    std::string tag;
    double value;
  };
  void add(const event::StepPassed& step);
  void add(const event::Evaluated& evaluated);
  // Has TensorBoard forget the scalars of this step and of later ones.
  void begin_at(Version version);
  void put(Version version, const std::vector<Scalar>& scalars);

  const bool has_tokens_;
  const std::vector<std::string> metrics_;  // their names
  LineFile file_;
  std::optional<Version> next_;  // the first step that was not told
  std::optional<Version> next_evaluation_;
};

// A record of an event file: its length, its bytes, and a checksum of each.
std::string tensorboard_record(std::string_view event);

}  // namespace starling
