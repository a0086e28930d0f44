#include "tests/nccl/fake_orders.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <regex>
#include <sstream>
#include <vector>

namespace starling::collectives::fake {
namespace {

struct Wish {
  std::string name;
  std::uint64_t at = 0;  // 0: always
  int rank = -1;         // -1: any
  std::uint32_t ms = 0;
  std::uint64_t seen = 0;
};

std::mutex mutex;
// Never destroyed, as fake_nccl.cpp has it.
std::vector<Wish>& wishes = *new std::vector<Wish>;
bool read_environment = true;

std::vector<Wish> parse(const std::string& text) {
  static const std::regex form(R"(([a-z-]+)@(\d{1,9}|\*)(?:/(\d{1,5}))?(?::(\d{1,8}))?)");
  std::vector<Wish> parsed;
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');) {
    std::smatch m;
    if (!std::regex_match(word, m, form)) misused("FAKE_NCCL has no order '" + word + "'");
    Wish wish{.name = m[1]};
    if (m[2] != "*") wish.at = std::stoull(m[2]);
    if (m[3].matched) wish.rank = std::stoi(m[3]);
    if (m[4].matched) wish.ms = static_cast<std::uint32_t>(std::stoul(m[4]));
    parsed.push_back(std::move(wish));
  }
  return parsed;
}

}  // namespace

void misused(const std::string& why) {
  std::fprintf(stderr, "fake NCCL: %s\n", why.c_str());
  std::_Exit(kMisusedStatus);
}

void faulted(const std::string& why) {
  std::fprintf(stderr, "fake NCCL: illegal memory access: %s\n", why.c_str());
  std::_Exit(kFaultStatus);
}

void set_orders(const std::string& text) {
  const std::lock_guard lock(mutex);
  wishes = parse(text);
  read_environment = false;
}

Order order(const char* name, int rank) {
  const std::lock_guard lock(mutex);
  if (read_environment) {
    read_environment = false;
    if (const char* const text = std::getenv("FAKE_NCCL")) wishes = parse(text);
  }
  Order found;
  for (Wish& wish : wishes) {
    if (wish.name != name || (wish.rank >= 0 && wish.rank != rank)) continue;
    ++wish.seen;
    if (wish.at == 0 || wish.seen == wish.at) found = {true, wish.ms};
  }
  return found;
}

}  // namespace starling::collectives::fake
