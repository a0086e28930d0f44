#include "tools/starling/run_place.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/observe/event_reader.h"

namespace starling::tools {

namespace fs = std::filesystem;

namespace {

constexpr std::streamoff kTail = 256 * 1024;  // of a file of events: its last ones

}  // namespace

std::string end_of_run(const std::string& folder) {
  std::ifstream file(fs::path(folder) / "events.jsonl", std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string line, end;
  if (size > kTail) std::getline(file, line);  // the rest of one that begins before
  while (std::getline(file, line)) {
    const auto read = read_event(line);
    if (!read || !read.value().event) continue;
    const Event& event = *read.value().event;
    if (std::holds_alternative<event::Started>(event)) end.clear();
    if (const auto* done = std::get_if<event::Done>(&event))
      end = "done, digest " + to_string(done->digest);
    if (const auto* ended = std::get_if<event::Ended>(&event)) end = ended->reason;
    if (const auto* failed = std::get_if<event::Failed>(&event)) end = failed->reason;
  }
  return end;
}

Result<RunPlace> place_of_run(const std::string& folder, const std::string& keys) {
  const fs::path events = fs::path(folder) / "events.jsonl";
  std::error_code error;
  std::ifstream file;
  if (fs::is_regular_file(events, error)) file.open(events, std::ios::binary);
  std::string text;
  const bool any = bool(std::getline(file, text));
  const auto line = read_event(text);
  const event::Started* start = nullptr;
  if (any && line && line.value().event) start = std::get_if<event::Started>(&*line.value().event);
  if (start == nullptr)
    return Error(Code::kBadInput, "no run is in the folder " + folder +
                                      ": expected one whose events.jsonl begins with `start`, a "
                                      "join token, a file with one, or host:port of the "
                                      "coordinators");
  if (!keys.empty()) return RunPlace{start->address, keys};
  if (start->keys.empty() || !fs::is_directory(start->keys, error))
    return Error(Code::kBadInput, "the run in " + folder + " is over, or its keys lie elsewhere: " +
                                      "its coordinators were at " + start->address +
                                      ", expected that with --keys, or a join token");
  return RunPlace{start->address, start->keys};
}

std::string join_command(const std::string& folder) {
  const std::string near = fs::path(folder).lexically_proximate(fs::current_path()).string();
  return "starling worker --join " + (near.starts_with("..") ? folder : near);
}

}  // namespace starling::tools
