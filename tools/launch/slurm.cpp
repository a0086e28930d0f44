// A job on Slurm: a script for each coordinator, on a node that stays, and one for the workers, an
// array of jobs of one node each. docs/slurm.md tells people what the scripts do; what Slurm does to
// them is shown by tests/engines/slurm_test.py.

#include "tools/launch/by_token.h"
#include "tools/launch/plan.h"
#include "tools/launch/text.h"

namespace starling::tools {
namespace {

constexpr const char* kSlurmCoordinator = R"(#!/bin/bash
# Decides who takes part in the job; computes nothing. sbatch is typed in the folder of this file.
#SBATCH --job-name={{name}}-coordinator
{{partition}}#SBATCH --nodelist={{node}}
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={{self}}.log

[ -e {{self}}.sbatch ] || { echo "{{self}}.sbatch is to be typed in its own folder, this is $PWD" >&2; exit 2; }
# --new begins the group. Started again by Slurm, a coordinator goes on with what is in its state.
{{begin}}
# 0.0.0.0: the node's own name may mean the node itself alone, in its /etc/hosts.
exec srun {{program}} coordinator --job {{job}} --keys keys/{{key}} \
    --listen 0.0.0.0:{{port}} --peers {{peers}} --workers {{min_workers}} \
    --state {{self}}-state --out {{out}} $new
)";

constexpr const char* kSlurmWorkers = R"(#!/bin/bash
# The workers, each a job of its own. sbatch is typed in the folder of this file.
#SBATCH --job-name={{name}}-worker
{{partition}}#SBATCH --array=0-{{last}}
#SBATCH --ntasks=1
{{gpu}}{{cpus}}#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=worker-%a.log

[ -e workers.sbatch ] || { echo "workers.sbatch is to be typed in its own folder, this is $PWD" >&2; exit 2; }
mkdir -p worker-$SLURM_ARRAY_TASK_ID && cd worker-$SLURM_ARRAY_TASK_ID || exit
# srun: what Slurm takes away is told, with SIGTERM, to what srun has started, and to this script too late.
{{python}}srun {{program}} worker --join ../keys/worker-$SLURM_ARRAY_TASK_ID.token \
    {{data}}--threads {{threads}} --notice {{notice}} --wait {{wait}}
code=$?
# 143: the worker has left, as it was told to, and for Slurm it has ended. It is put back into the queue by the
# number of this task, as $SLURM_JOB_ID may be that of the whole array.
[ $code = 143 ] && scontrol requeue ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
exit $code
)";

constexpr const char* kSlurmReadme = R"(# The job {{name}} on Slurm

Written by `starling launch slurm`. All commands are typed in this folder, which every node has to reach.

{{start}}

Training begins when {{min_workers}} of the {{workers}} workers are there. `{{log}}.log` shows how it goes, `{{out}}/events.jsonl`
has every step. When it is done, each worker that is there has written the model: `worker-0/model.safetensors` and so on.

- `sbatch --array={{workers}}-{{more}} workers.sbatch` adds two workers; there are keys for {{keys}}.
- `scancel --name={{name}}-worker` ends the job before: the workers leave in order, and with a `[checkpoint]` section they write
  a last one, which takes a coordinator. So wait until they are gone (`squeue --name={{name}}-worker`), and only then
  `scancel --name={{name}}-coordinator`. After the job's end, the first is for workers that wait in the queue still.
- Submitted again, the job goes on from that checkpoint if `{{log}}-state` is away, and otherwise with what that says.
- What your cluster wants besides (`--account`, `--time`, `--cpus-per-task`, ..) is a line `#SBATCH` in the scripts, or an
  option of sbatch. A time limit ends the coordinator for good: its partition has none, or a long one.
- A worker that is told to go takes up to {{notice}} seconds: some seconds less than `GraceTime` of the partition and `KillWait` of
  the cluster (`scontrol show partition`, `scontrol show config`).
- The files in `keys` let in whoever has them. None but you can read them: leave it so.
{{readme_store}})";

constexpr const char* kSlurmReadmeStore =
    R"(- {{store}}. Every node needs a key: a file `~/.aws/credentials` that all reach, or variables that
  are set where you type `sbatch`, which takes them along, and keeps those of then for a job that is queued again (docs/s3.md).
)";

std::string partition_line(const std::string& partition) {
  return partition.empty() ? "" : "#SBATCH --partition=" + partition + "\n";
}

// Whether a host can be a node's name: Slurm knows nodes by names, not by addresses.
Result<> check_node(const std::string& host) {
  STARLING_TRY(check_name("the node of --at", host, ".-"));
  if (host.find_first_not_of("0123456789.") != std::string::npos) return ok();
  return Error(Code::kBadInput,
               "--at must name a node of Slurm and a port, as n4:7000, is the address " + host);
}

Result<> check_slurm(const LaunchPlan& plan) {
  STARLING_TRY(check_name("the name of the job", plan.name, "._-"));
  for (const Address& at : plan.coordinators) {
    STARLING_TRY(check_node(at.host));
  }
  for (const std::string& partition : {plan.partition, plan.coordinator_partition})
    if (!partition.empty()) {
      STARLING_TRY(check_name("a partition", partition, "._,-"));
    }
  STARLING_TRY(check_line("the job file's path", plan.job_file));
  STARLING_TRY(check_line("--program", plan.program));
  STARLING_TRY(check_line("the path of Python", plan.python));
  return check_line("--data", plan.data);
}

}  // namespace

Result<Launch> slurm_files(const LaunchPlan& plan) {
  STARLING_TRY(check_slurm(plan));
  const std::string store = store_text(plan);
  Fields fields{
      {"name", plan.name},
      {"program", shell_word(plan.program)},
      {"job", plan.job_file.empty() ? "job.toml" : shell_word(plan.job_file)},
      {"python",
       plan.python.empty() ? "" : "export STARLING_PYTHON=" + shell_word(plan.python) + "\n"},
      {"peers", addresses(plan)},
      {"wait", std::to_string(wait_s(plan.job))},
      {"min_workers", std::to_string(plan.min_workers)},
      {"workers", std::to_string(plan.workers)},
      {"last", std::to_string(plan.workers - 1)},
      {"more", std::to_string(plan.workers + 1)},
      {"notice", std::to_string(plan.notice_s)},
      {"threads", plan.threads ? std::to_string(plan.threads)
                               : "$((SLURM_CPUS_ON_NODE < 256 ? SLURM_CPUS_ON_NODE : 256))"},
      {"data", plan.data.empty() ? "" : "--data " + shell_word(plan.data) + " "},
      {"cpus",
       plan.threads ? "#SBATCH --cpus-per-task=" + std::to_string(plan.threads) + "\n" : ""},
      {"gpu", plan.job.isa == "cuda" ? "#SBATCH --gres=gpu:1\n" : ""},
      {"keys", std::to_string(plan.tokens)},
      {"readme_store", store.empty() ? "" : fill(kSlurmReadmeStore, {{"store", store}})},
      {"log", of_coordinator(plan, "coordinator", 0)},
  };
  const auto with = [&](Fields more) {
    more.insert(more.end(), fields.begin(), fields.end());
    return more;
  };
  Launch launch;
  for (std::size_t i = 0; i < plan.coordinators.size(); ++i) {
    const std::string self = of_coordinator(plan, "coordinator", i);
    launch.files.push_back(
        {self + ".sbatch",
         fill(kSlurmCoordinator,
              with({{"self", self},
                    {"key", "coordinator-" + std::to_string(i)},
                    {"node", plan.coordinators[i].host},
                    {"port", std::to_string(plan.coordinators[i].port)},
                    {"begin", begin_lines(self + "-state", plan.job, "\n")},
                    {"out", of_coordinator(plan, "out", i)},
                    {"partition", partition_line(plan.coordinator_partition)}}))});
    launch.start.push_back("sbatch " + self + ".sbatch");
  }
  launch.files.push_back(
      {"workers.sbatch",
       fill(kSlurmWorkers, with({{"partition", partition_line(plan.partition)}}))});
  launch.start.push_back("sbatch workers.sbatch");
  if (plan.job_file.empty()) launch.files.push_back({"job.toml", format_job(plan.job)});
  launch.files.push_back(
      {"README.md", fill(kSlurmReadme, with({{"start", code_block(launch.start)},
                                             {"out", of_coordinator(plan, "out", 0)}}))});
  return launch;
}

}  // namespace starling::tools
