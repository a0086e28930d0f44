#pragma once
// DIR/loss.svg: the loss over the steps, epochs as vertical marks.

#include <cstdint>
#include <span>
#include <string>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace starling {

struct LossPoint {
  Version version = 0;
  double loss = 0;  // one that is not finite leaves a gap
};

struct EpochMark {
  Version version = 0;  // first step of the epoch
  std::string label;    // shown on hovering: "3.2 forced, 3 workers"
};

// The picture as text. Points in the order of versions; of more than about a thousand, the lowest
// and highest of each run of neighbours are drawn. `held_out`: losses of evaluations, a second
// curve. Readable on light and dark grounds.
std::string loss_svg(const std::string& title, std::span<const LossPoint> points,
                     std::span<const EpochMark> epochs, std::span<const LossPoint> held_out = {});

// Writes it whole or not at all (a file beside it, then renamed). kBadInput if it cannot.
Result<> write_loss_svg(const std::string& path, const std::string& title,
                        std::span<const LossPoint> points, std::span<const EpochMark> epochs,
                        std::span<const LossPoint> held_out = {});

}  // namespace starling
