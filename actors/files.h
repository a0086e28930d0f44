#pragma once
// How many files (sockets, mostly) a process may open, and how many it needs for so many workers.

#include <cstddef>
#include <cstdint>
#include <string>

namespace starling::actors {

// Raises what this process may open to what it may raise it to. Children inherit it.
void raise_open_files();
std::size_t open_files_max();

// A worker has a connection to every other one, twice while it changes from one epoch to the next.
std::size_t files_of_worker(std::size_t world);
// A coordinator has one to every worker and to its guard, and, as a life may end unseen, twice. A
// quarter of its files are for those who have not shown a key (gateway/poller.h).
std::size_t files_of_coordinator(std::size_t workers);

// Why `needed` files are too many, if they are: "64 workers need 427 open files in each
// coordinator, ..."; else empty.
std::string too_many_files(std::size_t workers, const char* process, std::size_t needed);

}  // namespace starling::actors
