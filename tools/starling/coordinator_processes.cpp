#include "tools/starling/coordinators.h"
namespace starling::tools {
Result<std::unique_ptr<Coordinators>> start_processes(const CoordinatorsOptions&, EventWriter&,
                                                      Children&) {
  return Error(Code::kBadInput, "not yet");
}
}  // namespace starling::tools
