#include "tools/starling/stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>
#include <type_traits>

#include "core/base/fd.h"

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

}  // namespace

Result<Stacks> stacks_of(pid_t pid) {
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
