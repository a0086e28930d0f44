#include "tools/chaos/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/xml.h"

namespace starling::chaos {
namespace {

constexpr double kGap = 14;  // between strips
constexpr double kPixelsMax = 12000;
constexpr std::size_t kPointsMax = 4000;

std::string title_of(const std::string& tip) {
  return tip.empty() ? "" : "<title>" + xml_text(tip) + "</title>";
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" text-anchor=\"" + anchor +
         "\">" + xml_text(text) + "</text>\n";
}

}  // namespace

TimeAxis TimeAxis::of(double from, double to) {
  constexpr double kPixelsASecond = 12;
  TimeAxis axis;
  axis.from = from;
  axis.to = std::max(to, from + 1);
  axis.width = std::clamp((axis.to - axis.from) * kPixelsASecond, axis.width, kPixelsMax);
  return axis;
}

double TimeAxis::x(double t) const {
  return left + (std::clamp(t, from, to) - from) / (to - from) * width;
}

double Chart::strip(const std::string& name, double height) {
  const double top = height_ + kGap;
  height_ = top + height;
  body_ += "<rect class=\"strip\" x=\"" + fixed(axis_.left, 1) + "\" y=\"" + fixed(top, 1) +
           "\" width=\"" + fixed(axis_.width, 1) + "\" height=\"" + fixed(height, 1) + "\"/>\n";
  body_ += text_at(axis_.left - 6, top + std::min(height, 24.0) / 2 + 4, "end", name);
  return top;
}

void Chart::scale(double top, double height, double low, double high, const std::string& unit) {
  const auto label = [&](double value) {
    const double range = high - low, most = std::max(std::abs(low), std::abs(high));
    if ((range >= 0.1 || range == 0) && most < 1e6) return fixed(value, range < 10 ? 2 : 0);
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", value);
    return std::string(text);
  };
  body_ += text_at(axis_.left - 6, top + height, "end", label(low));
  body_ += text_at(axis_.left - 6, top + 28, "end", label(high) + unit);
}

void Chart::curve(const std::vector<judge::Point>& points, double top, double height, double low,
                  double high, bool steps, const std::string& style) {
  const double range = high > low ? high / 2 - low / 2 : 1;  // halves: a range may be infinite
  std::string path;
  const auto go = [&](char how, double x, double y) {
    path.append(1, how).append(fixed(x, 1)).append(1, ' ').append(fixed(y, 1));
  };
  bool drawing = false;
  double last_y = 0;
  for (const judge::Point& point : thinned(points, kPointsMax)) {
    if (!std::isfinite(point.value)) {
      drawing = false;
      continue;
    }
    const double part = std::clamp((point.value / 2 - low / 2) / range, 0.0, 1.0);
    const double x = axis_.x(point.t), y = top + height - part * height;
    if (drawing && steps) go('L', x, last_y);
    go(drawing ? 'L' : 'M', x, y);
    drawing = true;
    last_y = y;
  }
  if (drawing && steps) go('L', axis_.right(), last_y);
  if (!path.empty()) body_ += "<path class=\"" + style + "\" d=\"" + path + "\"/>\n";
}

void Chart::bar(double from, double to, double y, double height, const std::string& style,
                const std::string& tip) {
  const double x = axis_.x(from), width = std::max(1.5, axis_.x(to) - x);
  body_ += "<rect class=\"" + style + "\" x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) +
           "\" width=\"" + fixed(width, 1) + "\" height=\"" + fixed(height, 1) + "\">" +
           title_of(tip) + "</rect>\n";
}

void Chart::tick(double t, double top, double height, const std::string& style,
                 const std::string& tip) {
  bar(t, t, top, height, style, tip);
}

void Chart::mark(double t, double y, const std::string& sign, const std::string& style,
                 const std::string& tip) {
  body_ += "<text class=\"" + style + "\" x=\"" + fixed(axis_.x(t), 1) + "\" y=\"" + fixed(y, 1) +
           "\" text-anchor=\"middle\">" + xml_text(sign) + title_of(tip) + "</text>\n";
}

void Chart::time_labels() {
  const double span = axis_.to - axis_.from;
  const double room = span * 60 / axis_.width;  // seconds that a label takes
  double step = 1;
  for (const double s : {1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0}) {
    step = s;
    if (s >= room) break;
  }
  while (step < room) step *= 2;
  for (double t = std::ceil(axis_.from / step) * step; t <= axis_.to; t += step)
    body_ += text_at(axis_.x(t), height_ + 16, "middle", fixed(t, 0) + " s");
  height_ += 20;
}

std::string Chart::svg() const {
  const std::string width = fixed(axis_.right() + 20, 0), height = fixed(height_ + 4, 0);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
         "\" viewBox=\"0 0 " + width + " " + height + "\" role=\"img\">\n" + body_ + "</svg>\n";
}

std::vector<judge::Point> thinned(const std::vector<judge::Point>& points, std::size_t most) {
  if (points.size() <= most) return points;
  const std::size_t run = (points.size() * 2 + most - 1) / most;
  std::vector<judge::Point> out;
  for (std::size_t i = 0; i < points.size(); i += run) {
    std::size_t low = i, high = i;
    for (std::size_t j = i; j < std::min(i + run, points.size()); ++j) {
      if (points[j].value < points[low].value) low = j;
      if (!(points[j].value <= points[high].value)) high = j;  // a gap counts as highest
    }
    out.push_back(points[std::min(low, high)]);
    if (low != high) out.push_back(points[std::max(low, high)]);
  }
  return out;
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

const char* chart_style() {
  return R"(
text{font:12px system-ui,sans-serif;fill:#57606a}
.strip{fill:#8b949e;fill-opacity:.08}
.life{fill:#7fb5e6}
.stopped{fill:#6e7781;fill-opacity:.75}.slow{fill:#d4a72c;fill-opacity:.75}
.cut{fill:#8250df;fill-opacity:.6}
.forced{fill:#bc4c00}.prepared{fill:#0969da;fill-opacity:.6}
.curve{fill:none;stroke:#0969da;stroke-width:1.5;stroke-linejoin:round}
.curve.second{stroke:#bc4c00}.quietly{stroke:#8b949e;fill:none;stroke-dasharray:4 3}
.hurt{fill:#cf222e;font-weight:700;font-size:14px}.kind{fill:#1a7f37;font-weight:700}
)";
}

}  // namespace starling::chaos
