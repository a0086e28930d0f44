#pragma once
// Metrics of this process under the names that Prometheus' own clients give them.

#include "core/observe/exposition.h"

namespace starling {

// Adds processor time, memory, open files and the time of the start, as far as the kernel says.
void write_process(Exposition& out);

}  // namespace starling
