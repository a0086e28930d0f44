#include "core/observe/exposition.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <string>

#include "core/observe/process_metrics.h"

namespace starling {
namespace {

TEST_CASE("exposition: families have help, type and lines, and labels are escaped") {
  Exposition out(MetricsFormat::kPrometheus);
  out.gauge("a", "Help.", {{label("x", "q\"\\\n"), 1.5}, {label("x", ""), std::nan("")}});
  out.counter("b", "More.", std::uint64_t{3});
  out.histogram("c", "Times.", std::array{1.0, 2.0}, std::array<std::uint64_t, 3>{1, 0, 2}, 7.5);
  CHECK(std::move(out).text() ==
        "# HELP a Help.\n# TYPE a gauge\na{x=\"q\\\"\\\\\\n\"} 1.5\na{x=\"\"} NaN\n"
        "# HELP b_total More.\n# TYPE b_total counter\nb_total 3\n"
        "# HELP c Times.\n# TYPE c histogram\nc_bucket{le=\"1\"} 1\nc_bucket{le=\"2\"} 1\n"
        "c_bucket{le=\"+Inf\"} 3\nc_sum 7.5\nc_count 3\n");
}

TEST_CASE("exposition: of this process there are time, memory and files") {
  Exposition out(MetricsFormat::kOpenMetrics);
  write_process(out);
  const std::string text = std::move(out).text();
  const auto value = [&](const std::string& name) {
    const auto at = text.find("\n" + name + " ");
    REQUIRE_MESSAGE(at != std::string::npos, name);
    return std::stod(text.substr(at + name.size() + 2));
  };
  CHECK(value("process_cpu_seconds_total") >= 0);
  CHECK(value("process_resident_memory_bytes") > 1e6);
  CHECK(value("process_open_fds") >= 3);
  CHECK(value("process_max_fds") >= value("process_open_fds"));
  CHECK(value("process_start_time_seconds") > 1.7e9);
  CHECK(text.ends_with("# EOF\n"));
}

}  // namespace
}  // namespace starling
