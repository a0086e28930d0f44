#pragma once
// An Exposition is a text of metrics, as Prometheus and OpenMetrics read it.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace starling {

enum class MetricsFormat : std::uint8_t {
  kPrometheus,   // text, version 0.0.4
  kOpenMetrics,  // text, version 1.0.0
};

// The content type of a format.
const char* content_type(MetricsFormat format);

// Returns `name="value"`, with what a value may not have escaped.
std::string label(const std::string& name, const std::string& value);

struct Sample {
  std::string labels;  // without braces
  double value = 0;
};

// Writes families of metrics, one after the other. Threads: one at a time.
class Exposition {
 public:
  explicit Exposition(MetricsFormat format) : open_(format == MetricsFormat::kOpenMetrics) {}

  void gauge(const std::string& name, const char* help, const std::vector<Sample>& samples);
  void gauge(const std::string& name, const char* help, double value);
  // `name` without "_total".
  void counter(const std::string& name, const char* help, const std::vector<Sample>& samples);
  void counter(const std::string& name, const char* help, std::uint64_t value);
  // `counts`: of each bound, the last above all.
  void histogram(const std::string& name, const char* help, std::span<const double> bounds,
                 std::span<const std::uint64_t> counts, double sum);

  std::string text() &&;

 private:
  void head(const std::string& name, const char* type, const char* help);
  void line(const std::string& name, const std::string& labels, double value);

  const bool open_;
  std::string text_;
};

}  // namespace starling
