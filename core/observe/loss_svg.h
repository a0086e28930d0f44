#pragma once
// DIR/loss.svg: the loss over the steps, epochs as vertical marks, and below it the gradient's norm and the learning rate.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace starling {

// A number of a step.
struct CurvePoint {
  Version version = 0;
  double value = 0;  // one that is not finite leaves a gap
};

struct EpochMark {
  Version version = 0;  // first step of the epoch
  std::string label;    // shown on hovering: "3.2 forced, 3 workers"
};

// Points in the order of versions. Empty: there is no such curve.
struct LossPicture {
  std::string title;
  std::vector<CurvePoint> losses{};
  std::vector<CurvePoint> held_out{};  // losses of evaluations
  std::vector<CurvePoint> norms{}, rates{};
  std::vector<EpochMark> epochs{};
};

// The picture as text. Of more than about a thousand points of a curve, the lowest and highest of each run of neighbours are
// drawn. Losses of many steps are drawn lightly, below a mean over their neighbours; losses or norms of more than a
// factor of twenty have a logarithmic axis. Readable on light and dark grounds.
std::string loss_svg(const LossPicture& picture);

// Writes it whole or not at all (a file beside it, then renamed). kBadInput if it cannot.
Result<> write_loss_svg(const std::string& path, const LossPicture& picture);

}  // namespace starling
