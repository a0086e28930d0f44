#pragma once
// The timeline of a run for a report shows workers as lanes,
// faults on them, epochs, world size, loss, exposure. Pure.

#include <optional>
#include <string>
#include <vector>

#include "tools/chaos/chart.h"
#include "tools/judge/deed.h"

namespace starling::chaos {

// A Life is one life of a worker, as the run's events tell.
struct Life {
  std::uint64_t id = 0;
  std::string name;
  double from = 0, to = 0;
  std::string end;  // lost, left, fenced; empty: there at the end
  std::size_t lane = 0;
};
// Puts each life in the lowest free lane.
std::vector<Life> lives_of(const judge::Story& story, double end);

void draw_epochs(Chart& chart, const judge::Story& story);  // draws a strip of ticks

std::string legend();  // returns "x killed, ..., grey stopped or cut off, ..."
// Draws from the first step to the last event. `width`: in pixels; none: more for a longer run.
Chart timeline(const judge::Story& story, const std::vector<judge::Deed>& deeds,
               std::optional<double> width = std::nullopt);
// The axis of such a timeline.
TimeAxis axis_of(const judge::Story& story, std::optional<double> width = std::nullopt);

}  // namespace starling::chaos
