#include "tests/cuda/imitation/records.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tests/cuda/imitation/imitation.h"

namespace starling::imitation {
namespace {

struct Records {
  std::mutex mutex;
  std::map<const void*, Launches> by_kernel;
};
Records& records() {
  static auto* const records = new Records;
  return *records;
}

// The program or library in which an address lies.
struct Object {
  std::uintptr_t address = 0;
  std::string path;
  std::uintptr_t base = 0;
  bool found = false;
};

int look(dl_phdr_info* info, std::size_t, void* data) {
  auto* const object = static_cast<Object*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (object->address < begin || object->address >= begin + part.p_memsz) continue;
    object->path = info->dlpi_name[0] == 0 ? "/proc/self/exe" : info->dlpi_name;
    object->base = info->dlpi_addr;
    object->found = true;
    return 1;
  }
  return 0;
}

template <class T>
T read_at(const std::string& file, std::size_t offset) {
  T value{};
  if (offset + sizeof(T) <= file.size()) std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

// The functions of a 64-bit ELF file, by where they begin.
using Functions = std::unordered_map<std::uintptr_t, std::string>;
Functions functions_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  const auto head = read_at<Elf64_Ehdr>(file, 0);
  const auto section = [&](std::size_t i) {
    return read_at<Elf64_Shdr>(file, head.e_shoff + i * head.e_shentsize);
  };
  Functions functions;
  for (std::size_t i = 0; i < head.e_shnum; ++i) {
    const auto table = section(i);
    if (table.sh_type != SHT_SYMTAB && table.sh_type != SHT_DYNSYM) continue;
    const auto names = section(table.sh_link);
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(file, table.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0) continue;
      const std::size_t name = names.sh_offset + symbol.st_name;
      functions.emplace(symbol.st_value, file.c_str() + std::min(file.size(), name));
    }
  }
  return functions;
}

// A file is read once.
std::string symbol_of(const Object& object) {
  static std::mutex mutex;
  static auto* const files = new std::map<std::string, Functions>;
  const std::lock_guard guard(mutex);
  auto found = files->find(object.path);
  if (found == files->end()) found = files->emplace(object.path, functions_of(object.path)).first;
  const auto function = found->second.find(object.address - object.base);
  return function == found->second.end() ? std::string() : function->second;
}

}  // namespace

std::string kernel_name(const void* kernel) {
  Object object{reinterpret_cast<std::uintptr_t>(kernel), {}, 0, false};
  dl_iterate_phdr(&look, &object);
  std::string name = object.found ? symbol_of(object) : std::string();
  if (name.empty()) {
    char text[32];
    std::snprintf(text, sizeof(text), "%p", kernel);
    return text;
  }
  int status = 0;
  char* const plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (plain != nullptr) name = plain;
  std::free(plain);
  return name;
}

void record_launch(const void* kernel, std::uint64_t blocks, std::uint64_t threads) {
  const std::lock_guard lock(records().mutex);
  Launches& launches = records().by_kernel[kernel];
  ++launches.launches;
  launches.blocks += blocks;
  launches.threads += blocks * threads;
}

std::vector<Launches> launches() {
  std::vector<Launches> all;
  {
    const std::lock_guard lock(records().mutex);
    for (auto& [kernel, counted] : records().by_kernel) {
      if (counted.launches == 0) continue;
      if (counted.kernel.empty()) counted.kernel = kernel_name(kernel);
      all.push_back(counted);
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Launches& a, const Launches& b) { return a.kernel < b.kernel; });
  return all;
}

void clear_launches() {
  const std::lock_guard lock(records().mutex);
  for (auto& [kernel, counted] : records().by_kernel)
    counted.launches = counted.blocks = counted.threads = 0;
}

std::string launches_table() {
  std::string table = "  launches     blocks      threads  kernel\n";
  for (const Launches& l : launches()) {
    char numbers[64];
    std::snprintf(numbers, sizeof(numbers), "%10llu %10llu %12llu  ",
                  static_cast<unsigned long long>(l.launches),
                  static_cast<unsigned long long>(l.blocks),
                  static_cast<unsigned long long>(l.threads));
    table += numbers + l.kernel + "\n";
  }
  return table;
}

}  // namespace starling::imitation
