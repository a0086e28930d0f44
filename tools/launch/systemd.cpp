// A job on machines with systemd: a unit for each coordinator, and one for the workers, of which each
// is an instance with its number.

#include "tools/launch/plan.h"
#include "tools/launch/text.h"

namespace starling::tools {
namespace {

constexpr const char* kSystemdCoordinator = R"([Unit]
Description=Starling coordinator of {{name}}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=600
StartLimitBurst=20

[Service]
# Ready when it listens; killed and started again where it hangs for two minutes.
Type=notify
NotifyAccess=all
TimeoutStartSec=infinity
WatchdogSec=120
User=starling
StateDirectory=starling
WorkingDirectory=/var/lib/starling
{{store}}# --new begins the group. Started again, a coordinator goes on with what is in its state.
ExecStart=/bin/sh -c {{line}}
# Again after a kill, a reboot or a bug (5), and not where the job has ended or the input is wrong. 143: told to end.
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=1 2 3 4 6
SuccessExitStatus=143
KillMode=mixed

[Install]
WantedBy=multi-user.target
)";

constexpr const char* kWorker = R"([Unit]
Description=Starling worker %i of {{name}}
Wants=network-online.target
# Of one machine's units the coordinator ends last, so that a leave is heard.
After=network-online.target{{after}}
StartLimitIntervalSec=600
StartLimitBurst=20

[Service]
# Ready when it has read its key; killed and started again where it hangs for two minutes.
Type=notify
NotifyAccess=all
TimeoutStartSec=infinity
WatchdogSec=120
User=starling
StateDirectory=starling/worker-%i
WorkingDirectory=/var/lib/starling/worker-%i
{{store}}{{python}}ExecStart={{program}} worker --join /etc/starling/worker-%i.token {{data}}--threads {{threads}} --notice {{notice}} --wait {{wait}}
# SIGTERM announces its leave, for which it has {{notice}} seconds; it ends with 143 then, and stays away.
KillMode=mixed
TimeoutStopSec={{stop}}
SuccessExitStatus=143
# Again after a kill or a bug (5), and not where the job has ended or the input is wrong.
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=1 2 3 4 6

[Install]
WantedBy=multi-user.target
)";

constexpr const char* kSystemdReadme = R"(# The job {{name}} with systemd

Written by `starling launch systemd`. Each machine needs `{{program}}`, a user for it (`useradd --system starling`), and,
below `/etc/starling`, the files of what runs there. As root, with the files copied to the machine's working folder:
{{coordinators}}
Copy to a machine no more than it needs: the files of `keys` let in whoever has them. A machine with worker 3, which needs `starling-worker@.service`, `worker-3.token` of the folder `keys`, and the data{{script}}:

    install -D -m 600 -o starling worker-3.token /etc/starling/worker-3.token
    install -m 644 starling-worker@.service /etc/systemd/system
    systemctl daemon-reload
    systemctl enable --now starling-worker@3

Training begins when {{min_workers}} workers are there; there are keys for {{keys}}. `journalctl -u {{self}}` shows how it goes,
`/var/lib/starling/out/events.jsonl` has every step. When it is done, each worker that is there has written the model:
`/var/lib/starling/worker-3/model.safetensors`.

- `systemctl stop starling-worker@3` is a leave in order, and so is the machine's shutdown. `disable` keeps it away.
- A coordinator is started again wherever it ends before the job. One whose `/var/lib/starling/coordinator-state` was lost
  begins another group, from the newest checkpoint where the job has some; of three it is repaired by the others once that folder is there, empty.
- Another job begins where `/var/lib/starling` is empty.
- The user `starling` has to be able to read the data, and to write the checkpoints.
{{readme_store}})";

constexpr const char* kSystemdStore = "EnvironmentFile=-/etc/starling/store.env\n";
constexpr const char* kSystemdReadmeStore =
    R"(- {{store}}. Each machine has a key in `/etc/starling/store.env`, lines like
  `AWS_ACCESS_KEY_ID=..` (docs/s3.md; `install -m 600`), or is one whose role has the rights.
)";

constexpr const char* kSystemdReadmeCoordinator = R"(
The machine of {{host}}, which needs `{{self}}.service`, `job.toml`, the data where that says, and `{{key}}` of the folder `keys`:

    install -D -m 644 job.toml /etc/starling/job.toml
    install -m 600 -o starling {{key}} /etc/starling/{{key}}
    install -m 644 {{self}}.service /etc/systemd/system
    systemctl daemon-reload
    systemctl enable --now {{self}}
)";

Result<> check_systemd(const LaunchPlan& plan) {
  STARLING_TRY(check_name("the name of the job", plan.name, "._-"));
  for (const Address& at : plan.coordinators) {
    STARLING_TRY(check_name("the host of --at", at.host, ".:-"));
  }
  STARLING_TRY(check_line("--program", plan.program));
  if (!plan.program.starts_with('/'))
    return Error(Code::kBadInput,
                 "--program must be an absolute path for systemd, is " + plan.program);
  STARLING_TRY(check_line("the path of Python", plan.python));
  return check_line("--data", plan.data);
}

// Where a coordinator listens that others reach at this address. /etc/hosts may map a machine's own name to its
// loopback, so a coordinator that is reached by name listens on all addresses.
Address listens_at(const Address& reached_at) {
  const bool is_name = reached_at.host.find_first_not_of("0123456789.") != std::string::npos &&
                       reached_at.host.find(':') == std::string::npos;
  return is_name ? Address{"0.0.0.0", reached_at.port} : reached_at;
}

}  // namespace

Result<Launch> systemd_files(const LaunchPlan& plan) {
  STARLING_TRY(check_systemd(plan));
  const bool single = plan.coordinators.size() == 1;
  const std::string first = single ? "starling-coordinator" : "starling-coordinator-0";
  const std::string workers = std::to_string(plan.min_workers);
  const std::string store = store_text(plan);
  Fields fields{
      {"name", plan.name},
      {"program", systemd_word(plan.program)},
      {"store", store.empty() ? "" : kSystemdStore},
      {"readme_store", store.empty() ? "" : fill(kSystemdReadmeStore, {{"store", store}})},
      {"python", plan.python.empty()
                     ? ""
                     : "Environment=" + systemd_word("STARLING_PYTHON=" + plan.python) + "\n"},
      {"script", plan.python.empty()
                     ? ""
                     : ", the script with what lies beside it, and Python where they are here"},
      {"data", plan.data.empty() ? "" : "--data " + systemd_word(plan.data) + " "},
      {"threads", std::to_string(plan.threads ? plan.threads : 1)},
      {"notice", std::to_string(plan.notice_s)},
      {"wait", std::to_string(wait_s(plan.job))},
      {"stop", std::to_string(plan.notice_s + kBeyondNoticeS)},
      {"min_workers", workers},
      {"keys", std::to_string(plan.tokens)},
  };
  Launch launch;
  std::string readme, after;
  for (std::size_t i = 0; i < plan.coordinators.size(); ++i) {
    const std::string key = "coordinator-" + std::to_string(i);
    const std::string self = single ? first : "starling-" + key;
    const std::string line =
        begin_lines("coordinator-state", plan.job, "; ") + "; exec " + shell_word(plan.program) +
        " coordinator --job /etc/starling/job.toml --keys /etc/starling/" + key + " --listen " +
        to_string(listens_at(plan.coordinators[i])) + " --peers " + addresses(plan) +
        " --workers " + workers + " --state coordinator-state --out out $new";
    launch.files.push_back({self + ".service", fill(kSystemdCoordinator,
                                                    {{"name", plan.name},
                                                     {"store", store.empty() ? "" : kSystemdStore},
                                                     {"line", systemd_word(line)}})});
    after += " " + self + ".service";
    readme += fill(kSystemdReadmeCoordinator,
                   {{"self", self}, {"key", key}, {"host", to_string(plan.coordinators[i])}});
  }
  fields.emplace_back("after", after);
  launch.files.push_back({"starling-worker@.service", fill(kWorker, fields)});
  // Absolute: the data lie where they do on this machine.
  launch.files.push_back({"job.toml", format_job(plan.job)});
  fields.insert(fields.end(), {{"coordinators", readme}, {"self", first}});
  launch.files.push_back({"README.md", fill(kSystemdReadme, fields)});
  return launch;
}

}  // namespace starling::tools
