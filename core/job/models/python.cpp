#include "core/job/models/python.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/base/named_path.h"
#include "core/job/models/brought.h"
#include "core/job/section.h"

namespace starling {
namespace {

using namespace job_words;

// Reads texts that the Python package has written, and people may have.
std::vector<std::string> read_texts(Section& s, const char* key, std::size_t count_max,
                                    std::size_t bytes_max) {
  std::vector<std::string> texts;
  const toml::array* array = s.array(key, false, count_max);
  if (!array) return texts;
  for (const toml::node& node : *array) {
    const auto* value = node.as_string();
    if (!value || value->get().size() > bytes_max || value->get().find('\0') != std::string::npos) {
      s.expected(key, node, "texts of at most " + std::to_string(bytes_max) + " bytes");
      return {};
    }
    texts.push_back(value->get());
  }
  return texts;
}

}  // namespace

void PythonSpec::read(Section& s, const Job&, const std::string& base) {
  s.text("script", script, 4096, true);
  s.integer("samples", samples, 1, kSamplesMax, true);
  s.boolean("own_order", own_order);
  s.integer("patience_s", patience_s, 1, 86400);
  tensors = read_tensors(s, true);
  metrics = read_metrics(s);
  s.text("module", module, 512, false);
  arguments = read_texts(s, "arguments", 1024, 4096);
  text = read_texts(s, "text", 4096, 1024);
  s.integer("call", call, 1, 65536);
  s.text("at", at, 512, false);
  earlier = read_texts(s, "earlier", 65536, 65536);
  s.text("started", started, 4096, false);
  if (!s.good() || !path_of_this_machine(s, "script", script, "a file")) return;
  if (!earlier.empty() && earlier.size() + 1 != call)
    return s.wrong("earlier", "earlier must be what the calls before call " + std::to_string(call) +
                                  " came to, has " + std::to_string(earlier.size()));
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path = named_path(fs::path(base.empty() ? "." : base) / script, error);
  if (!error) script = path.string();
}

void PythonSpec::write(std::ostream& out) const {
  out << "script = " << quoted(script) << "\nsamples = " << samples
      << "\ntensors = " << list_text(tensors, quoted) << "\npatience_s = " << patience_s << "\n"
      << texts_line("metrics", metrics);
  // Written only if chosen, so that hashes of jobs stay what they were.
  if (own_order) out << "own_order = true\n";
  if (!module.empty()) out << "module = " << quoted(module) << "\n";
  out << texts_line("arguments", arguments) << texts_line("text", text);
  if (call != 1) out << "call = " << call << "\n";
  if (!at.empty()) out << "at = " << quoted(at) << "\n";
  out << texts_line("earlier", earlier);
  if (!started.empty()) out << "started = " << quoted(started) << "\n";
}

void PythonSpec::drop_idle() {
  script.clear();
  patience_s = PythonSpec{}.patience_s;
  started.clear();
}

void PythonSpec::drop_texts() {
  module.clear();
  arguments.clear();
  text.clear();
  at.clear();
  earlier.clear();
}

std::string script_differences(const Job& was, const Job& now) {
  const auto* before = std::get_if<PythonSpec>(&was.model);
  const auto* after = std::get_if<PythonSpec>(&now.model);
  if (before == nullptr || after == nullptr) return {};
  const auto hashes = [](const std::vector<std::string>& text) {
    std::map<std::string, std::string> by_file;
    for (const std::string& entry : text) {
      const auto colon = std::min(entry.rfind(':'), entry.size());
      by_file[entry.substr(0, colon)] = entry.substr(colon);
    }
    return by_file;
  };
  const auto then = hashes(before->text), here = hashes(after->text);
  std::map<std::string, std::string> all = then;
  all.insert(here.begin(), here.end());
  std::string differences;
  const auto add = [&](const std::string& what) {
    differences += (differences.empty() ? "" : ", ") + what;
  };
  for (const auto& [file, unused] : all) {
    const auto a = then.find(file), b = here.find(file);
    if (a == then.end() || b == here.end())
      add(file + (a == then.end() ? " is new" : " is not there any more"));
    else if (a->second != b->second)
      add(file + " has another text");
  }
  if (before->arguments != after->arguments) {
    const auto shown = [](const std::vector<std::string>& arguments) {
      const std::string line = texts_line("", arguments);
      return line.empty() ? "[]" : line.substr(3, line.size() - 4);
    };
    add("the arguments are " + shown(after->arguments) + " and were " + shown(before->arguments));
  }
  return differences;
}

}  // namespace starling
