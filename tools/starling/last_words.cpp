#include "tools/starling/last_words.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sstream>

namespace starling::tools {

LastWords::LastWords() : fd_(::memfd_create("starling-last-words", MFD_CLOEXEC)) {
  if (fd_ >= 0) ::fcntl(fd_, F_SETFL, O_APPEND);  // several write
}

LastWords::~LastWords() {
  if (fd_ >= 0) ::close(fd_);
}

std::string LastWords::last_with(int code) const {
  std::string all, found;
  char buffer[4096];
  for (ssize_t n;
       fd_ >= 0 && (n = ::pread(fd_, buffer, sizeof buffer, static_cast<off_t>(all.size()))) > 0;)
    all.append(buffer, static_cast<std::size_t>(n));
  std::istringstream lines(all);
  const std::string begin = std::to_string(code) + " ";
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(begin)) found = line.substr(begin.size());
  return found;
}

}  // namespace starling::tools
