#pragma once
// NoticeWatch listens for a cloud's notice in a thread of its own, far from the step path.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "actors/notices/http.h"
#include "actors/notices/source.h"
#include "core/base/result.h"
#include "core/observe/log.h"

namespace starling::actors {

inline constexpr const char* kMetadataBase = "http://169.254.169.254";  // of all three clouds

// Returns the cloud of this machine, by its firmware's data; nothing is sent to find
// out. `folder`: where the kernel shows these data. None: no cloud that is known here.
std::optional<Cloud> cloud_here(const std::string& folder = "/sys/class/dmi/id");

// Threads: make, start, handed_over and destruction belong to one thread.
class NoticeWatch {
 public:
  using Given = std::function<void(const Notice&)>;  // in the watch's thread

  // Errors: kBadInput  the base (see HttpClient).
  static Result<std::unique_ptr<NoticeWatch>> make(Cloud cloud, const std::string& base, Log log);
  ~NoticeWatch();  // at once, whatever it waits for

  // Asks a service that does not answer again, for ever; the log gets a
  // line the first time, and the first time that an answer cannot be read.
  void start(Given given);
  // Stops listening and tells the cloud that it need not wait. Blocks for 2 s at most.
  void handed_over();

 private:
  NoticeWatch(Cloud cloud, std::string base, std::unique_ptr<HttpClient> client, Log log);
  void listen(const Given& given);
  void stop();
  void hear(const Result<HttpAnswer>& answer, const Given& given);

  const std::string base_;
  const Log log_;
  const std::unique_ptr<HttpClient> client_;
  const std::unique_ptr<NoticeSource> source_;  // of the thread, while there is one
  bool told_silent_ = false, told_unreadable_ = false;
  std::thread thread_;
};

}  // namespace starling::actors
