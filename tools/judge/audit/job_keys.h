#pragma once
// The keys of a job, as its text has them.

#include <algorithm>
#include <map>
#include <string>

namespace starling::audit {

// Reads the canonical job text: "[section]" lines, then "key = value" lines.
inline std::map<std::string, std::string> keys_of(const std::string& job) {
  std::map<std::string, std::string> keys;
  std::string section;
  for (std::size_t at = 0; at < job.size();) {
    const std::size_t end = std::min(job.find('\n', at), job.size());
    const std::string line = job.substr(at, end - at);
    at = end + 1;
    const auto equals = line.find(" = ");
    if (line.size() > 2 && line.front() == '[' && line.back() == ']')
      section = line.substr(1, line.size() - 2);
    else if (equals != std::string::npos)
      keys[section + "." + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return keys;
}

}  // namespace starling::audit
