#include "tools/replay/replay_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/xml.h"
#include "tools/chaos/report_html.h"
#include "tools/chaos/timeline.h"

namespace starling::replay {
namespace {

using chaos::fixed;
using judge::Point;
using Json = nlohmann::ordered_json;

std::string percent(double part) {
  return fixed(100 * part, 2) + " %";
}

std::string rounded(double number) {
  return fixed(number, 0);
}

bool same_digest(const judge::Evidence& e) {
  return e.loud.done && starling::to_string(e.loud.done->digest) == e.reference_digest;
}

std::string how_removed(const Stretch& stretch) {
  if (!stretch.notice_s) return "removals unannounced";
  return "removals announced " + rounded(*stretch.notice_s) + " s before (" +
         fixed(*stretch.notice_s / stretch.speedup, 2) + " s of the replay)";
}

std::string rates_text(const std::vector<judge::Rate>& rates) {
  std::string text;
  for (const judge::Rate& rate : rates)
    text += (text.empty() ? "" : ", ") + fixed(rate.per_worker, 2) + " a second with " +
            rounded(rate.workers);
  return text;
}

// Counts commits of each bin over its length, so that a curve shows pauses and not single steps.
std::vector<judge::Point> throughput(const ReplayReport& report) {
  constexpr double kBins = 400;
  const auto& story = report.run.evidence.loud;
  const judge::Goodput& g = report.goodput;
  const double step_s = story.median_step_ms() / 1000;
  const double bin = std::max({(g.to_t - g.from_t) / kBins, 2 * step_s, 0.1});
  const auto n = static_cast<std::size_t>(std::ceil((g.to_t - g.from_t) / bin));
  std::vector<judge::Point> points;
  for (std::size_t i = 0; i < n; ++i) points.push_back({g.from_t + double(i) * bin, 0});
  for (const auto& [version, step] : story.committed()) {
    if (step.t <= g.from_t || step.t > g.to_t || points.empty()) continue;
    const auto i = static_cast<std::size_t>((step.t - g.from_t) / bin);
    points[std::min(i, n - 1)].value += double(story.start.micro_batches) / bin;
  }
  return points;
}

std::vector<judge::Point> possible_over_time(const ReplayReport& report) {
  std::vector<judge::Point> points = report.goodput.present;
  for (judge::Point& point : points) point.value *= judge::rate_at(report.rates, point.value);
  return points;
}

double highest(const std::vector<judge::Point>& points) {
  double most = 1;
  for (const judge::Point& point : points) most = std::max(most, point.value);
  return most;
}

std::string chart(const ReplayReport& report) {
  const judge::Goodput& g = report.goodput;
  chaos::Chart chart(chaos::TimeAxis::of(g.from_t, g.to_t));
  std::vector<judge::Point> nodes = report.nodes;
  for (judge::Point& point : nodes) point.t += g.from_t;
  const double most = std::max(highest(nodes), highest(g.present));
  double top = chart.strip("world size", 90);
  chart.scale(top, 90, 0, most, "");
  chart.curve(nodes, top, 90, 0, most, true, "quietly");
  chart.curve(g.present, top, 90, 0, most, true, "curve");

  const auto done = throughput(report), possible = possible_over_time(report);
  const double fastest = std::max(highest(done), highest(possible));
  top = chart.strip("micro-b./s", 90);
  chart.scale(top, 90, 0, fastest, "");
  chart.curve(possible, top, 90, 0, fastest, true, "quietly");
  chart.curve(done, top, 90, 0, fastest, true, "curve second");
  chaos::draw_epochs(chart, report.run.evidence.loud);
  chart.time_labels();
  return chart.svg();
}

std::string row(const std::string& name, const std::string& value) {
  return "<tr><td>" + xml_text(name) + "</td><td>" + xml_text(value) + "</td></tr>\n";
}

std::string figures(const ReplayReport& report) {
  const judge::Goodput& g = report.goodput;
  const auto& e = report.run.evidence;
  std::string out = "<table>\n";
  out += row("goodput", percent(g.value()) + ": " + std::to_string(g.committed) +
                            " committed micro-batches of " + rounded(g.possible) +
                            " that the workers present could have computed");
  out +=
      row("of its own quiet steps' pace", percent(g.of_own()) + " of " + rounded(g.own_possible) +
                                              " (" + rates_text(g.own_rates) + ")");
  out += row("of the trace's nodes", percent(g.of_trace()) + " of " + rounded(g.trace_possible) +
                                         ", had each node computed from its coming to its going");
  out += row("lost, duplicated", std::to_string(report.ledgers.lost) + ", " +
                                     std::to_string(report.ledgers.duplicated) + " (" +
                                     std::to_string(report.ledgers.once) + " pairs counted)");
  out += row("restarts from a checkpoint", std::to_string(e.loud.restarts.size()));
  out += row("digest", (e.loud.done ? starling::to_string(e.loud.done->digest) : "none") +
                           ", undisturbed " + e.reference_digest);
  out += row("trace", report.trace + " from " + rounded(double(report.stretch.from_ms) / 1000) +
                          " s to " + rounded(double(report.stretch.to_ms) / 1000) +
                          " s, speed-up " + fixed(report.stretch.speedup, 0) + ", one node in " +
                          std::to_string(report.scale));
  out += row("removals", how_removed(report.stretch));
  out += row("workers", "at most " + std::to_string(report.workers_most) + " at once; " +
                            fixed(g.worker_s, 0) + " worker-seconds in " +
                            fixed(g.to_t - g.from_t, 1) + " s");
  out += row("undisturbed, of each worker", rates_text(report.rates));
  if (!report.after.empty()) {
    out += row("measured before the run", rates_text(report.before));
    out += row("measured after it", rates_text(report.after));
  }
  out += row("micro-batches of a step", std::to_string(e.loud.start.micro_batches));
  return out + "</table>\n";
}

Json json_of(const std::vector<judge::Rate>& rates) {
  Json out = Json::array();
  for (const judge::Rate& rate : rates)
    out.push_back({{"workers", rate.workers}, {"per_worker", rate.per_worker}});
  return out;
}

Json json_of(const std::vector<judge::Point>& points) {
  Json out = Json::array();
  for (const judge::Point& point : points) out.push_back({point.t, point.value});
  return out;
}

}  // namespace

void conclude(ReplayReport& report) {
  const judge::Evidence& e = report.run.evidence;
  report.run.verdicts = judge::verdicts_of(e);
  // The goodput has the cost of pauses, and a replay has no strangers.
  std::erase_if(report.run.verdicts,
                [](const auto& v) { return v.promise == "P7" || v.promise == "P8"; });
  report.run.pauses = judge::pauses_of(e.loud, e.deeds);
  report.ledgers = judge::count_ledgers(e.loud);
  report.rates = judge::between(report.before, report.after);
  report.goodput =
      judge::goodput_of(e.loud, e.deeds, report.rates, report.nodes, report.stretch.seconds());
}

std::vector<std::string> failures(const ReplayReport& report) {
  std::vector<std::string> found;
  if (report.ledgers.lost + report.ledgers.duplicated > 0)
    found.push_back(std::to_string(report.ledgers.lost) + " micro-batches lost, " +
                    std::to_string(report.ledgers.duplicated) + " duplicated");
  if (!same_digest(report.run.evidence))
    found.push_back("the digest is not that of the undisturbed run");
  for (const judge::Verdict& verdict : report.run.verdicts)
    if (verdict.finding == judge::Finding::kBroken)
      found.push_back(verdict.promise + " " + verdict.title + ": " + verdict.why);
  if (!report.goodput.reached)
    found.push_back("the job ended before the trace did, after " +
                    fixed(report.goodput.to_t - report.goodput.from_t, 1) + " of " +
                    fixed(report.stretch.seconds(), 1) + " s");
  if (report.goodput.value() < report.goodput_min)
    found.push_back("goodput " + percent(report.goodput.value()) + ", wanted " +
                    percent(report.goodput_min));
  return found;
}

std::string summary(const ReplayReport& report) {
  const judge::Goodput& g = report.goodput;
  const auto& e = report.run.evidence;
  std::string text = "goodput " + percent(g.value()) + ": " + std::to_string(g.committed) + " of " +
                     rounded(g.possible) + " micro-batches (" + percent(g.of_own()) +
                     " of its own quiet steps' pace, " + percent(g.of_trace()) +
                     " of what the trace's nodes could)\n";
  text += "lost " + std::to_string(report.ledgers.lost) + ", duplicated " +
          std::to_string(report.ledgers.duplicated) + " of " + std::to_string(report.ledgers.once) +
          "; restarts from a checkpoint: " + std::to_string(e.loud.restarts.size()) + "\n";
  text +=
      std::string("digest ") + (e.loud.done ? starling::to_string(e.loud.done->digest) : "none") +
      (same_digest(e) ? ", the undisturbed run's" : ", undisturbed " + e.reference_digest) + "\n";
  for (const std::string& failure : failures(report)) text += "BROKEN: " + failure + "\n";
  return text;
}

std::string report_json(const ReplayReport& report) {
  const judge::Goodput& g = report.goodput;
  Json out{{"held", failures(report).empty()},
           {"failures", failures(report)},
           {"goodput", g.value()},
           {"goodput_min", report.goodput_min},
           {"committed_micro_batches", g.committed},
           {"possible_micro_batches", g.possible},
           {"goodput_of_own", g.of_own()},
           {"own_possible_micro_batches", g.own_possible},
           {"own_rates", json_of(g.own_rates)},
           {"goodput_of_trace", g.of_trace()},
           {"trace_possible_micro_batches", g.trace_possible},
           {"lost", report.ledgers.lost},
           {"duplicated", report.ledgers.duplicated},
           {"restarts", report.run.evidence.loud.restarts.size()},
           {"trace", report.trace},
           {"from_s", double(report.stretch.from_ms) / 1000},
           {"to_s", double(report.stretch.to_ms) / 1000},
           {"speedup", report.stretch.speedup},
           {"scale", report.scale},
           {"notice_s", report.stretch.notice_s ? Json(*report.stretch.notice_s) : Json(nullptr)},
           {"workers_most", report.workers_most},
           {"rates", json_of(report.rates)},
           {"rates_before", json_of(report.before)},
           {"rates_after", json_of(report.after)},
           {"window_t", {g.from_t, g.to_t}},
           {"worker_s", g.worker_s},
           {"present", json_of(g.present)},
           {"nodes", json_of(report.nodes)}};
  out["run"] = Json::parse(chaos::report_json(report.run));
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_html(const ReplayReport& report) {
  const auto failed = failures(report);
  std::string body;
  for (const std::string& failure : failed)
    body += "<p class=\"failure\">" + xml_text(failure) + "</p>\n";
  body += figures(report);
  body += "<p>To do this again: <code>" + xml_text(report.run.repeat) + "</code></p>\n";
  body +=
      "<h2>World size, throughput, epochs</h2><p>World size: workers present, and dashed the "
      "trace's nodes. Throughput: micro-batches committed, and dashed those that the workers "
      "present could have computed. Epochs: brown forced, blue prepared.</p><div class=\"wide\">" +
      chart(report) + "</div>\n";
  body += "<h2>Promises</h2>" + chaos::verdict_table(report.run);
  body += "<h2>Workers</h2><p>x killed, + joined, - told to leave.</p><div class=\"wide\">" +
          chaos::timeline(report.run.evidence.loud, report.run.evidence.deeds).svg() + "</div>\n";
  body += "<h2>Pauses</h2>" + chaos::pause_table(report.run);
  body += "<h2>What was done</h2>" + chaos::fault_table(report.run);
  return chaos::html_page("starling replay: " + report.run.job + ", goodput " +
                              percent(report.goodput.value()) + (failed.empty() ? "" : ", BROKEN"),
                          body);
}

}  // namespace starling::replay
