#pragma once
// These functions show other processes by /proc, and what a run
// leaves behind. They change nothing but let_write_files().

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace starling::chaos {

struct ProcessSeen {
  int pid = 0, parent = 0;
  char state = 0;           // R, S, D, T, Z
  std::uint64_t began = 0;  // clock ticks since boot: tells two processes of one pid apart
  std::uint64_t cpu = 0;    // clock ticks, user and system
};

std::optional<ProcessSeen> look_at(int pid);  // none: there is no such process
bool alive(int pid);                          // there, and not a zombie
bool stopped(int pid);                        // state T

std::vector<int> all_processes();
std::vector<int> children_of(int pid);  // zombies left out
std::vector<std::string> command_line(int pid);
// Returns processes, not zombies, whose environment has `name=value`.
std::vector<int> with_environment(const std::string& name, const std::string& value);

// Sets whether this process may write to files; if not, each write
// fails as on a full disk (EFBIG, RLIMIT_FSIZE). Pipes and sockets stay
// as they are. False: there is no such process, or it is not ours.
bool let_write_files(int pid, bool may);

// Returns "net:[123]"; empty: there is no such process, or it is not ours.
std::string network_namespace(int pid);

// Returns the sockets, by inode, that listen on TCP or have a name in the file
// system or the abstract space, in the network namespace of this process.
std::map<std::uint64_t, std::string> listening_sockets(int pid);
std::set<std::uint64_t> sockets_of(int pid);
// Returns TCP ports of this process's listening sockets.
std::vector<std::uint16_t> listening_ports(int pid);

// Traces finds what a run leaves behind: it looks at the run's processes while they
// live, so that it knows afterwards what was theirs. Threads: belongs to one thread.
class Traces {
 public:
  // Takes stock of /tmp and /dev/shm; files that are there already are not the run's.
  Traces();
  // Call it regularly with the run's processes.
  void look(const std::vector<int>& pids);
  // Returns, once the run is over, its sockets that still listen, and its files that are
  // there. A file is the run's if it is new and was open in, or mapped by, one of its
  // processes, or has the pid of one in its name. `mine`: below this folder nothing counts.
  std::vector<std::string> left(const std::string& mine) const;

 private:
  std::set<std::string> before_;                  // paths
  std::set<std::string> touched_;                 // opened or mapped below /tmp and /dev/shm
  std::map<std::uint64_t, std::string> sockets_;  // that listened
  std::set<int> pids_;
};

}  // namespace starling::chaos
