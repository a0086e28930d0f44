#include "core/observe/loss_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "core/base/xml.h"

namespace starling {
namespace {

constexpr double kWidth = 800, kHeight = 420;
constexpr double kLeft = 64, kRight = 24, kTop = 48, kBottom = 52;
constexpr std::size_t kPointsMax = 1000;

constexpr const char* kStyle = R"(<style>
text{font:13px system-ui,sans-serif;fill:#57606a}.title{font-size:16px;font-weight:600;fill:#24292f}
.grid{stroke:#8b949e;stroke-opacity:.25}.epoch{stroke:#bc6c25;stroke-opacity:.7;stroke-dasharray:4 3}
.loss{fill:none;stroke:#0969da;stroke-width:2;stroke-linejoin:round}.dot{fill:#0969da}
.held{stroke:#1a7f37}.held.dot{fill:#1a7f37;stroke:none}.heldtext{fill:#1a7f37}
@media(prefers-color-scheme:dark){text{fill:#9198a1}.title{fill:#e6edf3}.loss{stroke:#58a6ff}.dot{fill:#58a6ff}.epoch{stroke:#e3a35c}.held{stroke:#3fb950}.held.dot{fill:#3fb950;stroke:none}.heldtext{fill:#3fb950}}
</style>
)";

std::string fixed(double value, int digits = 1) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// A scale from values to pixels with ticks at 1, 2 or 5 times a power of ten.
struct Axis {
  double low, high, tick;
  double from, to;  // pixels of low and high
  int digits = 0;   // of tick labels, after the point

  Axis(double min, double max, bool whole, double pixel_from, double pixel_to, int ticks)
      : from(pixel_from), to(pixel_to) {
    if (!(max > min)) max = min + (whole ? 1 : std::max(0.01, std::abs(min) * 0.1));
    const double raw = (max - min) / ticks;
    const double power = std::pow(10, std::floor(std::log10(raw)));
    const double part = raw / power;
    tick = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
    if (whole) tick = std::max(tick, 1.0);
    low = whole ? min : std::floor(min / tick) * tick;
    high = whole ? max : std::ceil(max / tick) * tick;
    digits = std::clamp(static_cast<int>(std::ceil(-std::log10(tick) - 1e-9)), 0, 12);
  }
  double pixel(double value) const { return from + (value - low) / (high - low) * (to - from); }
  std::vector<double> ticks() const {
    std::vector<double> all;
    const double first = std::ceil(low / tick - 1e-9);
    for (int i = 0; i < 64 && (first + i) * tick <= high + tick * 1e-6; ++i)
      all.push_back((first + i) * tick);
    return all;
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
std::vector<LossPoint> thinned(std::span<const LossPoint> points) {
  if (points.size() <= kPointsMax) return {points.begin(), points.end()};
  const std::size_t run = (points.size() * 2 + kPointsMax - 1) / kPointsMax;
  const auto below = [](const LossPoint& a, const LossPoint& b) {
    // A loss that is not finite stays visible as a gap: it counts as highest.
    if (!std::isfinite(a.loss)) return false;
    return !std::isfinite(b.loss) || a.loss < b.loss;
  };
  std::vector<LossPoint> out;
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
std::string curve(std::span<const LossPoint> points, const Axis& x, const Axis& y,
                  const std::string& more = {}) {
  std::string path, dots;
  bool drawing = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!std::isfinite(points[i].loss)) {
      drawing = false;
      continue;
    }
    const std::string px = fixed(x.pixel(static_cast<double>(points[i].version)));
    const std::string py = fixed(y.pixel(points[i].loss));
    const bool alone = !drawing && (i + 1 == points.size() || !std::isfinite(points[i + 1].loss));
    if (alone)
      dots += "<circle class=\"dot" + more + "\" cx=\"" + px + "\" cy=\"" + py + "\" r=\"3\"/>\n";
    path += (drawing ? "L" : "M") + px + " " + py;
    drawing = true;
  }
  return path.empty() ? "" : "<path class=\"loss" + more + "\" d=\"" + path + "\"/>\n" + dots;
}

std::string marks(std::span<const EpochMark> epochs, const Axis& x) {
  std::string out;
  for (const EpochMark& mark : epochs) {
    const double at = std::clamp(static_cast<double>(mark.version), x.low, x.high);
    const double px = x.pixel(at);
    out += line("epoch", px, kTop, px, kHeight - kBottom) + "><title>epoch " +
           xml_text(mark.label) + "</title></line>\n";
  }
  return out;
}

}  // namespace

std::string loss_svg(const std::string& title, std::span<const LossPoint> points,
                     std::span<const EpochMark> epochs, std::span<const LossPoint> held_out) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& all : {points, held_out})
    for (const auto& p : all) {
      if (!std::isfinite(p.loss)) continue;
      low = std::min(low, p.loss);
      high = std::max(high, p.loss);
    }
  if (!(low <= high)) low = 0, high = 1;
  const double first = points.empty() ? 0 : static_cast<double>(points.front().version);
  double last = points.empty() ? 1 : static_cast<double>(points.back().version);
  if (!held_out.empty()) last = std::max(last, static_cast<double>(held_out.back().version));
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  const Axis x(first, last, /*whole=*/true, kLeft, right, 10);
  const Axis y(low, high, /*whole=*/false, bottom, kTop, 6);

  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 420\" width=\"800\" "
      "height=\"420\" role=\"img\">\n<title>" +
      xml_text(title) + "</title>\n";
  out += kStyle;
  out += text_at(kLeft, 28, "start", title, " class=\"title\"");
  for (const double tick : y.ticks()) {
    out += line("grid", kLeft, y.pixel(tick), right, y.pixel(tick)) + "/>\n";
    out += text_at(kLeft - 8, y.pixel(tick) + 4, "end", fixed(tick, y.digits));
  }
  for (const double tick : x.ticks()) {
    out += line("grid", x.pixel(tick), bottom, x.pixel(tick), bottom + 5) + "/>\n";
    out += text_at(x.pixel(tick), bottom + 20, "middle", fixed(tick, 0));
  }
  out += text_at((kLeft + right) / 2, kHeight - 10, "middle", "step");
  out += text_at(18, (kTop + bottom) / 2, "middle", "loss (nats)",
                 " transform=\"rotate(-90 18 " + fixed((kTop + bottom) / 2) + ")\"");
  if (!epochs.empty()) {
    const std::string n =
        std::to_string(epochs.size()) + (epochs.size() == 1 ? " epoch" : " epochs");
    out += text_at(right, 28, "end", n + " (dashed)");
  }
  if (!held_out.empty()) out += text_at(right, 44, "end", "held out", " class=\"heldtext\"");
  out += marks(epochs, x) + curve(thinned(points), x, y);
  out += curve(thinned(held_out), x, y, " held");
  return out + "</svg>\n";
}

Result<> write_loss_svg(const std::string& path, const std::string& title,
                        std::span<const LossPoint> points, std::span<const EpochMark> epochs,
                        std::span<const LossPoint> held_out) {
  const std::string beside = path + ".new";
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  file << loss_svg(title, points, epochs, held_out);
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(beside, path, error);
  if (file && !error) return ok();
  std::error_code ignored;  // the first failure is the one to tell
  std::filesystem::remove(beside, ignored);
  return Error(Code::kBadInput, "cannot write the loss curve; " + path);
}

}  // namespace starling
