#include "core/observe/loss_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <vector>

#include "core/base/xml.h"

namespace starling {
namespace {

constexpr double kWidth = 800, kLeft = 78, kRight = 24;
constexpr double kTop = 48, kLossHeight = 320, kOtherHeight = 96, kBetween = 26, kBottom = 52;
constexpr std::size_t kPointsMax = 1000;
// So many points and more have a moving average, over one in so many before and after each.
constexpr std::size_t kSmoothedFrom = 64, kSmoothedShare = 64;
constexpr double kLogarithmicFrom = 20;  // highest by lowest

constexpr const char* kStyle = R"(<style>
text{font:13px system-ui,sans-serif;fill:#57606a}.title{font-size:16px;font-weight:600;fill:#24292f}
.grid{stroke:#8b949e;stroke-opacity:.25}.epoch{stroke:#bc6c25;stroke-opacity:.7;stroke-dasharray:4 3}
.loss{fill:none;stroke:#0969da;stroke-width:2;stroke-linejoin:round}.dot{fill:#0969da}
.faint{stroke-width:1;stroke-opacity:.35}.thin{stroke-width:1}
.held{stroke:#1a7f37}.held.dot{fill:#1a7f37;stroke:none}.heldtext{fill:#1a7f37}
@media(prefers-color-scheme:dark){text{fill:#9198a1}.title{fill:#e6edf3}.loss{stroke:#58a6ff}.dot{fill:#58a6ff}.epoch{stroke:#e3a35c}.held{stroke:#3fb950}.held.dot{fill:#3fb950;stroke:none}.heldtext{fill:#3fb950}}
</style>
)";

std::string fixed(double value, int digits = 1) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Of the finite values of some curves.
struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void heed(const std::vector<CurvePoint>& points) {
    for (const CurvePoint& p : points)
      if (std::isfinite(p.value)) low = std::min(low, p.value), high = std::max(high, p.value);
  }
  bool is_empty() const { return !(low <= high); }
  bool is_wide() const { return low > 0 && high / low >= kLogarithmicFrom && high / low < 1e30; }
};

// A scale from values to pixels with ticks at 1, 2 or 5 times a power of ten.
struct Axis {
  double low = 0, high = 1, tick = 1;
  double from = 0, to = 0;   // pixels of low and high
  int digits = 0;            // of tick labels, after the point
  bool logarithmic = false;  // then low and high are powers of ten
  double apart = 10;         // logarithmic: from tick to tick

  static Axis linear(double min, double max, bool whole, double from, double to, int ticks) {
    Axis a;
    a.from = from, a.to = to;
    if (!(max > min)) max = min + (whole ? 1 : std::max(0.01, std::abs(min) * 0.1));
    const double raw = (max - min) / ticks;
    const double power = std::pow(10, std::floor(std::log10(raw)));
    const double part = raw / power;
    a.tick = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
    if (whole) a.tick = std::max(a.tick, 1.0);
    a.low = whole ? min : std::floor(min / a.tick) * a.tick;
    a.high = whole ? max : std::ceil(max / a.tick) * a.tick;
    a.digits = std::clamp(static_cast<int>(std::ceil(-std::log10(a.tick) - 1e-9)), 0, 12);
    return a;
  }
  static Axis of(const Range& range, bool may_be_logarithmic, double from, double to, int ticks) {
    if (range.is_empty()) return linear(0, 1, /*whole=*/false, from, to, ticks);
    if (!may_be_logarithmic || !range.is_wide())
      return linear(range.low, range.high, /*whole=*/false, from, to, ticks);
    Axis a;
    a.from = from, a.to = to, a.logarithmic = true;
    a.low = std::pow(10, std::floor(std::log10(range.low)));
    a.high = std::pow(10, std::ceil(std::log10(range.high)));
    a.apart = std::pow(10, std::ceil(std::log10(a.high / a.low) / (2 * ticks)));
    return a;
  }

  double pixel(double value) const {
    const double share = logarithmic ? std::log10(value / low) / std::log10(high / low)
                                     : (value - low) / (high - low);
    return from + share * (to - from);
  }
  std::vector<double> ticks() const {
    std::vector<double> all;
    if (logarithmic) {
      const bool few = high / low < 1e3;  // powers of ten: twos and fives between them as well
      for (double power = low; power <= high * 1.001; power *= apart)
        for (const double times : {1.0, 2.0, 5.0})
          if (power * times <= high * 1.001 && (times == 1 || few)) all.push_back(power * times);
      return all;
    }
    const double first = std::ceil(low / tick - 1e-9);
    for (int i = 0; i < 64 && (first + i) * tick <= high + tick * 1e-6; ++i)
      all.push_back((first + i) * tick);
    return all;
  }
  std::string label(double value) const {
    if (!logarithmic) return fixed(value, digits);
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", value);
    return text;
  }
};

std::string line(const char* cls, double x1, double y1, double x2, double y2) {
  return std::string("<line class=\"") + cls + "\" x1=\"" + fixed(x1) + "\" y1=\"" + fixed(y1) +
         "\" x2=\"" + fixed(x2) + "\" y2=\"" + fixed(y2) + "\"";
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const std::string& more = {}) {
  return "<text x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" text-anchor=\"" + anchor + "\"" +
         more + ">" + xml_text(text) + "</text>\n";
}

// Keeps of each run of neighbours the first lowest and the first highest, in their order.
std::vector<CurvePoint> thinned(std::span<const CurvePoint> points) {
  if (points.size() <= kPointsMax) return {points.begin(), points.end()};
  const std::size_t run = (points.size() * 2 + kPointsMax - 1) / kPointsMax;
  const auto below = [](const CurvePoint& a, const CurvePoint& b) {
    // A number that is not finite stays visible as a gap: it counts as highest.
    if (!std::isfinite(a.value)) return false;
    return !std::isfinite(b.value) || a.value < b.value;
  };
  std::vector<CurvePoint> out;
  for (std::size_t i = 0; i < points.size(); i += run) {
    const auto part = points.subspan(i, std::min(run, points.size() - i));
    auto low = std::min_element(part.begin(), part.end(), below);
    auto high = std::max_element(part.begin(), part.end(), below);
    if (high < low) std::swap(low, high);
    out.push_back(*low);
    if (high != low) out.push_back(*high);
  }
  return out;
}

// `more`: a second class.
std::string curve(const std::vector<CurvePoint>& points, const Axis& x, const Axis& y,
                  const std::string& more = {}) {
  std::string path, dots;
  bool drawing = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!std::isfinite(points[i].value)) {
      drawing = false;
      continue;
    }
    const std::string px = fixed(x.pixel(static_cast<double>(points[i].version)));
    const std::string py = fixed(y.pixel(points[i].value));
    const bool alone = !drawing && (i + 1 == points.size() || !std::isfinite(points[i + 1].value));
    if (alone)
      dots += "<circle class=\"dot" + more + "\" cx=\"" + px + "\" cy=\"" + py + "\" r=\"3\"/>\n";
    path += (drawing ? "L" : "M") + px + " " + py;
    drawing = true;
  }
  return path.empty() ? "" : "<path class=\"loss" + more + "\" d=\"" + path + "\"/>\n" + dots;
}

// The mean of the finite values among the `around` points before each and as many after it; near the ends fewer.
std::vector<CurvePoint> smoothed(const std::vector<CurvePoint>& points, std::size_t around) {
  std::vector<double> sums{0}, counts{0};  // of the points before
  for (const CurvePoint& p : points) {
    const bool finite = std::isfinite(p.value);
    sums.push_back(sums.back() + (finite ? p.value : 0));
    counts.push_back(counts.back() + (finite ? 1 : 0));
  }
  std::vector<CurvePoint> out;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t apart = std::min({around, i, points.size() - 1 - i});
    const std::size_t begin = i - apart, end = i + apart + 1;
    out.push_back({points[i].version, (sums[end] - sums[begin]) / (counts[end] - counts[begin])});
  }
  return out;
}

// A field for curves above one another, between two heights.
struct Panel {
  const Axis& x;
  double top, bottom;
  Axis y;

  Panel(const Axis& steps, double from, double height, const Range& range, bool logarithmic,
        int ticks)
      : x(steps),
        top(from),
        bottom(from + height),
        y(Axis::of(range, logarithmic, bottom, top, ticks)) {}

  std::string frame(const std::string& name) const {
    std::string out;
    for (const double tick : y.ticks()) {
      out += line("grid", kLeft, y.pixel(tick), kWidth - kRight, y.pixel(tick)) + "/>\n";
      out += text_at(kLeft - 8, y.pixel(tick) + 4, "end", y.label(tick));
    }
    const double middle = (top + bottom) / 2;
    return out + text_at(14, middle, "middle", name,
                         " transform=\"rotate(-90 14 " + fixed(middle) + ")\"");
  }
  std::string marks(const std::vector<EpochMark>& epochs) const {
    std::string out;
    for (const EpochMark& mark : epochs) {
      const double at = x.pixel(std::clamp(static_cast<double>(mark.version), x.low, x.high));
      out += line("epoch", at, top, at, bottom) + "><title>epoch " + xml_text(mark.label) +
             "</title></line>\n";
    }
    return out;
  }
  std::string draw(const std::vector<CurvePoint>& points, const std::string& more = {}) const {
    return curve(thinned(points), x, y, more);
  }
};

}  // namespace

std::string loss_svg(const LossPicture& p) {
  double first = 0, last = 1;
  if (!p.losses.empty()) {
    first = static_cast<double>(p.losses.front().version);
    last = static_cast<double>(p.losses.back().version);
  }
  if (!p.held_out.empty()) last = std::max(last, static_cast<double>(p.held_out.back().version));
  const double right = kWidth - kRight;
  const Axis x = Axis::linear(first, last, /*whole=*/true, kLeft, right, 10);

  Range losses;
  losses.heed(p.losses);
  losses.heed(p.held_out);
  std::vector<Panel> panels{{x, kTop, kLossHeight, losses, /*logarithmic=*/true, 6}};
  std::string body = panels[0].frame("loss (nats)") + panels[0].marks(p.epochs);
  if (p.losses.size() >= kSmoothedFrom) {
    body += panels[0].draw(p.losses, " faint") +
            panels[0].draw(smoothed(p.losses, p.losses.size() / kSmoothedShare));
  } else {
    body += panels[0].draw(p.losses);
  }
  body += panels[0].draw(p.held_out, " held");
  const auto add = [&](const std::vector<CurvePoint>& points, const std::string& name,
                       bool logarithmic) {
    Range range;
    range.heed(points);
    if (range.is_empty()) return;
    panels.push_back({x, panels.back().bottom + kBetween, kOtherHeight, range, logarithmic, 3});
    body += panels.back().frame(name) + panels.back().marks(p.epochs) +
            panels.back().draw(points, " thin");
  };
  add(p.norms, "norm", /*logarithmic=*/true);
  add(p.rates, "rate", /*logarithmic=*/false);

  const double bottom = panels.back().bottom;
  for (const double tick : x.ticks()) {
    body += line("grid", x.pixel(tick), bottom, x.pixel(tick), bottom + 5) + "/>\n";
    body += text_at(x.pixel(tick), bottom + 20, "middle", fixed(tick, 0));
  }
  body += text_at((kLeft + right) / 2, bottom + kBottom - 10, "middle", "step");
  if (!p.epochs.empty()) {
    const std::string n =
        std::to_string(p.epochs.size()) + (p.epochs.size() == 1 ? " epoch" : " epochs");
    body += text_at(right, 28, "end", n + " (dashed)");
  }
  if (!p.held_out.empty()) body += text_at(right, 44, "end", "held out", " class=\"heldtext\"");
  const std::string height = fixed(bottom + kBottom, 0);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 " + height +
         "\" width=\"800\" height=\"" + height + "\" role=\"img\">\n<title>" + xml_text(p.title) +
         "</title>\n" + kStyle + text_at(kLeft, 28, "start", p.title, " class=\"title\"") + body +
         "</svg>\n";
}

Result<> write_loss_svg(const std::string& path, const LossPicture& picture) {
  const std::string beside = path + ".new";
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  file << loss_svg(picture);
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(beside, path, error);
  if (file && !error) return ok();
  std::error_code ignored;  // the first failure is the one to tell
  std::filesystem::remove(beside, ignored);
  return Error(Code::kBadInput, "cannot write the loss curve; " + path);
}

}  // namespace starling
