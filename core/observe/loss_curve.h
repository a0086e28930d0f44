#pragma once
// LossCurve keeps what a run's picture shows (loss_svg.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/observe/event_sink.h"
#include "core/observe/loss_svg.h"

namespace starling {

// Returns "1.2 forced, 3 workers".
std::string label_of(const event::EpochFormed& epoch);

// Memory: 4 MiB at most, however long the run.
class LossCurve : public EventSink {
 public:
  void on(const Event& event) override;
  // Writes the picture. Errors: as write_loss_svg().
  Result<> save(const std::string& path, const std::string& title) const;

 private:
  struct Step {
    Version version = 0;
    double loss = 0, norm = 0, rate = 0;  // rate: NaN where the step's event has none
  };
  void add_step(const event::StepPassed& step);
  void add_epoch(const event::EpochFormed& epoch);

  std::vector<CurvePoint> evaluations_;
  std::uint64_t steps_ = 0;
  std::optional<Version> last_;
  std::vector<Step> kept_;  // one in `every_` steps, so that they are bounded
  std::uint64_t every_ = 1;
  std::vector<EpochMark> epochs_;
};

}  // namespace starling
