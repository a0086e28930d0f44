/* Preloaded by cases: what the system answers differently, each by a variable.
 *   FAULT_FLOCK=1       flock() fails as where a file system has none (Lustre without `flock`, some clusters)
 *   FAULT_NAME=duo      this name has two addresses: ::1, and then 127.0.0.1
 *   FAULT_CLOCK=FILE    the wall clock is an hour ahead while FILE is there; whoever asks then makes FILE.seen */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int flock(int fd, int operation) {
  if (!getenv("FAULT_FLOCK")) return (int)syscall(SYS_flock, fd, operation);
  errno = ENOSYS;
  return -1;
}

typedef int (*Lookup)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  const Lookup real = (Lookup)dlsym(RTLD_NEXT, "getaddrinfo");
  const char *two = getenv("FAULT_NAME");
  if (!two || !name || strcmp(name, two) != 0) return real(name, service, hints, found);
  const int family = hints ? hints->ai_family : AF_UNSPEC;
  struct addrinfo *first = NULL, *second = NULL;
  if (family != AF_INET && real("::1", service, hints, &first) != 0) first = NULL;
  const int answer = family == AF_INET6 ? EAI_NONAME : real("127.0.0.1", service, hints, &second);
  if (!first && answer != 0) return answer;
  *found = first ? first : second;
  if (first && answer == 0) {
    while (first->ai_next) first = first->ai_next;
    first->ai_next = second;
  }
  return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  const int answer = (int)syscall(SYS_clock_gettime, clock, now);
  const char *file = getenv("FAULT_CLOCK");
  if (answer == 0 && file && clock == CLOCK_REALTIME && access(file, F_OK) == 0) {
    char seen[512];
    snprintf(seen, sizeof seen, "%s.seen", file);
    close(open(seen, O_CREAT | O_WRONLY, 0600));
    now->tv_sec += 3600;
  }
  return answer;
}
