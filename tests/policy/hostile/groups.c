/* Leave the group, or widen it: groups DIRECTORY... are places of groups, and the run's own. */

#include "report.h"

#include <linux/sched.h>
#include <signal.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void put(const char *directory, const char *name, const char *value)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_WRONLY);
    if (fd < 0 && errno == ENOENT)
        return;
    report(path, fd < 0 ? -1 : write(fd, value, strlen(value)));
}

/* Needs no more than a descriptor of the directory. */
static void born_elsewhere(const char *directory)
{
    struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};
    args.cgroup = open(directory, O_PATH | O_DIRECTORY);
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        _exit(0);
    report("clone3", pid);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        report("remount", mount(NULL, argv[i], NULL, MS_REMOUNT | MS_BIND, NULL));
        report("umount", umount2(argv[i], MNT_DETACH));
        report("chmod", chmod(argv[i], 0777));
        put(argv[i], "cgroup.procs", "0");
        put(argv[i], "tasks", "0");
        put(argv[i], "cgroup.threads", "0");
        put(argv[i], "memory.limit_in_bytes", "-1");
        put(argv[i], "memory.max", "max");
        put(argv[i], "memory.oom_control", "1");
        put(argv[i], "pids.max", "max");
        put(argv[i], "cpu.cfs_quota_us", "-1");
        put(argv[i], "cpu.max", "max");
        put(argv[i], "cgroup.freeze", "0");
        born_elsewhere(argv[i]);
    }
    report("mount", mount("none", "/tmp", "cgroup2", 0, NULL));
    report("unshare", unshare(CLONE_NEWUSER | CLONE_NEWNS));
    FILE *membership = fopen("/proc/self/cgroup", "r");
    char line[4096];
    while (membership && fgets(line, sizeof line, membership))
        printf("in %s", line);
    return 0;
}
