#pragma once
// Bytes as text, for the lines that processes of a test exchange.

#include <string>

#include "core/base/bytes.h"

namespace starling::collectives {

std::string to_hex(ByteView bytes);
Bytes from_hex(const std::string& text);

}  // namespace starling::collectives
