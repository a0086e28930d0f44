#include "tools/chaos/report_html.h"

#include <algorithm>

#include "core/base/xml.h"
#include "tools/chaos/timeline.h"

namespace starling::chaos {
namespace {

constexpr std::size_t kRowsMax = 2000;  // in a table; report.json has them all

std::string cell(const std::string& text) {
  return "<td>" + xml_text(text) + "</td>";
}
std::string number(double value, int digits = 0) {
  return "<td class=\"n\">" + fixed(value, digits) + "</td>";
}

std::string effects_text(const judge::Deed& deed) {
  std::string text = deed.why;
  for (const judge::Effect& effect : deed.effects) {
    text += (text.empty() ? "" : "; ") + effect.what;
    if (effect.seen)
      text += " (" + fixed(1000 * effect.after_s, 0) + " ms)";
    else
      text += effect.overtaken ? " (the job ended, or another fault came, first)" : " (NOT SEEN)";
  }
  return text;
}

std::string other_tables(const Report& report) {
  const judge::Evidence& e = report.evidence;
  std::string out;
  if (!e.strangers.empty()) {
    out += "<h2>Strangers</h2><table><tr><th>who</th><th></th><th>seen</th></tr>\n";
    for (const judge::Stranger& s : e.strangers)
      out +=
          "<tr>" + cell(s.how) + cell(s.refused ? "refused" : "LET IN") + cell(s.seen) + "</tr>\n";
    out += "</table>\n";
  }
  if (!e.revenants.empty()) {
    out +=
        "<h2>Woken up left out</h2><table><tr><th>who</th><th>left out of epoch</th><th>woken, "
        "s</th><th>gone after, ms</th></tr>\n";
    for (const judge::Revenant& r : e.revenants)
      out += "<tr>" + cell(r.who.name) + cell(r.epoch) + number(r.woken_t, 2) +
             (r.gone_t ? number(1000 * (*r.gone_t - r.woken_t)) : cell("still there")) + "</tr>\n";
    out += "</table>\n";
  }
  return out;
}

}  // namespace

std::string verdict_table(const Report& report) {
  std::string out = "<table><tr><th>promise</th><th></th><th>finding</th><th></th></tr>\n";
  for (const judge::Verdict& v : report.verdicts) {
    const char* style = v.finding == judge::Finding::kHeld     ? "held"
                        : v.finding == judge::Finding::kBroken ? "broken"
                                                               : "untested";
    out += std::string("<tr class=\"") + style + "\">" + cell(v.promise) + cell(v.title) +
           cell(to_string(v.finding)) + cell(v.why) + "</tr>\n";
  }
  return out + "</table>\n";
}

std::string pause_table(const Report& report) {
  auto pauses = report.pauses;
  std::stable_sort(pauses.begin(), pauses.end(), [](const judge::Pause& a, const judge::Pause& b) {
    return a.gap_ms > b.gap_ms;
  });
  std::string out =
      "<table><tr><th>at, s</th><th>what</th><th>epoch</th><th>detect, ms</th><th>form, ms</th>"
      "<th>resume, ms</th><th>between commits, ms</th><th>a step, ms</th><th>beyond two steps, "
      "ms</th><th>alone</th></tr>\n";
  for (std::size_t i = 0; i < std::min(pauses.size(), kRowsMax); ++i) {
    const judge::Pause& p = pauses[i];
    out += "<tr>" + number(p.t, 2) + cell(p.what) + cell(p.epoch) + number(p.detect_ms) +
           number(p.form_ms) + number(p.resume_ms) + number(p.gap_ms) + number(p.step_ms, 1) +
           number(p.over_ms) + cell(p.alone ? "yes" : "") + "</tr>\n";
  }
  return out + "</table>\n";
}

std::string fault_table(const Report& report) {
  std::string out = "<table><tr><th>at, s</th><th>kind</th><th>whom</th><th>effect</th></tr>\n";
  const auto& deeds = report.evidence.deeds;
  for (std::size_t i = 0; i < std::min(deeds.size(), kRowsMax); ++i) {
    const judge::Deed& deed = deeds[i];
    const bool done = deed.outcome == judge::Deed::Outcome::kDone;
    const bool reached = deed.outcome != judge::Deed::Outcome::kNotReached;
    std::string whom =
        deed.outcome == judge::Deed::Outcome::kHeldBack ? "held back" : "not reached";
    if (done) whom.clear();
    for (const judge::Target& target : deed.targets)
      whom += (whom.empty() ? "" : ", ") + target.name + " (" + std::to_string(target.pid) + ")";
    out += "<tr>" + (reached ? number(deed.t, 2) : cell("")) + cell(deed.kind) + cell(whom) +
           cell(effects_text(deed)) + "</tr>\n";
  }
  return out + "</table>\n";
}

std::string html_page(const std::string& title, const std::string& body, int again_s) {
  const std::string again =
      again_s == 0 ? ""
                   : "<meta http-equiv=\"refresh\" content=\"" + std::to_string(again_s) + "\">";
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" + again + "<title>" +
         xml_text(title) +
         "</title>\n<style>\nbody{font:14px system-ui,sans-serif;color:#24292f;margin:24px}\n"
         "table{border-collapse:collapse;margin:8px 0}td,th{padding:2px 10px;text-align:left;"
         "border-bottom:1px solid #d0d7de;vertical-align:top}.n{text-align:right}\n"
         ".held td:nth-child(3){color:#1a7f37}.broken td{color:#cf222e;font-weight:600}"
         ".untested td{color:#6e7781}.failure{color:#cf222e;font-weight:600}\n"
         "code{background:#f6f8fa;padding:2px 6px}.wide{overflow-x:auto}\n" +
         chart_style() + "</style></head>\n<body>\n<h1>" + xml_text(title) + "</h1>\n" + body +
         "</body></html>\n";
}

std::string report_html(const Report& report) {
  const judge::Evidence& e = report.evidence;
  std::string body =
      "<p>" + std::to_string(e.loud.committed().size()) + " steps of " +
      std::to_string(report.plan.steps) + ", " + std::to_string(e.loud.epochs.size()) +
      " epochs, " + std::to_string(e.deeds.size()) + " faults; a step took " +
      fixed(e.loud.median_step_ms(), 1) + " ms at the median" +
      (e.quiet ? ", undisturbed " + fixed(e.quiet->median_step_ms(), 1) + " ms" : "") +
      ".</p>\n<p>To do this again: <code>" + xml_text(report.repeat) + "</code></p>\n";
  body += verdict_table(report);
  body += "<h2>Timeline</h2><p>" + legend() +
          "; epochs: brown forced, blue prepared. Point at anything to read what it is."
          "</p><div class=\"wide\">" +
          timeline(e.loud, e.deeds).svg() + "</div>\n";
  body += "<h2>Pauses</h2>" + pause_table(report);
  body += "<h2>Faults</h2>" + fault_table(report);
  body += other_tables(report);
  return html_page("starling chaos: " + report.job + ", " + conclusion(report.verdicts), body);
}

}  // namespace starling::chaos
