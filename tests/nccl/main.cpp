#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <stdlib.h>

// An attempt that never ends keeps its threads on purpose.
#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_options() {
  return "report_thread_leaks=0";
}
#endif

// Every test opens the stand-in, unless it says otherwise.
int main(int argc, char** argv) {
  ::setenv("STARLING_NCCL", STARLING_FAKE_NCCL, /*overwrite=*/1);
  return doctest::Context(argc, argv).run();
}
