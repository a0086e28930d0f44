#include "actors/gateway/lookups.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "collectives/tcp/socket.h"
#include "core/base/address.h"
#include "core/base/mutex.h"
#include "core/base/thread_name.h"

namespace starling::actors {
namespace {

constexpr std::chrono::milliseconds kApart{1000};  // of two lookups

// True for digits and dots, or colons: no name service has to be asked for such a host.
bool is_number(const std::string& host) {
  return host.find(':') != std::string::npos ||
         host.find_first_not_of("0123456789.") == std::string::npos;
}

// Returns what is to be looked up; without a host: nothing.
Address name_in(const std::string& server) {
  const std::string scheme(kTcpScheme);
  if (server.rfind(scheme, 0) != 0) return {};
  auto address = parse_address(server.substr(scheme.size()));
  if (!address || is_number(address.value().host)) return {};
  return std::move(address).value();
}

}  // namespace

struct Lookups::Shared {
  struct Server {
    Address address;  // no host: a number, which is not looked up
    std::vector<std::string> found;
  };
  mutable Mutex mutex;
  CondVar changed;
  std::vector<Server> servers STARLING_GUARDED_BY(mutex);
  bool asks STARLING_GUARDED_BY(mutex) = false;  // the thread has begun
  bool asked STARLING_GUARDED_BY(mutex) = true;
  bool over STARLING_GUARDED_BY(mutex) = false;
};

Lookups::Lookups(const std::vector<std::string>& servers) : shared_(std::make_shared<Shared>()) {
  shared_->servers.resize(servers.size());
  for (std::size_t i = 0; i < servers.size(); ++i) set(i, servers[i]);
}

Lookups::~Lookups() {
  const MutexLock lock(shared_->mutex);
  shared_->over = true;
  shared_->changed.notify_all();
}

void Lookups::set(std::size_t server, const std::string& address) {
  const MutexLock lock(shared_->mutex);
  shared_->servers.at(server) = {name_in(address), {}};
  if (shared_->servers[server].address.host.empty()) return;
  shared_->asked = true;
  shared_->changed.notify_all();
  if (!shared_->asks)
    std::thread([shared = shared_] {
      name_thread("lookups");
      run(shared);
    }).detach();
  shared_->asks = true;
}

bool Lookups::any() const {
  const MutexLock lock(shared_->mutex);
  return std::any_of(shared_->servers.begin(), shared_->servers.end(),
                     [](const Shared::Server& server) { return !server.address.host.empty(); });
}

void Lookups::ask() {
  const MutexLock lock(shared_->mutex);
  shared_->asked = true;
  shared_->changed.notify_all();
}

std::vector<std::string> Lookups::found(std::size_t server) const {
  const MutexLock lock(shared_->mutex);
  return shared_->servers.at(server).found;
}

void Lookups::run(const std::shared_ptr<Shared>& shared) {
  MutexLock lock(shared->mutex);
  while (!shared->over) {
    while (!shared->asked && !shared->over) shared->changed.wait(shared->mutex);
    shared->asked = false;
    for (std::size_t i = 0; i < shared->servers.size() && !shared->over; ++i) {
      const Address address = shared->servers[i].address;
      if (address.host.empty()) continue;
      lock.unlock();
      std::vector<std::string> found;
      for (std::string& host : collectives::numeric_addresses(address.host))
        found.push_back(kTcpScheme + to_string(Address{std::move(host), address.port}));
      lock.lock();
      Shared::Server& server = shared->servers[i];
      if (!found.empty() && server.address == address) server.found = std::move(found);
    }
    const auto until = std::chrono::steady_clock::now() + kApart;
    while (!shared->over && shared->changed.wait_until(shared->mutex, until)) continue;
  }
}

}  // namespace starling::actors
