#include "tools/chaos/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/mac.h"
#include "core/base/system_error.h"
#include "tools/chaos/processes.h"
#include "tools/chaos/program.h"

namespace starling::chaos {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kOwnNamespace = "/proc/thread-self/ns/net";
constexpr int kDraws = 64;                  // of a name and a subnet
constexpr std::uint32_t kHomesMax = 250;    // of a subnet's 254 addresses
constexpr milliseconds kFirstPacket{5000};  // to arrive, on a busy machine too
constexpr int kAgain_ms = 25;               // a datagram is sent again, as one may be lost
constexpr milliseconds kRemoval{3000};

std::uint64_t random_number() {
  std::uint64_t number = 0;
  random_bytes({reinterpret_cast<std::uint8_t*>(&number), sizeof number});
  return number;
}

// Makes a namespace that lives while a process has it open or lives in it.
Result<Fd> new_namespace() {
  Fd made;
  int error = 0;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) == 0) made = Fd(::open(kOwnNamespace, O_RDONLY | O_CLOEXEC));
    error = errno;
  }).join();
  errno = error;
  if (!made) return unavailable("no network namespace");
  return made;
}

// Returns the path at which another process finds this file.
std::string path_of(const Fd& file) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file.get());
}

// Runs commands of `ip`, a line each, in this namespace.
Result<> ip(int netns, const std::string& lines) {
  const Inside inside(netns);
  STARLING_TRY(said, run_program({"ip", "-batch", "-"}, lines));
  static_cast<void>(said);
  return ok();
}

Result<> in_hub(const Fd& hub, std::vector<std::string> words) {
  const Inside inside(hub.get());
  STARLING_TRY(said, run_program(std::move(words)));
  static_cast<void>(said);
  return ok();
}

sockaddr_in socket_address(std::uint32_t address, std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = ::htonl(address);
  to.sin_port = ::htons(port);
  return to;
}

Result<Fd> socket_in(int netns) {
  const Inside inside(netns);
  Fd made(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return unavailable("no socket in a network namespace");
  return made;
}

// A Listener hears datagrams in a namespace where a process has this address.
struct Listener {
  Fd socket;
  sockaddr_in at{};
};
Result<Listener> listener_in(int netns, std::uint32_t address) {
  STARLING_TRY(socket, socket_in(netns));
  Listener made{std::move(socket), socket_address(address, 0)};
  socklen_t size = sizeof made.at;
  auto* generic = reinterpret_cast<sockaddr*>(&made.at);
  if (::bind(made.socket.get(), generic, size) != 0 ||
      ::getsockname(made.socket.get(), generic, &size) != 0)
    return unavailable("no socket in a network namespace");
  return made;
}

// Sends a datagram from one namespace until it arrives in another, which has this address.
Result<> arrives(int from, int to, std::uint32_t address) {
  STARLING_TRY(speaker, socket_in(from));
  STARLING_TRY(listener, listener_in(to, address));
  for (const auto end = Clock::now() + kFirstPacket; Clock::now() < end;) {
    ::sendto(speaker.get(), "?", 1, 0, reinterpret_cast<const sockaddr*>(&listener.at),
             sizeof listener.at);
    pollfd polled{listener.socket.get(), POLLIN, 0};
    if (::poll(&polled, 1, kAgain_ms) > 0) return ok();
  }
  return Error(Code::kUnavailable, "packets between network namespaces are filtered");
}

}  // namespace

Inside::Inside(int netns) {
  if (netns < 0) return;
  before_ = Fd(::open(kOwnNamespace, O_RDONLY | O_CLOEXEC));
  STARLING_CHECK_MSG(before_ && ::setns(netns, CLONE_NEWNET) == 0, std::strerror(errno));
}

Inside::~Inside() {
  if (before_) STARLING_CHECK_MSG(::setns(before_.get(), CLONE_NEWNET) == 0, std::strerror(errno));
}

// ---- Making the network -----------------------------------------------------------------------

Result<std::unique_ptr<Network>> Network::make() {
  std::unique_ptr<Network> network(new Network);
  STARLING_TRY(network->set_up());
  return network;
}

Network::~Network() {
  close();
}

Result<> Network::set_up() {
  STARLING_TRY(hub, new_namespace());
  hub_ = std::move(hub);
  // There are no link-local addresses: the kernel sends nothing by itself.
  STARLING_TRY(ip(hub_.get(),
                  "link add hub type bridge stp_state 0\n"
                  "link set hub addrgenmode none\n"
                  "link set hub up\n"));
  {
    const Inside inside(hub_.get());
    table_ = Fd(::open("/proc/thread-self/net/dev", O_RDONLY | O_CLOEXEC));
  }
  if (!table_) return unavailable("no counters of network interfaces");
  STARLING_TRY(take_subnet());
  STARLING_TRY(ip(hub_.get(),
                  "link set root addrgenmode none\n"
                  "link set root master hub\n"
                  "link set root up\n"));
  for (const char* isolated : {"on", "off"}) {  // an old kernel cannot
    STARLING_TRY(in_hub(hub_, {"bridge", "link", "set", "dev", "root", "isolated", isolated}));
  }
  if (auto netem =
          in_hub(hub_, {"tc", "qdisc", "add", "dev", "root", "root", "netem", "delay", "1ms"});
      !netem) {
    why_no_delay_ = netem.error().text();
  } else {
    STARLING_TRY(in_hub(hub_, {"tc", "qdisc", "del", "dev", "root", "root"}));
  }
  return carries();
}

// Takes a name and addresses that are free. Another process
// that looked at the same moment is seen when ours are there.
Result<> Network::take_subnet() {
  for (int i = 0; i < kDraws; ++i) {
    const std::uint64_t number = random_number();
    char name[IFNAMSIZ];
    std::snprintf(name, sizeof name, "starling%07" PRIx64, number >> 36);
    subnet_ = subnet_of(number);
    STARLING_TRY(unused, subnet_is_free(""));
    if (!unused || ::if_nametoindex(name) != 0) continue;
    const std::string ours = name;
    STARLING_TRY(
        ip(-1, "link add " + ours + " type veth peer name root netns " + path_of(hub_) + "\n"));
    interface_ = ours;
    STARLING_TRY(ip(-1, "link set " + ours + " addrgenmode none\naddr add " + host() + "/" +
                            std::to_string(subnet_.prefix) + " dev " + ours + "\nlink set " + ours +
                            " up\n"));
    STARLING_TRY(alone, subnet_is_free(ours));
    if (alone) return ok();
    STARLING_TRY(ip(-1, "link del " + ours + "\n"));
    interface_.clear();
  }
  return Error(Code::kUnavailable, "no private network is free");
}

Result<bool> Network::subnet_is_free(const std::string& but) const {
  STARLING_TRY(addresses, run_program({"ip", "-j", "-4", "addr", "show"}));
  STARLING_TRY(routes, run_program({"ip", "-j", "-4", "route", "show", "table", "all"}));
  for (const Subnet& used : subnets_in_use(addresses, routes, but))
    if (overlap(used, subnet_)) return false;
  return true;
}

Result<Network::Home> Network::home(const std::string& worker) {
  if (const auto it = places_.find(worker); it != places_.end()) {
    STARLING_TRY(mend(worker));
    if (it->second.slow) {
      STARLING_TRY(delay(worker, 0));
    }
    if (it->second.apart) {
      STARLING_TRY(set_apart(worker, false));
    }
    return Home{address_text(it->second.address), it->second.netns.get()};
  }
  const auto number = static_cast<std::uint32_t>(places_.size());
  if (number >= kHomesMax)
    return Error(Code::kUnavailable, "all addresses of the run's network are taken");
  STARLING_TRY(netns, new_namespace());
  Place place;
  place.netns = std::move(netns);
  place.port = std::string("w").append(std::to_string(number));
  place.address = subnet_.base + 2 + number;
  STARLING_TRY(ip(hub_.get(), "link add " + place.port + " type veth peer name eth0 netns " +
                                  path_of(place.netns) + "\nlink set " + place.port +
                                  " addrgenmode none\nlink set " + place.port +
                                  " master hub\nlink set " + place.port + " up\n"));
  STARLING_TRY(ip(place.netns.get(), "link set lo up\nlink set eth0 addrgenmode none\naddr add " +
                                         address_text(place.address) + "/" +
                                         std::to_string(subnet_.prefix) +
                                         " dev eth0\nlink set eth0 up\n"));
  const Home home{address_text(place.address), place.netns.get()};
  places_.emplace(worker, std::move(place));
  return home;
}

std::string Network::text() const {
  return address_text(subnet_.base) + "/" + std::to_string(subnet_.prefix) + " behind " +
         interface_;
}

std::string Network::address_of(const std::string& worker) const {
  const auto it = places_.find(worker);
  return it == places_.end() ? std::string() : address_text(it->second.address);
}

// A firewall may look at bridges, too: test it before workers need the network.
Result<> Network::carries() {
  std::vector<Home> homes;
  for (const char* name : {"first", "second"}) {
    STARLING_TRY(made, home(name));
    homes.push_back(made);
  }
  const std::uint32_t first = places_.at("first").address, own = subnet_.base + 1;
  STARLING_TRY(arrives(homes[1].netns, homes[0].netns, first));
  STARLING_TRY(arrives(homes[1].netns, -1, own));
  return arrives(-1, homes[0].netns, first);
}

// ---- Faults -----------------------------------------------------------------------------------

Packets Network::packets(const Place& place) const {
  std::string text;
  char buffer[4096];
  for (ssize_t n;
       (n = ::pread(table_.get(), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return packets_of(text, place.port).value_or(Packets{});
}

Result<> Network::cut(const std::string& worker) {
  Place& place = places_.at(worker);
  if (place.is_cut) return ok();
  STARLING_TRY(in_hub(hub_, {"bridge", "link", "set", "dev", place.port, "state", "0"}));
  place.at_cut = packets(place);
  place.is_cut = true;
  return ok();
}

Result<> Network::mend(const std::string& worker) {
  Place& place = places_.at(worker);
  if (!place.is_cut) return ok();
  place.loss = loss_now(place);
  place.is_cut = false;
  return in_hub(hub_, {"bridge", "link", "set", "dev", place.port, "state", "3"});
}

Result<> Network::set_apart(const std::string& worker, bool apart) {
  Place& place = places_.at(worker);
  STARLING_TRY(
      in_hub(hub_, {"bridge", "link", "set", "dev", place.port, "isolated", apart ? "on" : "off"}));
  place.apart = apart;
  return ok();
}

Result<std::size_t> Network::heard(const std::vector<std::string>& workers,
                                   milliseconds time) const {
  std::vector<Listener> ears;
  for (const std::string& worker : workers) {
    const Place& place = places_.at(worker);
    STARLING_TRY(ear, listener_in(place.netns.get(), place.address));
    ears.push_back(std::move(ear));
  }
  std::set<std::pair<std::size_t, std::size_t>> ways;  // speaker, hearer
  const std::size_t all = ears.size() * (ears.size() - 1);
  for (const auto end = Clock::now() + time; ways.size() < all && Clock::now() < end;) {
    for (std::size_t from = 0; from < ears.size(); ++from)
      for (const Listener& to : ears) {
        const auto word = static_cast<char>(from);
        if (&to != &ears[from])
          ::sendto(ears[from].socket.get(), &word, 1, 0, reinterpret_cast<const sockaddr*>(&to.at),
                   sizeof to.at);
      }
    std::vector<pollfd> polled;
    for (const Listener& ear : ears) polled.push_back({ear.socket.get(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), kAgain_ms);
    for (std::size_t to = 0; to < ears.size(); ++to)
      for (char from = 0; ::recv(ears[to].socket.get(), &from, 1, 0) == 1;)
        ways.emplace(static_cast<std::size_t>(from), to);
  }
  return ways.size();
}

Network::Loss Network::loss_now(const Place& place) const {
  const Packets now = packets(place);  // as the bridge's end counts them
  return {now.received - place.at_cut.received, now.sent - place.at_cut.sent};
}

Network::Loss Network::loss(const std::string& worker) const {
  const Place& place = places_.at(worker);
  return place.is_cut ? loss_now(place) : place.loss;
}

Result<> Network::delay(const std::string& worker, double seconds) {
  Place& place = places_.at(worker);
  for (const auto& [netns, device] :
       {std::pair{hub_.get(), place.port}, std::pair{place.netns.get(), std::string("eth0")}}) {
    std::vector<std::string> words{"tc",  "qdisc", seconds > 0 ? "replace" : "del",
                                   "dev", device,  "root"};
    char delay[32];
    std::snprintf(delay, sizeof delay, "%.0fus", 1e6 * seconds);
    // This queue is long enough for all that a worker sends in that time.
    if (seconds > 0) words.insert(words.end(), {"netem", "delay", delay, "limit", "100000"});
    const Inside inside(netns);
    STARLING_TRY(said, run_program(std::move(words)));
    static_cast<void>(said);
  }
  place.slow = seconds > 0;
  return ok();
}

std::uint64_t Network::delayed(const std::string& worker) const {
  const Inside inside(hub_.get());
  const auto said =
      run_program({"tc", "-s", "-j", "qdisc", "show", "dev", places_.at(worker).port});
  return said ? delayed_packets(said.value()) : 0;
}

// ---- The end ----------------------------------------------------------------------------------

std::vector<std::string> Network::close() {
  std::vector<std::string> left;
  if (interface_.empty()) return left;
  std::set<std::string> namespaces;  // named as processes show them
  const auto note = [&](const Fd& netns) {
    struct stat found {};
    if (::fstat(netns.get(), &found) == 0)
      namespaces.insert("net:[" + std::to_string(found.st_ino) + "]");
  };
  note(hub_);
  for (const auto& [worker, place] : places_) note(place.netns);
  places_.clear();
  table_ = Fd();
  hub_ = Fd();
  static_cast<void>(ip(-1, "link del " + interface_ + "\n"));
  for (const auto end = Clock::now() + kRemoval;
       ::if_nametoindex(interface_.c_str()) != 0 && Clock::now() < end;)
    std::this_thread::sleep_for(milliseconds(10));
  if (::if_nametoindex(interface_.c_str()) != 0) left.push_back("interface " + interface_);
  for (const int pid : all_processes())
    if (namespaces.count(network_namespace(pid)) > 0)
      left.push_back("a network namespace, with process " + std::to_string(pid));
  interface_.clear();
  return left;
}

}  // namespace starling::chaos
