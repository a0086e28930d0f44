#include <doctest/doctest.h>

#include "tests/launch/a_plan.h"

namespace starling::tools {
namespace {

LaunchPlan of_systemd() {
  LaunchPlan plan = a_plan();
  plan.program = "/usr/local/bin/starling";
  plan.coordinators = {{"10.0.0.1", 7000}};
  return plan;
}

// Goal: a leave has its time, and what the exit codes of docs/design.md, section 9, call an end is
// none of systemd's business to undo. launch_test.py asks systemd what it reads in the units.
TEST_CASE("systemd: a worker has its notice before it is killed, and stays away when it has left") {
  LaunchPlan plan = of_systemd();
  plan.notice_s = 120;
  const std::string unit = text_of(systemd_files(plan).value(), "starling-worker@.service");
  for (const char* part :
       {"--notice 120 --wait 900\n", "\nTimeoutStopSec=135\n", "\nKillMode=mixed\n",
        "\nSuccessExitStatus=143\n", "\nRestart=on-failure\n",
        "\nRestartPreventExitStatus=1 2 3 4 6\n", "--join /etc/starling/worker-%i.token "})
    CHECK_MESSAGE(has(unit, part), part);
}

TEST_CASE("systemd: a coordinator begins the group where it has no state, and comes back") {
  const std::string unit =
      text_of(systemd_files(of_systemd()).value(), "starling-coordinator.service");
  for (const char* part :
       {"\nRestart=on-failure\n", "/bin/sh -c \"new=; [ -e coordinator-state ] || new=--new; exec ",
        " --listen 10.0.0.1:7000 --peers 10.0.0.1:7000 --workers 2 ", " $$new\"\n"})
    CHECK_MESSAGE(has(unit, part), part);
}

TEST_CASE(
    "systemd: each unit tells its state, is killed where it hangs, and starts as long as it "
    "needs") {
  const Launch launch = systemd_files(of_systemd()).value();
  for (const char* name : {"starling-coordinator.service", "starling-worker@.service"})
    for (const char* part : {"\nType=notify\n", "\nNotifyAccess=all\n", "\nWatchdogSec=120\n",
                             "\nTimeoutStartSec=infinity\n"})
      CHECK_MESSAGE(has(text_of(launch, name), part), name, part);
}

TEST_CASE("systemd: of three coordinators each machine has its unit") {
  LaunchPlan plan = of_systemd();
  plan.coordinators = {{"10.0.0.1", 7000}, {"fe80::1", 7000}, {"c", 7000}};
  const Launch launch = systemd_files(plan).value();
  const std::string unit = text_of(launch, "starling-coordinator-1.service");
  for (const char* part : {"/etc/starling/coordinator-1 ", "--listen [fe80::1]:7000 ",
                           "--peers 10.0.0.1:7000,[fe80::1]:7000,c:7000 "})
    CHECK_MESSAGE(has(unit, part), part);
  CHECK(has(text_of(launch, "starling-coordinator-2.service"), "--listen 0.0.0.0:7000 "));
  CHECK(has(text_of(launch, "README.md"), "systemctl enable --now starling-coordinator-2\n"));
  CHECK(launch.start.empty());
}

TEST_CASE("systemd: paths are quoted, and what a line of a unit cannot have is refused") {
  LaunchPlan plan = of_systemd();
  plan.data = "/my data/100%i $x";
  plan.program = "/my program/it's";
  const Launch launch = systemd_files(plan).value();
  CHECK(has(text_of(launch, "starling-worker@.service"), " --data \"/my data/100%%i $$x\" "));
  CHECK(has(text_of(launch, "starling-worker@.service"), "ExecStart=\"/my program/it's\" worker "));
  CHECK(has(text_of(launch, "starling-coordinator.service"),
            "exec '/my program/it'\\\\''s' coordinator "));

  plan = of_systemd();
  plan.data = "/a\nExecStart=/bin/sh";
  CHECK(has(systemd_files(plan).error().text(), "--data has a control character"));
  plan = of_systemd();
  plan.program = "bin/starling";
  CHECK(has(systemd_files(plan).error().text(), "must be an absolute path"));
  for (const char* name : {"a b", "a\nb", "%i", ""}) {
    plan = of_systemd();
    plan.name = name;
    CHECK_MESSAGE(has(systemd_files(plan).error().text(), "the name of the job must be"), name);
  }
}

}  // namespace
}  // namespace starling::tools
