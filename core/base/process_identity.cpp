#include "core/base/process_identity.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace starling {
namespace {

struct Start {
  char state = 0;     // 'Z': a zombie; 0: the process cannot be read
  std::string ticks;  // since the boot
};

Start start_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');  // a name may have spaces and parentheses
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  Start start;
  fields >> start.state;
  for (int i = 4; i <= 22; ++i) fields >> start.ticks;  // the 22nd field is the start
  return fields ? start : Start{};
}

// "BOOT NAMESPACE "; empty: the kernel does not say.
std::string world() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::error_code error;
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  if (!(file >> boot) || error) return {};
  return boot + " " + space + " ";
}

}  // namespace

std::string process_identity() {
  const std::string here = world();
  const std::string pid = std::to_string(::getpid());
  const Start start = start_of(pid);
  return here.empty() || start.state == 0 ? "" : here + pid + " " + start.ticks;
}

bool is_over(const std::string& identity) {
  const std::string here = world();
  if (here.empty() || !identity.starts_with(here)) return false;
  const std::string rest = identity.substr(here.size());
  const auto space = rest.find(' ');
  pid_t pid = 0;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
  if (space == std::string::npos || read.ptr != rest.data() + space || pid <= 0) return false;
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  const Start start = start_of(rest.substr(0, space));
  if (start.state == 0) return false;  // another user's may be hidden
  return start.state == 'Z' || start.state == 'X' || start.ticks != rest.substr(space + 1);
}

}  // namespace starling
