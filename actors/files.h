#pragma once
// Open files (sockets, mostly): how many a process may have, and how many it needs for its workers.

#include <cstddef>
#include <cstdint>
#include <string>

namespace starling::actors {

// Raises the process's soft limit of open files to its hard limit. Children inherit it.
void raise_open_files();
std::size_t open_files_max();

// A worker has a connection to every other one, twice while it changes from one epoch to the next.
std::size_t files_of_worker(std::size_t world);
// A coordinator has one connection to every worker and to its guard, twice, as a life may end
// unseen. A quarter of its files are for peers that have not shown a key (gateway/poller.h).
std::size_t files_of_coordinator(std::size_t workers);

// Says why `needed` files are too many, "64 workers need 427
// open files in each coordinator, ..."; empty if they are not.
std::string too_many_files(std::size_t workers, const char* process, std::size_t needed);

}  // namespace starling::actors
