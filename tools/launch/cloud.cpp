// A job on machines of clouds: SkyPilot's managed jobs or dstack's tasks, one for each worker, on spot machines.
// docs/cloud.md tells people what the files do; tests/engines/cloud_test.py has each tool read its own.

#include "core/base/s3_place.h"
#include "tools/launch/by_token.h"
#include "tools/launch/plan.h"
#include "tools/launch/text.h"

namespace starling::tools {
namespace {

constexpr const char* kSky =
    R"(# A worker, which workers.sh begins as often as it is told: each is a managed job of SkyPilot, which begins it again
# elsewhere when its machine was taken.
resources:
  use_spot: true
  cpus: {{cpus}}+
{{gpu}}  image_id: {{image}}
  job_recovery:
    max_restarts_on_errors: 3
    recover_on_exit_codes: [143]  # the worker has left, as it was told to

# STARLING_JOIN is its token, a secret that workers.sh gives it.
run: |
  exec {{program}} worker {{options}}
)";

constexpr const char* kCloudWorkers = R"sh(#!/bin/sh
# sh workers.sh FIRST COUNT: begins so many workers, from this number on.
cd "$(dirname "$0")" || exit
for number in $(seq "$1" $(($1 + $2 - 1))); do
  STARLING_JOIN=$(cat "keys/worker-$number.token") || exit
  export STARLING_JOIN  # not on the command line, which others on this machine can read
  {{begin}} || exit
done
)sh";

constexpr const char* kDstack =
    R"(# A worker, which workers.sh begins as often as it is told: each is a task of dstack, which begins it again elsewhere
# when its machine was taken.
type: task
name: {{name}}-worker
image: {{image}}
spot_policy: spot
resources:
  cpu: {{cpus}}..
{{gpu}}env:
  - STARLING_JOIN  # its token
commands:
  - |
    exec {{program}} worker {{options}}
stop_duration: {{stop}}s
retry:
  on_events: [no-capacity, interruption, error]
  duration: 72h
)";

constexpr const char* kCloudReadme = R"(# The job {{name}} by {{tool}}

Written by `starling launch {{engine}}`. The coordinators run on machines that stay, at which the workers reach them; copy this
folder there, and the job file with it. First:

{{coordinators}}

Then where {{tool}} is, in this folder:

    sh workers.sh 0 {{workers}}

Training begins when {{min_workers}} of the {{workers}} workers are there. `{{log}}.log` of a coordinator shows how it goes, `{{out}}/events.jsonl`
has every step.

- `sh workers.sh {{workers}} 2` adds two workers; there are keys for {{keys}}.
- Workers reach each other at their machines' own addresses: keep them in one network (one region of one cloud, to begin with),
  by lines in `worker.{{suffix}}`, as is everything that {{tool}} should know besides.
- The image has `{{program}}`, and the data lie in it{{data}}, or come by what {{tool}} mounts.
- A worker whose machine is to be taken hears so from the cloud, hands over what it holds and leaves; {{tool}} begins it again elsewhere.
- The trained model is with the workers that are there at the end, and goes with their machines: let the job have a `[checkpoint]`
  section with a bucket, and `starling export` makes the model of the last one (docs/s3.md).
- `starling admin stop {{out}} --keys keys`, at a coordinator, ends the job for good.
- The files in `keys` let in whoever has them. None but you can read them: leave it so.
)";

struct Tool {
  const char* engine;
  const char* name;
  const char* suffix;
  const char* worker;
  const char* begin;  // a command of workers.sh
  const char* gpu;    // line of resources
  const char* image;  // what stands before it
};

Result<Launch> cloud_files(const LaunchPlan& plan, const Tool& tool) {
  STARLING_TRY(check_lines(plan));
  STARLING_TRY(check_name("the name of the job", plan.name, "-"));
  STARLING_TRY(check_name("--gpu", plan.gpu.empty() ? "none" : plan.gpu, "-:"));
  if (plan.job.isa == "cuda" && plan.gpu.empty())
    return Error(Code::kBadInput, std::string("a job with isa = \"cuda\" needs --gpu, as ") +
                                      tool.name + " names it, as A100");
  if (plan.job.checkpoint.on() && !s3::is_place(plan.job.checkpoint.dir))
    return Error(Code::kBadInput,
                 "[checkpoint].dir is " + plan.job.checkpoint.dir +
                     ", and machines of a cloud share no folder, expected s3://BUCKET/PREFIX");
  Launch launch;
  add_coordinators(plan, launch);
  const Fields fields{
      {"name", plan.name},
      {"engine", tool.engine},
      {"tool", tool.name},
      {"suffix", tool.suffix},
      {"image", yaml_word(std::string(tool.image) + plan.image)},
      {"program", shell_word(plan.program)},
      {"options", worker_options(plan)},
      {"cpus", std::to_string(plan.threads ? plan.threads : 1)},
      {"gpu", plan.gpu.empty() ? "" : fill(tool.gpu, {{"gpu", yaml_word(plan.gpu)}})},
      {"begin", fill(tool.begin, {{"name", plan.name}})},
      {"stop", std::to_string(plan.notice_s + kBeyondNoticeS)},
      {"coordinators", coordinators_to_type(plan)},
      {"workers", std::to_string(plan.workers)},
      {"min_workers", std::to_string(plan.min_workers)},
      {"keys", std::to_string(plan.tokens)},
      {"data", plan.data.empty() ? " where the job file says" : " at " + plan.data},
      {"log", of_coordinator(plan, "coordinator", 0)},
      {"out", of_coordinator(plan, "out", 0)},
  };
  launch.files.push_back({std::string("worker.") + tool.suffix, fill(tool.worker, fields)});
  launch.files.push_back({"workers.sh", fill(kCloudWorkers, fields)});
  launch.files.push_back({"README.md", fill(kCloudReadme, fields)});
  return launch;
}

}  // namespace

Result<Launch> skypilot_files(const LaunchPlan& plan) {
  return cloud_files(plan, {"skypilot", "SkyPilot", "sky.yaml", kSky,
                            "sky jobs launch --yes --detach-run --name {{name}}-worker-$number "
                            "--secret STARLING_JOIN worker.sky.yaml",
                            "  accelerators: {{gpu}}\n", "docker:"});
}

Result<Launch> dstack_files(const LaunchPlan& plan) {
  return cloud_files(
      plan, {"dstack", "dstack", "dstack.yml", kDstack,
             "dstack apply --yes --detach --name {{name}}-worker-$number --file worker.dstack.yml",
             "  gpu: {{gpu}}\n", ""});
}

}  // namespace starling::tools
