/* A disk that is full, fails or is slow, for the files below one folder, and a clock that jumps: a library for
 * LD_PRELOAD.
 *
 * LD_FAULTY_FOLDER is the folder. LD_FAULTY_CONTROL is a file of three 32-bit integers, which another process may change
 * at any time: what the disk does (0 nothing, 1 full, 2 failing, 3 slow), for how many milliseconds a slow call waits,
 * and by how many seconds the clock is wrong. A full disk takes the first half of every second write, as a real one does
 * that has a little room left. Reading always works. Writes through mapped memory are not seen. Files keep their true
 * times, and timers run on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SOUND, FULL, FAILING, SLOW };
static const volatile int32_t *control;
static const char *folder;
static atomic_uint n_writes;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("LD_FAULTY_CONTROL");
    folder = getenv("LD_FAULTY_FOLDER");
    int handle = file && folder ? REAL(open)(file, O_RDONLY | O_CLOEXEC) : -1;
    if (handle < 0) return;
    void *found = mmap(NULL, 12, PROT_READ, MAP_SHARED, handle, 0);
    if (found != MAP_FAILED) control = found;
    close(handle);
}

/* What the disk does to a path, waited for if it is slow. */
static int state_at(const char *path) {
    int state = control ? control[0] : SOUND;
    if (state == SOUND || strncmp(path, folder, strlen(folder)) != 0) return SOUND;
    if (state == SLOW) {
        struct timespec pause = {control[1] / 1000, control[1] % 1000 * 1000000L};
        nanosleep(&pause, NULL);
    }
    return state;
}

static int state_of(int handle) {
    char link[64], path[4096];
    if (!control || control[0] == SOUND) return SOUND;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return SOUND;
    path[n] = 0;
    return state_at(path);
}

static int state_in(int directory, const char *path) {
    char whole[8192], link[64];
    if (!control || control[0] == SOUND) return SOUND;
    if (path[0] == '/') return state_at(path);
    snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
    ssize_t n = readlink(link, whole, 4096);
    if (n < 0) return SOUND;
    snprintf(whole + n, sizeof whole - n, "/%s", path);
    return state_at(whole);
}

static int fails(int state) {
    if (state != FULL && state != FAILING) return 0;
    errno = state == FULL ? ENOSPC : EIO;
    return 1;
}

/* How much of a write of `size` bytes goes through: all, half, or none (-1). */
static ssize_t room(int handle, size_t size) {
    int state = state_of(handle);
    if (state == FULL && size > 1 && atomic_fetch_add(&n_writes, 1) % 2) return size / 2;
    return fails(state) ? -1 : (ssize_t)size;
}

ssize_t write(int handle, const void *data, size_t size) {
    ssize_t n = room(handle, size);
    return n < 0 ? -1 : REAL(write)(handle, data, n);
}

#define PWRITE(name, offset_type)                                                                                      \
    ssize_t name(int handle, const void *data, size_t size, offset_type at) {                                          \
        ssize_t n = room(handle, size);                                                                                \
        return n < 0 ? -1 : REAL(name)(handle, data, n, at);                                                           \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int handle, const struct iovec *parts, int n_parts) {
    size_t size = 0;
    for (int i = 0; i < n_parts; i++) size += parts[i].iov_len;
    ssize_t n = room(handle, size);
    if (n < 0) return -1;
    if ((size_t)n == size) return REAL(writev)(handle, parts, n_parts);
    for (int i = 0; i < n_parts; i++)
        if (parts[i].iov_len > 1) return REAL(write)(handle, parts[i].iov_base, parts[i].iov_len / 2);
    errno = ENOSPC;
    return -1;
}

/* A failed flush is no promise about what was written before it. */
int fsync(int handle) { return state_of(handle) == FAILING ? fails(FAILING), -1 : REAL(fsync)(handle); }
int fdatasync(int handle) { return state_of(handle) == FAILING ? fails(FAILING), -1 : REAL(fdatasync)(handle); }

static int grows(int handle, off64_t size) {
    struct stat found;
    return fstat(handle, &found) == 0 && size > found.st_size;
}

int ftruncate(int handle, off_t size) {
    int state = state_of(handle);
    return (state == FAILING || grows(handle, size)) && fails(state) ? -1 : REAL(ftruncate)(handle, size);
}

int ftruncate64(int handle, off64_t size) {
    int state = state_of(handle);
    return (state == FAILING || grows(handle, size)) && fails(state) ? -1 : REAL(ftruncate64)(handle, size);
}

int posix_fallocate(int handle, off_t at, off_t size) {
    return fails(state_of(handle)) ? errno : REAL(posix_fallocate)(handle, at, size);
}

int posix_fallocate64(int handle, off64_t at, off64_t size) {
    return fails(state_of(handle)) ? errno : REAL(posix_fallocate64)(handle, at, size);
}

/* Only a new file needs room. */
static int refuses(int directory, const char *path, int flags) {
    if (!(flags & O_CREAT) || faccessat(directory, path, F_OK, 0) == 0) return 0;
    return fails(state_in(directory, path));
}

#define MODE(flags)                                                                                                    \
    mode_t mode = 0;                                                                                                   \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                                               \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
    }

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        MODE(flags)                                                                                                    \
        return refuses(AT_FDCWD, path, flags) ? -1 : REAL(name)(path, flags, mode);                                    \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                   \
    int name(int directory, const char *path, int flags, ...) {                                                        \
        MODE(flags)                                                                                                    \
        return refuses(directory, path, flags) ? -1 : REAL(name)(directory, path, flags, mode);                        \
    }
OPENAT(openat)
OPENAT(openat64)

int rename(const char *from, const char *to) {
    return fails(state_in(AT_FDCWD, to)) ? -1 : REAL(rename)(from, to);
}

int mkdir(const char *path, mode_t mode) { return fails(state_in(AT_FDCWD, path)) ? -1 : REAL(mkdir)(path, mode); }

static int32_t jump(void) { return control ? control[2] : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static __typeof__(&clock_gettime) real;
    if (!real) real = REAL(clock_gettime);
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int failed = real(now, zone);
    if (!failed) now->tv_sec += jump();
    return failed;
}

time_t time(time_t *place) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}
