#pragma once
// Each subcommand of `starling` has a struct of its options, and a function that returns the
// exit code (docs/design.md, section 9). options.h fills the structs from the command line.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/worker/transport_choice.h"
#include "core/job/job.h"
#include "core/wire/messages.h"

namespace starling::tools {

// CloudNotices says which cloud to ask whether it will take this machine (actors/notices).
struct CloudNotices {
  std::string cloud = "auto";  // none, auto, aws, gcp, azure
  std::string metadata = "http://169.254.169.254";
};

struct RunOptions {
  std::string job;
  std::uint32_t workers = 1;
  std::optional<std::uint32_t> start;  // workers started here; the others join. None: all
  std::uint32_t threads = 1;
  std::uint32_t coordinators = 1;
  std::string host = "127.0.0.1";  // where coordinators and workers are reached
  std::uint16_t port = 0;          // of the first coordinator; others and workers follow. 0: any
  std::string out;                 // empty: a new folder below runs/
  std::optional<std::uint64_t> steps, seed, lease_ms;
  std::optional<std::uint32_t> replicas;
  std::optional<double> peak_rate;
  CloudNotices notices;
  bool resume = false;
  std::uint32_t respawn =
      3;                    // lives of a worker in a row that get nowhere; 0: none is started again
  std::string checkpoints;  // folder, instead of the job file's
  actors::TransportChoice transport = actors::TransportChoice::kAuto;
  std::string log = "warn";
  std::string again;    // the command line that goes on from a checkpoint of this one, for people
  std::string metrics;  // port, or host:port, where they are served; empty: nowhere
  std::string tensorboard;  // folder of curves; empty: none
};
int run(RunOptions options);

struct WorkerCommand {
  std::string join;  // addresses of coordinator-0.. of the ring, a join token, or a file with one
  std::string keys;  // a file or a folder of split keys; none with a token
  std::string identity_token;  // file with a token of an identity provider; empty: it has a key
  std::string job;             // compared with the coordinators' job; empty: not compared
  std::string data;            // where the data are here; empty: as the job says
  std::string
      weights;  // where the weights that training begins with are here; empty: as the job says
  std::string script;  // where a Python model's script is here; empty: as the job says
  std::vector<std::string> arguments;  // of the script, compared with the job's; empty: no check
  std::string name;                    // of a key; empty: the first free one
  // The host where other workers reach this one, at any free port; empty: the coordinators' view.
  std::string host;
  std::string listen;     // host:port instead; empty: any free port of `host`
  std::string advertise;  // host:port that they are told; empty: where it listens
  std::string failure_domain;
  WorkerRole role = WorkerRole::kBoth;
  std::string
      save;  // the trained model, safetensors; none: nowhere; empty: model.safetensors here, unless quiet
  std::string times;    // file for each step's times, CSV; empty: not measured
  std::string metrics;  // port, or host:port, where they are served; empty: nowhere
  std::uint32_t threads = 1;
  std::optional<double> slow;        // none: as the job file says
  std::optional<std::uint32_t> gpu;  // none: the number at the end of its name
  actors::TransportChoice transport = actors::TransportChoice::kAuto;
  double wait_s = 0;  // for coordinators, until the job is known; 0: as the job file says, or 30
  double notice_s = 30;
  CloudNotices notices;
  int drained_code = 0;      // exit code of a worker that an admin has drained or evicted
  bool acknowledge = false;  // tell the cloud when the state is handed over
  std::string log = "warn";
  bool quiet = false;
  bool child = false;  // started by `starling run`, whose orders end it
  int words = -1;      // a descriptor of `run` for lines of fail(); -1: none
};
// `arguments` are main's: a fenced worker begins a new life with the same ones.
int worker(const WorkerCommand& command, char** arguments);

struct CoordinatorCommand {
  std::string job, keys;
  std::string name;         // empty: the only coordinator whose secret is in the keys
  std::string identity_ca;  // file of certificates; empty: the system's
  std::string listen = "tcp://127.0.0.1:0";
  std::string peers;  // addresses of all coordinators of the ring, in order; own one included
  std::string state = "coordinator-state";
  std::string out;  // folder of events.jsonl and loss.svg; empty: the state folder
  std::uint32_t workers = 1;
  std::string log = "warn";
  bool first = false;  // --new: the group begins, and this member has never run
  bool resume = false;
  bool joins = false;       // --add: the group has begun, and has never had this one
  std::string replace;      // with it: the name of the one that goes
  std::string remove;       // starts no coordinator: has the group take out the one of this name
  bool child = false;       // started by `run`: event lines go to stdout, ends with its parent
  std::uint64_t told = 0;   // of a child: CoordinatorOptions::told
  std::string metrics;      // port, or host:port, where they are served; empty: nowhere
  std::string tensorboard;  // folder of curves; empty: none
};
int coordinator(CoordinatorCommand command);
// The part of it that asks the group to take one out (--remove). Errors: kBadInput  no such coordinator, or the group
// refuses; kUnavailable  nobody that leads has answered.
Result<int> take_out(const CoordinatorCommand& command);

struct KeysCommand {
  std::string out;    // makes all keys: in one file,
  std::string split;  // or a folder with a file for each process
  std::uint32_t coordinators = 1, workers = 64;
  std::uint32_t spares = 0;  // further coordinators, which may come later
  std::string at;            // addresses of the coordinators, to write join tokens for them
  // These change existing keys:
  std::string keys;                // a file or such a folder
  std::string token, revoke, add;  // names
};
int keys(const KeysCommand& command);

struct CheckCommand {
  std::string file;
  std::string isa = "auto";
  Precision precision = Precision::kFp32;
  std::optional<std::uint32_t> workers, threads;  // of a job; none: four, and one
};
int check(const CheckCommand& command);

struct StatusCommand {
  std::string where;  // folder of a run or a coordinator, its events.jsonl, or http://HOST:PORT
  bool watch = false;
  bool json = false;
};
int status(const StatusCommand& command);

struct WatchCommand {
  std::string where;  // folder of a run or a coordinator, or its events.jsonl
  std::string http;   // address of the page; empty: 127.0.0.1, any port
  std::string out;    // a file that the page is written to, once, instead
};
int watch(const WatchCommand& command);

struct DiagnoseCommand {
  std::vector<std::string> where;  // folders of runs, or numbers of processes
  bool json = false;
};
int diagnose(const DiagnoseCommand& command);

struct AdminCommand {
  std::string action;  // drain, evict, checkpoint, stop, rate
  // Of drain and evict the worker's name, of rate the number; the run's folder or addresses.
  std::vector<std::string> words;
  std::string keys;  // a file or a folder of split keys; empty: as the folder says
  std::string name;  // of the key; empty: admin, or the one that is in the file
  bool now = false;  // stop: without a checkpoint
  std::uint32_t wait_s = 600;
};
int admin(const AdminCommand& command);

struct AuditCommand {
  // Folders of runs, or their events.jsonl: one, or two to compare.
  std::vector<std::string> runs;
  bool together = false;                // they are of the coordinators of one run
  std::string json;                     // file for the findings too
  std::optional<std::uint64_t> sample;  // show where it was used
};
int audit(const AuditCommand& command);

struct ChaosCommand {
  std::string job, out;
  std::string named;                   // the given job: a file or a script
  std::vector<std::string> arguments;  // of that script
  std::string command;  // of a worker, with {join} and {keys}; empty: `worker` of this program
  std::string attach;   // folder of an existing run, instead of a job
  std::string keys;     // of that run; empty: as its events say
  std::string plan;     // a file; empty: drawn
  bool random = false;
  double rate = 1;    // faults a second
  std::string kinds;  // empty: some
  std::uint32_t max_faults = 200'000;
  std::uint32_t keep = 2;  // workers that always stay
  std::uint64_t seed = 1;
  std::string duration;  // "90", "10m"; empty: as long as the job takes undisturbed
  std::optional<std::uint64_t> steps, lease_ms;
  std::optional<std::uint32_t> replicas;
  std::string reference;       // digest; empty: an undisturbed run comes first
  std::string links = "auto";  // how faults of links are made: auto, namespaces, proxy
  std::uint32_t workers = 4, threads = 1, coordinators = 3;
  std::uint32_t workers_max = 0;  // 0: twice the workers
  bool last_copies = false;
  double pause_ms_max = 250;
  std::string log = "warn";
};
int chaos(const ChaosCommand& command);

struct ReplayCommand {
  std::string job, trace, out;
  std::string named;                   // the given job: a file or a script
  std::vector<std::string> arguments;  // of the script
  double speedup = 60;
  std::string from = "0", to;  // of the trace; empty: its end
  std::uint32_t scale = 1;     // one node in so many
  std::uint64_t seed = 1;      // draws the leavers, where the trace has counts only
  bool unannounced = false;
  std::string notice = "120";
  double goodput_min = 0;                  // 0 to 1
  std::optional<double> rate, compute_ms;  // none: measured; as the job file says
  std::optional<std::uint64_t> steps, lease_ms;
  std::optional<std::uint32_t> micro_batches, replicas;
  std::string reference;  // digest; empty: an undisturbed run comes after
  std::uint32_t threads = 1, coordinators = 1;
  std::string log = "warn";
};
int replay(const ReplayCommand& command);

int version();

}  // namespace starling::tools
