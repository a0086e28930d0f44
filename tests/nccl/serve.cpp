#include "tests/nccl/serve.h"

#include <atomic>
#include <chrono>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "tests/nccl/hex.h"

namespace starling::collectives {

void serve(kernels::Device& device, MemberOptions options) {
  std::atomic<std::int64_t> revoke_us{0}, abort_us{0};
  options.on_end = [&](std::chrono::nanoseconds revoke, std::chrono::nanoseconds abort) {
    revoke_us = std::chrono::duration_cast<std::chrono::microseconds>(revoke).count();
    abort_us = std::chrono::duration_cast<std::chrono::microseconds>(abort).count();
  };
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
    } else if (word == "closed") {
      std::string why;
      while ((why = member->library().closed()).empty())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::cout << why << std::endl;
    } else if (word == "figures") {
      const Figures f = figures();
      std::cout << f.threads << " " << f.files << " " << f.rss_kb << std::endl;
    } else if (word == "roots") {
      std::cout << counts().roots << std::endl;
    } else if (word == "ends") {
      std::cout << revoke_us << " " << abort_us << std::endl;
    } else {
      std::cout << "not understood: " << line << std::endl;
    }
  }
}

}  // namespace starling::collectives
