#pragma once
// Lookups finds the addresses of servers that are known by name, again and again while one of
// them is not reached: a name may have several addresses, get others later, or not be known yet.
//
// A name service may take minutes to answer, so a thread of its own asks and no caller
// waits. At the end this thread is left to its wait; it holds nothing but what is below.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace starling::actors {

// Threads: all functions from any thread.
class Lookups {
 public:
  // Takes "tcp://host:port", one of each server; empty: not known. Hosts that are numbers are not
  // looked up.
  explicit Lookups(const std::vector<std::string>& servers);
  ~Lookups();
  Lookups(const Lookups&) = delete;
  Lookups& operator=(const Lookups&) = delete;

  // Takes another address of a server; what was found for the former one is forgotten.
  void set(std::size_t server, const std::string& address);
  // Returns whether some server is known by a name.
  bool any() const;
  // Asks once more, soon.
  void ask();
  // Returns "tcp://number:port", all addresses of that server as
  // last found; empty: none are known, or its host is a number.
  std::vector<std::string> found(std::size_t server) const;

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace starling::actors
