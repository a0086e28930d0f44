#pragma once
// Named has what an application has brought under a name that job files use: filled before anything
// runs, and looked up by the room that needs it.

#include <map>
#include <string>
#include <utility>

#include "core/base/mutex.h"

namespace starling {

// One table for each T in the process. Threads: any. Entries stay, at the same address.
template <class T>
class Named {
 public:
  // False: the name is taken, nothing has changed.
  static bool add(const std::string& name, T value) {
    const MutexLock lock(table().mutex);
    return table().entries.emplace(name, std::move(value)).second;
  }
  // Null: the application has not brought it.
  static const T* find(const std::string& name) {
    const MutexLock lock(table().mutex);
    const auto it = table().entries.find(name);
    return it == table().entries.end() ? nullptr : &it->second;
  }
  // The known names for messages, "a, b"; "none" if there is none.
  static std::string known() {
    const MutexLock lock(table().mutex);
    std::string all;
    for (const auto& [name, value] : table().entries) all += (all.empty() ? "" : ", ") + name;
    return all.empty() ? "none" : all;
  }

 private:
  struct Table {
    Mutex mutex;
    std::map<std::string, T> entries STARLING_GUARDED_BY(mutex);
  };
  static Table& table() {
    static Table all;
    return all;
  }
};

}  // namespace starling
