#pragma once
// Locks and the sync of a folder, which file systems do in different ways.

#include <sys/stat.h>

#include <string>

#include "core/base/result.h"

namespace starling {

// Takes the lock (flock) of an open file without waiting; it is held until the file is closed.
// False: another process has it. Errors: kBadInput  this file system has no locks, or the call
// failed; the text names `path`.
Result<bool> lock_file(int fd, const std::string& path);
// The same, from what flock() returned: 0, or its errno. Pure.
Result<bool> lock_of(int error, const std::string& path);

// The kind of a path that people name, before it is opened: opening a pipe would wait for a writer.
// Errors: kBadInput  no such file, or not a regular one; "no such file or not a regular file,
// expected a plan; ..".
Result<> is_file(const std::string& path, const std::string& expected);

// Whether a file of secrets gives other users than `reader` and its owner more than they may have. A
// reader that owns the file needs no group, so the group may do nothing. A reader that does not own it
// reads by the group, as from a Secret that Kubernetes mounts, so the group may read. Pure.
bool is_open_to_others(const struct stat& file, uid_t reader);

// Makes the names in an open folder durable. True also where a file system does not sync folders
// (EINVAL, ENOTSUP): there a name is as durable as it gets. False: errno says why.
bool sync_folder(int fd);
// Whether this errno of fsync() means that the file system does not sync folders. Pure.
bool folders_are_not_synced(int error);

}  // namespace starling
