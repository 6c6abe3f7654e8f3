/* Between a process and its disk: fails, cuts short or dies in a chosen call, and writes down all of them.
 *
 * Preloaded (LD_PRELOAD) into one owner or its workers, never into a program.  LAB_FAULTS names the
 * file with the one rule, mapped and shared, so that a test arms it while everything runs; LAB_TRACE
 * names the file that every change below LAB_ROOT is appended to.  LAB_ROLE says who this process is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* As in faults.py: the order is the numbers. */
enum call { WRITE, SYNC, SYNC_DIR, ALLOCATE, TRUNCATE, CREATE, MKDIR, UNLINK, RENAME, LINK, SYNC_BEGAN };
enum action { OFF, FAIL, SHORT, DIE, DIE_TORN };

struct rule {
    int32_t action, role, calls, error, skip, times, hits, last;
    char path[256];
};

struct entry {
    uint32_t magic;
    uint8_t call, role;
    uint16_t path_length;
    uint32_t thread, more;
    uint64_t offset, length;
};

static struct rule *rule;
static int role;
static const char *root = "", *trace;

__attribute__((constructor)) static void begin(void) {
    const char *faults = getenv("LAB_FAULTS"), *traced = getenv("LAB_TRACE"), *who = getenv("LAB_ROLE");
    role = who ? atoi(who) : 0;
    if (getenv("LAB_ROOT")) root = strdup(getenv("LAB_ROOT"));
    if (faults) {
        int fd = syscall(SYS_openat, AT_FDCWD, faults, O_RDWR | O_CLOEXEC);
        void *map = fd < 0 ? MAP_FAILED : mmap(0, sizeof *rule, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (fd >= 0) syscall(SYS_close, fd);
        if (map != MAP_FAILED) rule = map;
    }
    if (traced) trace = strdup(traced);
}

static int named(int fd, char *into, size_t size) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, into, size - 1);
    into[length < 0 ? 0 : length] = 0;
    return length > 0 && into[0] == '/' && strncmp(into, root, strlen(root)) == 0;
}

/* Is this call the one?  Counts it. */
static enum action strike(enum call call, const char *path) {
    if (!rule || rule->action == OFF || rule->role != role || !(rule->calls & 1 << call)) return OFF;
    if (strncmp(path, root, strlen(root)) || !strstr(path, rule->path)) return OFF;
    if (__atomic_fetch_sub(&rule->skip, 1, __ATOMIC_SEQ_CST) > 0) return OFF;
    if (__atomic_fetch_add(&rule->hits, 1, __ATOMIC_SEQ_CST) >= rule->times && rule->times >= 0) {
        __atomic_sub_fetch(&rule->hits, 1, __ATOMIC_SEQ_CST);
        return OFF;
    }
    rule->last = call;
    return rule->action;
}

static void note(enum call call, const char *path, uint64_t offset, const struct iovec *data, int count,
                 uint64_t length, const char *other) {
    if (!trace || strncmp(path, root, strlen(root))) return;
    size_t more = other ? strlen(other) : 0;
    struct entry head = {0x1ab0, call, role, strlen(path), syscall(SYS_gettid), more, offset, length};
    char *text = malloc(sizeof head + head.path_length + more + (data ? length : 0)), *at = text;
    if (!text) _exit(99);
    at = mempcpy(at, &head, sizeof head);
    at = mempcpy(at, path, head.path_length);
    if (other) at = mempcpy(at, other, more);
    for (uint64_t left = data ? length : 0; left && count--; data++) {
        size_t size = data->iov_len < left ? data->iov_len : left;
        at = mempcpy(at, data->iov_base, size);
        left -= size;
    }
    /* Opened for each: workers and children close whatever descriptors they do not know. */
    int fd = syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || syscall(SYS_write, fd, text, at - text) != at - text) _exit(99);
    syscall(SYS_close, fd);
    free(text);
}

static _Noreturn void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Every way of writing ends here.  ``at`` is -1 for the file's own position. */
static ssize_t put(int fd, const struct iovec *data, int count, off_t at) {
    char path[4096];
    int ours = named(fd, path, sizeof path), saved = errno;
    uint64_t total = 0;
    for (int i = 0; i < count; i++) total += data[i].iov_len;
    enum action action = ours ? strike(WRITE, path) : OFF;
    if (action == DIE) die();
    if (action == FAIL) return errno = rule->error, -1;
    int from = ours && at < 0 && fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR;
    off_t offset = at >= 0 ? at : ours ? lseek(fd, 0, from) : 0;
    struct iovec half = {data[0].iov_base, data[0].iov_len > 1 ? data[0].iov_len / 2 : data[0].iov_len};
    if (action == SHORT || action == DIE_TORN) data = &half, count = 1;
    errno = saved;
    ssize_t done = at >= 0 ? syscall(SYS_pwritev, fd, data, count, at, 0) : syscall(SYS_writev, fd, data, count);
    saved = errno;
    if (ours && done > 0) note(WRITE, path, offset, data, count, done, 0);
    if (action == DIE_TORN) die();
    errno = saved;
    return done;
}

ssize_t write(int fd, const void *data, size_t size) {
    struct iovec one = {(void *)data, size};
    return put(fd, &one, 1, -1);
}
ssize_t writev(int fd, const struct iovec *data, int count) { return put(fd, data, count, -1); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    struct iovec one = {(void *)data, size};
    return put(fd, &one, 1, at);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }
ssize_t pwritev(int fd, const struct iovec *data, int count, off_t at) { return put(fd, data, count, at); }
ssize_t pwritev64(int fd, const struct iovec *data, int count, off64_t at) { return put(fd, data, count, at); }
ssize_t pwritev2(int fd, const struct iovec *data, int count, off_t at, int flags) {
    return flags ? syscall(SYS_pwritev2, fd, data, count, at, 0, flags) : put(fd, data, count, at);
}
ssize_t pwritev64v2(int fd, const struct iovec *data, int count, off64_t at, int flags) {
    return pwritev2(fd, data, count, at, flags);
}

static int synced(int fd, long number) {
    char path[4096];
    struct stat what;
    if (!named(fd, path, sizeof path)) return syscall(number, fd);
    enum call call = fstat(fd, &what) == 0 && S_ISDIR(what.st_mode) ? SYNC_DIR : SYNC;
    enum action action = strike(call, path);
    if (action == DIE || action == DIE_TORN) die();
    if (action == FAIL) return errno = rule->error, -1;
    note(SYNC_BEGAN, path, 0, 0, 0, 0, 0);
    int done = syscall(number, fd);
    if (done == 0) note(call, path, 0, 0, 0, 0, 0);
    return done;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
/* Told as a sync of that directory alone, which is less than it is. */
int syncfs(int fd) { return synced(fd, SYS_syncfs); }

int fallocate64(int fd, int mode, off64_t at, off64_t length) {
    char path[4096];
    enum action action = named(fd, path, sizeof path) ? strike(ALLOCATE, path) : OFF;
    if (action == DIE || action == DIE_TORN) die();
    if (action == FAIL) return errno = rule->error, -1;
    return syscall(SYS_fallocate, fd, mode, at, length);
}
int fallocate(int fd, int mode, off_t at, off_t length) { return fallocate64(fd, mode, at, length); }

int ftruncate64(int fd, off64_t length) {
    char path[4096];
    int ours = named(fd, path, sizeof path);
    enum action action = ours ? strike(TRUNCATE, path) : OFF;
    if (action == DIE || action == DIE_TORN) die();
    if (action == FAIL) return errno = rule->error, -1;
    int done = syscall(SYS_ftruncate, fd, length);
    if (ours && done == 0) note(TRUNCATE, path, length, 0, 0, 0, 0);
    return done;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static int opened(int dir, const char *path, int flags, mode_t mode) {
    int nameless = (flags & O_TMPFILE) == O_TMPFILE;
    int makes = path[0] == '/' && (nameless || (flags & O_CREAT && syscall(SYS_faccessat, AT_FDCWD, path, F_OK)));
    enum action action = makes ? strike(CREATE, path) : OFF;
    if (action == DIE || action == DIE_TORN) die();
    if (action == FAIL) return errno = rule->error, -1;
    int fd = syscall(SYS_openat, dir, path, flags, mode);
    int saved = errno;
    char given[4096]; /* what /proc calls a file without a name, then and ever after */
    if (nameless && fd >= 0) named(fd, given, sizeof given), path = given;
    if (makes && fd >= 0) note(CREATE, path, 0, 0, 0, 0, 0);
    if (fd >= 0 && flags & O_TRUNC && !makes) note(TRUNCATE, path, 0, 0, 0, 0, 0);
    errno = saved;
    return fd;
}
#define MODE(flags) (__extension__({ va_list list; va_start(list, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; va_end(list); mode; }))
int open(const char *path, int flags, ...) { return opened(AT_FDCWD, path, flags, MODE(flags)); }
int open64(const char *path, int flags, ...) { return opened(AT_FDCWD, path, flags, MODE(flags)); }
int openat(int dir, const char *path, int flags, ...) { return opened(dir, path, flags, MODE(flags)); }
int openat64(int dir, const char *path, int flags, ...) { return opened(dir, path, flags, MODE(flags)); }

#define NAMED(call, path, run, ...)                                      \
    enum action action = strike(call, path);                             \
    if (action == DIE || action == DIE_TORN) die();                      \
    if (action == FAIL) return errno = rule->error, -1;                  \
    int done = run;                                                      \
    if (done == 0) note(call, path, 0, 0, 0, 0, __VA_ARGS__);            \
    return done
int mkdir(const char *path, mode_t mode) { NAMED(MKDIR, path, syscall(SYS_mkdirat, AT_FDCWD, path, mode), 0); }
int unlink(const char *path) { NAMED(UNLINK, path, syscall(SYS_unlinkat, AT_FDCWD, path, 0), 0); }
int rmdir(const char *path) { NAMED(UNLINK, path, syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR), 0); }
/* Of a nameless file's descriptor in /proc, which is a link: what that leads to is written down. */
int linkat(int from, const char *old, int to, const char *new, int flags) {
    char given[4096];
    int fd;
    if (sscanf(old, "/proc/self/fd/%d", &fd) == 1 && named(fd, given, sizeof given)) {
        NAMED(LINK, new, syscall(SYS_linkat, from, old, to, new, flags), given);
    }
    return syscall(SYS_linkat, from, old, to, new, flags);
}
int rename(const char *old, const char *new) {
    NAMED(RENAME, old, syscall(SYS_renameat, AT_FDCWD, old, AT_FDCWD, new), new);
}
