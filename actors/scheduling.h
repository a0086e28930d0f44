#pragma once
// What waits for messages runs before what computes, where there are more threads than cores. Word
// of a lost worker passes through a dozen threads, each of which would wait for its turn: with
// eight workers on two cores this takes the time from a death to the next epoch's connections from
// 29 to 17 ms (starling bench recovery). No effect where the kernel does not know it.

namespace starling::actors {

// The calling thread and those that it starts from now on get a core soon after they wake, for a
// short slice (EEVDF, Linux 6.12). Needs no privilege. An application that embeds the actors calls
// it before it makes the actor system.
void run_promptly();

// The calling thread lets others go first (nice 10) and takes slices of the usual length.
void run_behind();

}  // namespace starling::actors
