// `starling watch` shows a run as a page: what it has come to, and charts over time.

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/xml.h"
#include "core/observe/metrics.h"
#include "core/observe/run_status.h"
#include "tools/chaos/report_html.h"
#include "tools/chaos/timeline.h"
#include "tools/judge/pauses.h"
#include "tools/judge/story.h"
#include "tools/processes/signals.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/page_server.h"
#include "tools/starling/report_folder.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

constexpr double kChartWidth = 1000;       // pixels of the charts' time
constexpr std::size_t kRowsOfTable = 50;   // the newest
constexpr std::chrono::seconds kFresh{1};  // a page is made anew after it
constexpr int kAgainSeconds = 2;
constexpr std::chrono::milliseconds kBetweenLooks{100};

using Points = std::vector<judge::Point>;

// A strip of one line, whose scale covers all of its values that are finite. None: nothing is drawn.
void draw(chaos::Chart& chart, const std::string& name, const Points& points, const char* unit) {
  constexpr double kHeight = 80;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const judge::Point& point : points) {
    if (!std::isfinite(point.value)) continue;
    low = std::min(low, point.value);
    high = std::max(high, point.value);
  }
  if (low > high) return;
  const double top = chart.strip(name, kHeight);
  chart.scale(top, kHeight, low, high, unit);
  chart.curve(points, top, kHeight, low, high, /*steps=*/false, "curve");
}

// What a timeline does not have: norms, times of steps, losses on held-out data.
std::string other_charts(const judge::Story& story) {
  chaos::Chart chart(chaos::axis_of(story, kChartWidth));
  Points norm, ms, held_out;
  std::map<Version, double> passed;  // when
  for (const auto& step : story.step_lines) {
    norm.push_back({step.t, step.record.norm});
    ms.push_back({step.t, step.ms});
    passed.emplace(step.record.version, step.t);
  }
  for (const auto& evaluation : story.evaluation_lines) {
    const auto at = passed.lower_bound(evaluation.version);  // the last comes behind all steps
    if (passed.empty()) break;
    held_out.push_back(
        {at == passed.end() ? passed.rbegin()->second : at->second, evaluation.loss});
  }
  draw(chart, "held out", held_out, "");
  draw(chart, "norm", norm, "");
  draw(chart, "a step", ms, " ms");
  chart.time_labels();
  return chart.svg();
}

std::string time_cell(const std::optional<double>& value) {
  return "<td class=\"n\">" + (value ? chaos::fixed(*value, 0) : std::string()) + "</td>";
}

std::string epoch_table(const judge::Story& story) {
  std::string rows;
  const std::size_t first = story.epochs.size() - std::min(story.epochs.size(), kRowsOfTable);
  for (std::size_t i = story.epochs.size(); i-- > first;) {
    const auto& epoch = story.epochs[i];
    rows += "<tr><td class=\"n\">" + chaos::fixed(judge::committed_at(epoch), 1) + "</td><td>" +
            to_string(epoch.id) + "</td><td>" + to_string(epoch.kind) + "</td><td class=\"n\">" +
            std::to_string(epoch.members.size()) + "</td><td>" + xml_text(epoch.cause) + "</td>" +
            time_cell(epoch.detect_ms) + time_cell(epoch.form_ms) + time_cell(epoch.resume_ms) +
            "</tr>\n";
  }
  return "<h2>Epochs</h2><table><tr><th>at, s</th><th>epoch</th><th>kind</th><th>workers</th>"
         "<th>cause</th><th>detect, ms</th><th>form, ms</th><th>resume, ms</th></tr>\n" +
         rows + "</table>\n";
}

std::string warning_list(const judge::Story& story) {
  if (story.warnings.empty()) return {};
  const std::size_t first = story.warnings.size() - std::min(story.warnings.size(), kRowsOfTable);
  std::string rows;
  for (std::size_t i = story.warnings.size(); i-- > first;)
    rows += "<li>" + xml_text(story.warnings[i]) + "</li>\n";
  return "<h2>Warnings</h2><ul>\n" + rows + "</ul>\n";
}

// The events of a run, read as they come. Threads: any.
class WatchedRun {
 public:
  explicit WatchedRun(std::string path) : path_(std::move(path)) {}

  // The page, with `live` one that a browser asks for again while the run goes on.
  std::string page(bool live) {
    const MutexLock lock(reading_);
    if (!page_.empty() && Clock::now() - made_ < kFresh) return page_;
    read();
    const double now = unix_time();
    const bool over = run_->status.over();
    std::string text;
    for (const std::string& line : run_->status.lines(now)) text += xml_text(line) + "\n";
    std::string body = "<pre>" + text + "</pre>\n";
    body += "<div class=\"wide\">" + chaos::timeline(run_->story, {}, kChartWidth).svg() +
            other_charts(run_->story) + "</div>\n";
    body += warning_list(run_->story) + epoch_table(run_->story);
    page_ = chaos::html_page("starling: " + path_, body, live && !over ? kAgainSeconds : 0);
    made_ = Clock::now();
    return page_;
  }
  // Errors: kBadInput  there is no event of a run yet.
  Result<> begin() {
    const MutexLock lock(reading_);
    read();
    if (run_->status.last_at() > 0) return ok();
    return Error(Code::kBadInput, path_ + " has no event of a run yet, expected one or more");
  }

 private:
  struct Run {
    explicit Run(const std::string& path) : tail(path) {}
    judge::Tail tail;
    judge::Story story;
    RunStatus status;
    ino_t inode = 0;
    off_t size = 0;
    std::string head;
  };

  // The first bytes of the file: its first event has the time of the run.
  std::string head() const {
    std::ifstream file(path_, std::ios::binary);
    std::string text(512, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
  }
  // Takes what has come. Another run's file, or one that was cut, is read anew.
  void read() STARLING_REQUIRES(reading_) {
    struct stat now {};
    const bool is_file = ::stat(path_.c_str(), &now) == 0 && S_ISREG(now.st_mode);
    if (!is_file) now = {};  // opening a pipe would wait for a writer
    const std::string begin = is_file ? head() : "";
    if (!run_ || run_->inode != now.st_ino || now.st_size < run_->size ||
        !begin.starts_with(run_->head))
      run_ = std::make_unique<Run>(path_);
    run_->inode = now.st_ino;
    run_->size = now.st_size;
    run_->head = begin;
    if (!is_file) return;
    for (const std::string& line : run_->tail.lines()) {
      (void)run_->status.take_line(line);
      // A row for each micro-batch is most of a file, and no part of the page.
      if (line.find("\"ev\":\"ledger\"") == std::string::npos) run_->story.add(line);
    }
  }

  const std::string path_;
  Mutex reading_;
  std::unique_ptr<Run> run_ STARLING_GUARDED_BY(reading_);
  std::string page_ STARLING_GUARDED_BY(reading_);
  Clock::time_point made_ STARLING_GUARDED_BY(reading_);
};

Result<int> serve(const WatchCommand& command, WatchedRun& run) {
  block_ending_signals();
  const auto answer = [&run](const std::string& target, const std::string&) -> std::optional<Page> {
    if (target.substr(0, target.find('?')) != "/") return std::nullopt;
    return Page{"text/html; charset=utf-8", run.page(/*live=*/true)};
  };
  STARLING_TRY(server, PageServer::make({command.http.empty() ? "0" : command.http, "--http",
                                         "the page is at /"},
                                        answer));
  std::printf("%s is at %s/; Ctrl-C ends it\n", command.where.c_str(), server->url().c_str());
  std::fflush(stdout);
  for (;; std::this_thread::sleep_for(kBetweenLooks))
    if (const int signal = pending_signal()) return 128 + signal;
}

Result<int> show(const WatchCommand& command) {
  std::error_code error;
  const bool folder = fs::is_directory(command.where, error);
  const std::string path =
      folder ? (fs::path(command.where) / "events.jsonl").string() : command.where;
  if (!fs::is_regular_file(path, error))
    return Error(Code::kBadInput, path + " is no file of events, expected the folder of a run");
  WatchedRun run(path);
  STARLING_TRY(run.begin());
  if (command.out.empty()) return serve(command, run);
  if (fs::exists(command.out, error))
    return Error(Code::kBadInput, command.out + " is there already, expected a new file; --out");
  STARLING_TRY(write_file(command.out, run.page(/*live=*/false)));
  return 0;
}

}  // namespace

int watch(const WatchCommand& command) {
  auto done = show(command);
  return done ? done.value() : fail(done.error());
}

}  // namespace starling::tools
