#include "core/base/exception.h"

#include <exception>
#include <new>

namespace starling {

std::string no_memory_text(const std::bad_alloc& none) {
  const std::string what = none.what();
  return what.starts_with("std::") ? "out of memory" : what;
}

Error error_of_exception(const std::string& doing) {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc& none) {
    return Error(Code::kUnavailable, no_memory_text(none) + " while " + doing);
  } catch (const std::exception& thrown) {
    return Error(Code::kBadInput, std::string("exception while ") + doing + ": " + thrown.what());
  } catch (...) {
    return Error(Code::kBadInput, "exception of an unknown kind while " + doing);
  }
}

}  // namespace starling
