#pragma once
// A model that an application brings (kernels/models/own.h), and maybe its data (core/data/own_data.h).

#include <map>
#include <vector>

#include "core/job/models/kind.h"

namespace starling {

struct OwnSpec {
  static constexpr ModelKind kKind{.word = "own", .may_bring_data = true, .may_keep_state = true};

  std::string name;                       // under which it is brought
  std::vector<std::string> tensors;       // as of PythonSpec; empty: as the application says
  std::uint64_t samples = 0;              // of data that are only numbered; 0: the application's
  std::vector<std::string> metrics;       // names of what the model measures beside the loss
  std::map<std::string, double> options;  // for the application
  double option(const std::string& key, double otherwise) const {
    const auto it = options.find(key);
    return it == options.end() ? otherwise : it->second;
  }

  void read(job_words::Section& section, const Job& job, const std::string& base);
  void write(std::ostream& out) const;
  bool operator==(const OwnSpec&) const = default;
};

}  // namespace starling
