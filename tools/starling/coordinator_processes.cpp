// These are the coordinators of `starling run --coordinators 3`: processes that
// are restarted when they die. Each writes the events that it sees to a pipe;
// the first to report an event is believed, and reports that differ are a bug.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/address.h"
#include "core/base/system_error.h"
#include "core/observe/anomalies.h"
#include "core/observe/event_reader.h"
#include "tools/processes/quiet_port.h"
#include "tools/processes/signals.h"
#include "tools/starling/coordinators.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Between two starts of one coordinator: one that ends as soon
// as it has begun, say for want of disk, tries once a second.
constexpr milliseconds kBetweenStarts{1000};

class Processes : public Coordinators {
 public:
  Processes(const CoordinatorsOptions& options, EventWriter& events, Children& children)

      : options_(options),
        events_(events),
        children_(children),
        anomalies_(options.job),
        places_(options.count) {}

  ~Processes() override {
    for (const Place& place : places_)
      if (place.pipe >= 0) ::close(place.pipe);
  }

  Result<> start() {
    std::string peers;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      Place& place = places_[i];
      const auto wanted = static_cast<std::uint16_t>(options_.port + i);
      STARLING_TRY(port, options_.port == 0 ? QuietPort::take(options_.host)
                                            : QuietPort::take(options_.host, wanted));
      place.address = to_string(Address{options_.host, port.port()});
      ports_.push_back(std::move(port));
      peers += (peers.empty() ? "" : ",") + place.address;
    }
    address_ = "tcp://" + peers;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      STARLING_TRY(start(i));
    }
    return ok();
  }

  const std::string& address() const override { return address_; }

  Result<std::vector<Event>> wait(milliseconds time) override {
    STARLING_TRY(start_due());
    std::vector<pollfd> polled;
    for (const Place& place : places_) polled.push_back({place.pipe, POLLIN, 0});
    ::poll(polled.data(), polled.size(), static_cast<int>(time.count()));
    std::vector<Event> happened = std::exchange(late_, {});
    if (auto news = events_.news()) happened.push_back(event::Warning{*news});
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (polled[i].revents == 0) continue;
      STARLING_TRY(read(places_[i], happened));
    }
    // Another coordinator may be behind with the last steps: a good end is told after them.
    const bool last = last_step_ + 1 == options_.job.steps;
    if (end_ && !ended_ &&
        (last || !std::holds_alternative<event::Done>(*end_) ||
         Clock::now() - end_at_ > kLastSteps)) {
      ended_ = true;
      STARLING_TRY(events_.copy(*end_));
      happened.push_back(*end_);
    }
    return happened;
  }

  // The leader hears it; a coordinator that begins again or is elected later is told again.
  void ask_checkpoint() override {
    for (const Place& place : places_)
      if (place.pid > 0) give_order(place.pid, Order::kAskCheckpoint);
  }

  void end_run(int signal) override {
    for (const Place& place : places_)
      if (place.pid > 0) give_order(place.pid, Order::kEndRun, signal);
  }

  Result<bool> child_ended(pid_t pid) override {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].pid != pid) continue;
      // No other coordinator is certain to tell what this one told before it died.
      while (places_[i].pipe >= 0) {
        STARLING_TRY(more, read(places_[i], late_));
        if (!more) break;
      }
      places_[i].pid = 0;
      places_[i].due = places_[i].begun + kBetweenStarts;
      STARLING_TRY(start_due());
      return true;
    }
    return false;
  }

 private:
  struct Place {
    std::string address;
    pid_t pid = 0;
    int pipe = -1;
    std::string text;  // of an unfinished line
    Clock::time_point begun;
    bool has_run = false;
    std::optional<Clock::time_point> due;  // it has ended, and begins again then
  };

  Result<> start_due() {
    for (std::size_t i = 0; i < places_.size() && !ended_; ++i) {
      if (!places_[i].due || Clock::now() < *places_[i].due) continue;
      STARLING_TRY(start(i));
    }
    return ok();
  }

  std::string path(const std::string& name) const {
    return (std::filesystem::path(options_.folder) / name).string();
  }

  Result<> start(std::size_t i) {
    Place& place = places_[i];
    if (place.pipe >= 0) ::close(place.pipe);
    place.text.clear();
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return unavailable("cannot make a pipe");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    place.pipe = ends[0];
    const std::string name = "coordinator-" + std::to_string(i);
    std::vector<std::string> arguments{"coordinator", "--child",
                                       "--job",       path("job.toml"),
                                       "--keys",      options_.keys,
                                       "--name",      name,
                                       "--listen",    place.address,
                                       "--peers",     address_.substr(6),
                                       "--workers",   std::to_string(options_.workers),
                                       "--state",     path(name),
                                       "--log",       options_.log,
                                       "--told",      std::to_string((last_step_ + 1).value())};
    if (!options_.checkpoints.empty()) arguments.push_back("--resume");
    if (!std::exchange(place.has_run, true)) arguments.push_back("--new");
    auto pid = children_.spawn(arguments, ends[1]);
    ::close(ends[1]);
    if (!pid) return std::move(pid).error();
    place.pid = pid.value();
    place.begun = Clock::now();
    place.due.reset();
    return ok();
  }

  // Reads events; returns whether there may be more.
  Result<bool> read(Place& place, std::vector<Event>& happened) {
    char buffer[65536];
    const ssize_t n = ::read(place.pipe, buffer, sizeof buffer);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
    if (n <= 0) {  // it has died; others tell its unfinished line
      ::close(place.pipe);
      place.pipe = -1;
      return false;
    }
    place.text.append(buffer, static_cast<std::size_t>(n));
    std::size_t at = 0;
    for (std::size_t end; (end = place.text.find('\n', at)) != std::string::npos; at = end + 1) {
      STARLING_TRY(on_line({place.text.data() + at, end - at}, happened));
    }
    place.text.erase(0, at);
    if (place.text.size() > kEventLineBytesMax)
      return Error(Code::kInternal, "a coordinator writes a line without end");
    return true;
  }

  Result<> on_line(std::string_view text, std::vector<Event>& happened) {
    const auto no_event = [](const std::string& why) {
      return Error(Code::kInternal, "a coordinator wrote no event (" + why + ")");
    };
    auto line = read_event(text);
    if (!line) return no_event(line.error().text());
    if (!line.value().event) return no_event("nobody knows the kind `" + line.value().kind + "`");
    Event event = *std::move(line.value().event);
    if (std::holds_alternative<event::Done>(event) || std::holds_alternative<event::Ended>(event) ||
        std::holds_alternative<event::Failed>(event)) {
      if (end_) return ok();
      end_at_ = Clock::now();
      end_ = std::move(event);
      return ok();
    }
    STARLING_TRY(written, events_.copy(event));
    if (!written) return ok();
    if (const auto* step = std::get_if<event::StepPassed>(&event))
      last_step_ = std::max(last_step_, step->record.version);
    const auto warning = anomalies_.take(event);
    happened.push_back(std::move(event));
    if (!warning) return ok();
    STARLING_TRY(events_.write(*warning));
    happened.push_back(*warning);
    return ok();
  }

  const CoordinatorsOptions options_;
  EventWriter& events_;
  Children& children_;
  Anomalies anomalies_;
  std::vector<Place> places_;
  std::vector<QuietPort> ports_;  // of the places: kept while a coordinator begins again
  std::string address_;
  Version last_step_ = 0;
  std::vector<Event> late_;   // of coordinators that have died, for the next wait()
  std::optional<Event> end_;  // told by one of them
  Clock::time_point end_at_;
  bool ended_ = false;  // and passed on
};

}  // namespace

Result<std::unique_ptr<Coordinators>> start_processes(const CoordinatorsOptions& options,
                                                      EventWriter& events, Children& children) {
  auto processes = std::make_unique<Processes>(options, events, children);
  STARLING_TRY(processes->start());
  return std::unique_ptr<Coordinators>(std::move(processes));
}

}  // namespace starling::tools
