#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/formats/job_file.h"
#include "core/observe/events.h"
#include "core/observe/log.h"
#include "core/observe/loss_svg.h"
#include "tests/core/has.h"
#include "tests/core/observe_helpers.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<Json> written_by(EventWriter& writer) {
  REQUIRE(writer.flush());
  return lines_of(writer.path());
}

Plan plan_of_two() {
  Plan plan;
  plan.id = {3, 2};
  plan.predecessor = {3, 1};
  plan.kind = PlanKind::kForced;
  plan.members.resize(2);
  plan.members[0].who = {5, 11};
  plan.members[0].name = "a";
  plan.members[1].who = {7, 12};
  plan.members[1].joiner = true;
  plan.holders = {{0, 1}, {0}, {1, 0}, {1}};
  plan.base = 4;
  plan.begin = BeginAt::kGather;
  plan.cause = "eof of worker 6 \xff";  // not UTF-8
  return plan;
}

event::LedgerPassed ledger(Version version, std::uint64_t first, std::uint64_t second,
                           EpochId epoch = kEpoch) {
  return ledger_of(version, epoch, first, second);
}

}  // namespace

TEST_CASE("events: every kind reads back with the design's fields") {
  const ObserveFolder folder("observe");
  const Job job = load_job("examples/mlp/digits.toml").value();
  {
    const auto writer = EventWriter::open(folder.path() + "/run/1").value();
    event::Started started = start_of(job);
    started.fingerprint = "isa avx2";
    started.samples = 1797;
    event::EpochFormed epoch = event::formed(plan_of_two());
    epoch.form_ms = 2.5;
    Progress progress{kEpoch, {4, 0.1, 2.0, 20, false, 77, {5, 6}}, 2, {}, 12.5};
    progress.ledger = {{1, 7, 1.5, 10, true}, {0, 5, 1.25, 10, true}};
    const Incarnation who{6, 9};
    const Event events[] = {started,
                            event::WorkerChanged{5, WorkerChange::kJoined, "a"},
                            epoch,
                            event::step_of(progress),
                            event::ledger_of(progress),
                            event::Exposed{{3, 2}, 2, 1, 3},
                            event::CheckpointWritten{4, "c/4"},
                            event::Restarted{4, kEpoch, "lost"},
                            event::given(who, "worker-0", {"aws", "terminate", 1500, true}),
                            event::given(who, "worker-0", {"aws", "rebalance", 0, false}),
                            event::Warning{"line\nbreak"},
                            event::LeaderElected{3, 1, 4711, 300},
                            event::Done{5, Digest{3, 4}, std::nan("")}};
    for (const Event& event : events) REQUIRE(writer->write(event));
  }
  const auto lines = lines_of(folder.path() + "/run/1/events.jsonl");
  REQUIRE(lines.size() == 13);
  const char* kinds[] = {"start",    "worker",     "epoch",   "step",   "ledger",
                         "exposure", "checkpoint", "restart", "notice", "notice",
                         "warning",  "leader",     "done"};
  double t = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i]["ev"] == kinds[i]);
    CHECK(lines[i]["t"].get<double>() >= t);
    t = lines[i]["t"];
  }
  CHECK(t < 60);
  CHECK(lines[0]["fingerprint"] == "isa avx2");
  CHECK(lines[0]["tokens_per_step"] == 64);
  CHECK(lines[0]["samples"] == 1797);
  CHECK(lines[0]["seed"] == job.seed);
  CHECK(lines[0]["sequences"] == job.micro_batch_sequences);
  CHECK(parse_job(lines[0]["job"], "").value() == job);
  CHECK(lines[0]["monotonic_ns"].is_number_integer());
  CHECK(lines[1]["id"] == 5);
  CHECK(lines[1]["what"] == "joined");
  CHECK(lines[2]["id"] == "3.2");
  CHECK(lines[2]["kind"] == "forced");
  CHECK(lines[2]["base"] == 4);
  CHECK(lines[2]["begin"] == "gather");
  CHECK(lines[2]["members"][1] ==
        Json({{"rank", 1}, {"id", 7}, {"name", ""}, {"joiner", true}, {"draining", false}}));
  CHECK(lines[2]["holders"] == Json::parse("[[[0,3]],[[0,1],[2,2]]]"));
  CHECK(lines[2]["owned"] == Json::parse("[2,2]"));
  CHECK(lines[2]["form_ms"] == 2.5);
  CHECK(lines[2]["resume_ms"].is_null());
  CHECK(lines[3]["version"] == 4);
  CHECK(lines[3]["loss"].get<double>() == 0.1);
  CHECK(lines[3]["world"] == 2);
  CHECK(lines[3]["ms"] == 12.5);
  CHECK(lines[3]["epoch"] == "3.2");
  CHECK(lines[3]["digest"] == "00000000000000060000000000000005");
  CHECK(lines[4]["epoch"] == "3.2");
  CHECK(lines[4]["workers"] == Json::parse("[[0,5],[1,7]]"));
  CHECK(lines[5]["segments"] == 2);
  CHECK(lines[8]["source"] == "aws");
  CHECK(lines[8]["leave"] == true);
  CHECK(lines[8]["seconds"] == 1.5);
  CHECK(lines[9]["text"] == "rebalance");
  CHECK(lines[9]["leave"] == false);
  CHECK(lines[9]["seconds"].is_null());
  CHECK(lines[10]["text"] == "line\nbreak");
  CHECK(lines[11]["term"] == 3);
  CHECK(lines[11]["coordinator"] == 1);
  CHECK(lines[11]["pid"] == 4711);
  CHECK(lines[11]["election_ms"] == 300);
  CHECK(lines[12]["digest"] == to_string(Digest{3, 4}));
  CHECK(lines[12]["loss"].is_null());
}

TEST_CASE("events: doubles keep their bits") {
  const ObserveFolder folder("observe");
  const double values[] = {0.1 + 0.2, 5e-324, 1.7976931348623157e308, 2.4560000000000004, 1.0 / 3};
  {
    const auto writer = EventWriter::open(folder.path()).value();
    for (Version v = 0; v < 5; ++v)
      REQUIRE(writer->write(event::StepPassed{{v, values[v], 1, 1, false, 0}, kEpoch, 1, 1}));
  }
  const auto lines = lines_of(folder.path() + "/events.jsonl");
  for (std::size_t v = 0; v < 5; ++v) CHECK(lines[v]["loss"].get<double>() == values[v]);
  CHECK_FALSE(lines[0].contains("digest"));  // none was due
}

TEST_CASE("events: the first record stays, an equal one is ignored, another is a bug (P1)") {
  const ObserveFolder folder("observe");
  const auto writer = EventWriter::open(folder.path()).value();
  const StepRecord record{3, std::nan(""), 2, 20, true, 77};
  REQUIRE(writer->write(event::StepPassed{record, kEpoch, 2, 1}));
  CHECK(writer->write(event::StepPassed{record, kEpoch, 3, 9}));  // not of the record
  const auto differs = [&](auto change) {
    StepRecord other = record;
    change(other);
    const auto result = writer->write(event::StepPassed{other, kEpoch, 2, 1});
    return !result && result.error().code() == Code::kInternal &&
           has(result.error().text(), "two records of version 3 differ");
  };
  CHECK(differs([](StepRecord& r) { r.loss = 1; }));
  CHECK(differs([](StepRecord& r) { r.norm = std::nextafter(2.0, 3.0); }));
  CHECK(differs([](StepRecord& r) { r.tokens = 21; }));
  CHECK(differs([](StepRecord& r) { r.skipped = false; }));
  CHECK(differs([](StepRecord& r) { r.ledger_hash = 78; }));
  CHECK(differs([](StepRecord& r) { r.digest = {0, 1}; }));
  CHECK(differs([](StepRecord& r) { r.scale = {1, 1}; }));
  CHECK(written_by(*writer).size() == 1);
}

// A life of a worker may have the name and the process number of an older one.
TEST_CASE("events: a worker prepares as often as it is told") {
  const ObserveFolder folder("observe");
  const auto writer = EventWriter::open(folder.path()).value();
  for (int life = 0; life < 2; ++life) CHECK(writer->write(event::Preparing{"w", 7}).value());
  const auto lines = written_by(*writer);
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].at("ev") == "preparing");
  CHECK(lines[1].at("name") == "w");
  CHECK(lines[1].at("pid") == 7);
}

// Goal: a new leader tells again what it finds in the log, with less beside it.
TEST_CASE("events: of a worker's change and of an epoch the first word stays") {
  const ObserveFolder folder("observe");
  const auto writer = EventWriter::open(folder.path()).value();
  constexpr auto kLost = WorkerChange::kLost;
  REQUIRE(writer->write(event::WorkerChanged{6, kLost, "w", 77, WorkPhase::kCompute, "why"}));
  REQUIRE(writer->write(event::WorkerChanged{6, kLost, "w", 77}));
  REQUIRE(writer->write(event::WorkerChanged{7, kLost, "v", 78}));
  const auto again = writer->copy(event::WorkerChanged{7, kLost, "v", 78, WorkPhase::kVote});
  REQUIRE(again);
  CHECK(!again.value());
  event::EpochFormed epoch{{1, 2}};
  epoch.resume_ms = 3.0;
  REQUIRE(writer->write(epoch));
  REQUIRE(writer->write(event::EpochFormed{{1, 2}}));
  const auto lines = written_by(*writer);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].at("phase") == "compute");
  CHECK(lines[2].at("resume_ms") == 3.0);
}

TEST_CASE("events: one ledger per version, until a restart") {
  const EpochId next{kEpoch.term, kEpoch.counter + 1};
  const ObserveFolder folder("observe");
  const auto writer = EventWriter::open(folder.path()).value();
  REQUIRE(writer->write(ledger(3, 5, 7)));
  CHECK(writer->write(ledger(3, 5, 7)));
  CHECK(writer->write(ledger(3, 7, 7)).error().code() == Code::kInternal);
  REQUIRE(writer->write(event::Restarted{3, kEpoch, "lost"}));
  CHECK(writer->write(ledger(3, 7, 7, next)));
  CHECK(writer->write(ledger(3, 5, 5, next)).error().code() == Code::kInternal);
  CHECK(writer->write(ledger(3, 5, 7)));  // somebody is late
  CHECK(written_by(*writer).size() == 3);
}

// Of several coordinators the one that tells of a step that was done again may be faster than the
// one that tells why, and slower than it with what was before.
TEST_CASE("events: ledgers before and after a restart may be told in any order") {
  const EpochId next{kEpoch.term, kEpoch.counter + 1};
  const ObserveFolder folder("observe");
  const auto writer = EventWriter::open(folder.path()).value();
  REQUIRE(writer->write(ledger(3, 5, 7)));
  REQUIRE(writer->write(ledger(3, 7, 7, next)));  // not written yet
  CHECK(written_by(*writer).size() == 1);
  REQUIRE(writer->write(event::Restarted{3, kEpoch, "lost"}));
  auto lines = written_by(*writer);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1]["ev"] == "restart");
  CHECK(lines[2]["ev"] == "ledger");
  CHECK(lines[2]["workers"][0][1] == 7);
  REQUIRE(writer->write(ledger(4, 5, 5)));  // of the epoch that was lost: done again
  REQUIRE(writer->write(ledger(2, 5, 5)));  // before the checkpoint: it counts
  lines = written_by(*writer);
  REQUIRE(lines.size() == 4);
  CHECK(lines[3]["version"] == 2);
  REQUIRE(writer->write(event::Restarted{3, kEpoch, "lost"}));  // told by another coordinator
  CHECK(written_by(*writer).size() == 4);
}

TEST_CASE("events: two ledgers and no restart are a bug, at the end at the latest") {
  const EpochId next{kEpoch.term, kEpoch.counter + 1};
  const ObserveFolder folder("observe");
  const auto writer = EventWriter::open(folder.path()).value();
  REQUIRE(writer->write(ledger(3, 5, 7)));
  REQUIRE(writer->write(ledger(3, 7, 7, next)));
  CHECK(writer->write(event::Done{4, Digest{1, 2}, 1.0}).error().code() == Code::kInternal);
}

TEST_CASE("events: nothing but the last steps follows the end") {
  const ObserveFolder folder("observe");
  const auto writer = EventWriter::open(folder.path()).value();
  REQUIRE(writer->write(event::Done{4, Digest{1, 2}, 1.0}));
  REQUIRE(writer->flush());
  const auto size = std::filesystem::file_size(writer->path());
  REQUIRE(writer->write(event::LeaderElected{2, 1, 3, 4}));  // it ended when the job had
  REQUIRE(writer->write(event::Warning{"late"}));
  REQUIRE(writer->flush());
  CHECK(std::filesystem::file_size(writer->path()) == size);
  REQUIRE(writer->write(event::StepPassed{StepRecord{.version = 3}, kEpoch, 1, 1.0}));
  REQUIRE(writer->flush());
  CHECK(std::filesystem::file_size(writer->path()) > size);
}

TEST_CASE("events: a folder in use, with a run, or impossible is refused") {
  const ObserveFolder folder("observe");
  {
    const auto writer = EventWriter::open(folder.path()).value();
    const auto second = EventWriter::open(folder.path());
    REQUIRE_FALSE(second);
    CHECK(second.error().code() == Code::kBadInput);
    CHECK(has(second.error().text(), "is in use by another run"));
    REQUIRE(writer->write(event::Warning{"w"}));
  }
  const auto again = EventWriter::open(folder.path());
  REQUIRE_FALSE(again);
  CHECK(has(again.error().text(), "already holds a run"));
  CHECK(lines_of(folder.path() + "/events.jsonl").size() == 1);
  CHECK(has(EventWriter::open("/proc/none").error().text(), "cannot be made"));
  CHECK(has(EventWriter::open(folder.path() + "/events.jsonl").error().text(), "cannot be"));
  fs::create_directories(folder.path() + "/linked");
  fs::create_symlink("/dev/null", folder.path() + "/linked/events.jsonl");
  CHECK(EventWriter::open(folder.path() + "/linked").error().code() == Code::kBadInput);
  fs::create_directories(folder.path() + "/empty");  // made before, never written to: fine
  std::ofstream(folder.path() + "/empty/events.jsonl").close();
  CHECK(EventWriter::open(folder.path() + "/empty"));
}

TEST_CASE("the ledger script agrees with a good run and sees each kind of break") {
  const ObserveFolder folder("observe");
  Job job = load_job("examples/mlp/digits.toml").value();
  job.steps = 3;
  job.micro_batches = 2;
  const auto verdict = [&](auto change, const char* option = "") {
    fs::remove_all(folder.path());
    std::vector<std::string> lines;
    {
      const auto writer = EventWriter::open(folder.path()).value();
      REQUIRE(writer->start(start_of(job)));
      for (Version v = 0; v < 3; ++v) {
        REQUIRE(writer->write(event::StepPassed{{v, 1, 1, 1, false, 0}, kEpoch, 2, 1}));
        REQUIRE(writer->write(ledger(v, 5, 7)));
      }
      REQUIRE(writer->write(event::formed(plan_of_two())));  // may come after its first step
      REQUIRE(writer->write(event::Done{3, {}, 1}));
      REQUIRE(writer->flush());
      std::ifstream file(writer->path());
      for (std::string line; std::getline(file, line);) lines.push_back(line);
    }
    change(lines);
    std::ofstream out(folder.path() + "/events.jsonl");
    for (const auto& line : lines) out << line << "\n";
    out.close();
    const std::string command =
        "python3 tools/verify_ledger.py " + folder.path() + " " + option + " >/dev/null 2>&1";
    return WEXITSTATUS(std::system(command.c_str()));
  };
  using Lines = std::vector<std::string>;
  // 0 start, 1 step 0, 2 ledger 0, 3 step 1, 4 ledger 1, 5 step 2, 6 ledger 2, 7 epoch, 8 done
  const auto edit = [](std::size_t i, const std::string& from, const std::string& to) {
    return [=](Lines& lines) {
      const auto at = lines[i].find(from);
      REQUIRE(at != std::string::npos);
      lines[i].replace(at, from.size(), to);
    };
  };
  CHECK(verdict([](Lines&) {}) == 0);
  CHECK(verdict([](Lines& l) { l.erase(l.begin()); }) == 1);
  CHECK(verdict([](Lines& l) { l.erase(l.begin() + 3); }) == 1);
  CHECK(verdict([](Lines& l) { l.erase(l.begin() + 4); }) == 1);
  CHECK(verdict([](Lines& l) { l.push_back(l[3]); }) == 1);
  CHECK(verdict([](Lines& l) { l.insert(l.begin() + 4, l[3]); }) == 1);
  CHECK(verdict([](Lines& l) { l.insert(l.begin() + 4, l[4]); }) == 1);
  CHECK(verdict([](Lines& l) { l.erase(l.begin() + 7); }) == 1);
  CHECK(verdict([](Lines& l) { l.pop_back(); }) == 1);
  CHECK(verdict([](Lines& l) { l.pop_back(); }, "--partial") == 0);
  CHECK(verdict(edit(4, "[1,7]", "[0,7]")) == 1);
  CHECK(verdict(edit(4, ",[1,7]", "")) == 1);
  CHECK(verdict(edit(4, "[1,7]", "[1,7],[2,7]")) == 1);
  CHECK(verdict(edit(4, "[1,7]", "[1,9]")) == 1);
  CHECK(verdict(edit(4, "\"version\":1", "\"version\":3")) == 1);
  CHECK(verdict(edit(8, "\"version\":3", "\"version\":2")) == 1);
  CHECK(verdict(edit(3, "{", "")) == 1);
  CHECK(WEXITSTATUS(std::system("python3 tools/verify_ledger.py no/such 2>/dev/null")) == 2);
}

TEST_CASE("the loss curve is whole, bounded and escaped") {
  LossPicture picture{.title = "a <job> & b",
                      .epochs = {{0, "1.1 fresh"}, {300, "1.2 <forced> & more"}}};
  for (Version v = 0; v < 100000; ++v)
    picture.losses.push_back({v, 1 + 5.0 / (1 + static_cast<double>(v))});
  picture.losses[50000].value = 7.5;  // a spike must not be lost to thinning
  const std::string svg = loss_svg(picture);
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(svg.size() < 60000);
  CHECK(has(svg, "a &lt;job&gt; &amp; b"));
  CHECK(has(svg, "<title>epoch 1.2 &lt;forced&gt; &amp; more</title>"));
  CHECK(has(svg, ">8</text>"));  // the axis reaches beyond the spike
  CHECK(has(svg, ">100000</text>") == false);
  CHECK(has(svg, ">90000</text>"));
  CHECK(has(svg, "2 epochs"));
  CHECK_FALSE(has(svg, "nan"));
  CHECK_FALSE(has(svg, "inf"));
}

TEST_CASE("the loss curve of nothing, of one step, of equal and of broken losses") {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const std::vector<CurvePoint>& points : {std::vector<CurvePoint>{},
                                                {{3, 2.5}},
                                                {{0, 2.5}, {1, 2.5}},
                                                {{0, nan}, {1, inf}},
                                                {{0, 0}, {1, 0}},
                                                {{0, 1e-300}, {1, 1e300}}}) {
    const std::string svg =
        loss_svg({.title = "t", .losses = points, .norms = points, .rates = points});
    CHECK(svg.ends_with("</svg>\n"));
    CHECK_FALSE(has(svg, "nan\""));
    CHECK_FALSE(has(svg, "inf\""));
  }
  // A gap: two pieces of a path, the single point as a dot.
  const std::string svg = loss_svg({.title = "t", .losses = {{0, 3}, {1, 2}, {2, nan}, {3, 1}}});
  CHECK(has(svg, "<circle"));
  const std::string path = svg.substr(svg.find("<path"));
  CHECK(std::count(path.begin(), path.end(), 'M') == 2);
}

TEST_CASE("losses of many steps are drawn lightly below their moving average") {
  LossPicture picture{.title = "t"};
  for (Version v = 0; v < 63; ++v) picture.losses.push_back({v, v % 2 == 0 ? 2.0 : 4.0});
  CHECK_FALSE(has(loss_svg(picture), "loss faint"));
  picture.losses.push_back({63, 4});
  const std::string svg = loss_svg(picture);
  CHECK(has(svg, "loss faint"));
  const auto heights = [&](const std::string& begin) {
    const std::string path = svg.substr(svg.find(begin));
    std::istringstream in(path.substr(0, path.find("\"/>")));
    std::vector<double> found;
    for (std::string word; std::getline(in, word, ' ');)
      if (std::isdigit(static_cast<unsigned char>(word[0]))) found.push_back(std::stod(word));
    return found;
  };
  const auto raw = heights("<path class=\"loss faint\""), mean = heights("<path class=\"loss\"");
  REQUIRE(raw.size() == 64);
  REQUIRE(mean.size() == 64);
  CHECK(std::abs(raw[30] - raw[31]) > 200);  // 2 and 4 of an axis from 2 to 4
  CHECK(std::abs(mean[30] - mean[31]) < 120);
}

TEST_CASE("norm and rate have fields of their own, and what spans decades a logarithmic axis") {
  LossPicture picture{.title = "t"};
  for (Version v = 0; v < 10; ++v) {
    picture.losses.push_back({v, 3 - 0.1 * static_cast<double>(v)});
    picture.norms.push_back({v, std::pow(10.0, static_cast<double>(v) - 4)});
    picture.rates.push_back({v, 1e-3});
  }
  const std::string svg = loss_svg(picture);
  CHECK(has(svg, ">norm</text>"));
  CHECK(has(svg, ">rate</text>"));
  CHECK(has(svg, ">0.0001</text>"));
  CHECK(has(svg, ">1e+04</text>"));
  CHECK(has(svg, ">3.0</text>"));  // losses from 2.1 to 3 are drawn as they are
  picture.norms.clear();
  for (CurvePoint& rate : picture.rates) rate.value = std::nan("");
  CHECK_FALSE(has(loss_svg(picture), "norm"));
  CHECK_FALSE(has(loss_svg(picture), "rate"));
}

TEST_CASE("the loss curve is written whole or not at all") {
  const ObserveFolder folder("observe");
  fs::create_directories(folder.path());
  const LossPicture picture{.title = "t", .losses = {{0, 2}, {1, 1}}};
  REQUIRE(write_loss_svg(folder.path() + "/loss.svg", picture));
  CHECK(fs::file_size(folder.path() + "/loss.svg") == loss_svg(picture).size());
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
  CHECK(write_loss_svg(folder.path() + "/none/loss.svg", picture).error().code() ==
        Code::kBadInput);
}

TEST_CASE("log: fields are quoted where needed, levels are known") {
  std::string line;
  append_fields(line, {{"epoch", 12}, {"cause", "end of \"file\"\n"}, {"ok", true}, {"empty", ""}});
  CHECK(line == " epoch=12 cause=\"end of \\\"file\\\"\\x0a\" ok=true empty=\"\"");
  CHECK(parse_log_level("warn") == LogLevel::kWarn);
  CHECK_FALSE(parse_log_level("loud"));
  const Log log(LogLevel::kWarn, {{"worker", 3}});
  CHECK(log.enabled(LogLevel::kError));
  CHECK_FALSE(log.with({{"epoch", 1}}).enabled(LogLevel::kInfo));
}

TEST_CASE("log: a line goes to stderr, with time, level and fields") {
  std::fflush(stderr);
  std::FILE* caught = std::tmpfile();
  const int kept = ::dup(2);
  ::dup2(::fileno(caught), 2);
  const Log log(LogLevel::kInfo, {{"worker", 3}});
  log.debug("not shown");
  log.with({{"epoch", "3.2"}}).info("frozen", {{"peer", 1}});
  std::fflush(stderr);
  ::dup2(kept, 2);
  ::close(kept);
  const std::string text = text_of(caught);
  std::fclose(caught);
  CHECK(has(text, "Z info  worker=3 epoch=3.2 frozen peer=1\n"));
  CHECK_FALSE(has(text, "not shown"));
}

}  // namespace starling
