#pragma once
// A Point is a value at a time of a run's clock, in seconds.

namespace starling::judge {

struct Point {
  double t = 0, value = 0;
};

}  // namespace starling::judge
