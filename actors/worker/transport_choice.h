#pragma once
// A TransportChoice says what carries a step's bytes. No bit of a result depends on it.

#include <cstdint>

namespace starling::actors {

enum class TransportChoice : std::uint8_t {
  kAuto = 1,  // from device to device where all members can, else by TCP between the hosts
  kTcp,
  kNccl,  // as auto, and a worker without a library does not begin
};

// As `--transport` names it.
constexpr const char* name_of(TransportChoice choice) {
  switch (choice) {
    case TransportChoice::kAuto:
      return "auto";
    case TransportChoice::kTcp:
      return "tcp";
    case TransportChoice::kNccl:
      return "nccl";
  }
  return "";
}

}  // namespace starling::actors
