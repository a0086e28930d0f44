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
#include "tools/launch/plan.h"
#include "tools/launch/text.h"
#include "tools/starling/exit.h"
#include "tools/starling/names.h"
#include "tools/starling/split_keys.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kCopied = 2;  // workers with which all state is there twice

Error bad(std::string text) {
  return Error(Code::kBadInput, std::move(text));
}

struct Engine {
  const char* name;
  Result<Launch> (*files)(const LaunchPlan&);
};
constexpr Engine kEngines[] = {{"slurm", slurm_files}, {"systemd", systemd_files}};

// What was written, which goes again unless it is kept.
class Written {
 public:
  Written() = default;
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  ~Written() {
    std::error_code ignored;
    for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) fs::remove_all(*path, ignored);
  }
  void keep() { paths_.clear(); }

  // Makes a folder and those above it that are not there.
  Result<> folder(const fs::path& path) {
    std::error_code error;
    if (path.empty() || fs::is_directory(path, error)) return ok();
    STARLING_TRY(folder(path.parent_path()));
    if (!fs::create_directory(path, error))
      return bad("cannot make the folder " + path.string() + ": " + error.message());
    paths_.push_back(path);
    return ok();
  }

  Result<> file(const fs::path& path, const std::string& text) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return bad("cannot write " + path.string() + ": " + std::strerror(errno));
    paths_.push_back(path);
    const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const int error = errno;
    ::close(fd);
    if (whole) return ok();
    return bad("cannot write " + path.string() + ": " + std::strerror(error));
  }

  Result<> keys(const fs::path& path, const KeyRing& ring, std::uint32_t workers,
                const std::string& at) {
    paths_.push_back(path);  // is not there, as was looked before
    return split_keys(ring, path, workers, at);
  }

 private:
  std::vector<fs::path> paths_;
};

Result<LaunchPlan> plan_of(const LaunchCommand& command) {
  if (command.job.ends_with(".py"))
    return bad("launch takes a job file, and STARLING_WRITE_JOB=job.toml python " + command.job +
               " writes that of the script");
  LaunchPlan plan;
  STARLING_TRY(job, load_job(command.job));
  STARLING_TRY(check_names(job, command.job));
  if (auto patient = check_patience(job); !patient)
    return std::move(patient).error().in(command.job);
  if (!command.program.empty()) plan.program = command.program;
  if (command.engine == "systemd" && plan.program.find('/') == std::string::npos)
    plan.program = "/usr/local/bin/" + plan.program;
  plan.name = command.name.empty() ? job.name : command.name;
  plan.job_file = fs::absolute(command.job).lexically_normal();
  plan.job = std::move(job);
  if (command.at.empty()) return bad(command.engine + " needs --at, where coordinators listen");
  STARLING_TRY(coordinators, parse_addresses(command.at));
  plan.coordinators = std::move(coordinators);
  for (const Address& at : plan.coordinators)
    if (at.port == 0 || means_everywhere(at.host))
      return bad("--at says where workers reach the coordinators, expected a host and a port, is " +
                 to_string(at));
  plan.workers = command.workers;
  plan.min_workers = command.min_workers ? command.min_workers : std::min(kCopied, command.workers);
  if (plan.min_workers > plan.workers)
    return bad("--min-workers " + std::to_string(plan.min_workers) +
               " is more than all workers, --workers " + std::to_string(plan.workers));
  plan.threads = command.threads;
  plan.notice_s = command.notice_s;
  plan.data = command.data.empty() ? "" : fs::absolute(command.data).lexically_normal().string();
  plan.partition = command.partition;
  plan.coordinator_partition = command.coordinator_partition;
  return plan;
}

// Returns the keys of the job: new ones, or those of --keys.
Result<KeyRing> keys_of(const LaunchCommand& command, const LaunchPlan& plan) {
  const std::size_t coordinators = plan.coordinators.size();
  if (command.keys.empty()) {
    if (coordinators != 1 && coordinators != 3 && coordinators != 5)
      return bad("a job has 1, 3 or 5 coordinators, and --at names " +
                 std::to_string(coordinators));
    return KeyRing::generate(coordinators, keys_for(plan.workers));
  }
  STARLING_TRY(ring, KeyRing::load(command.keys));
  for (const char* prefix : {"coordinator", "worker"}) {
    const std::size_t wanted = prefix[0] == 'c' ? coordinators : plan.workers;
    std::size_t secrets = 0;
    for (const KeyPair& pair : ring.numbered(prefix)) secrets += !pair.secret_key.empty();
    if (secrets < wanted)
      return bad("--keys has secret keys of " + std::to_string(secrets) + " " + prefix +
                 "s, expected " + std::to_string(wanted) + "; " + command.keys);
  }
  return ring;
}

// Of a ring, the workers 0.. that have a secret, as a token needs it.
std::uint32_t tokens_of(const KeyRing& ring) {
  std::uint32_t workers = 0;
  for (;; ++workers) {
    const KeyPair* pair = ring.find("worker-" + std::to_string(workers));
    if (!pair || pair->secret_key.empty()) return workers;
  }
}

// Runs a command line in a folder. Errors: kBadInput  it is not here, or has failed.
Result<> type(const std::string& line, const fs::path& folder) {
  std::fflush(stdout);
  const std::string there = "cd " + shell_word(folder.string()) + " && " + line;
  const int status = std::system(there.c_str());
  if (status == 0) return ok();
  return bad(line + " has failed" +
             (WIFEXITED(status) ? ", exit code " + std::to_string(WEXITSTATUS(status)) : "") +
             "; the files are in " + folder.string());
}

Result<> check_submit(const Launch& launch) {
  if (launch.start.empty())
    return bad("--submit begins nothing on other machines; README.md of the folder says how to");
  const std::string tool = launch.start.front().substr(0, launch.start.front().find(' '));
  if (std::system(("command -v " + tool + " > /dev/null").c_str()) == 0) return ok();
  return bad("--submit needs " + tool + ", which is not on the PATH of this machine");
}

Result<> carry_out(const LaunchCommand& command) {
  if (command.engine != "slurm" &&
      !(command.partition.empty() && command.coordinator_partition.empty()))
    return bad("partitions are Slurm's, and " + command.engine + " has none");
  STARLING_TRY(plan, plan_of(command));
  STARLING_TRY(launch, std::ranges::find(kEngines, command.engine, &Engine::name)->files(plan));
  if (command.submit) {
    STARLING_TRY(check_submit(launch));
  }
  STARLING_TRY(ring, keys_of(command, plan));
  const fs::path out = command.out.empty() ? command.engine : command.out;
  STARLING_TRY(check_line("--out", out.string()));
  const fs::path keys = out / kLaunchKeys;
  std::vector<fs::path> wanted{keys};
  for (const LaunchFile& file : launch.files) wanted.push_back(out / file.path);
  std::error_code error;
  for (const fs::path& path : wanted)
    if (fs::exists(fs::symlink_status(path, error)))
      return bad(path.string() + " is there already, expected a folder without one; --out");

  Written written;
  STARLING_TRY(written.folder(out));
  for (const LaunchFile& file : launch.files) {
    STARLING_TRY(written.folder((out / file.path).parent_path()));
    STARLING_TRY(written.file(out / file.path, file.text));
  }
  STARLING_TRY(written.keys(keys, ring, tokens_of(ring), addresses(plan)));
  written.keep();

  std::printf("%s: %s", out.c_str(), kLaunchKeys);
  for (const LaunchFile& file : launch.files) std::printf(", %s", file.path.c_str());
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
      "  starling launch systemd job.toml --workers 8 --at 10.0.0.1:7000\n\n"
      "README.md in the folder says what to type; docs/slurm.md is such a job, step by step.");
  std::vector<std::string> engines;
  for (const Engine& engine : kEngines) engines.emplace_back(engine.name);
  sub->add_option("engine", o.engine, "what starts the processes")
      ->required()
      ->check(CLI::IsMember(engines));
  sub->add_option("job", o.job, "job file (TOML)")->required();
  sub->add_option("-w,--workers", o.workers, "workers to ask the engine for")
      ->check(CLI::Range(1, 4096))
      ->required();
  sub->add_option("--min-workers", o.min_workers,
                  "training begins when so many are there (default: 2, so that all state has a "
                  "copy)")
      ->check(CLI::Range(1, 4096));
  sub->add_option("--at", o.at,
                  "where the coordinators listen, as workers reach them: HOST:PORT of 1, 3 or 5, "
                  "separated by commas; Slurm: of nodes that stay")
      ->type_name("ADDRESSES");
  sub->add_option("-o,--out", o.out, "folder for the files (default: named as the engine)");
  sub->add_option("--name", o.name, "of the job there (default: the job file's name)");
  sub->add_option("--keys", o.keys,
                  "use the keys of this folder, which starling keys --split made (default: new "
                  "ones)");
  sub->add_option("--program", o.program,
                  "this program, where the job runs (default: starling, found by PATH; systemd: "
                  "/usr/local/bin/starling)");
  sub->add_option("--data", o.data,
                  "where the data lie for the workers (default: as the job says)");
  sub->add_option(
         "-t,--threads", o.threads,
         "compute threads of a worker; change no bits (default: Slurm: its cores there; else 1)")
      ->check(CLI::Range(1, 256));
  sub->add_option("--notice", o.notice_s,
                  "seconds that a worker may take to leave; the engine must give it as many")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  sub->add_option("--partition", o.partition, "Slurm's, of the workers (default: Slurm's default)");
  sub->add_option("--coordinator-partition", o.coordinator_partition,
                  "the same, of the coordinators");
  sub->add_flag("--submit", o.submit, "and begin: type what README.md says (Slurm: sbatch)");
}

int launch(const LaunchCommand& command) {
  const auto done = carry_out(command);
  return done ? 0 : fail(done.error());
}

}  // namespace starling::tools
