#pragma once
// Turns a caught exception into an Error. We throw nothing ourselves; the standard library does
// when memory is short, and a model or data source of an application may.

#include <new>
#include <string>

#include "core/base/result.h"

namespace starling {

// Call it only within a catch. `doing`: "computing a micro-batch".
// kUnavailable  std::bad_alloc: memory is not to be had; kBadInput  anything else, with its what().
Error error_of_exception(const std::string& doing);

// Returns "out of memory", or the text of our own class derived from bad_alloc (NoMemory of a GPU).
std::string no_memory_text(const std::bad_alloc& none);

}  // namespace starling
