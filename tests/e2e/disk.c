/* Preloaded by disks_test.py: disks that hang or are full, whenever it says so.
 * In the folder DISK_FAULTS: `hang` makes syncs of raft.log wait until it is gone, `full` makes them fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int there(const char *fault) {
  char path[512];
  const char *folder = getenv("DISK_FAULTS");
  if (!folder) return 0;
  snprintf(path, sizeof path, "%s/%s", folder, fault);
  return access(path, F_OK) == 0;
}

int fdatasync(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  char link[64], path[512];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  path[n < 0 ? 0 : n] = 0;
  if (strstr(path, "raft.log")) {
    while (there("hang")) usleep(10000);
    if (there("full")) {
      errno = ENOSPC;
      return -1;
    }
  }
  return real(fd);
}
