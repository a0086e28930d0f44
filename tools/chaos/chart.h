#pragma once
// A Chart draws strips of an SVG that share one axis of time, for reports. Pure.

#include <string>
#include <utility>
#include <vector>

#include "tools/judge/point.h"

namespace starling::chaos {

// TimeAxis maps seconds to pixels. A long run is wider: one fault a second must stay visible.
struct TimeAxis {
  double from = 0, to = 1;
  double left = 90, width = 1000;

  static TimeAxis of(double from, double to);
  double x(double t) const;  // clamped to the axis
  double right() const { return left + width; }
};

// A Chart grows downwards, strip by strip.
class Chart {
 public:
  explicit Chart(TimeAxis axis) : axis_(axis) {}
  const TimeAxis& axis() const { return axis_; }

  // Begins a strip of this height, with its name at the left; returns the y of its top.
  double strip(const std::string& name, double height);
  // Draws a line through the points, or steps; the scale covers all values and `low`, if
  // given. Values that are not finite are gaps. `style`: a class of the style sheet below.
  void curve(const std::vector<judge::Point>& points, double top, double height, double low,
             double high, bool steps, const std::string& style);
  // Draws labels of low and high at the left of a strip.
  void scale(double top, double height, double low, double high, const std::string& unit);
  void bar(double from, double to, double y, double height, const std::string& style,
           const std::string& tip);
  void tick(double t, double top, double height, const std::string& style, const std::string& tip);
  void mark(double t, double y, const std::string& sign, const std::string& style,
            const std::string& tip);
  void time_labels();

  std::string svg() const;

 private:
  TimeAxis axis_;
  double height_ = 0;
  std::string body_;
};

// Keeps the lowest and highest of each run of neighbours, so that at most about `most` stay.
std::vector<judge::Point> thinned(const std::vector<judge::Point>& points, std::size_t most);
std::string fixed(double value, int digits);
const char* chart_style();  // CSS

}  // namespace starling::chaos
