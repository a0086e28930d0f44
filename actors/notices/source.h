#pragma once
// A NoticeSource asks a cloud's metadata service about the end of the machine: it says
// what to ask next and what an answer means; watch.h asks. It returns starling::Notices,
// the same as SIGTERM makes: the worker does not see where a notice comes from.
//
//   aws    a token (IMDSv2), then spot/instance-action: a leave; events/recommendations/rebalance:
//          a hint, the notice itself follows; events/maintenance/scheduled: a hint, and a leave when its
//          time is near. Every 5 s, as the vendor advises.
//   gcp    instance/preempted, as a long poll: a leave at once; after each answer
//          instance/maintenance-event: a leave, or a hint if the machine is moved as it runs.
//   azure  scheduledevents, every 5 s; those of all machines of a set are shown, so the own name is
//          asked for first. Freeze (the machine stands still for seconds) is a hint, all others end
//          the process: leave.
//
// Threads: none; a value that belongs to the caller. No clock, no socket.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/messages.h"

namespace starling::actors {

enum class Cloud : std::uint8_t { kAws, kGcp, kAzure };
const char* name_of(Cloud cloud);

struct HttpRequest {
  std::string method = "GET";  // GET, PUT or POST
  std::string target;          // path and query
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::chrono::milliseconds timeout{1000};  // from connected to the whole answer
};

struct HttpAnswer {
  unsigned status = 0;
  std::string body;  // at most kAnswerBytesMax
  std::string etag;  // of the header of that name; empty: none
};

struct Ask {
  std::chrono::milliseconds after{0};  // to wait before it
  HttpRequest request;
};

struct Heard {
  std::vector<Notice> notices;
  std::string warning;  // the answer is not what this cloud gives; empty: it is
};

class NoticeSource {
 public:
  virtual ~NoticeSource() = default;
  virtual Ask next() const = 0;
  // Takes the answer to next(); null: there was none. `now` by the wall
  // clock, as clouds give times by it. Each notice is returned once.
  virtual Heard hear(const HttpAnswer* answer, std::chrono::sys_seconds now) = 0;
  // Returns the request that tells the cloud not to wait for the end of the notice; none: no need.
  virtual std::optional<HttpRequest> handed_over() const { return std::nullopt; }
};

std::unique_ptr<NoticeSource> make_source(Cloud cloud);

}  // namespace starling::actors
