// A rank with a path over the library that STARLING_NCCL names, told line by line what to do:
//
//   nccl_member [CONNECT_MS ROUND_MS END_MS]
//
//   id                      answers with a new id
//   connect RANK WORLD ID BYTES   a new path with so much staging memory, in place of the one before
//   next                    answers with what the path told next
//   begun N, groups N       answers when so many communicators were begun, groups given to the library
//   exchange BYTES SEED     asks for a round of everybody to everybody
//   right BYTES SEED        answers whether what came is what was to come
//   drop                    gives the path up
//   rest                    waits until nothing of any path is left, and opens the library anew
//   figures                 answers with the process's threads, files, RSS in kB and the threads of roots
// The end of the input is the end.

#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "tests/nccl/hex.h"
#include "tests/nccl/member.h"

namespace starling::collectives {
namespace {

void serve(const MemberOptions& options) {
  kernels::EmulatedDevice device;
  Member::Seat seat;
  auto member = std::make_unique<Member>(device, options);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string word, id;
    std::size_t bytes = 0;
    std::uint64_t seed = 0;
    words >> word;
    if (word == "id") {
      std::cout << to_hex(member->library().make_id().value()) << std::endl;
    } else if (word == "connect") {
      words >> seat.rank >> seat.world >> id >> bytes;
      member->connect(seat, from_hex(id), bytes);
    } else if (word == "next") {
      std::cout << member->next() << std::endl;
    } else if (word == "begun" || word == "groups") {
      words >> seed;
      await(word == "begun" ? &Counts::begun : &Counts::groups, static_cast<std::int64_t>(seed));
      std::cout << word << std::endl;
    } else if (word == "exchange") {
      words >> bytes >> seed;
      member->exchange(everybody_to_everybody(seat.world, bytes), seed);
    } else if (word == "right") {
      words >> bytes >> seed;
      const bool right = member->right(everybody_to_everybody(seat.world, bytes), seed);
      std::cout << (right ? "right" : "wrong") << std::endl;
    } else if (word == "drop") {
      member->drop();
    } else if (word == "rest") {
      member = nullptr;
      member = std::make_unique<Member>(device, options);
      std::cout << "rest" << std::endl;
    } else if (word == "figures") {
      const Figures f = figures();
      std::cout << f.threads << " " << f.files << " " << f.rss_kb << " " << counts().roots
                << std::endl;
    } else {
      std::cout << "not understood: " << line << std::endl;
    }
  }
}

}  // namespace
}  // namespace starling::collectives

int main(int argc, char** argv) {
  using starling::collectives::MemberOptions;
  if (argc != 1 && argc != 4) return 2;
  const auto number = [&](int i) {
    return static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10));
  };
  MemberOptions options;
  if (argc == 4) {
    options.connect_ms = number(1);
    options.round_ms = number(2);
    options.end_ms = number(3);
  }
  starling::collectives::serve(options);
}
