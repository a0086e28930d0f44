#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <stdlib.h>

// Every test opens the stand-in, unless it says otherwise.
int main(int argc, char** argv) {
  ::setenv("STARLING_NCCL", STARLING_FAKE_NCCL, /*overwrite=*/1);
  return doctest::Context(argc, argv).run();
}
