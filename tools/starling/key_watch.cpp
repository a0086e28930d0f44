#include "tools/starling/key_watch.h"

#include <sys/stat.h>

#include <filesystem>

#include "tools/starling/group.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenLooks{500};

std::string file_of(const std::string& path, const std::string& name) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  return (std::filesystem::path(path) / name).string();
}

}  // namespace

KeyWatch::KeyWatch(const std::string& path, const std::string& name, const JobId& job)
    : file_(file_of(path, name)), job_(job), seen_(look()), next_(Clock::now() + kBetweenLooks) {}

std::optional<KeyWatch::Seen> KeyWatch::look() const {
  struct stat status {};
  if (::stat(file_.c_str(), &status) != 0) return std::nullopt;
  return Seen{status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
              status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

std::optional<Result<AllowList>> KeyWatch::changed() {
  if (Clock::now() < next_) return std::nullopt;
  next_ = Clock::now() + kBetweenLooks;
  const auto now = look();
  if (!now || (now == seen_ && !half_)) return std::nullopt;
  const bool changes = now != seen_;
  seen_ = now;
  auto ring = KeyRing::load(file_);
  half_ = !ring && changes;
  if (half_) return std::nullopt;
  if (!ring) return std::move(ring).error().in("the keys that were let in before are let in on");
  if (job_id_of(ring.value()) != job_)
    return Error(Code::kBadInput, "the coordinators' keys in " + file_ +
                                      " are those of another job; the keys that were let in "
                                      "before are let in on");
  return ring.value().allow_list();
}

}  // namespace starling::tools
