// `starling status` says where a run is: by its events on this machine, or by asking a coordinator anywhere.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "actors/notices/http.h"
#include "collectives/tcp/socket.h"
#include "core/base/address.h"
#include "core/base/fd.h"
#include "core/observe/event_reader.h"
#include "core/observe/metrics.h"
#include "core/observe/progress.h"
#include "core/observe/run_status.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBetween{1};
constexpr std::chrono::seconds kAway{30};  // a server that has answered, before it counts as gone
constexpr const char* kStates[] = {"waiting", "training", "done", "ended", "failed"};
constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr const char* kHomeAndClear = "\x1b[H\x1b[J";

// Shown is what a source has to say now.
struct Shown {
  std::string text;  // with its line ends
  bool over = false;
};

class Source {
 public:
  virtual ~Source() = default;
  virtual Result<Shown> ask(bool json) = 0;
};

// Reads what a file of events has more than the last time.
class EventsFile : public Source {
 public:
  explicit EventsFile(std::string path) : path_(std::move(path)) {}

  Result<Shown> ask(bool json) override {
    STARLING_TRY(read());
    if (status_.last_at() <= 0)
      return Error(Code::kBadInput, path_ + " has no event of a run yet, expected one or more");
    const double now = unix_time();
    Shown shown{json ? status_.json(now) + "\n" : "", status_.over()};
    if (json) return shown;
    for (const std::string& line : status_.lines(now)) shown.text += line + "\n";
    return shown;
  }

 private:
  Error unreadable() const {
    return Error(Code::kBadInput, "cannot read " + path_ + ": " + std::strerror(errno));
  }

  Result<> read() {
    const Fd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat state {};
    if (!fd || ::fstat(fd.get(), &state) != 0) return unreadable();
    if (!S_ISREG(state.st_mode))
      return Error(Code::kBadInput, path_ + " is no regular file, expected events of a run");
    // Another run's file, or one that was cut: all of it is read again.
    if (state.st_ino != inode_ || state.st_size < at_) *this = EventsFile(path_);
    inode_ = state.st_ino;
    std::string text, buffer(kReadBytes, '\0');
    for (;;) {
      const off_t from = at_ + static_cast<off_t>(text.size());
      const ssize_t got = ::pread(fd.get(), buffer.data(), buffer.size(), from);
      if (got < 0) return unreadable();
      // A last line that is half written is read again: who writes next may cut it off.
      if (got == 0) return ok();
      text.append(buffer, 0, static_cast<std::size_t>(got));
      STARLING_TRY(take_lines(text));
      if (text.size() > kEventLineBytesMax)
        return Error(Code::kBadInput,
                     path_ + " has a line without an end, expected events of a run");
    }
  }

  // Takes the whole lines from the front of `text`.
  Result<> take_lines(std::string& text) {
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
      ++line_;
      auto taken = status_.take_line(std::string_view(text).substr(begin, end - begin));
      if (!taken) return std::move(taken).error().in(path_ + ", line " + std::to_string(line_));
    }
    text.erase(0, begin);
    at_ += static_cast<off_t>(begin);
    return ok();
  }

  std::string path_;
  ino_t inode_ = 0;
  off_t at_ = 0;  // the end of the last whole line
  std::uint64_t line_ = 0;
  RunStatus status_;
};

// Asks the address that a run or a coordinator has with --metrics.
class Server : public Source {
 public:
  static Result<std::unique_ptr<Source>> make(const std::string& url) {
    std::string place = url.substr(url.find("://") + 3);
    place = place.substr(0, place.find('/'));
    auto at = parse_address(place);
    if (!at) return std::move(at).error().in(url);
    auto host = collectives::numeric_address(at.value().host);
    if (!host) return std::move(host).error().in(url);
    STARLING_TRY(client, actors::HttpClient::make(
                             "http://" + to_string(Address{host.value(), at.value().port})));
    return std::unique_ptr<Source>(new Server(url, std::move(client)));
  }

  Result<Shown> ask(bool json) override {
    Shown shown;
    STARLING_TRY(object, get("/status"));
    const auto read = nlohmann::ordered_json::parse(object, nullptr, /*allow_exceptions=*/false);
    if (!read.is_object() || !read.contains("state") || !read["state"].is_string())
      return Error(Code::kBadInput, url_ + "/status is no status of a run");
    const auto state = read["state"].get<std::string>();
    if (std::find(std::begin(kStates), std::end(kStates), state) == std::end(kStates))
      return Error(Code::kBadInput, url_ + "/status is no status of a run");
    shown.over = state != kStates[0] && state != kStates[1];
    if (json) {
      shown.text = on_one_line(object) + "\n";  // as it came: a line
      return shown;
    }
    STARLING_TRY(text, get("/status.txt"));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) shown.text += on_one_line(line) + "\n";
    return shown;
  }

 private:
  Server(std::string url, std::unique_ptr<actors::HttpClient> client)
      : url_(std::move(url)), client_(std::move(client)) {}

  Result<std::string> get(const std::string& target) {
    actors::HttpRequest request;
    request.target = target;
    request.timeout = std::chrono::seconds(5);
    auto answer = client_->ask(request);
    if (!answer) {
      Error error = std::move(answer).error();
      // What answers is no Starling: that is no bug of this one.
      if (error.code() == Code::kCorrupt) error = Error(Code::kBadInput, error.text());
      return std::move(error).in(url_);
    }
    if (answer.value().status != 200)
      return Error(Code::kBadInput, url_ + target + " answers " +
                                        std::to_string(answer.value().status) +
                                        ", expected the address of --metrics of a run");
    return std::move(answer.value().body);
  }

  const std::string url_;
  const std::unique_ptr<actors::HttpClient> client_;
};

Result<std::unique_ptr<Source>> source_of(const std::string& of) {
  if (of.starts_with("http://")) return Server::make(of);
  if (of.find("://") != of.npos)
    return Error(Code::kBadInput, of + " is no place of a run's events, expected a folder, "
                                       "events.jsonl or http://HOST:PORT");
  std::error_code error;
  // As --metrics takes it.
  if (!fs::exists(of, error) && parse_address(of)) return Server::make("http://" + of);
  const bool folder = fs::is_directory(of, error);
  const std::string path = folder ? (fs::path(of) / "events.jsonl").string() : of;
  return std::unique_ptr<Source>(std::make_unique<EventsFile>(path));
}

Result<int> show(const StatusCommand& command) {
  STARLING_TRY(source, source_of(command.where));
  const bool live = command.watch && !command.json && ProgressStyle::of(stdout).live;
  std::optional<Clock::time_point> answered;
  for (;; std::this_thread::sleep_for(kBetween)) {
    auto shown = source->ask(command.json);
    // A coordinator that is started again answers again.
    const bool away = !shown && shown.error().code() == Code::kUnavailable;
    if (away && command.watch && answered && Clock::now() - *answered < kAway) continue;
    if (!shown) return std::move(shown).error();
    if (live) std::fputs(kHomeAndClear, stdout);
    if (!live && !command.json && answered) std::fputs("\n", stdout);
    answered = Clock::now();
    std::fputs(shown.value().text.c_str(), stdout);
    std::fflush(stdout);
    if (!command.watch || shown.value().over || std::ferror(stdout) != 0) return 0;
  }
}

}  // namespace

int status(const StatusCommand& command) {
  auto shown = show(command);
  return shown ? shown.value() : fail(shown.error());
}

}  // namespace starling::tools
