#include "tools/starling/stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <thread>
#include <type_traits>

#include "core/base/fd.h"
#include "core/base/system_error.h"

namespace starling::tools {
namespace {

constexpr std::size_t kFramesMax = 64;
constexpr std::size_t kNameMax = 160;
constexpr off_t kTextMax = 1 << 20;

// The functions of libdw that are called. Opened when they are, as hardly any process calls them.
struct Dw {
  decltype(&dwfl_begin) begin = nullptr;
  decltype(&dwfl_end) end = nullptr;
  decltype(&dwfl_errmsg) errmsg = nullptr;
  decltype(&dwfl_linux_proc_find_elf) find_elf = nullptr;
  decltype(&dwfl_linux_proc_report) report = nullptr;
  decltype(&dwfl_report_end) report_end = nullptr;
  decltype(&dwfl_linux_proc_attach) attach = nullptr;
  decltype(&dwfl_getthreads) threads = nullptr;
  decltype(&dwfl_thread_tid) tid = nullptr;
  decltype(&dwfl_thread_getframes) frames = nullptr;
  decltype(&dwfl_frame_pc) pc = nullptr;
  decltype(&dwfl_addrmodule) module = nullptr;
  decltype(&dwfl_module_addrname) name = nullptr;
};

Result<Dw> open_dw() {
  void* const file = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    const char* const why = ::dlerror();
    return Error(Code::kUnavailable,
                 "stacks need libdw.so.1 (of Debian's and Ubuntu's package libdw1): " +
                     std::string(why != nullptr ? why : "it is not here"));
  }
  bool all = true;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(file, name));
    all = all && function != nullptr;
  };
  Dw dw;
  find("dwfl_begin", dw.begin);
  find("dwfl_end", dw.end);
  find("dwfl_errmsg", dw.errmsg);
  find("dwfl_linux_proc_find_elf", dw.find_elf);
  find("dwfl_linux_proc_report", dw.report);
  find("dwfl_report_end", dw.report_end);
  find("dwfl_linux_proc_attach", dw.attach);
  find("dwfl_getthreads", dw.threads);
  find("dwfl_thread_tid", dw.tid);
  find("dwfl_thread_getframes", dw.frames);
  find("dwfl_frame_pc", dw.pc);
  find("dwfl_addrmodule", dw.module);
  find("dwfl_module_addrname", dw.name);
  if (!all) return Error(Code::kUnavailable, "libdw.so.1 is older than expected (0.160 or newer)");
  return dw;
}

// No file of debug information is looked for: symbols of the programs are enough, and a search may take minutes.
int no_debug_information(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                         GElf_Word, char**) {
  return -1;
}

std::string readable(const char* symbol) {
  int status = -1;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? demangled.get() : symbol;
  if (name.size() > kNameMax) name = name.substr(0, kNameMax) + "..";
  return name;
}

struct Walk {
  const Dw& dw;
  Dwfl* dwfl;
  std::vector<std::string>* names;
};

int add_frame(Dwfl_Frame* frame, void* argument) {
  const auto& walk = *static_cast<Walk*>(argument);
  Dwarf_Addr pc = 0;
  bool is_activation = false;
  if (!walk.dw.pc(frame, &pc, &is_activation)) return DWARF_CB_ABORT;
  if (!is_activation) --pc;  // the call, not the instruction behind it
  Dwfl_Module* const module = walk.dw.module(walk.dwfl, pc);
  const char* const symbol = module != nullptr ? walk.dw.name(module, pc) : nullptr;
  walk.names->push_back(symbol != nullptr ? readable(symbol) : "?");
  return walk.names->size() < kFramesMax ? DWARF_CB_OK : DWARF_CB_ABORT;
}

struct All {
  const Dw& dw;
  Dwfl* dwfl;
  Stacks* stacks;
};

int add_thread(Dwfl_Thread* thread, void* argument) {
  const auto& all = *static_cast<All*>(argument);
  Walk walk{all.dw, all.dwfl, &(*all.stacks)[all.dw.tid(thread)]};
  (void)all.dw.frames(thread, add_frame, &walk);  // a thread that ends meanwhile has none
  while (!walk.names->empty() && walk.names->back() == "?")
    walk.names->pop_back();  // how it was started
  return DWARF_CB_OK;
}

Result<Stacks> walk(pid_t pid) {
  STARLING_TRY(dw, open_dw());
  Dwfl_Callbacks callbacks{};
  callbacks.find_elf = dw.find_elf;
  callbacks.find_debuginfo = no_debug_information;
  const std::unique_ptr<Dwfl, decltype(dw.end)> dwfl(dw.begin(&callbacks), dw.end);
  const auto failed = [&](const std::string& why) {
    return Error(Code::kUnavailable,
                 "cannot look into process " + std::to_string(pid) + ": " + why);
  };
  if (!dwfl) return failed(dw.errmsg(-1));
  const int reported = dw.report(dwfl.get(), pid);
  if (reported > 0) return failed(std::strerror(reported));
  if (reported < 0 || dw.report_end(dwfl.get(), nullptr, nullptr) != 0)
    return failed(dw.errmsg(-1));
  const int attached = dw.attach(dwfl.get(), pid, /*assume_ptrace_stopped=*/false);
  if (attached > 0) return failed(std::strerror(attached));
  if (attached < 0) return failed(dw.errmsg(-1));
  Stacks stacks;
  All all{dw, dwfl.get(), &stacks};
  (void)dw.threads(dwfl.get(), add_thread, &all);
  bool any = false;
  for (const auto& [thread, names] : stacks) any = any || !names.empty();
  if (!any)
    return failed(
        "no stack can be read; that takes its user or root, and the right to trace "
        "(kernel.yama.ptrace_scope 0, or a container with CAP_SYS_PTRACE)");
  return stacks;
}

// The stacks as lines: "t ID", "f NAME", or "e ERROR".
std::string lines_of(const Result<Stacks>& stacks) {
  if (!stacks) return "e " + stacks.error().text() + "\n";
  std::string lines;
  for (const auto& [thread, names] : stacks.value()) {
    lines += "t " + std::to_string(thread) + "\n";
    for (const std::string& name : names) lines += "f " + name + "\n";
  }
  return lines;
}

bool send_whole_text(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t sent = ::write(fd, text.data() + at, text.size() - at);
    if (sent < 0 && errno != EINTR) return false;
    if (sent > 0) at += static_cast<std::size_t>(sent);
  }
  return true;
}

bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  return name_end != line.npos && line.substr(name_end).starts_with(") T");
}

}  // namespace

// In a process of its own, which no Ctrl-C of a terminal reaches: the kernel leaves a process stopped whose tracer dies
// while it attaches. Should that process die all the same, what it has stopped goes on.
Result<Stacks> stacks_of(pid_t pid) {
  const bool stopped = is_stopped(pid);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return unavailable("cannot make a pipe");
  std::fflush(nullptr);
  const pid_t walker = ::fork();
  if (walker < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return unavailable("cannot start a process");
  }
  if (walker == 0) {
    ::setsid();
    const std::string lines = lines_of(walk(pid));
    const bool sent = send_whole_text(ends[1], lines);
    ::_exit(sent ? 0 : 1);
  }
  ::close(ends[1]);
  const Fd from(ends[0]);
  std::string text, buffer(64 * 1024, '\0');
  for (ssize_t got;
       (got = ::read(from.get(), buffer.data(), buffer.size())) > 0 || (got < 0 && errno == EINTR);)
    if (got > 0) text.append(buffer, 0, static_cast<std::size_t>(got));
  int status = 0;
  while (::waitpid(walker, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    if (!stopped) ::kill(pid, SIGCONT);
    return Error(Code::kUnavailable,
                 "cannot look into process " + std::to_string(pid) + ": what looked was ended");
  }
  Stacks stacks;
  std::vector<std::string>* names = nullptr;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < 2) continue;
    const std::string rest = line.substr(2);
    if (line[0] == 'e') return Error(Code::kUnavailable, rest);
    if (line[0] == 't') names = &stacks[static_cast<pid_t>(std::strtol(rest.c_str(), nullptr, 10))];
    if (line[0] == 'f' && names != nullptr) names->push_back(rest);
  }
  return stacks;
}

// A script's process has a file in memory of that name, into which the signal's handler writes (child.py).
std::string python_stacks_of(pid_t pid) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::path("/proc") / std::to_string(pid) / "fd";
  fs::path path;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string target = fs::read_symlink(at->path(), ignored);
    if (target.starts_with("/memfd:starling-stacks")) path = at->path();
  }
  const Fd file(path.empty() ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat state {};
  if (!file || ::fstat(file.get(), &state) != 0) return {};
  const off_t before = state.st_size;
  if (::kill(pid, SIGRTMIN + 2) != 0) return {};
  off_t seen = before;
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (::fstat(file.get(), &state) != 0) return {};
    if (state.st_size > before && state.st_size == seen) break;
    seen = state.st_size;
  }
  std::string text(static_cast<std::size_t>(std::min(seen - before, kTextMax)), '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), before);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace starling::tools
