#pragma once
// Sets a variable of the environment for a test.

#include <stdlib.h>

#include <optional>
#include <string>

#include "core/base/environment.h"

namespace starling {

// A ScopedVariable holds a variable at a value, unset if there is none: for environment() as well as for
// libraries and processes that the test starts. A test makes all on one thread, and the newest ends first.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* const before = ::getenv(name)) before_ = before;
    set(value);
    environment_ = Environment::of_process();
    environment_before_ = exchange_environment(&environment_);
  }
  ~ScopedVariable() {
    exchange_environment(environment_before_);
    set(before_);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    value ? ::setenv(name_, value->c_str(), 1) : ::unsetenv(name_);
  }

  const char* const name_;
  std::optional<std::string> before_;
  Environment environment_;
  const Environment* environment_before_ = nullptr;
};

}  // namespace starling
