#pragma once
// PythonChild is a Python process that computes for this one, with the frames between the two.
//
// The child has its own process group, so that what a script forks ends with it. Its
// lifeline is a pipe that no process writes to: when this process dies, however it does,
// the kernel signals the whole group (tools/python/starling/child.py asks for that).

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling::actors::script {

// Frames both ways have a length (u32), the request's number (u32), which its reply
// repeats, then so many bytes. Numbers are little-endian. Threads: one at a time.
class PythonChild {
 public:
  static constexpr std::uint32_t kReplyMax = 16u << 20;

  // Starts `python3 -u -m starling SCRIPT`, or another interpreter that
  // STARLING_PYTHON names, with one thread for every library and the instruction
  // set that `isa` names. gpu: the one that the process sees, as CUDA_VISIBLE_DEVICES
  // spells it; empty: those that this process sees. Errors: kUnavailable, no process could be started.
  static Result<std::unique_ptr<PythonChild>> start(const std::string& script,
                                                    const std::string& isa, const std::string& gpu);
  // Starts a process that does the script's first imports, computes nothing, and is what forked() is
  // given. This process is the parent of its descendants' orphans from then on.
  static Result<std::unique_ptr<PythonChild>> start_warm(const std::string& script,
                                                         const std::string& isa,
                                                         const std::string& gpu);
  // A process as of start(), without the imports: a fork of `warm`, which hears what the process is
  // greeted with. Null: nothing can be forked from it, and start() is the way. Errors: those of
  // ask(), of `warm`.
  static Result<std::unique_ptr<PythonChild>> forked(PythonChild& warm, ByteView hello,
                                                     std::chrono::milliseconds patience);
  ~PythonChild();  // kills the group
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;

  // Sends a request, with at most two files, and waits for the reply. Errors: kUnavailable,
  // the process has ended, did not answer in time, or answered with something that is no
  // frame or no answer to this request; it cannot be used any more then.
  Result<Bytes> ask(ByteView request, std::span<const int> files,
                    std::chrono::milliseconds patience);

 private:
  PythonChild(pid_t pid, int socket, int lifeline);
  static Result<std::unique_ptr<PythonChild>> spawned(std::vector<std::string> last,
                                                      const std::string& isa,
                                                      const std::string& gpu);
  Result<> send(ByteView request, std::span<const int> files,
                std::chrono::steady_clock::time_point until);
  Result<> receive(std::span<std::uint8_t> bytes, std::chrono::steady_clock::time_point until);
  Result<> wait(short events, std::chrono::steady_clock::time_point until);
  Error ended();

  const pid_t pid_;
  const int socket_, lifeline_;
  // Readable when the process has ended; its end of the socket does not say
  // that while a fork of the script has it. -1: the kernel has no pidfd_open.
  const int end_;
  std::uint32_t asked_ = 0;  // number of the last request
  bool reaped_ = false;
};

}  // namespace starling::actors::script
