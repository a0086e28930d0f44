#pragma once
// The workers of a job as an object of Kubernetes.

#include <string>

#include "tools/launch/plan.h"
#include "tools/launch/text.h"

namespace starling::tools {

// Returns the text of workers.yaml, of kubernetes_files()'s fields. Pure.
std::string workers_text(const LaunchPlan& plan, Fields fields);

// Returns the claim `sub` of the workers' tokens; with "NAMESPACE" in it where kubectl alone knows which that is.
std::string worker_subject(const LaunchPlan& plan);

// Whether coordinators would let in the workers' service account. Errors: kBadInput  why not.
Result<> check_workers_identity(const LaunchPlan& plan);

// What kubectl calls that object.
struct WorkersObject {
  std::string name;       // "job/small-worker"
  std::string condition;  // of one whose training is done
  std::string kind;
};
WorkersObject workers_object(const LaunchPlan& plan);

}  // namespace starling::tools
