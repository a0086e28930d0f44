#include "tools/starling/launch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/base/join_token.h"
#include "core/base/keys.h"
#include "core/base/named_path.h"
#include "core/base/programs.h"
#include "core/base/s3_place.h"
#include "core/formats/job_file.h"
#include "core/job/script_words.h"
#include "tools/launch/text.h"
#include "tools/starling/exit.h"
#include "tools/starling/names.h"
#include "tools/starling/split_keys.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

// Slurm kills after 30 s where nobody has said otherwise, and the script has lines behind the worker's.
constexpr std::uint32_t kSlurmNoticeS = 20;
// A day in a queue, and a quarter of an hour for a coordinator whose node is gone.
constexpr std::uint64_t kScriptStartMs = 86'400'000, kScriptCoordinatorMs = 900'000;
constexpr std::uint32_t kCopied = 2;  // workers with which all state is there twice

struct Engine {
  const char* name;
  Result<Launch> (*files)(const LaunchPlan&);
};
constexpr Engine kEngines[] = {{"slurm", slurm_files},           {"systemd", systemd_files},
                               {"kubernetes", kubernetes_files}, {"ray", ray_files},
                               {"skypilot", skypilot_files},     {"dstack", dstack_files}};

// What was written, which goes again unless it is kept.
class Written {
 public:
  Written() = default;
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  ~Written() {
    std::error_code ignored;
    if (!keys_.empty()) fs::remove_all(keys_, ignored);
    // A folder goes only when it is empty: another launch may write into the same.
    for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) fs::remove(*path, ignored);
  }
  void keep() {
    paths_.clear();
    keys_.clear();
  }

  // Makes a folder and those above it that are not there.
  Result<> folder(const fs::path& path) {
    std::error_code error;
    if (path.empty() || fs::is_directory(path, error)) return ok();
    STARLING_TRY(folder(path.parent_path()));
    if (fs::create_directory(path, error)) {
      paths_.push_back(path);
    } else if (std::error_code ignored; !fs::is_directory(path, ignored)) {
      return bad_input("cannot make the folder " + path.string() + ": " + error.message());
    }
    return ok();
  }

  Result<> file(const fs::path& path, const std::string& text) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return bad_input("cannot write " + path.string() + ": " + std::strerror(errno));
    paths_.push_back(path);
    const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const int error = errno;
    ::close(fd);
    if (whole) return ok();
    return bad_input("cannot write " + path.string() + ": " + std::strerror(error));
  }

  Result<> keys(const fs::path& path, const KeyRing& ring, std::uint32_t workers,
                const std::string& at) {
    keys_ = path;  // is not there: carry_out() has looked, and file() lets one launch of two go on
    return split_keys(ring, path, workers, at);
  }

 private:
  fs::path keys_;
  std::vector<fs::path> paths_;
};

// Whether each option that was given is one of this engine, and none is missing.
Result<> check_options(const LaunchCommand& command) {
  struct Own {
    const char* option;
    bool given;
    const char* engine;
    bool needed = false;
  };
  const Own all[] = {
      {"--partition", !command.partition.empty(), "slurm"},
      {"--coordinator-partition", !command.coordinator_partition.empty(), "slurm"},
      {"--at", !command.at.empty(), "slurm", true},
      {"--at", !command.at.empty(), "systemd", true},
      {"--at", !command.at.empty(), "ray", true},
      {"--at", !command.at.empty(), "skypilot", true},
      {"--at", !command.at.empty(), "dstack", true},
      {"--image", !command.image.empty(), "kubernetes", true},
      {"--image", !command.image.empty(), "skypilot", true},
      {"--image", !command.image.empty(), "dstack", true},
      {"--gpu", !command.gpu.empty(), "skypilot"},
      {"--gpu", !command.gpu.empty(), "dstack"},
      {"--volume", !command.volume.empty(), "kubernetes", true},
      {"--namespace", !command.name_space.empty(), "kubernetes"},
      {"--queue", !command.queue.empty(), "kubernetes"},
      {"--identity", command.identity, "kubernetes"},
      {"--workers-as", command.workers_as != WorkersAs::kJob, "kubernetes"},
      {"--coordinators", command.coordinators != 0, "kubernetes"},
  };
  for (const Own& own : all) {
    const bool ours = own.engine == command.engine;
    if (ours && own.needed && !own.given)
      return bad_input(command.engine + " needs " + own.option +
                       "; launch --help says what that is");
    if (own.given && std::ranges::none_of(all, [&](const Own& other) {
          return std::string_view(other.option) == own.option && other.engine == command.engine;
        }))
      return bad_input(std::string(own.option) + " is an option of " + own.engine + ", and " +
                       command.engine + " has none such");
  }
  return ok();
}

// Puts in where the coordinators listen.
Result<> put_coordinators(const LaunchCommand& command, LaunchPlan& plan) {
  STARLING_TRY(coordinators, parse_addresses(command.at));
  plan.coordinators = std::move(coordinators);
  for (const Address& at : plan.coordinators)
    if (at.port == 0 || means_everywhere(at.host))
      return bad_input(
          "--at says where workers reach the coordinators, expected a host and a port, is " +
          to_string(at));
  for (auto at = plan.coordinators.begin(); at != plan.coordinators.end(); ++at)
    if (std::find(plan.coordinators.begin(), at, *at) != at)
      return bad_input("--at names " + to_string(*at) +
                       " twice, and one coordinator can listen there");
  return ok();
}

// Returns where pods have a path of this machine: what lies below the folder of the job file, or of the
// script that has described the job, lies as far below that of the volume. Errors: kBadInput  it lies elsewhere.
Result<std::string> in_pods(const char* key, const std::string& path, const LaunchPlan& plan) {
  std::error_code error;
  const auto* const python = std::get_if<PythonSpec>(&plan.job.model);
  const fs::path file = plan.job_file.empty() && python ? python->script : plan.job_file;
  const fs::path folder = fs::weakly_canonical(file.parent_path(), error);
  const fs::path below = fs::weakly_canonical(path, error).lexically_relative(folder);
  if (error || below.empty() || *below.begin() == "..")
    return bad_input(std::string(key) + " is " + path +
                     ", which pods do not have, expected a path below the folder of " +
                     file.filename().string() + ", " + folder.string());
  return (fs::path(plan.folder) / below).lexically_normal().string();
}

// Puts in what pods have, where nothing is as on this machine.
Result<> put_pods(const LaunchCommand& command, LaunchPlan& plan) {
  const std::size_t colon = command.volume.find(':');
  if (colon == std::string::npos)
    return bad_input("--volume must be CLAIM:FOLDER, as training:/training, is " + command.volume);
  plan.claim = command.volume.substr(0, colon);
  plan.folder = fs::path(command.volume.substr(colon + 1)).lexically_normal();
  if (plan.folder.size() > 1 && plan.folder.back() == '/') plan.folder.pop_back();
  auto* const python = std::get_if<PythonSpec>(&plan.job.model);
  struct Moved {
    const char* key;
    std::string* path;
  };
  for (const auto& [key, path] :
       {Moved{"[data].path", command.data.empty() && !s3::is_place(plan.job.data.path)
                                 ? &plan.job.data.path
                                 : nullptr},
        Moved{"[evaluate].path", &plan.job.evaluate.path},
        Moved{"[checkpoint].dir",
              s3::is_place(plan.job.checkpoint.dir) ? nullptr : &plan.job.checkpoint.dir},
        Moved{"[model].script", python ? &python->script : nullptr}})
    if (path != nullptr && !path->empty()) {
      STARLING_TRY(there, in_pods(key, *path, plan));
      *path = std::move(there);
    }
  if (!command.data.empty()) {
    if (plan.job.data.path.empty())
      return bad_input("--data says where data lie, and the job has none");
    if (command.data.front() != '/' && !s3::is_place(command.data))
      return bad_input(
          "--data must be an absolute path, as pods have it, or s3://BUCKET/PREFIX, is " +
          command.data);
    plan.job.data.path = command.data;
  }
  plan.coordinators =
      kubernetes_coordinators(plan.name, command.coordinators ? command.coordinators : 1);
  plan.name_space = command.name_space;
  plan.workers_as = command.workers_as;
  plan.queue = command.queue;
  plan.identity = command.identity;
  return ok();
}

// Returns the Python that runs scripts here: an environment's has what they import.
std::string python_here() {
  const std::string python = python_program();
  std::error_code error;
  if (python.find('/') != std::string::npos) return fs::absolute(python, error).string();
  return find_program(python);
}

Result<LaunchPlan> plan_of(const LaunchCommand& command) {
  LaunchPlan plan;
  STARLING_TRY(job, load_job(command.job));
  STARLING_TRY(check_names(job, command.job));
  const bool described = is_described_by_script(command.job);
  if (described) {  // no file of a person's says how long the job waits
    job.elastic.start_timeout_ms = std::max(job.elastic.start_timeout_ms, kScriptStartMs);
    job.elastic.coordinator_timeout_ms =
        std::max(job.elastic.coordinator_timeout_ms, kScriptCoordinatorMs);
  }
  if (auto patient = check_patience(job); !patient)
    return std::move(patient).error().in(command.job);
  if (!command.program.empty()) plan.program = command.program;
  std::error_code ignored;
  // Where a package has this program, the machines of the job have it, too.
  const bool packaged = fs::read_symlink("/proc/self/exe", ignored).parent_path() == "/usr/bin";
  if (command.engine == "systemd" && plan.program.find('/') == std::string::npos)
    plan.program = (packaged ? "/usr/bin/" : "/usr/local/bin/") + plan.program;
  plan.name = command.name.empty() ? job.name : command.name;
  std::error_code error;
  if (!described) plan.job_file = named_path(command.job, error);
  plan.job = std::move(job);
  const bool elsewhere = !command.image.empty();  // nothing there is as on this machine
  if (kind_of(plan.job.model).is_script && !elsewhere) plan.python = python_here();
  plan.workers = command.workers;
  plan.min_workers = command.min_workers ? command.min_workers : std::min(kCopied, command.workers);
  if (plan.min_workers > plan.workers)
    return bad_input("--min-workers " + std::to_string(plan.min_workers) +
                     " is more than all workers, --workers " + std::to_string(plan.workers));
  plan.threads = command.threads;
  if (command.notice_s != 0)
    plan.notice_s = command.notice_s;
  else if (command.engine == "slurm")
    plan.notice_s = kSlurmNoticeS;
  if (!command.data.empty() && command.engine != "kubernetes")
    plan.data = elsewhere ? command.data : named_path(command.data, error).string();
  plan.image = command.image;
  plan.gpu = command.gpu;
  plan.partition = command.partition;
  plan.coordinator_partition = command.coordinator_partition;
  if (command.engine == "kubernetes") {
    STARLING_TRY(put_pods(command, plan));
  } else {
    STARLING_TRY(put_coordinators(command, plan));
  }
  return plan;
}

// Of a ring, the workers 0.. that have a secret, as a token needs it.
std::uint32_t tokens_of(const KeyRing& ring) {
  std::uint32_t workers = 0;
  for (;; ++workers) {
    const KeyPair* pair = ring.find("worker-" + std::to_string(workers));
    if (!pair || pair->secret_key.empty()) return workers;
  }
}

// Returns the keys of the job: new ones, or those of --keys.
Result<KeyRing> keys_of(const LaunchCommand& command, const LaunchPlan& plan) {
  const std::size_t coordinators = plan.coordinators.size();
  if (command.keys.empty()) {
    if (coordinators != 1 && coordinators != 3 && coordinators != 5)
      return bad_input("a job has 1, 3 or 5 coordinators, and --at names " +
                       std::to_string(coordinators));
    return KeyRing::generate(coordinators, plan.identity ? 0 : keys_for(plan.workers));
  }
  STARLING_TRY(ring, KeyRing::load(command.keys));
  auto founders = ring.numbered("coordinator");
  founders.resize(ring.founders());
  const auto secrets =
      std::ranges::count_if(founders, [](const KeyPair& pair) { return !pair.secret_key.empty(); });
  if (static_cast<std::size_t>(secrets) != coordinators)
    return bad_input("--keys has secret keys of " + std::to_string(secrets) +
                     " coordinators, expected " + std::to_string(coordinators) + "; " +
                     command.keys);
  if (!plan.identity && tokens_of(ring) < plan.workers)
    return bad_input("--keys has no secret key of worker-" + std::to_string(tokens_of(ring)) +
                     ", expected those of " + std::to_string(plan.workers) +
                     " workers, from 0 on; " + command.keys);
  return ring;
}

// Runs a command line in a folder. Errors: kBadInput  it is not here, or has failed.
Result<> type(const std::string& line, const fs::path& folder) {
  std::fflush(stdout);
  // An absolute path: `cd` looks for others in CDPATH too, and takes "-" for another folder.
  const std::string there = "cd " + shell_word(fs::absolute(folder).string()) + " && " + line;
  const int status = std::system(there.c_str());
  if (status == 0) return ok();
  return bad_input(line + " has failed" +
                   (WIFEXITED(status) ? ", exit code " + std::to_string(WEXITSTATUS(status)) : "") +
                   "; the files are in " + folder.string());
}

Result<> check_submit(const Launch& launch) {
  if (launch.start.empty())
    return bad_input(
        "--submit begins nothing on other machines; README.md of the folder says how to");
  const std::string tool = launch.start.front().substr(0, launch.start.front().find(' '));
  if (std::system(("command -v " + tool + " > /dev/null").c_str()) == 0) return ok();
  return bad_input("--submit needs " + tool + ", which is not on the PATH of this machine");
}

Result<> carry_out(const LaunchCommand& command) {
  STARLING_TRY(check_options(command));
  STARLING_TRY(plan, plan_of(command));
  STARLING_TRY(ring, keys_of(command, plan));
  plan.tokens = plan.identity ? 0 : tokens_of(ring);
  STARLING_TRY(launch, std::ranges::find(kEngines, command.engine, &Engine::name)->files(plan));
  if (command.submit) {
    STARLING_TRY(check_submit(launch));
  }
  fs::path out = command.out.empty() ? command.engine : command.out;
  if (!out.has_filename()) out = out.parent_path();  // a stroke at its end
  STARLING_TRY(check_line("--out", out.string()));
  const fs::path keys = out / kLaunchKeys;
  std::vector<fs::path> wanted{keys};
  for (const LaunchFile& file : launch.files) wanted.push_back(out / file.path);
  std::error_code error;
  for (const fs::path& path : wanted)
    if (fs::exists(fs::symlink_status(path, error)))
      return bad_input(path.string() +
                       " is there already, expected a folder without one; --out names another");

  Written written;
  STARLING_TRY(written.folder(out));
  for (const LaunchFile& file : launch.files) {
    STARLING_TRY(written.folder((out / file.path).parent_path()));
    STARLING_TRY(written.file(out / file.path, file.text));
  }
  STARLING_TRY(written.keys(keys, ring, plan.tokens, addresses(plan)));
  written.keep();

  std::printf("%s: %s", out.c_str(), kLaunchKeys);
  for (const LaunchFile& file : launch.files) std::printf(", %s", file.path.c_str());
  if (const std::string store = store_text(plan); !store.empty())
    std::printf("\n%s: README.md says how each process finds its key", store.c_str());
  if (launch.start.empty()) {
    std::printf("\n%s says what each machine needs, and what to type there\n",
                (out / "README.md").c_str());
    return ok();
  }
  if (!command.submit) {
    std::printf("\nTo begin:\n\n    cd %s\n%s\n\n", shell_word(out.string()).c_str(),
                code_block(launch.start).c_str());
    return ok();
  }
  std::printf("\n");
  for (const std::string& line : launch.start) {
    STARLING_TRY(type(line, out));
  }
  return ok();
}

}  // namespace

void add_launch(CLI::App& app, LaunchCommand& o) {
  auto* sub = subcommand(
      app, "launch", "Writes the files with which an engine runs a job, and its keys.",
      "starling launch slurm job.toml --workers 8 --at n4:7000 --coordinator-partition main \\\n"
      "    --partition spot --submit\n"
      "  starling launch systemd job.toml --workers 8 --at 10.0.0.1:7000\n"
      "  starling launch kubernetes job.toml --workers 8 --image registry.example/starling:1 \\\n"
      "    --volume training:/training\n"
      "  starling launch ray job.toml --workers 8 --at head:7000\n"
      "  starling launch skypilot job.toml --workers 8 --at coordinator.example:7000 \\\n"
      "    --image registry.example/starling:1\n\n"
      "README.md in the folder says what to type; docs/slurm.md, docs/kubernetes.md, docs/ray.md\n"
      "and docs/cloud.md are such jobs, step by step.");
  std::vector<std::string> engines;
  for (const Engine& engine : kEngines) engines.emplace_back(engine.name);
  sub->add_option("engine", o.engine, "what starts the processes")
      ->required()
      ->check(CLI::IsMember(engines));
  sub->add_option("job", o.job, "job file (TOML), or a Python script")->required();
  sub->add_option("-w,--workers", o.workers, "workers to ask the engine for")
      ->check(CLI::Range(1, 4096))
      ->required();
  sub->add_option("--min-workers", o.min_workers,
                  "training begins when so many are there (default: 2, so that all state has a "
                  "copy)")
      ->check(CLI::Range(1, 4096));
  sub->add_option("-o,--out", o.out, "folder for the files (default: named as the engine)");
  sub->add_option("--name", o.name, "of the job there (default: the job file's name)");
  sub->add_option("--keys", o.keys,
                  "use the keys of this folder, which starling keys --split made (default: new "
                  "ones)");
  sub->add_option("--program", o.program,
                  "this program, where the job runs (default: starling, found by PATH; systemd: "
                  "/usr/local/bin/starling, or /usr/bin/starling where that is this one)");
  sub->add_option("--data", o.data,
                  "where the data lie for the workers (default: as the job says)");
  sub->add_option(
         "-t,--threads", o.threads,
         "compute threads of a worker; change no bits (default: Slurm: its cores there; else 1)")
      ->check(CLI::Range(1, 256));
  sub->add_option(
         "--notice", o.notice_s,
         "seconds that a worker may take to leave; the engine must give it more (default: 30; "
         "Slurm: 20, of its usual 30)")
      ->check(CLI::Range(1, 86400));
  sub->add_flag("--submit", o.submit, "and begin: type what README.md says (sbatch, kubectl)");
  sub->add_option("--at", o.at,
                  "where the coordinators listen, as workers reach them: HOST:PORT of 1, 3 or 5, "
                  "separated by commas; for Slurm of nodes that stay")
      ->type_name("ADDRESSES")
      ->group("Slurm, systemd, Ray, SkyPilot, dstack");
  sub->add_option("--partition", o.partition, "of the workers (default: Slurm's default)")
      ->group("Slurm");
  sub->add_option("--coordinator-partition", o.coordinator_partition, "of the coordinators")
      ->group("Slurm");
  sub->add_option("--image", o.image, "container image that has the program")
      ->group("Kubernetes, SkyPilot, dstack");
  sub->add_option("--gpu", o.gpu, "of a worker, as that tool names it: A100, L4:1")
      ->group("SkyPilot, dstack");
  sub->add_option("--volume", o.volume,
                  "PersistentVolumeClaim that all pods mount, and where: what lies below the job "
                  "file's folder lies below that one there, and so do the models")
      ->type_name("CLAIM:FOLDER")
      ->group("Kubernetes");
  sub->add_option("--namespace", o.name_space, "(default: that of kubectl)")->group("Kubernetes");
  sub->add_option_function<std::string>(
         "--workers-as",
         [&o](const std::string& kind) {
           o.workers_as = kind == "jobset"     ? WorkersAs::kJobSet
                          : kind == "trainjob" ? WorkersAs::kTrainJob
                                               : WorkersAs::kJob;
         },
         "what the workers are: job; jobset; or trainjob, with a TrainingRuntime, of Kubeflow's "
         "Trainer (default: job)")
      ->check(CLI::IsMember({"job", "jobset", "trainjob"}))
      ->group("Kubernetes");
  sub->add_flag("--identity", o.identity,
                "workers show tokens of their service account instead of having keys; of a job "
                "with [identity]")
      ->group("Kubernetes");
  sub->add_option("--queue", o.queue, "of Kueue, which begins the workers (default: none)")
      ->group("Kubernetes");
  sub->add_option("--coordinators", o.coordinators, "1, 3 or 5 (default: 1)")
      ->check(CLI::IsMember({1, 3, 5}))
      ->group("Kubernetes");
}

int launch(const LaunchCommand& command) {
  const auto done = carry_out(command);
  return done ? 0 : fail(done.error());
}

}  // namespace starling::tools
