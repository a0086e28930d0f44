// What `starling audit` proves and refutes, over one good run that each case changes.
// Long because its cases share that run and its helpers.

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/data/permutation.h"
#include "tools/audit/difference.h"
#include "tools/audit/promises.h"

namespace starling::audit {
namespace {

using nlohmann::json;
using Lines = std::vector<std::string>;

constexpr std::uint64_t kSteps = 6, kSamples = 5, kSeed = 9;

std::string digest_of(Version v) {
  return std::string(31, 'a') + static_cast<char>('0' + v);
}

json member(std::uint64_t id) {
  return {{"rank", 0}, {"id", id}, {"name", "w"}, {"joiner", false}, {"draining", false}};
}

json epoch_line(const char* id, const char* predecessor, json members, json base, json begin) {
  return {{"t", 1},        {"ev", "epoch"},      {"id", id},     {"predecessor", predecessor},
          {"kind", "any"}, {"members", members}, {"base", base}, {"begin", begin}};
}

json step_line(Version v, const char* epoch) {
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

json ledger_line(Version v, const char* epoch, std::uint64_t first, std::uint64_t second) {
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
Lines good_run() {
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

Result<History> history_of(const Lines& lines) {
  HistoryReader reader;
  for (const std::string& line : lines)
    if (auto taken = reader.take(line); !taken) return std::move(taken).error();
  return std::move(reader).finish();
}

History good() {
  return history_of(good_run()).value();
}

// The good run after one change.
History changed(const std::function<void(Lines&)>& change) {
  Lines lines = good_run();
  change(lines);
  auto history = history_of(lines);
  REQUIRE_MESSAGE(history, history.error().text());
  return std::move(history).value();
}

std::function<void(Lines&)> edit(std::size_t i, const std::string& from, const std::string& to) {
  return [=](Lines& lines) {
    const auto at = lines[i].find(from);
    REQUIRE_MESSAGE(at != std::string::npos, lines[i] << " has no " << from);
    lines[i].replace(at, from.size(), to);
  };
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Only this promise is not held, and for this reason.
void check_only(const History& history, const char* promise, Verdict verdict, const char* why) {
  for (const Finding& finding : audit(history)) {
    CAPTURE(finding.promise);
    CAPTURE(finding.text);
    if (finding.promise != promise) {
      CHECK(finding.verdict == Verdict::kHeld);
      continue;
    }
    CHECK(finding.verdict == verdict);
    CHECK(has(finding.text, why));
  }
}

Finding finding_of(const History& history, const char* promise) {
  for (Finding& finding : audit(history))
    if (finding.promise == promise) return finding;
  return {};
}

}  // namespace

TEST_CASE("audit: a good run holds P1, P2 and P3, with its figures") {
  const History history = good();
  for (const Finding& finding : audit(history)) {
    CAPTURE(finding.text);
    CHECK(finding.verdict == Verdict::kHeld);
  }
  CHECK(has(finding_of(history, "P1").text, "6 steps, one record each, 3 digests on the way"));
  CHECK(has(finding_of(history, "P1").text, digest_of(6)));
  CHECK(has(finding_of(history, "P2").text, "12 micro-batches (6 steps of 2), each once, by 3"));
  CHECK(has(finding_of(history, "P2").text, "all 5 samples once in each of 4 complete passes"));
  CHECK(has(finding_of(history, "P2").text, "4 of 5 samples once in pass 4"));
  CHECK(has(finding_of(history, "P3").text, "3 epochs, 1 of them after a loss"));
  CHECK(has(finding_of(history, "P3").text, "1 of 2 wanted, in epoch 1.2"));
}

TEST_CASE("audit: P1 refuted") {
  const auto refuted = [](const std::function<void(Lines&)>& change, const char* why) {
    check_only(changed(change), "P1", Verdict::kRefuted, why);
  };
  refuted([](Lines& l) { l.insert(l.begin() + 8, l[6]); }, "line 9: step 0 is told twice");
  refuted(
      [](Lines& l) {
        l.insert(l.begin() + 8, l[6]);
        edit(8, "5.0", "5.1")(l);
      },
      "line 9: two records of step 0 differ; the first is in line 7");
  refuted([](Lines& l) { l.erase(l.begin() + 6, l.begin() + 8); },
          "line 7: step 1 follows, step 0 is not there");
  refuted([](Lines& l) { l.erase(l.begin() + 15, l.begin() + 17); },
          "step 4 follows, step 3 is not there");
  refuted(edit(13, "\"digest\":\"" + digest_of(2) + "\",", ""), "step 2 has no digest");
  refuted(edit(13, "\"tokens\":4", "\"tokens\":3"), "step 2 has 3 tokens, the job has 4");
  refuted(edit(22, "\"version\":6", "\"version\":5"), "done at version 5, steps end at 6");
  refuted(edit(22, "4.5", "4.25"), "the loss of `done` is not that of the last step");
  refuted([](Lines& l) { l.push_back(l.back()); }, "line 24: a second `done`");
  refuted([](Lines& l) { std::swap(l[22], l[4]); }, "line 6: something follows `done`");
}

TEST_CASE("audit: a step may be told after the end") {
  const History late = changed([](Lines& l) {
    const Lines told(l.begin() + 8, l.begin() + 10);
    l.erase(l.begin() + 8, l.begin() + 10);
    l.insert(l.end(), told.begin(), told.end());
  });
  for (const Finding& finding : audit(late)) {
    CAPTURE(finding.text);
    CHECK(finding.verdict == Verdict::kHeld);
  }
}

TEST_CASE("audit: P1 is not shown by a run that did not end well") {
  check_only(changed([](Lines& l) { l.pop_back(); }), "P1", Verdict::kUnproven,
             "the run ended at version 6 without `done`");
  const auto failed = changed(
      [](Lines& l) { l.back() = R"({"t":1,"ev":"failed","code":4,"reason":"state lost"})"; });
  check_only(failed, "P1", Verdict::kUnproven, "failed at version 6 with exit code 4 (state lost)");
}

// Goal: a run that says itself that its bits are in doubt is not acquitted, whatever else is right.
TEST_CASE("audit: P1 is not held by a run that says that a worker's work is in doubt") {
  const auto with = [](const char* line) {
    return changed([=](Lines& l) { l.insert(l.begin() + 8, line); });
  };
  check_only(
      with(R"({"t":1,"ev":"tainted","id":2,"name":"w2","first":1,"last":4,"reason":"other data"})"),
      "P1", Verdict::kUnproven, "w2: other data; the result is in doubt from step 1 on");
  check_only(with(R"({"t":1,"ev":"tainted","id":2,"name":"","first":0,"last":null,"reason":"x"})"),
             "P1", Verdict::kUnproven, "worker 2 (w): x");
  const auto mismatch = [&](const char* wrong) {
    return with(
        (R"({"t":1,"ev":"mismatch","version":1,"micro_batch":0,"worker":1,"by":2,"wrong":)" +
         std::string(wrong) + "}")
            .c_str());
  };
  check_only(
      mismatch("1"), "P1", Verdict::kRefuted,
      "line 9: step 1, micro-batch 0: worker 2 (w) computes another gradient than worker 1 (w)");
  check_only(mismatch("2"), "P1", Verdict::kUnproven, "worker 2 (w) is wrong");
  check_only(mismatch("null"), "P1", Verdict::kUnproven, "step 1, micro-batch 0");
  // Coordinators' files together do not lose it.
  const auto together =
      merge({good(), with(R"({"t":1,"ev":"tainted","id":2,"name":"w2","first":1,"reason":"y"})")});
  REQUIRE(together);
  CHECK(finding_of(together.value(), "P1").verdict == Verdict::kUnproven);
}

TEST_CASE("audit: P1 is not held by a run that went on with another script") {
  const char* line =
      R"({"t":1,"ev":"warning","text":"since the checkpoint of step 1 the script has changed (other arguments); so"})";
  const auto with = [&] { return changed([&](Lines& l) { l.insert(l.begin() + 1, line); }); };
  check_only(with(), "P1", Verdict::kUnproven, "the script has changed (other arguments)");
  check_only(changed([](Lines& l) {
               l.insert(l.begin() + 1, R"({"t":1,"ev":"warning","text":"small data"})");
             }),
             "P1", Verdict::kHeld, "");
  const auto together = merge({good(), with()});
  REQUIRE(together);
  CHECK(finding_of(together.value(), "P1").verdict == Verdict::kUnproven);
}

// Goal: a file that is known to lack lines does not accuse the run, and does not acquit it.
TEST_CASE("audit: what is missing in a file that says so is not shown, what is wrong is refuted") {
  const char* gaps[] = {R"({"t":1,"ev":"dropped","lines":2,"why":"no space"})",
                        R"({"t":1,"ev":"continued","coordinator":"coordinator-1","cut_bytes":3})"};
  for (const char* gap : gaps) {
    CAPTURE(gap);
    const auto with = [&](auto change) {
      return changed([&](Lines& l) {
        change(l);
        l.insert(l.begin() + 6, gap);
      });
    };
    const History lacking = with([](Lines& l) { l.erase(l.begin() + 6, l.begin() + 8); });
    check_only(lacking, "P1", Verdict::kUnproven,
               "incomplete: step 1 follows, step 0 is not there");
    check_only(with([](Lines& l) { l.erase(l.begin() + 9); }), "P2", Verdict::kUnproven,
               "incomplete: step 1 has no ledger");
    check_only(with(edit(9, "[1,2]", "[1,7]")), "P2", Verdict::kRefuted, "by worker 7");
    for (const Finding& finding : audit(with([](Lines&) {})))
      CHECK(finding.verdict == Verdict::kHeld);  // nothing was lost that anybody needs
  }
}

TEST_CASE("audit: workers are counted by how they went") {
  CHECK(workers_text(good()) == "3 workers, 1 lost, 0 left out, 0 left");
  const auto fenced = changed(edit(10, "\"lost\"", "\"fenced\""));
  CHECK(workers_text(fenced) == "3 workers, 0 lost, 1 left out, 0 left");
  History later = changed(edit(0, "\"data\"", "\"from\":6,\"data\""));
  later.lost.clear();
  later.left_out = {2};
  const auto both = merge({fenced, later});
  REQUIRE(both);
  CHECK(workers_text(both.value()) == "6 workers, 0 lost, 2 left out, 0 left");
}

// Goal: what no coordinator was told alone, all of them show together.
TEST_CASE("audit: files of one run are taken together") {
  const auto part = [](std::size_t from, std::size_t to, const char* name) {
    return changed([&](Lines& l) {
      l.erase(l.begin() + static_cast<std::ptrdiff_t>(from),
              l.begin() + static_cast<std::ptrdiff_t>(to));
      edit(0, "\"data\"", "\"coordinator\":\"" + std::string(name) + "\",\"data\"")(l);
    });
  };
  const History early = part(13, 23, "coordinator-0"), late = part(1, 10, "coordinator-1");
  CHECK(finding_of(early, "P1").verdict == Verdict::kUnproven);
  CHECK(has(finding_of(late, "P1").text, "this is what coordinator-1 was told"));
  const auto together = merge({late, early});
  REQUIRE(together);
  for (const Finding& finding : audit(together.value())) {
    CAPTURE(finding.text);
    CHECK(finding.verdict == Verdict::kHeld);
  }
  CHECK(together.value().lost.size() == 1);
  // Two stories of one step are refuted, and both places are named.
  auto other = late;
  other.steps.front().norm = 7;
  const auto refuted = merge({late, early, other});
  REQUIRE(refuted);
  CHECK(has(finding_of(refuted.value(), "P1").text, "of file 3: two records of step"));
  other.start.job["job.seed"] = "10";
  CHECK(has(merge({late, other}).error().text(), "file 2 is of another job"));
}

// Goal: who ends a run and goes on with it takes no step back. Method: the good run is ended in step
// 5 with a checkpoint of step 4; another run goes on from there, whose epochs and workers have the
// numbers of the first.
TEST_CASE("audit: a run that was ended in order and the one that went on from it are one") {
  const json ended{{"t", 2},       {"ev", "ended"},   {"signal", 15},
                   {"version", 5}, {"checkpoint", 4}, {"reason", "ended by SIGTERM"}};
  const auto first = [&](bool in_order) {
    return changed([&](Lines& l) {
      l.resize(20);  // step 4 and its ledger are the last
      if (in_order) l.push_back(ended.dump());
    });
  };
  History second = changed([&](Lines& l) {
    l.erase(l.begin() + 1, l.begin() + 18);
    l.insert(l.begin() + 1, epoch_line("1.1", "0.0", {member(1), member(2)}, 4, "gather").dump());
    for (std::size_t i = 2; i < l.size(); ++i) {
      for (std::size_t at; (at = l[i].find("\"1.3\"")) != std::string::npos;)
        l[i].replace(at, 5, "\"1.1\"");
      for (std::size_t at; (at = l[i].find("[0,3],[1,1]")) != std::string::npos;)
        l[i].replace(at, 11, "[0,2],[1,1]");
    }
    edit(0, "\"data\"", "\"from\":4,\"data\"")(l);
  });
  const History alone = first(true);
  CHECK(finding_of(alone, "P1").verdict == Verdict::kUnproven);
  CHECK(has(finding_of(alone, "P1").text, "ended in order at version 5"));
  for (const std::vector<History>& files : {std::vector<History>{alone, second}, {second, alone}}) {
    const auto both = merge(files);
    REQUIRE(both);
    for (const Finding& finding : audit(both.value())) {
      CAPTURE(finding.text);
      CHECK(finding.verdict == Verdict::kHeld);
    }
    CHECK(has(finding_of(both.value(), "P2").text, "by 5 workers"));
    CHECK(has(finding_of(both.value(), "P3").text, "ended in order or done, and gone on with"));
  }
  // The one that went on has fewer steps, and the schedule that both have.
  const auto with_steps = [&](const char* schedule) {
    return changed([&](Lines& l) {
      l.resize(20);
      l.push_back(ended.dump());
      edit(0, "\\nsteps = 6", "\\nsteps = 9")(l);
      edit(0, "schedule_steps = 0", schedule)(l);
    });
  };
  const auto shortened = merge({with_steps("schedule_steps = 6"), second});
  REQUIRE(shortened);
  CHECK(finding_of(shortened.value(), "P1").verdict == Verdict::kHeld);
  const auto slower = merge({with_steps("schedule_steps = 9"), second});
  REQUIRE(!slower);
  CHECK(slower.error().text() == "file 2 is of another job: the schedule's length is 9 and 6");
  // Without the word of an end the state was lost.
  const auto killed = merge({first(false), second});
  REQUIRE(killed);
  CHECK(finding_of(killed.value(), "P3").verdict == Verdict::kUnproven);
}

// Goal: a run that goes on with more steps after one that was done takes no step back. Method: the good
// run is done after 6 steps; another run of 9 goes on from its checkpoint of step 4, and does 4 and 5 again.
TEST_CASE("audit: a run that was done and the one that went on from it are one") {
  const auto later = [](const std::string& digest) {
    return changed([&](Lines& l) {
      l.resize(1);
      edit(0, "schedule_steps = 0", "schedule_steps = 6")(l);
      edit(0, "\\nsteps = 6", "\\nsteps = 9")(l);
      edit(0, "\"steps\":6", "\"steps\":9,\"from\":4")(l);
      const auto put = [&](const json& line) { l.push_back(line.dump()); };
      put(epoch_line("1.1", "0.0", {member(1), member(2)}, 4, "gather"));
      for (Version v = 4; v < 9; ++v) {
        json step = step_line(v, "1.1");
        if (v == 6) step["digest"] = digest;
        put(step), put(ledger_line(v, "1.1", v == 4 ? 2 : 1, v == 4 ? 1 : 2));
      }
      put({{"t", 1}, {"ev", "done"}, {"version", 9}, {"digest", digest_of(9)}, {"loss", 4.2}});
    });
  };
  const History first = good(), second = later(digest_of(6));
  for (const std::vector<History>& files : {std::vector<History>{first, second}, {second, first}}) {
    const auto both = merge(files);
    REQUIRE_MESSAGE(both, both.error().text());
    for (const Finding& finding : audit(both.value())) {
      CAPTURE(finding.text);
      CHECK(finding.verdict == Verdict::kHeld);
    }
    CHECK(has(finding_of(both.value(), "P1").text, "9 steps"));
    CHECK(has(finding_of(both.value(), "P3").text,
              "done, and gone on with from a checkpoint, 1 time"));
  }
  // What was done before is still compared with what went on.
  const auto other = merge({first, later(std::string(32, 'e'))});
  REQUIRE(other);
  CHECK(finding_of(other.value(), "P1").text ==
        "line 23: the digest of `done` at version 6 is not that of the run that went on "
        "from there");
  // The later run was killed: that the earlier one was done, ended or failed is no end of both.
  History cut = later(digest_of(6));
  cut.done.clear();
  const auto killed = merge({first, cut});
  REQUIRE(killed);
  CHECK(finding_of(killed.value(), "P1").text ==
        "the run ended at version 9 without `done`; as far as it goes: 9 steps, one record each, 5 "
        "digests on the way");
}

// A resume that its workers refused, beside the run that it was to go on from.
TEST_CASE("audit: a run that failed before its first step takes nothing from the others") {
  const History refused = changed([](Lines& l) {
    l.resize(1);
    edit(0, "\"data\"", "\"from\":6,\"data\"")(l);
    l.push_back(R"({"t":1,"ev":"failed","code":2,"reason":"other data"})");
  });
  const auto both = merge({good(), refused});
  REQUIRE(both);
  for (const Finding& finding : audit(both.value())) CHECK(finding.verdict == Verdict::kHeld);
  const auto alone = merge({refused});
  REQUIRE(alone);
  CHECK(finding_of(alone.value(), "P1").verdict == Verdict::kUnproven);
}

TEST_CASE("audit: P2 refuted") {
  const auto refuted = [](const std::function<void(Lines&)>& change, const char* why) {
    check_only(changed(change), "P2", Verdict::kRefuted, why);
  };
  refuted(edit(9, ",[1,2]", ""), "line 10: micro-batch 1 of step 1 (samples ");
  refuted(edit(9, ",[1,2]", ""), ") is missing");
  refuted(edit(9, "[1,2]", "[1,2],[1,1]"), ") is counted twice, for worker 2 (w) and worker 1 (w)");
  refuted(edit(9, "[1,2]", "[0,2]"), "micro-batch 0 of step 1");
  refuted(edit(9, "[1,2]", "[1,2],[2,2]"), "micro-batch 2 of step 1 does not exist");
  refuted(edit(9, "[1,2]", "[1,7]"), "by worker 7, no member of epoch 1.1");
  // Worker 3 joined later; worker 2 was lost before.
  refuted(edit(9, "[1,2]", "[1,3]"), "by worker 3 (w), no member of epoch 1.1");
  refuted(edit(16, "[1,3]", "[1,2]"), "by worker 2 (w), no member of epoch 1.2");
  refuted([](Lines& l) { l.erase(l.begin() + 9); }, "line 9: step 1 has no ledger");
  refuted([](Lines& l) { l.insert(l.begin() + 10, l[9]); },
          "line 11: a second ledger of step 1; the first is in line 10");
  refuted(
      [](Lines& l) {
        l.insert(l.begin() + 10, l[9]);
        edit(10, "\"version\":1", "\"version\":6")(l);
      },
      "line 11: a ledger of step 6, which has no record");
}

// Goal: the sample used twice is named. Method: micro-batch 0 of step 1 has places 4 and 5: the
// last of pass 0 and the first of pass 1.
TEST_CASE("audit: P2 names the samples of a micro-batch that was counted twice") {
  const auto text = finding_of(changed(edit(9, "[1,2]", "[1,2],[0,2]")), "P2").text;
  const auto last = Permutation(kSeed, 0, kSamples)(4), next = Permutation(kSeed, 1, kSamples)(0);
  CHECK(has(text, "(samples " + std::to_string(last) + ", " + std::to_string(next) + ")"));
}

TEST_CASE("audit: P2 is not shown without a ledger, samples or members") {
  const auto unproven = [](const std::function<void(Lines&)>& change, const char* why) {
    check_only(changed(change), "P2", Verdict::kUnproven, why);
  };
  unproven(
      [](Lines& l) {
        edit(0, "ledger_events = true", "ledger_events = false")(l);
        std::erase_if(l, [](const std::string& line) { return has(line, "\"ledger\""); });
      },
      "this run wrote no ledger");
  unproven(edit(0, "\"samples\":5", "\"samples\":0"), "which samples the micro-batches hold");
  unproven([](Lines& l) { l.erase(l.begin() + 17); }, "the members of epoch 1.3, in which step 4");
  // With ledgers promised, a run without them is refuted.
  check_only(changed([](Lines& l) {
               std::erase_if(l, [](const std::string& line) { return has(line, "\"ledger\""); });
             }),
             "P2", Verdict::kRefuted, "step 0 has no ledger");
}

TEST_CASE("audit: the last step of a run that was cut off may lack its ledger") {
  const History cut = changed([](Lines& l) { l.resize(21); });
  CHECK(finding_of(cut, "P2").verdict == Verdict::kUnproven);
  CHECK(has(finding_of(cut, "P2").text, "the last step, 5, has no ledger"));
  CHECK(finding_of(cut, "P1").verdict == Verdict::kUnproven);
}

TEST_CASE("audit: P3 refuted") {
  const auto refuted = [](const std::function<void(Lines&)>& change, const char* why) {
    check_only(changed(change), "P3", Verdict::kRefuted, why);
  };
  refuted([](Lines& l) { edit(8, "\"epoch\":\"1.1\"", "\"epoch\":\"1.2\"")(l); },
          "epoch 1.2 begins at version 3, but step 1 is told in epoch 1.2");
  refuted([](Lines& l) { edit(18, "\"epoch\":\"1.3\"", "\"epoch\":\"1.1\"")(l); },
          "epoch 1.2 begins at version 3, but step 4 was committed before, in epoch 1.1");
  refuted([](Lines& l) { edit(20, "\"epoch\":\"1.3\"", "\"epoch\":\"1.2\"")(l); },
          "step 5 was committed in epoch 1.2, but step 4 in epoch 1.3");
  // A forced epoch that goes back: its plan is from before what was committed.
  refuted(
      [](Lines& l) {
        l.insert(l.begin() + 22,
                 epoch_line("1.4", "1.3", {member(1), member(3)}, 4, "compute").dump());
      },
      "line 23: epoch 1.4 begins at version 4, but step 5 was committed before, in epoch 1.3");
}

// All of 1.3 are lost after step 4 was told; worker 4 goes on from the checkpoint of step 3.
TEST_CASE("audit: a restart from a checkpoint is a way back that P3 does not cover") {
  const auto restarted = [](Lines& l) {
    const Lines again{
        R"({"t":1,"ev":"restart","version":3,"lost":"1.3","cause":"x"})",
        epoch_line("1.4", "1.3", {member(4)}, 3, "gather").dump(),
        ledger_line(3, "1.4", 4, 4).dump(),
        ledger_line(4, "1.4", 4, 4).dump(),
        step_line(5, "1.4").dump(),
        ledger_line(5, "1.4", 4, 4).dump(),
    };
    l.erase(l.begin() + 20, l.begin() + 22);  // step 5 as it was
    l.insert(l.begin() + 20, again.begin(), again.end());
  };
  check_only(changed(restarted), "P3", Verdict::kUnproven,
             "from a checkpoint, 1 time, first at version 3");
  // What a restart does not explain is still refuted.
  const History unexplained = changed([&](Lines& l) {
    restarted(l);
    edit(20, "\"version\":3", "\"version\":4")(l);
  });
  CHECK(finding_of(unexplained, "P2").verdict == Verdict::kRefuted);
  CHECK(has(finding_of(unexplained, "P2").text, "a second ledger of step 3"));
  CHECK(finding_of(unexplained, "P3").verdict == Verdict::kRefuted);
}

// The checkpoint of step 2 could not be loaded, so the run begins again, from the one before it.
TEST_CASE("audit: an epoch that began from a damaged checkpoint is undone by a restart") {
  const auto damaged = [](Lines& l) {
    edit(0, "\"ev\":\"start\"", "\"ev\":\"start\",\"from\":2")(l);
    edit(5, "\"predecessor\":\"0.0\"", "\"predecessor\":\"0.5\"")(l);
    l.insert(l.begin() + 5, {R"({"t":1,"ev":"restart","version":0,"lost":"0.5","cause":"x"})",
                             epoch_line("0.5", "0.0", {member(1), member(2)}, 2, "gather").dump()});
  };
  check_only(changed(damaged), "P3", Verdict::kUnproven,
             "from a checkpoint, 1 time, first at version 0");
  const History unexplained = changed([&](Lines& l) {
    damaged(l);
    edit(5, "\"lost\":\"0.5\"", "\"lost\":\"0.4\"")(l);
  });
  CHECK(finding_of(unexplained, "P3").verdict == Verdict::kRefuted);
}

TEST_CASE("audit: a run that went on from a checkpoint begins there") {
  check_only(changed([](Lines& l) {
               l.erase(l.begin() + 6, l.begin() + 8);  // step 0
               edit(0, "\"ev\":\"start\"", "\"ev\":\"start\",\"from\":1")(l);
               edit(5, "\"base\":0", "\"base\":1")(l);
             }),
             "P1", Verdict::kHeld, "5 steps");  // and P2 and P3 hold as well
  const History later = changed([](Lines& l) {
    l.erase(l.begin() + 6, l.begin() + 8);
    edit(0, "\"ev\":\"start\"", "\"ev\":\"start\",\"from\":1")(l);
    edit(5, "\"base\":0", "\"base\":1")(l);
  });
  const std::string p3 = finding_of(later, "P3").text;
  CHECK(has(p3, "3 epochs, 1 of them after a loss"));  // the first one is after none
  CHECK(has(p3, "begun from the checkpoint of step 1"));
  CHECK_FALSE(has(p3, "no checkpoint was read"));
  CHECK(has(finding_of(later, "P2").text,
            "all 5 samples once in each of 3 complete passes, and 1 of 5 samples once in pass 0, 4 "
            "of 5 samples once in pass 4"));
  const History hidden = changed([](Lines& l) { l.erase(l.begin() + 6, l.begin() + 8); });
  CHECK(has(finding_of(hidden, "P1").text, "step 0 is not there"));
}

TEST_CASE("audit: a ledger that passed in a vote-begun epoch names who voted before it") {
  // The epoch between was planned, and nobody is known to have entered it: the votes are from 1.1.
  CHECK(finding_of(changed([](Lines& l) {
                     edit(12, "\"predecessor\":\"1.1\"", "\"predecessor\":\"1.15\"")(l);
                     edit(12, "\"id\":\"1.2\"", "\"id\":\"1.20\"")(l);
                     for (const std::size_t i : {13, 14, 15, 16}) edit(i, "\"1.2\"", "\"1.20\"")(l);
                     for (const std::size_t i : {17, 18, 19, 20, 21}) {
                       const auto at = l[i].find("\"1.3\"");
                       l[i].replace(at, 5, "\"1.30\"");
                     }
                     edit(17, "\"predecessor\":\"1.2\"", "\"predecessor\":\"1.20\"")(l);
                     l.insert(l.begin() + 12,
                              epoch_line("1.15", "1.1", {member(1)}, nullptr, nullptr).dump());
                   }),
                   "P2")
            .verdict == Verdict::kHeld);
  // Epoch 1.2 begins at a vote, but not at that of step 3.
  check_only(changed(edit(16, "[1,3]", "[1,2]")), "P2", Verdict::kRefuted, "by worker 2");
}

TEST_CASE("audit: lines that are none are named") {
  const auto refused = [](const std::function<void(Lines&)>& change, const char* why) {
    Lines lines = good_run();
    change(lines);
    const auto history = history_of(lines);
    REQUIRE_FALSE(history);
    CHECK(history.error().code() == Code::kBadInput);
    CAPTURE(history.error().text());
    CHECK(has(history.error().text(), why));
  };
  refused([](Lines& l) { l.clear(); }, "has no `start`");
  refused([](Lines& l) { l.erase(l.begin()); }, "line 1 is not `start`");
  refused([](Lines& l) { l.insert(l.begin() + 3, l[0]); }, "line 4 is a second `start`");
  refused([](Lines& l) { l[6] = l[6].substr(0, 30); }, "line 7 is not a JSON object");
  refused([](Lines& l) { l[6] = "[1]"; }, "line 7 is not a JSON object");
  refused([](Lines& l) { l[6] = "\xff\xfe"; }, "line 7 is not a JSON object");
  refused([](Lines& l) { l[6] = "{}"; }, "line 7 has no `ev`");
  refused(edit(6, "\"version\":0", "\"version\":-1"), "line 7 step: has a wrong `version`");
  refused(edit(6, "\"version\":0", "\"version\":1e3"), "line 7 step: has a wrong `version`");
  refused(edit(6, "\"epoch\":\"1.1\"", "\"epoch\":\"1,1\""), "has a wrong `epoch`");
  refused(edit(6, "\"epoch\":\"1.1\",", ""), "line 7 step: has no `epoch`");
  refused(edit(6, digest_of(0), "abc"), "has a wrong `digest`, expected 32 hex digits");
  refused(edit(7, "[0,1]", "[0]"), "line 8 ledger: has a wrong `workers`");
  refused(edit(7, "[0,1]", "[0,-1]"), "line 8 ledger: has a wrong `workers`");
  refused(edit(5, "\"id\":1", "\"id\":\"x\""), "line 6 epoch: has a wrong `members`");
  refused(edit(0, "\"micro_batches\":2", "\"micro_batches\":0"), "has a wrong `micro_batches`");
  refused(edit(0, "\"micro_batches\":2", "\"micro_batches\":99999"), "at most 4096");
  HistoryReader reader;
  const auto long_line = reader.take(std::string(kLineBytesMax + 1, ' '));
  REQUIRE_FALSE(long_line);
  CHECK(has(long_line.error().text(), "line 1 is longer than 64 MiB"));
}

TEST_CASE("audit: a kind of a newer build is passed over") {
  CHECK(changed([](Lines& l) { l.insert(l.begin() + 9, R"({"t":1,"ev":"weather"})"); }).lines ==
        24);
}

// Goal: --sample and P2 agree with the order that training uses. Method: every sample is asked for,
// and the uses are counted against the places of all steps.
TEST_CASE("audit: every use of a sample is found, and who it was") {
  const History history = good();
  std::set<std::pair<std::uint64_t, std::uint64_t>> places;  // step and place in it
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    std::set<std::uint64_t> passes;
    for (const Use& use : uses_of(history, sample)) {
      const std::uint64_t in_step = use.micro_batch * 2 + use.place;
      const std::uint64_t place = use.step * 4 + in_step;
      CHECK(use.pass == place / kSamples);
      CHECK(Permutation(kSeed, use.pass, kSamples)(place % kSamples) == sample);
      CHECK(passes.insert(use.pass).second);
      CHECK(places.emplace(use.step, in_step).second);
      REQUIRE(use.workers.size() == 1);
      CHECK(use.workers[0] == (use.step < 3 ? use.micro_batch.value() + 1
                               : (use.step == 3) == (use.micro_batch == 0) ? 1
                                                                           : 3));
    }
    CHECK(passes.size() >= 4);
  }
  CHECK(places.size() == kSteps * 4);
}

TEST_CASE("the inverse of a permutation leads back") {
  for (const std::uint64_t n : {1ull, 2ull, 3ull, 64ull, 65ull, 1000ull})
    for (std::uint64_t i = 0; i < n; ++i) {
      const Permutation order(3, 1, n);
      CHECK(order.inverse(order(i)) == i);
    }
  const std::uint64_t large = (std::uint64_t{1} << 62) - 3;
  CHECK(Permutation(3, 1, large).inverse(Permutation(3, 1, large)(large - 1)) == large - 1);
}

TEST_CASE("difference: equal runs are the same, whoever computed and however they were disturbed") {
  const History other = changed([](Lines& l) {
    edit(0, "\"t\\\"", "\"other\\\"")(l);
    edit(0, "path = \\\"/x", "path = \\\"/y")(l);
    edit(9, "[1,2]", "[1,1]")(l);
    l.erase(l.begin() + 4);
  });
  const Comparison c = compare(good(), other);
  CHECK(c.other_job.empty());
  CHECK_FALSE(c.first);
  CHECK(c.steps == 6);
  CHECK(c.digests == 4);  // versions 0, 2, 4 and the final one
  CHECK(c.same_state == 6);
  CHECK(c.same_end == true);
}

TEST_CASE("difference: the first version at which two runs part") {
  const auto first = [](const std::function<void(Lines&)>& change) {
    return compare(good(), changed(change));
  };
  const auto loss = first([](Lines& l) {
    edit(15, "4.7", "4.7000000000000002")(l);  // the same double
    edit(18, "4.6", "4.6000000000000005")(l);  // the next one
    edit(20, "4.5", "4.4")(l);
  });
  REQUIRE(loss.first);
  CHECK(loss.first->version == 4);
  CHECK(loss.first->what == "loss");
  CHECK(loss.first->b == "4.6000000000000005");
  CHECK(loss.same_state == 4);
  CHECK(loss.same_end == true);

  const auto digest = first(edit(13, digest_of(2), digest_of(7)));
  REQUIRE(digest.first);
  CHECK(digest.first->version == 2);
  CHECK(digest.first->what == "digest");
  CHECK(digest.same_state == 0);

  const auto norm = first(edit(6, "\"norm\":2.0", "\"norm\":null"));
  REQUIRE(norm.first);
  CHECK(norm.first->what == "norm");
  CHECK(norm.first->version == 0);

  const auto end = first(edit(22, digest_of(6), digest_of(9)));
  REQUIRE(end.first);
  CHECK(end.first->version == 6);
  CHECK(end.same_end == false);
}

TEST_CASE("difference: a shorter run is compared as far as it goes") {
  const Comparison c = compare(good(), changed([](Lines& l) { l.resize(17); }));
  CHECK_FALSE(c.first);
  CHECK(c.steps == 4);
  CHECK(c.digests == 2);
  CHECK_FALSE(c.same_end.has_value());
}

TEST_CASE("difference: runs of different jobs are not compared") {
  const auto other = [](const std::function<void(Lines&)>& change) {
    const Comparison c = compare(good(), changed(change));
    CHECK_FALSE(c.first);
    return c.other_job.empty() ? std::string() : c.other_job.front();
  };
  CHECK(other(edit(0, "seed = 9", "seed = 8")) == "job.seed is 9 and 8");
  CHECK(other(edit(0, "seed = 9\\n", "")) == "job.seed is 9 and not set");
  CHECK(has(other(edit(0, "dddd", "dddc")), "the data differ"));
  CHECK(other(edit(0, "digest_every = 2", "digest_every = 1")).empty());
  // Without a schedule of its own the learning rate follows the number of steps.
  CHECK(other(edit(0, "steps = 6", "steps = 7")) == "job.steps is 6 and 7");
  const Comparison scheduled =
      compare(changed(edit(0, "schedule_steps = 0", "schedule_steps = 9")), changed([](Lines& l) {
                edit(0, "schedule_steps = 0", "schedule_steps = 9")(l);
                edit(0, "steps = 6", "steps = 7")(l);
              }));
  CHECK(scheduled.other_job.empty());
  // A job that went on with --steps names the schedule that it had from its steps before.
  const Comparison went_on = compare(good(), changed([](Lines& l) {
                                       edit(0, "schedule_steps = 0", "schedule_steps = 6")(l);
                                       edit(0, "\\nsteps = 6", "\\nsteps = 9")(l);
                                     }));
  CHECK(went_on.other_job.empty());
  CHECK(other(edit(0, "schedule_steps = 0", "schedule_steps = 9")) ==
        "the schedule's length is 6 and 9");
  const Comparison isa = compare(good(), changed(edit(0, "isa avx2", "isa avx512")));
  CHECK(isa.other_job.empty());
  CHECK(isa.notes.size() == 1);
  // A coordinator that was started by hand does not tell.
  const History view = changed(edit(0, "isa avx2", ""));
  CHECK(compare(good(), view).notes.empty());
  CHECK(compare(view, good()).notes.empty());
}

}  // namespace starling::audit
