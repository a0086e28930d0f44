#include "collectives/nccl/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <list>
#include <type_traits>
#include <utility>

#include "collectives/nccl/abi.h"
#include "collectives/nccl/transport.h"
#include "collectives/nccl/turns.h"
#include "core/base/environment.h"
#include "core/base/libraries.h"
#include "core/base/mutex.h"

namespace starling::collectives {
namespace {

namespace fs = std::filesystem;
namespace abi = nccl::abi;

constexpr const char* kName = "libnccl.so.2";
// Versions as ncclGetVersion() has them. kOldest is the first with ncclCommRevoke: without it,
// kernels that wait for a dead peer are stopped only by freeing memory that kernels of other peers
// may use. Another major version may have another binary interface.
constexpr int kOldest = 22807, kTooNew = 30000;

// The name of a function that is missing; empty if there is none.
std::string find_all(void* library, abi::Functions& f) {
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) missing = name;
    return function != nullptr;
  };
  const bool found =
      find("ncclGetVersion", f.version) && find("ncclGetUniqueId", f.unique_id) &&
      find("ncclGetErrorString", f.error_text) && find("ncclGetLastError", f.last_error) &&
      find("ncclCommInitRankConfig", f.init) && find("ncclCommGetAsyncError", f.async_error) &&
      find("ncclCommAbort", f.abort) && find("ncclGroupStart", f.group_start) &&
      find("ncclGroupEnd", f.group_end) && find("ncclSend", f.send) && find("ncclRecv", f.recv) &&
      find("ncclCommRevoke", f.revoke);
  return found ? "" : missing;
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// What is switched off by this value, and is unless the environment has another one. No abort stops NVLS;
// NCCL's own watch over peers is slower than ours, and one more thread with sockets; with PXN a rank's end
// waits for ranks that went through its GPU.
struct SwitchedOff {
  const char* what;
  EnvVar variable;
  const char* off;
};
constexpr SwitchedOff kSwitchedOff[] = {{"NVLS", EnvVar::kNcclNvls, "0"},
                                        {"RAS", EnvVar::kNcclRas, "0"},
                                        {"PXN", EnvVar::kNcclPxn, "1"}};

// The settings of NCCL that matter at the end of a transport, as open_nccl() leaves them to NCCL.
std::string settings_here() {
  std::string text;
  for (const auto& [what, variable, off] : kSwitchedOff) {
    const bool on = environment().is_set(variable) && environment().value(variable) != off;
    text += std::string(what) + (on ? " on, " : " off, ");
  }
  const std::string& memory = environment().value(EnvVar::kNcclCumem);
  const std::string& host = environment().value(EnvVar::kNcclCumemHost);
  return text + "cuMem " + (memory.empty() ? "by default" : memory) + ", cuMem host " +
         (host.empty() ? "by default" : host);
}

class Nccl : public TransportLibrary {
 public:
  Nccl(abi::Functions functions, std::string name, nccl::Calls calls)
      : name_(std::move(name)),
        shared_(new nccl::Shared{functions, std::move(calls), {}}),
        settings_(settings_here()) {}

  const std::string& name() const override { return name_; }
  std::string settings() const override { return settings_; }
  std::string closed() const override { return shared_->turns.closed(); }

  Result<Bytes> make_id() override {
    if (const std::string why = closed(); !why.empty()) return Error(Code::kUnavailable, why);
    abi::UniqueId id;
    if (const int result = shared_->functions.unique_id(&id); result != abi::kSuccess)
      return Error(Code::kUnavailable,
                   std::string("ncclGetUniqueId: ") + shared_->functions.error_text(result));
    return Bytes(id.internal, id.internal + abi::kIdBytes);
  }

  std::unique_ptr<DeviceTransport> connect(TransportOptions options,
                                           TransportEvents events) override {
    const MutexLock lock(mutex_);
    threads_.remove_if([](const nccl::TransportThread& t) { return t.over(); });
    threads_.emplace_back(shared_, std::move(options), std::move(events));
    return threads_.back().transport();
  }

 private:
  const std::string name_;
  const std::shared_ptr<nccl::Shared> shared_;
  const std::string settings_;
  Mutex mutex_;
  std::list<nccl::TransportThread> threads_ STARLING_GUARDED_BY(mutex_);  // joined when it goes
};

Result<std::shared_ptr<TransportLibrary>> open_at(const fs::path& path, NcclOptions& options) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Error(Code::kUnavailable, std::string("NCCL cannot be opened: ") + dlerror());
  abi::Functions functions{};
  if (const std::string missing = find_all(library, functions); !missing.empty())
    return Error(Code::kUnavailable, path.string() + " has no function " + missing);
  int version = 0;
  if (functions.version(&version) != abi::kSuccess || version < kOldest || version >= kTooNew)
    return Error(Code::kUnavailable, path.string() + " is NCCL " + version_text(version) +
                                         ", wanted is at least " + version_text(kOldest) +
                                         " and below " + version_text(kTooNew));
  nccl::Calls calls{std::move(options.on_stuck), std::move(options.on_end)};
  return std::shared_ptr<TransportLibrary>(
      std::make_shared<Nccl>(functions, "nccl " + version_text(version), std::move(calls)));
}

// NCCL refuses two ranks of one host on one GPU, and those of two hosts find each other by sockets.
void share_gpu() {
  ::setenv("NCCL_HOSTID", ("starling-" + std::to_string(::getpid())).c_str(), /*overwrite=*/1);
  for (const auto& [name, value] : {std::pair{"NCCL_NET", "Socket"},
                                    {"NCCL_SOCKET_IFNAME", "lo"},
                                    {"NCCL_IB_DISABLE", "1"},
                                    {"NCCL_P2P_DISABLE", "1"},
                                    {"NCCL_SHM_DISABLE", "1"},
                                    {"NCCL_MAX_CTAS", "1"}})
    ::setenv(name, value, /*overwrite=*/0);
}

}  // namespace

std::vector<fs::path> nccl_places() {
  if (const std::string& told = environment().value(EnvVar::kNccl); !told.empty()) return {told};
  std::vector<fs::path> places;
  std::error_code error;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !error)
    places.push_back(program.parent_path().parent_path() / "lib" / kName);
  places.emplace_back(kName);
  for (const fs::path& folder : python_folders())
    places.push_back(folder / "nvidia/nccl/lib" / kName);
  return places;
}

Result<std::shared_ptr<TransportLibrary>> open_nccl(NcclOptions options) {
  if (!environment().value(EnvVar::kNcclCommId).empty())
    return Error(Code::kBadInput,
                 "NCCL_COMM_ID is set, with which all communicators of NCCL are one; unset it");
  // With cuMem off, a rank's memory is mapped by its peers in a way that does not outlive the rank,
  // and the thread that serves them ends only when all of them have gone.
  for (const EnvVar variable : {EnvVar::kNcclCumem, EnvVar::kNcclCumemHost})
    if (const std::string& set = environment().value(variable);
        !set.empty() && std::atoi(set.c_str()) == 0)
      return Error(Code::kBadInput,
                   std::string(name_of(variable)) +
                       " is 0, with which a worker that ends takes memory away from kernels of "
                       "others; unset it, or --transport tcp");
  // As they are now, which NCCL reads: a program may have set them after the first environment().
  const Environment now = Environment::of_process();
  for (const auto& [what, variable, off] : kSwitchedOff)
    ::setenv(name_of(variable), off, /*overwrite=*/!now.is_set(variable));
  if (environment().value(EnvVar::kNcclSharedGpu) == "1") share_gpu();
  std::string tried;
  for (const fs::path& place : nccl_places()) {
    std::error_code ignored;
    // A bare name is looked up by the loader.
    if (!place.has_parent_path() || fs::exists(place, ignored)) {
      auto opened = open_at(place, options);
      if (opened || place.has_parent_path()) return opened;
    }
    tried += (tried.empty() ? "" : ", ") + place.string();
  }
  return Error(Code::kUnavailable, "NCCL is at none of: " + tried);
}

}  // namespace starling::collectives
