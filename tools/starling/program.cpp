// This is the `starling` command: the public face without additions.

#include "tools/public/starling.h"

int main(int argc, char** argv) {
  return starling::main(argc, argv);
}
