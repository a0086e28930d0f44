// A job on a Ray cluster: a program for the head node, which asks Ray for an actor for each worker. docs/ray.md tells
// people how that works; what Ray does to the actors is shown by tests/engines/ray_test.py.

#include "tools/launch/by_token.h"
#include "tools/launch/plan.h"
#include "tools/launch/text.h"

namespace starling::tools {
namespace {

constexpr const char* kRayWorkers =
    R"(# The workers, each in an actor of its own that Ray places, and places again when it loses a node:
# python3 workers.py COUNT, on the head node, in the folder of this file, which every node has to reach.
import os
import shlex
import subprocess
import sys

import ray

LEFT = 143  # the exit code of a worker that has left, as it was told to
PROGRAM = {{program}}
OPTIONS = {{options}}
# Ray kills what an actor has started itself, at once: here a shell, at whose death the kernel tells the worker to leave.
WORKER = ["sh", "-c", f'setpriv --pdeathsig TERM {PROGRAM} worker "$@" & wait $!', "sh", *shlex.split(OPTIONS)]


@ray.remote({{resources}}max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD")
class Worker:
    def train(self, number, folder):
        with open(f"{folder}/keys/worker-{number}.token") as file:
            token = file.read().strip()
        command = [*WORKER, "--save", f"{folder}/model-{number}.safetensors"]
        environment = {**os.environ, "STARLING_JOIN": token{{python}}}
        with open(f"{folder}/worker-{number}.log", "a") as log:
            while True:
                code = subprocess.call(command, env=environment, stdout=log, stderr=log)
                if code != LEFT:
                    return code


ray.init(address="auto")
workers = [Worker.remote() for _ in range(int(sys.argv[1]))]
codes = ray.get([worker.train.remote(number, os.getcwd()) for number, worker in enumerate(workers)])
sys.exit(max(codes))
)";

constexpr const char* kRayReadme = R"(# The job {{name}} on Ray

Written by `starling launch ray`. The folder has to be one that every node reaches under this path. In it, first where the
coordinators listen, on machines that stay (the head node, say):

{{coordinators}}

Then on the head node, with the Python that has Ray:

    python3 workers.py {{workers}}

Training begins when {{min_workers}} of the {{workers}} workers are there. `{{log}}.log` shows how it goes, `{{out}}/events.jsonl` has every
step. When it is done, each worker that is there has written the model: `model-0.safetensors` and so on.

- There are keys for {{keys}} workers: ask for as many as you would have at best; an actor for which there is no room waits.
- Ctrl-C at `workers.py` ends the workers in order, and they write a last checkpoint if the job has a `[checkpoint]` section;
  `starling admin stop {{out}} --keys keys` ends the job for good, the coordinators too.
- The files in `keys` let in whoever has them. None but you can read them: leave it so.
)";

// A text of a shell as a literal of Python: shell words have no control characters (check_lines()).
std::string python_literal(const std::string& text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') literal += '\\';
    literal += c;
  }
  return literal + "\"";
}

}  // namespace

Result<Launch> ray_files(const LaunchPlan& plan) {
  STARLING_TRY(check_lines(plan));
  Launch launch;
  add_coordinators(plan, launch);
  const std::string threads = std::to_string(plan.threads ? plan.threads : 1);
  launch.files.push_back(
      {"workers.py",
       fill(kRayWorkers, {{"program", python_literal(shell_word(plan.program))},
                          {"options", python_literal(worker_options(plan))},
                          {"resources", "num_cpus=" + threads + ", " +
                                            (plan.job.isa == "cuda" ? "num_gpus=1, " : "")},
                          {"python", plan.python.empty() ? ""
                                                         : ", \"STARLING_PYTHON\": " +
                                                               python_literal(plan.python)}})});
  launch.files.push_back(
      {"README.md", fill(kRayReadme, {{"name", plan.name},
                                      {"coordinators", coordinators_to_type(plan)},
                                      {"workers", std::to_string(plan.workers)},
                                      {"min_workers", std::to_string(plan.min_workers)},
                                      {"keys", std::to_string(plan.tokens)},
                                      {"log", of_coordinator(plan, "coordinator", 0)},
                                      {"out", of_coordinator(plan, "out", 0)}})});
  return launch;
}

}  // namespace starling::tools
