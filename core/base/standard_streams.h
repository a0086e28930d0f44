#pragma once
// Descriptors 0, 1 and 2 are there in every process.

namespace starling {

// Opens /dev/null on each of stdin, stdout and stderr that is closed. The parent of a process may
// have closed them (`>&-`, an init script): the first file that the process opened would get such a
// number, and what is printed would be written over it. Before a program opens anything; where
// /dev/null is missing the root folder takes the number, and what is printed is lost as well.
//
// Threads: before any is started.
void open_closed_streams();

}  // namespace starling
