#include "actors/files.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

namespace starling::actors {

TEST_CASE(
    "files: what may be raised is raised, and more workers than fit are refused with a line") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 200;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  CHECK(open_files_max() == 200);
  CHECK(too_many_files(60, "worker", files_of_worker(60)).empty());
  CHECK(too_many_files(90, "worker", files_of_worker(90)) ==
        "90 workers need 244 open files in each worker, 200 are allowed; raise the limit (ulimit "
        "-n) or take fewer workers");
  raise_open_files();
  CHECK(open_files_max() >= 200);
  rlimit now{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &now) == 0);
  CHECK(now.rlim_cur == before.rlim_max);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

}  // namespace starling::actors
