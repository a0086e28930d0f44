#pragma once
// These are the requests to a script's process; tools/python/starling/child.py has the other end.

#include <chrono>
#include <cstdint>
#include <span>

#include "actors/script/child.h"
#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"
#include "kernels/device/shared_pages.h"

namespace starling::actors::script {

// Ask is the first byte of a request.
enum class Ask : std::uint8_t {
  kHello = 'h',
  kInitialise = 'i',
  kMap = 'm',
  kTry = 't',
  kPass = 'p',
  kProve = 'v',
  kEvaluate = 'e',
  kRead = 'd',
  kForget = 'f'
};

// first: micro-batch 0 of step 0; without sequences if it is not known.
Bytes hello_request(const PythonSpec& spec, const Batch& first, std::uint32_t local_steps);
// kind: kPass, kProve or kEvaluate.
Bytes batch_request(Ask kind, const Batch& batch);

// Says how a process maps this place.
void put_place(ByteWriter& writer, const kernels::SharedPlace& place);
// Asks whether the net's trained tensors lie on the GPU that this place is memory of, and the process
// maps it; one byte is the answer.
Bytes try_request(const kernels::SharedPlace& place);

// Returns what the process replied. Errors: kBadInput, with what the script raised; kUnavailable,
// the process is lost (PythonChild::ask()), or its answer was none of the two.
Result<Bytes> ask(PythonChild& child, ByteView request, std::span<const int> files,
                  std::chrono::milliseconds patience);

}  // namespace starling::actors::script
