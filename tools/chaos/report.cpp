#include "tools/chaos/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/base/xml.h"

namespace starling::chaos {
namespace {

using OrderedJson = nlohmann::ordered_json;

const char* to_string(judge::Deed::Outcome outcome) {
  switch (outcome) {
    case judge::Deed::Outcome::kDone:
      return "done";
    case judge::Deed::Outcome::kHeldBack:
      return "held back";
    case judge::Deed::Outcome::kNotReached:
      return "not reached";
  }
  return "unknown";
}

// `planned`: what the plan says of the deed; null: no plan is there.
OrderedJson json_of(const judge::Deed& deed, const Fault* planned) {
  const Fault fault = planned ? *planned : Fault{};
  OrderedJson out{{"at_s", deed.planned_s}, {"kind", deed.kind}};
  if (fault.count != 1) out["count"] = fault.count;
  if (deed.for_s > 0) out["for_s"] = deed.for_s;
  if (fault.back_s > 0) out["back_s"] = fault.back_s;
  if (fault.delay_s > 0) out["delay_s"] = fault.delay_s;
  out["outcome"] = to_string(deed.outcome);
  if (!deed.why.empty()) out["why"] = deed.why;
  if (deed.outcome != judge::Deed::Outcome::kDone) return out;
  out["t"] = deed.t;
  out["until_t"] = deed.until_t;
  for (const judge::Target& target : deed.targets)
    out["targets"].push_back({{"name", target.name}, {"id", target.id}, {"pid", target.pid}});
  for (const judge::Effect& effect : deed.effects)
    out["effects"].push_back({{"what", effect.what},
                              {"seen", effect.seen},
                              {"overtaken", effect.overtaken},
                              {"after_s", effect.after_s}});
  return out;
}

OrderedJson json_of(const judge::Pause& pause) {
  return {{"t", pause.t},
          {"what", pause.what},
          {"epoch", pause.epoch},
          {"gap_ms", pause.gap_ms},
          {"step_ms", pause.step_ms},
          {"over_ms", pause.over_ms},
          {"detect_ms", pause.detect_ms},
          {"form_ms", pause.form_ms},
          {"resume_ms", pause.resume_ms},
          {"alone", pause.alone}};
}

OrderedJson runs_of(const judge::Evidence& e) {
  OrderedJson out{{"steps_committed", e.loud.committed().size()},
                  {"epochs", e.loud.epochs.size()},
                  {"step_ms_median", e.loud.median_step_ms()},
                  {"exit_code", e.run_status},
                  {"digest", e.loud.done ? OrderedJson(starling::to_string(e.loud.done->digest))
                                         : OrderedJson(nullptr)},
                  {"reference_digest", e.reference_digest}};
  if (e.quiet) out["undisturbed_step_ms_median"] = e.quiet->median_step_ms();
  return out;
}

}  // namespace

std::string report_json(const Report& report) {
  const judge::Evidence& e = report.evidence;
  OrderedJson out{{"job", report.job},         {"held", judge::all_held(report.verdicts)},
                  {"repeat", report.repeat},   {"seconds", report.seconds},
                  {"seed", report.plan.seed},  {"workers", report.plan.workers},
                  {"steps", report.plan.steps}};
  if (!report.links.empty()) out["links"] = report.links;
  for (const judge::Verdict& v : report.verdicts)
    out["verdicts"].push_back({{"promise", v.promise},
                               {"title", v.title},
                               {"finding", to_string(v.finding)},
                               {"why", v.why}});
  out["run"] = runs_of(e);
  out["faults"] = OrderedJson::array();
  for (std::size_t i = 0; i < e.deeds.size(); ++i)
    out["faults"].push_back(
        json_of(e.deeds[i], i < report.plan.faults.size() ? &report.plan.faults[i] : nullptr));
  out["pauses"] = OrderedJson::array();
  for (const judge::Pause& pause : report.pauses) out["pauses"].push_back(json_of(pause));
  out["woken_up_left_out"] = OrderedJson::array();
  for (const judge::Revenant& r : e.revenants)
    out["woken_up_left_out"].push_back(
        {{"name", r.who.name},
         {"pid", r.who.pid},
         {"epoch", r.epoch},
         {"woken_t", r.woken_t},
         {"gone_t", r.gone_t ? OrderedJson(*r.gone_t) : OrderedJson(nullptr)}});
  out["worker_ends"] = OrderedJson::array();
  for (const judge::ProcessEnd& end : e.ends)
    out["worker_ends"].push_back(
        {{"name", end.name}, {"pid", end.pid}, {"status", end.status}, {"expected", end.expected}});
  out["strangers"] = OrderedJson::array();
  for (const judge::Stranger& s : e.strangers)
    out["strangers"].push_back(
        {{"how", s.how}, {"refused", s.refused}, {"seen", s.seen}, {"met", s.met}});
  out["leftovers"] = e.leftovers;
  return out.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string report_junit(const Report& report) {
  std::size_t broken = 0, skipped = 0;
  for (const judge::Verdict& v : report.verdicts) {
    broken += v.finding == judge::Finding::kBroken;
    skipped += v.finding == judge::Finding::kNotShown;
  }
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3f", report.seconds);
  std::string out =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"starling chaos " +
      xml_text(report.job) + "\" tests=\"" + std::to_string(report.verdicts.size()) +
      "\" failures=\"" + std::to_string(broken) + "\" skipped=\"" + std::to_string(skipped) +
      "\" time=\"" + seconds + "\">\n";
  for (const judge::Verdict& v : report.verdicts) {
    out +=
        "  <testcase classname=\"promises\" name=\"" + xml_text(v.promise + " " + v.title) + "\">";
    if (v.finding == judge::Finding::kBroken)
      out +=
          "<failure message=\"" + xml_text(v.why) + "\">" + xml_text(report.repeat) + "</failure>";
    if (v.finding == judge::Finding::kNotShown)
      out += "<skipped message=\"" + xml_text(v.why) + "\"/>";
    if (v.finding == judge::Finding::kHeld)
      out += "<system-out>" + xml_text(v.why) + "</system-out>";
    out += "</testcase>\n";
  }
  return out + "</testsuite>\n";
}

std::string line_of(const judge::Verdict& verdict) {
  std::string line = verdict.promise + " " + verdict.title;
  line.resize(std::max<std::size_t>(line.size() + 1, 24), ' ');
  return line + to_string(verdict.finding) + ": " + verdict.why;
}

}  // namespace starling::chaos
