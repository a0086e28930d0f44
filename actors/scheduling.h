#pragma once
// Threads that wait for messages run before those that compute, where there are more threads than
// cores. News of a lost worker passes through a dozen threads, each of which would wait its turn:
// with eight workers on two cores this takes the time from a death to the next epoch's connections
// from 29 to 17 ms (starling-bench recovery). No effect where the kernel does not know it, or where
// the process was started with a policy of its own.

namespace starling::actors {

// Lets the calling thread and those that it starts from now on get a core soon
// after they wake, for a short slice (EEVDF, Linux 6.12). Their niceness stays. Needs no privilege.
// An application that embeds the actors calls it before it makes the actor system.
void run_promptly();

// Makes the calling thread let others go first (10 nicer than the process), in slices of the usual length.
void run_behind();

}  // namespace starling::actors
