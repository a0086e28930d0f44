// The `starling` command: the public face with nothing beside it.

#include "tools/public/starling.h"

int main(int argc, char** argv) {
  return starling::main(argc, argv);
}
