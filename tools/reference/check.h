#pragma once
// A check holds our kernels and optimizers against a reference file: a small model's parameters,
// batches, losses and gradients, and its state after some steps, computed elsewhere in float64.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/job/job.h"

namespace starling::reference {

// A CheckRow is the worst tensor of one kind. `off` is the
// largest |difference| over the largest |reference| of a tensor.
struct CheckRow {
  std::string kind;    // "loss", "grad", "sgd.final_buf"
  std::string tensor;  // the one with the largest off
  double off = 0;
  double bound = 0;
  bool within() const { return off <= bound; }  // not of NaN
};

struct CheckReport {
  std::string model;  // "gpt2" or "mlp"
  std::string isa;    // as resolved; of a GPU, its name
  std::vector<CheckRow> rows;
  bool within() const;
  std::vector<std::string> lines() const;  // a table for people
};

// bf16, fp16: checks the first gradient alone, on a device that computes with it.
// Errors: kBadInput  not such a file, or it lacks something; this machine lacks the isa.
Result<CheckReport> check_fixture(const std::string& path, const std::string& isa,
                                  Precision precision = Precision::kFp32);

}  // namespace starling::reference
