#include "tools/chaos/processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/fd.h"

namespace starling::chaos {

namespace {

namespace fs = std::filesystem;

const char* const kPlaces[] = {"/tmp", "/dev/shm"};

std::string proc(int pid, const char* what) {
  return "/proc/" + std::to_string(pid) + "/" + what;
}

std::string whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> split_at_zero(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\0', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool below(const std::string& path, const std::string& folder) {
  return path == folder || path.rfind(folder + "/", 0) == 0;
}

bool in_a_place(const std::string& path) {
  return std::any_of(std::begin(kPlaces), std::end(kPlaces),
                     [&](const char* place) { return below(path, place); });
}

// Lists the top-level entries of /tmp and /dev/shm.
std::vector<std::string> entries() {
  std::vector<std::string> found;
  for (const char* place : kPlaces) {
    std::error_code error;
    for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error))
      found.push_back(it->path().string());
  }
  return found;
}

// Returns the entry of one of these places that contains this path.
std::string top_of(const std::string& path) {
  for (const char* place : kPlaces) {
    const std::string folder = std::string(place) + "/";
    if (path.rfind(folder, 0) == 0) return path.substr(0, path.find('/', folder.size()));
  }
  return path;
}

std::vector<std::string> open_files(int pid) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(proc(pid, "fd"), error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const auto target = fs::read_symlink(it->path(), gone);
    if (!gone) paths.push_back(target.string());
  }
  return paths;
}

// Returns the number in "socket:[123]", or 0.
std::uint64_t socket_inode(const std::string& link) {
  constexpr const char* kStart = "socket:[";
  if (link.rfind(kStart, 0) != 0) return 0;
  return std::strtoull(link.c_str() + std::string(kStart).size(), nullptr, 10);
}

struct TcpListener {
  std::uint16_t port = 0;
  std::uint64_t inode = 0;
};

// Takes listeners from one dump; false: there is more to come.
bool take_listeners(const char* bytes, std::size_t size, std::vector<TcpListener>& found) {
  auto left = static_cast<unsigned>(size);
  for (auto* message = reinterpret_cast<const nlmsghdr*>(bytes); NLMSG_OK(message, left);
       message = NLMSG_NEXT(message, left)) {
    if (message->nlmsg_type != SOCK_DIAG_BY_FAMILY) return true;  // the end, or an error
    if (message->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) return true;
    inet_diag_msg socket;
    std::memcpy(&socket, NLMSG_DATA(message), sizeof socket);
    found.push_back({::ntohs(socket.id.idiag_sport), socket.idiag_inode});
  }
  return false;
}

// Makes a socket that asks of this process's network. None: it is gone, or we may not enter.
Fd diagnosis_socket(int pid) {
  const auto make = [] {
    return Fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  };
  if (network_namespace(pid) == network_namespace(::getpid())) return make();
  const Fd theirs(::open(proc(pid, "ns/net").c_str(), O_RDONLY | O_CLOEXEC));
  if (!theirs) return Fd();
  Fd made;
  std::thread([&] {  // which ends there
    if (::setns(theirs.get(), CLONE_NEWNET) == 0) made = make();
  })
      .join();
  return made;
}

// Asks the kernel for a process's TCP listeners: /proc/PID/net/tcp goes through
// the tables of all networks of the machine, which takes a tenth of a second.
std::vector<TcpListener> tcp_listeners(int pid) {
  std::vector<TcpListener> found;
  const Fd link = diagnosis_socket(pid);
  if (!link) return found;
  for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
    struct {
      nlmsghdr header{};
      inet_diag_req_v2 request{};
    } ask;
    ask.header.nlmsg_len = sizeof ask;
    ask.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    ask.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    ask.request.sdiag_family = family;
    ask.request.sdiag_protocol = IPPROTO_TCP;
    ask.request.idiag_states = 1u << TCP_LISTEN;
    if (::send(link.get(), &ask, sizeof ask, 0) != static_cast<ssize_t>(sizeof ask)) break;
    alignas(nlmsghdr) char buffer[32768];
    for (bool whole = false; !whole;) {
      const auto n = ::recv(link.get(), buffer, sizeof buffer, 0);
      whole = n <= 0 || take_listeners(buffer, static_cast<std::size_t>(n), found);
    }
  }
  return found;
}

}  // namespace

std::optional<ProcessSeen> look_at(int pid) {
  const std::string text = whole(proc(pid, "stat"));
  const auto end = text.rfind(')');  // ends the program's name, which may hold anything
  if (end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(end + 1));
  ProcessSeen seen;
  seen.pid = pid;
  std::string skipped;
  std::uint64_t user = 0, system = 0;
  rest >> seen.state >> seen.parent;
  for (int field = 5; field < 14; ++field) rest >> skipped;  // numbered as in proc(5)
  rest >> user >> system;
  for (int field = 16; field < 22; ++field) rest >> skipped;
  rest >> seen.began;
  if (!rest) return std::nullopt;
  seen.cpu = user + system;
  return seen;
}

bool alive(int pid) {
  const auto seen = look_at(pid);
  return seen && seen->state != 'Z' && seen->state != 'X';
}

bool stopped(int pid) {
  const auto seen = look_at(pid);
  return seen && seen->state == 'T';
}

std::vector<int> all_processes() {
  std::vector<int> pids;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos)
      pids.push_back(std::stoi(name));
  }
  return pids;
}

std::vector<int> children_of(int pid) {
  // A kernel may be built without the first file; the second way looks at every process.
  std::vector<int> candidates, children;
  const std::string number = std::to_string(pid);
  if (std::ifstream list(proc(pid, ("task/" + number + "/children").c_str())); list)
    for (int child = 0; list >> child;) candidates.push_back(child);
  else
    candidates = all_processes();
  for (const int other : candidates) {
    const auto seen = look_at(other);
    if (seen && seen->parent == pid && seen->state != 'Z') children.push_back(other);
  }
  return children;
}

std::vector<std::string> command_line(int pid) {
  return split_at_zero(whole(proc(pid, "cmdline")));
}

std::vector<int> with_environment(const std::string& name, const std::string& value) {
  std::vector<int> found;
  const std::string wanted = name + "=" + value;
  for (const int pid : all_processes()) {
    if (pid == ::getpid() || !alive(pid)) continue;
    const auto variables = split_at_zero(whole(proc(pid, "environ")));
    if (std::find(variables.begin(), variables.end(), wanted) != variables.end())
      found.push_back(pid);
  }
  return found;
}

bool let_write_files(int pid, bool may) {
  rlimit limit{};
  if (::prlimit(pid, RLIMIT_FSIZE, nullptr, &limit) != 0) return false;
  limit.rlim_cur = may ? limit.rlim_max : 0;
  return ::prlimit(pid, RLIMIT_FSIZE, &limit, nullptr) == 0;
}

std::string network_namespace(int pid) {
  std::error_code error;
  return fs::read_symlink(proc(pid, "ns/net"), error).string();
}

std::map<std::uint64_t, std::string> listening_sockets(int pid) {
  std::map<std::uint64_t, std::string> sockets;
  for (const TcpListener& line : tcp_listeners(pid))
    sockets[line.inode] = "TCP port " + std::to_string(line.port);
  std::ifstream file(proc(pid, "net/unix"));
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, path;
    std::uint64_t inode = 0;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    // A connection that nobody has accepted has no inode yet, and the name of the socket that it asks.
    if (!path.empty() && inode != 0) sockets[inode] = "socket " + path;
  }
  return sockets;
}

std::set<std::uint64_t> sockets_of(int pid) {
  std::set<std::uint64_t> inodes;
  for (const std::string& link : open_files(pid))
    if (const auto inode = socket_inode(link); inode != 0) inodes.insert(inode);
  return inodes;
}

std::vector<std::uint16_t> listening_ports(int pid) {
  const auto mine = sockets_of(pid);
  std::vector<std::uint16_t> ports;
  for (const TcpListener& line : tcp_listeners(pid))
    if (mine.count(line.inode)) ports.push_back(line.port);
  return ports;
}

Traces::Traces() {
  for (auto& path : entries()) before_.insert(std::move(path));
}

void Traces::look(const std::vector<int>& pids) {
  std::map<std::string, std::map<std::uint64_t, std::string>> seen;  // by namespace
  for (const int pid : pids) {
    pids_.insert(pid);
    const std::string netns = network_namespace(pid);
    if (seen.count(netns) == 0) seen.emplace(netns, listening_sockets(pid));
    const auto& listening = seen.at(netns);
    std::vector<std::string> paths;
    for (const std::string& link : open_files(pid)) {
      if (const auto it = listening.find(socket_inode(link)); it != listening.end())
        sockets_.insert(*it);
      if (in_a_place(link)) paths.push_back(link);
    }
    std::ifstream maps(proc(pid, "maps"));
    for (std::string line; std::getline(maps, line);)
      if (const auto slash = line.find('/'); slash != std::string::npos)
        if (in_a_place(line.substr(slash))) paths.push_back(line.substr(slash));
    for (const std::string& path : paths) touched_.insert(top_of(path));
  }
}

std::vector<std::string> Traces::left(const std::string& mine) const {
  std::vector<std::string> found;
  auto listening = listening_sockets(::getpid());
  for (const int pid : pids_)  // it may be in a namespace of its own
    if (alive(pid)) listening.merge(listening_sockets(pid));
  for (const auto& [inode, name] : sockets_)
    if (listening.count(inode)) found.push_back(name + " still listens");
  for (const std::string& path : entries()) {
    if (before_.count(path) || below(mine, path)) continue;
    const std::string name = fs::path(path).filename();
    const bool named = std::any_of(pids_.begin(), pids_.end(), [&](int pid) {
      const std::string number = std::to_string(pid);
      const auto at = name.find(number);
      const auto digit = [&](std::size_t i) { return i < name.size() && std::isdigit(name[i]); };
      return at != std::string::npos && !digit(at + number.size()) && (at == 0 || !digit(at - 1));
    });
    if (named || touched_.count(path)) found.push_back("file " + path);
  }
  return found;
}

}  // namespace starling::chaos
