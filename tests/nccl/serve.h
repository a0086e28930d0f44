#pragma once
// A rank with a transport over the library that STARLING_NCCL names, told line by line what to do:
//
//   connect RANK WORLD ID BYTES
//                           a new transport with so much staging memory, in place of the one before
//   id                      answers with a new id
//   next                    answers with what the transport told next
//   begun N, groups N       answers when so many communicators were begun, groups given to the library
//   exchange BYTES SEED     asks for a round of everybody to everybody
//   right BYTES SEED        answers whether what came is what was to come
//   drop                    gives the transport up
//   rest                    waits until nothing of any transport is left, and opens the library anew
//   figures                 answers with the process's threads, files and RSS in kB
//   roots                   answers with how many threads of ids there are
//   ends                    answers with the microseconds that the last revoke and the last abort took
// The end of the input is the end.

#include "kernels/device/device.h"
#include "tests/nccl/member.h"

namespace starling::collectives {

// From std::cin to std::cout. `begun`, `groups` and `roots` are the stand-in's alone.
void serve(kernels::Device& device, MemberOptions options);

}  // namespace starling::collectives
