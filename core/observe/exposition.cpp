#include "core/observe/exposition.h"

#include <charconv>
#include <cmath>
#include <utility>

namespace starling {
namespace {

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

}  // namespace

const char* content_type(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string label(const std::string& name, const std::string& value) {
  std::string text = name + "=\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text + "\"";
}

void Exposition::gauge(const std::string& name, const char* help,
                       const std::vector<Sample>& samples) {
  head(name, "gauge", help);
  for (const Sample& sample : samples) line(name, sample.labels, sample.value);
}

void Exposition::gauge(const std::string& name, const char* help, double value) {
  gauge(name, help, {{"", value}});
}

void Exposition::counter(const std::string& name, const char* help,
                         const std::vector<Sample>& samples) {
  head(open_ ? name : name + "_total", "counter", help);
  for (const Sample& sample : samples) line(name + "_total", sample.labels, sample.value);
}

void Exposition::counter(const std::string& name, const char* help, std::uint64_t value) {
  counter(name, help, {{"", static_cast<double>(value)}});
}

void Exposition::histogram(const std::string& name, const char* help,
                           std::span<const double> bounds, std::span<const std::uint64_t> counts,
                           double sum) {
  head(name, "histogram", help);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    const std::string bound = i < bounds.size() ? value_text(bounds[i]) : "+Inf";
    line(name + "_bucket", label("le", bound), static_cast<double>(below));
  }
  line(name + "_sum", "", sum);
  line(name + "_count", "", static_cast<double>(below));
}

std::string Exposition::text() && {
  if (open_) text_ += "# EOF\n";
  return std::move(text_);
}

void Exposition::head(const std::string& name, const char* type, const char* help) {
  text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
  text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

void Exposition::line(const std::string& name, const std::string& labels, double value) {
  text_.append(name);
  if (!labels.empty()) text_.append("{").append(labels).append("}");
  text_.append(" ").append(value_text(value)).append("\n");
}

}  // namespace starling
