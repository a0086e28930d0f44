#pragma once
// Small runs as they would stand in events.jsonl, to be bent by tests.

#include <sstream>
#include <string>
#include <vector>

#include "tools/chaos/deed.h"

namespace starling::chaos {

// Two micro-batches a step by workers 1 and 2, a step every 0.1 s from t = 1 on; epoch 1.1 of
// workers 1, 2 and 3, each segment 0..2 at two of them.
struct Tale {
  std::vector<std::string> lines;

  Tale& start(int steps = 5) {
    return add(R"({"t":0,"ev":"start","steps":)" + std::to_string(steps) +
               R"(,"micro_batches":2,"monotonic_ns":5,"name":"tale","address":"a","keys":"k"})");
  }
  Tale& worker(double t, int id, const std::string& what, int pid = 0) {
    std::ostringstream line;
    line << "{\"t\":" << t << ",\"ev\":\"worker\",\"id\":" << id << ",\"what\":\"" << what
         << "\",\"name\":\"worker-" << id
         << "\",\"cause\":\"\",\"pid\":" << (pid != 0 ? pid : 100 + id) << "}";
    return add(line.str());
  }
  // base < 0: prepared
  Tale& epoch(double t, const std::string& id, const std::string& before, const std::string& kind,
              int base, const std::vector<int>& members, const std::string& cause = "lost") {
    std::ostringstream line;
    line << "{\"t\":" << t << ",\"ev\":\"epoch\",\"id\":\"" << id << "\",\"kind\":\"" << kind
         << "\",\"predecessor\":\"" << before << "\",\"members\":[";
    for (std::size_t r = 0; r < members.size(); ++r)
      line << (r ? "," : "") << "{\"rank\":" << r << ",\"id\":" << members[r]
           << ",\"name\":\"worker-" << members[r] << "\",\"joiner\":false,\"draining\":false}";
    line << "],\"base\":" << (base < 0 ? "null" : std::to_string(base))
         << ",\"begin\":null,\"cause\":\"" << cause << "\",\"holders\":[";
    for (std::size_t r = 0; r < members.size(); ++r)  // segment r at rank r and the one after it
      line << (r ? "," : "") << "[[" << r << ",1],[" << (r + members.size() - 1) % members.size()
           << ",1]]";
    line << "],\"owned\":[],\"moves\":0,\"detect_ms\":1.0,\"form_ms\":2.0,\"resume_ms\":20.0}";
    return add(line.str());
  }
  Tale& step(double t, int version, double loss = 2, double norm = 1) {
    return add("{\"t\":" + std::to_string(t) +
               ",\"ev\":\"step\",\"version\":" + std::to_string(version) +
               ",\"loss\":" + std::to_string(loss) + ",\"norm\":" + std::to_string(norm) +
               ",\"tokens\":8,\"ms\":100.0,\"world\":3,\"skipped\":false,\"ledger_hash\":\"0\"}");
  }
  Tale& ledger(double t, int version, const std::string& rows = "[0,1],[1,2]") {
    return add("{\"t\":" + std::to_string(t) + ",\"ev\":\"ledger\",\"version\":" +
               std::to_string(version) + ",\"workers\":[" + rows + "]}");
  }
  Tale& steps(int from, int to) {
    for (int v = from; v < to; ++v) step(1 + 0.1 * v, v).ledger(1 + 0.1 * v, v);
    return *this;
  }
  Tale& done(const std::string& digest = "d") {
    return add(R"({"t":2,"ev":"done","version":5,"digest":")" + digest + R"(","loss":2.0})");
  }
  Tale& failed(double t, int code) {
    return add("{\"t\":" + std::to_string(t) + ",\"ev\":\"failed\",\"code\":" +
               std::to_string(code) + ",\"reason\":\"state lost\"}");
  }
  Tale& add(std::string line) {
    lines.push_back(std::move(line));
    return *this;
  }
  Story story() const {
    Story told;
    for (const auto& line : lines) told.add(line);
    return told;
  }
};

inline Tale beginning() {
  Tale tale;
  tale.start();
  for (int id = 1; id <= 3; ++id) tale.worker(0.5, id, "joined");
  return tale.epoch(0.9, "1.1", "0.0", "fresh", 0, {1, 2, 3}, "start");
}
inline Story quiet_story() {
  return beginning().steps(0, 5).done().story();
}

inline Deed deed(const FaultKind* kind, double t, int worker, double until_t = 0) {
  Deed made;
  made.fault.kind = kind;
  made.outcome = Deed::Outcome::kDone;
  made.t = t;
  made.until_t = until_t > 0 ? until_t : t;
  made.targets = {{"worker-" + std::to_string(worker), std::uint64_t(worker), 100 + worker}};
  made.effects = {{"process is gone", true, false, 0.001}};
  return made;
}

}  // namespace starling::chaos
