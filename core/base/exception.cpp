#include "core/base/exception.h"

#include <exception>
#include <new>

namespace starling {

Error error_of_exception(const std::string& doing) {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    return Error(Code::kUnavailable, "out of memory while " + doing);
  } catch (const std::exception& thrown) {
    return Error(Code::kBadInput, std::string("exception while ") + doing + ": " + thrown.what());
  } catch (...) {
    return Error(Code::kBadInput, "exception of an unknown kind while " + doing);
  }
}

}  // namespace starling
