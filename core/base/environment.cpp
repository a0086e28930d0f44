#include "core/base/environment.h"

#include <atomic>
#include <cstdlib>

namespace starling {
namespace {

#define STARLING_NAME(variable, name, says, otherwise) name,
constexpr const char* kVariableNames[] = {STARLING_ENVIRONMENT(STARLING_NAME)};
#undef STARLING_NAME

constinit std::atomic<const Environment*> exchanged_environment{nullptr};

}  // namespace

const char* name_of(EnvVar variable) {
  return kVariableNames[static_cast<std::size_t>(variable)];
}

Environment Environment::of_process() {
  Environment read;
  for (std::size_t i = 0; i < read.values_.size(); ++i)
    if (const char* const value = std::getenv(kVariableNames[i])) read.values_[i] = value;
  return read;
}

Environment::Environment(std::initializer_list<std::pair<EnvVar, std::string>> values) {
  for (const auto& [variable, value] : values) values_[static_cast<std::size_t>(variable)] = value;
}

const Environment& environment() {
  // Never destroyed: threads may read while the process exits.
  static const Environment& own = *new Environment(Environment::of_process());
  const Environment* const other = exchanged_environment.load();
  return other ? *other : own;
}

const Environment* exchange_environment(const Environment* other) {
  return exchanged_environment.exchange(other);
}

}  // namespace starling
