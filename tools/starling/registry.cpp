#include <utility>

#include "tools/public/starling.h"

namespace starling {

Registry& Registry::model(const std::string& name, MakeModel make, OpenData data) {
  note("model", name, Named<kernels::OwnModel>::add(name, {std::move(make)}));
  if (data) note("data", name, Named<OwnDataSource>::add(name, {std::move(data)}));
  return *this;
}

Registry& Registry::optimizer(const std::string& name, kernels::OwnOptimizer optimizer) {
  note("optimizer", name, Named<kernels::OwnOptimizer>::add(name, std::move(optimizer)));
  return *this;
}

Registry& Registry::schedule(const std::string& name, Rate rate) {
  note("schedule", name, Named<Schedule>::add(name, {std::move(rate)}));
  return *this;
}

void Registry::note(const char* what, const std::string& name, bool added) {
  if (!added && taken_.empty()) taken_ = std::string(what) + " \"" + name + "\"";
}

}  // namespace starling
