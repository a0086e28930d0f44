#pragma once
// One good run as lines of events.jsonl, which each case changes, and what `starling audit` says of it.

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/judge/audit/history.h"
#include "tools/judge/audit/promises.h"

namespace starling::audit {

using judge::Finding;
using judge::Verdict;
using nlohmann::json;
using Lines = std::vector<std::string>;

inline constexpr std::uint64_t kSteps = 6, kSamples = 5, kSeed = 9;

inline std::string digest_of(Version v) {
  return std::string(31, 'a') + static_cast<char>('0' + v);
}

inline json member(std::uint64_t id) {
  return {{"rank", 0}, {"id", id}, {"name", "w"}, {"joiner", false}, {"draining", false}};
}

inline json epoch_line(const char* id, const char* predecessor, json members, json base,
                       json begin) {
  return {{"t", 1},        {"ev", "epoch"},      {"id", id},     {"predecessor", predecessor},
          {"kind", "any"}, {"members", members}, {"base", base}, {"begin", begin}};
}

inline json step_line(Version v, const char* epoch) {
  json line{{"t", 1},
            {"ev", "step"},
            {"version", v},
            {"epoch", epoch},
            {"loss", 5.0 - 0.1 * static_cast<double>(v)},
            {"norm", 2.0},
            {"tokens", 4},
            {"ms", 1.5},
            {"world", 2},
            {"skipped", false},
            {"ledger_hash", "00000000000000aa"}};
  if (v % 2 == 0) line["digest"] = digest_of(v);
  return line;
}

inline json ledger_line(Version v, const char* epoch, std::uint64_t first, std::uint64_t second) {
  return {{"t", 1},
          {"ev", "ledger"},
          {"version", v},
          {"epoch", epoch},
          {"workers", {{0, first}, {1, second}}}};
}

// A run of 6 steps of two micro-batches of two of 5 samples. Workers 1 and 2 begin; 2 is lost when
// step 2 was voted for, which 1 and the joiner 3 finish in epoch 1.2; prepared 1.3 adds nobody.
//   0 start, 1-3 workers, 4 exposure, 5 epoch 1.1, 6-9 steps 0 and 1, 10 worker lost, 11 exposure,
//   12 epoch 1.2, 13-16 steps 2 and 3, 17 epoch 1.3, 18-21 steps 4 and 5, 22 done
inline Lines good_run() {
  const std::string job =
      "[job]\nname = \"t\"\nseed = 9\nsteps = 6\n\n[optimizer]\nschedule_steps = 0\n\n"
      "[data]\npath = \"/x\"\n\n[elastic]\nledger_events = true\ndigest_every = 2\n";
  Lines lines;
  const auto put = [&](const json& line) { lines.push_back(line.dump()); };
  put({{"t", 0},
       {"ev", "start"},
       {"job", job},
       {"fingerprint", "isa avx2"},
       {"steps", kSteps},
       {"micro_batches", 2},
       {"sequences", 2},
       {"seed", kSeed},
       {"samples", kSamples},
       {"tokens_per_step", 4},
       {"data", std::string(32, 'd')}});
  for (const std::uint64_t id : {1, 2, 3})
    put({{"t", 1}, {"ev", "worker"}, {"id", id}, {"what", "joined"}, {"name", "w"}});
  put({{"t", 1},
       {"ev", "exposure"},
       {"epoch", "1.1"},
       {"segments", 0},
       {"copies_min", 2},
       {"wanted", 2}});
  put(epoch_line("1.1", "0.0", {member(1), member(2)}, 0, "compute"));
  for (Version v = 0; v < 2; ++v) put(step_line(v, "1.1")), put(ledger_line(v, "1.1", 1, 2));
  put({{"t", 1}, {"ev", "worker"}, {"id", 2}, {"what", "lost"}, {"name", "w"}});
  put({{"t", 1},
       {"ev", "exposure"},
       {"epoch", "1.2"},
       {"segments", 4},
       {"copies_min", 1},
       {"wanted", 2}});
  put(epoch_line("1.2", "1.1", {member(1), member(3)}, 3, "vote"));
  put(step_line(2, "1.2")), put(ledger_line(2, "1.2", 1, 2));
  put(step_line(3, "1.2")), put(ledger_line(3, "1.2", 1, 3));
  put(epoch_line("1.3", "1.2", {member(1), member(3)}, nullptr, nullptr));
  for (Version v = 4; v < 6; ++v) put(step_line(v, "1.3")), put(ledger_line(v, "1.3", 3, 1));
  put({{"t", 1}, {"ev", "done"}, {"version", 6}, {"digest", digest_of(6)}, {"loss", 4.5}});
  return lines;
}

inline Result<History> history_of(const Lines& lines) {
  HistoryReader reader;
  for (const std::string& line : lines)
    if (auto taken = reader.take(line); !taken) return std::move(taken).error();
  return std::move(reader).finish();
}

inline History good() {
  return history_of(good_run()).value();
}

// The good run after one change.
inline History changed(const std::function<void(Lines&)>& change) {
  Lines lines = good_run();
  change(lines);
  auto history = history_of(lines);
  REQUIRE_MESSAGE(history, history.error().text());
  return std::move(history).value();
}

inline std::function<void(Lines&)> edit(std::size_t i, const std::string& from,
                                        const std::string& to) {
  return [=](Lines& lines) {
    const auto at = lines[i].find(from);
    REQUIRE_MESSAGE(at != std::string::npos, lines[i] << " has no " << from);
    lines[i].replace(at, from.size(), to);
  };
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Only this promise is not held, and for this reason.
inline void check_only(const History& history, const char* promise, Finding finding,
                       const char* why) {
  for (const Verdict& verdict : audit(history)) {
    CAPTURE(verdict.promise);
    CAPTURE(verdict.why);
    if (verdict.promise != promise) {
      CHECK(verdict.finding == Finding::kHeld);
      continue;
    }
    CHECK(verdict.finding == finding);
    CHECK(has(verdict.why, why));
  }
}

inline Verdict verdict_of(const History& history, const char* promise) {
  for (Verdict& verdict : audit(history))
    if (verdict.promise == promise) return verdict;
  return {};
}

}  // namespace starling::audit
