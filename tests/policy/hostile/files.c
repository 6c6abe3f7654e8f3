/* Tries to get around grants.  files READ WRITE OUTSIDE: three directories, of which the first may be read,
 * the second, where it stands, written, and the third is none of its business.
 * All of it from a daemon, which left session and parent behind. */
#include "report.h"

#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/xattr.h>

/* Texts that are only needed for a moment. */
static const char *text(const char *format, ...) {
  static char pool[1024][512];
  static int used;
  char *made = pool[used++ % 1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(made, sizeof pool[0], format, arguments);
  va_end(arguments);
  return made;
}

static const char *at(const char *folder, const char *name) { return text("%s/%s", folder, name); }

static int opens(const char *path, int flags) {
  int fd = open(path, flags, 0600);
  if (fd < 0) return -1;
  return close(fd);
}

static int lists(const char *path) {
  char buffer[1024];
  int fd = open(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return -1;
  int got = syscall(SYS_getdents64, fd, buffer, sizeof buffer);
  close(fd);
  return got < 0 ? -1 : 0;
}

static int executes(const char *path) {
  int report[2], failed = 0;
  if (pipe2(report, O_CLOEXEC)) return -1;
  if (fork() == 0) {
    execl(path, path, "-c", "exit 0", NULL);
    failed = errno;
    if (write(report[1], &failed, sizeof failed) < 0) _exit(2);
    _exit(1);
  }
  close(report[1]);
  int got = read(report[0], &failed, sizeof failed);
  close(report[0]);
  wait(NULL);
  if (got <= 0) return 0;
  errno = failed;
  return -1;
}

static int beneath(const char *folder, const char *name) {
  int at_folder = open(folder, O_PATH);
  int fd = openat(at_folder, name, O_RDONLY);
  int kept = errno;
  close(at_folder);
  errno = kept;
  return fd < 0 ? -1 : close(fd);
}

static int through_link(const char *link, const char *target) {
  unlink(link);
  if (symlink(target, link)) return -1;
  return opens(link, O_RDONLY);
}

/* A link that turns between a file that may be read and one that may not, faster than anybody can look. */
static int races(const char *folder, const char *own, const char *target) {
  const char *one = at(folder, "race"), *other = at(folder, "turn");
  char byte;
  int got = -1;
  if (symlink(own, one) || symlink(target, other)) return -1;
  pid_t turner = fork();
  if (turner == 0)
    for (;;) renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE);
  for (int tries = 0; tries < 5000 && got < 0; tries++) {
    int fd = open(one, O_RDONLY);
    if (fd >= 0 && read(fd, &byte, 1) == 1) got = 0; /* the one of its own is empty */
    if (fd >= 0) close(fd);
  }
  kill(turner, SIGKILL);
  waitpid(turner, NULL, 0);
  errno = EACCES;
  return got;
}

static int reopens(const char *path) { /* what is opened for nothing is opened again through /proc */
  int fd = open(path, O_PATH);
  if (fd < 0) return -1;
  return opens(text("/proc/self/fd/%d", fd), O_RDONLY);
}

static int connects(const char *path) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  strncpy(to.sun_path, path, sizeof to.sun_path - 1);
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof to);
}

static int pair_connects(const char *path) { /* a pair of datagram sockets, turned to another peer */
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  strncpy(to.sun_path, path, sizeof to.sun_path - 1);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) return -1;
  return connect(pair[0], (struct sockaddr *)&to, sizeof to);
}

static int by_handle(const char *path) {
  struct { struct file_handle handle; unsigned char bytes[128]; } held = {.handle.handle_bytes = 128};
  int mount_id;
  if (name_to_handle_at(AT_FDCWD, path, &held.handle, &mount_id, 0)) return -1;
  int somewhere = open("/usr", O_RDONLY);
  return open_by_handle_at(somewhere, &held.handle, O_RDONLY);
}

static int flags(const char *path) {
  int fd = open(path, O_RDONLY), same = 0;
  return fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &same) ? -1 : ioctl(fd, FS_IOC_SETFLAGS, &same);
}

static int memory_program(const char *secret) { /* code from nowhere is held like any other */
  int source = open("/bin/cat", O_RDONLY), image = memfd_create("cat", 0);
  char buffer[65536];
  for (ssize_t got; (got = read(source, buffer, sizeof buffer)) > 0;)
    if (write(image, buffer, got) != got) return -1;
  pid_t child = fork();
  if (child == 0) {
    int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, 1);
    dup2(nothing, 2);
    syscall(SYS_execveat, image, "", (char *[]){"cat", (char *)secret, NULL}, environ, AT_EMPTY_PATH);
    _exit(1);
  }
  int status;
  waitpid(child, &status, 0);
  errno = EACCES;
  return status == 0 ? 0 : -1;
}

/* Make good what an attempt that succeeded has done. */
static void restore(const char *folder, const char *writable) {
  const char *leftovers[] = {at(folder, "new"), at(writable, "taken"), at(writable, "linked")};
  for (int i = 0; i < 3; i++)
    if (unlink(leftovers[i])) rmdir(leftovers[i]);
  mkdir(at(folder, "empty"), 0700);
  int fd = open(at(folder, "file"), O_CREAT | O_WRONLY, 0600);
  if (fd >= 0 && lseek(fd, 0, SEEK_END) == 0 && write(fd, "secret\n", 7) < 0) perror("restore");
  if (fd >= 0) close(fd);
  opens(at(writable, "own"), O_CREAT | O_WRONLY);
}

#define TRY(name, attempt) (restore(folder, writable), report(name, attempt))
#define NAMED(what) text("%s_%s", which, what)

static void on_folder(const char *which, const char *folder, const char *writable) {
  const char *own = at(writable, "own");
  const char *file = at(folder, "file"), *new = at(folder, "new");
  struct timeval times[2] = {{1, 0}, {1, 0}};
  TRY(NAMED("write"), opens(file, O_WRONLY));
  TRY(NAMED("append"), opens(file, O_WRONLY | O_APPEND));
  TRY(NAMED("open_truncate"), opens(file, O_RDONLY | O_TRUNC));
  TRY(NAMED("truncate"), truncate(file, 0));
  TRY(NAMED("create"), opens(new, O_WRONLY | O_CREAT));
  TRY(NAMED("creat"), opens(file, O_CREAT | O_WRONLY | O_TRUNC));
  TRY(NAMED("tmpfile"), opens(folder, O_TMPFILE | O_RDWR));
  TRY(NAMED("mkdir"), mkdir(new, 0700));
  TRY(NAMED("fifo"), mkfifo(new, 0600));
  TRY(NAMED("socket_file"), mknod(new, S_IFSOCK | 0600, 0));
  TRY(NAMED("symlink"), symlink("/", new));
  TRY(NAMED("unlink"), unlink(file));
  TRY(NAMED("rmdir"), rmdir(at(folder, "empty")));
  TRY(NAMED("rename"), rename(file, new));
  TRY(NAMED("move_in"), rename(own, new));
  TRY(NAMED("link_in"), link(own, new));
  TRY(NAMED("exchange"), renameat2(AT_FDCWD, own, AT_FDCWD, file, RENAME_EXCHANGE));
  TRY(NAMED("chmod"), chmod(file, 0777));
  TRY(NAMED("chown"), chown(file, geteuid(), getegid()));
  TRY(NAMED("utimes"), utimes(file, times));
  TRY(NAMED("setxattr"), setxattr(file, "user.mark", "x", 1, 0));
  TRY(NAMED("setflags"), flags(file));
  TRY(NAMED("execute"), executes(at(folder, "program")));
}

static void outside(const char *folder, const char *writable) {
  const char *file = at(folder, "file");
  TRY("outside_read", opens(file, O_RDONLY));
  TRY("outside_list", lists(folder));
  TRY("outside_dotdot", beneath(writable, "../outside/file"));
  TRY("outside_through_link", through_link(at(writable, "link"), file));
  TRY("outside_race", races(writable, at(writable, "own"), file));
  TRY("outside_move_out", rename(file, at(writable, "taken")));
  TRY("outside_link_out", link(file, at(writable, "linked")));
  TRY("outside_handle", by_handle(file));
  TRY("outside_proc_root", opens(at("/proc/self/root", file), O_RDONLY));
  TRY("outside_reopen", reopens(file));
  TRY("outside_connect", connects(at(folder, "socket")));
  TRY("outside_pair_connect", pair_connects(at(folder, "socket")));
  TRY("outside_memory_program", memory_program(file));
}

static void machine(void) {
  report("etc_shadow", opens("/etc/shadow", O_RDONLY));
  report("tmp_list", lists("/tmp"));
  report("tmp_create", opens("/tmp/durable-supervisor-hostile", O_CREAT | O_WRONLY));
  report("shm_create", opens("/dev/shm/durable-supervisor-hostile", O_CREAT | O_WRONLY));
  report("proc_mem", opens("/proc/self/mem", O_RDWR));
  report("proc_oom", opens("/proc/self/oom_score_adj", O_WRONLY));
  report("proc_environ", opens(text("/proc/%d/environ", getppid()), O_RDONLY));
  report("core_pattern", opens("/proc/sys/kernel/core_pattern", O_WRONLY));
  report("sysfs_write", opens("/sys/power/state", O_WRONLY));
  report("disk_read", opens("/dev/vda", O_RDONLY));
  report("char_device", mknod("device", S_IFCHR | 0600, 0x101));
  report("block_device", mknod("device", S_IFBLK | 0600, 0xfd00));
  report("mount", mount("none", ".", "tmpfs", 0, NULL));
  report("umount", umount2(".", MNT_DETACH));
  report("user_namespace", unshare(CLONE_NEWUSER));
  report("mount_namespace", unshare(CLONE_NEWNS));
  report("chroot", chroot("."));
}

static void allowed(const char *readable, const char *writable) {
  const char *new = at(writable, "made"), *other = at(writable, "renamed");
  struct timeval times[2] = {{1, 0}, {1, 0}};
  report("may_read", opens(at(readable, "file"), O_RDONLY));
  report("may_list", lists(readable));
  report("may_create", opens(new, O_CREAT | O_RDWR | O_TRUNC));
  report("may_chmod", chmod(new, 0640));
  report("may_utimes", utimes(new, times));
  report("may_truncate", truncate(new, 10));
  report("may_rename", rename(new, other));
  report("may_mkdir", mkdir(new, 0700));
  report("may_move", rename(other, at(new, "beneath")));
  report("may_fifo", mkfifo(other, 0600));
  report("may_unlink", unlink(other));
  report("may_null", opens("/dev/null", O_WRONLY | O_CREAT | O_TRUNC));
  report("may_random", opens("/dev/urandom", O_RDONLY));
  report("may_execute", executes("/bin/sh"));
  report("may_relative", opens("relative", O_CREAT | O_WRONLY));
}

int main(int count, char **argv) {
  if (count < 4) return 2;
  int open_ends[2];
  if (pipe(open_ends)) return 2;
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    on_folder("granted", argv[1], argv[2]);
    on_folder("outside", argv[3], argv[2]);
    outside(argv[3], argv[2]);
    if (count == 4) machine(); /* without a policy some of it would succeed */
    allowed(argv[1], argv[2]);
    _exit(0);
  }
  close(open_ends[1]);
  char byte;
  return read(open_ends[0], &byte, 1) == 0 ? 0 : 2;
}
