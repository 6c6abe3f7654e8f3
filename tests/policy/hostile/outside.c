/* Out by way of others: outside [daemon|alone] VICTIM-PID VICTIM-DESCRIPTOR VICTIM-ADDRESS QUEUE-KEY

   The victim is a process of the same user that nobody confined, and so is the queue's owner.  "alone": of all
   others of this user, which for root are the machine, nobody is touched. */

#include "report.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <termios.h>

static char path[64];
static int alone;

static const char *in_proc(int pid, const char *name)
{
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return path;
}

static long joined(int pid, const char *name)
{
    int fd = open(in_proc(pid, name), O_RDONLY);
    return fd < 0 ? -1 : setns(fd, 0);
}

static void processes(int victim, int descriptor, unsigned long address)
{
    char byte = 1;
    struct iovec here = {&byte, 1}, there = {(void *)address, 1};
    struct rlimit no_core = {0, 0};
    struct sched_param normal = {0};
    int pidfd = syscall(SYS_pidfd_open, victim, 0);
    report("pidfd_getfd", syscall(SYS_pidfd_getfd, pidfd, descriptor, 0));
    report("vm_read", process_vm_readv(victim, &here, 1, &there, 1, 0));
    report("vm_write", process_vm_writev(victim, &here, 1, &there, 1, 0));
    report("memory", open(in_proc(victim, "mem"), O_RDWR));
    report("root", open(in_proc(victim, "root/proc/self/status"), O_RDONLY));
    report("signal", kill(victim, 0));
    report("pidfd_signal", syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0));
    report("limit", prlimit(victim, RLIMIT_CORE, &no_core, NULL));
    report("priority", setpriority(PRIO_PROCESS, victim, 19));
    if (!alone)
        report("priority_of_all", setpriority(PRIO_USER, 0, getpriority(PRIO_PROCESS, 0)));
    report("scheduler", sched_setscheduler(victim, SCHED_BATCH, &normal));
    report("pidfd_setns", setns(pidfd, CLONE_NEWNET));
    report("ptrace", ptrace(PTRACE_SEIZE, victim, 0, 0)); /* last: it goes when we do */
}

static void namespaces(int victim)
{
    report("setns_init", joined(1, "ns/net"));
    report("setns_victim", joined(victim, "ns/net"));
    report("setns_own", joined(getpid(), "ns/net"));
    report("unshare_user", unshare(CLONE_NEWUSER));
    report("unshare_user_net", unshare(CLONE_NEWUSER | CLONE_NEWNET));
    report("unshare_net", unshare(CLONE_NEWNET));
    report("unshare_mount", unshare(CLONE_NEWNS));
    report("mount", syscall(SYS_fsopen, "tmpfs", 0));

    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    report("clone_user", pid);
    struct clone_args arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0)
        _exit(0);
    report("clone3_user", pid);
}

static long rewritten(const char *name)
{
    char value[256];
    int fd = open(name, O_RDWR);
    long length = fd < 0 ? -1 : read(fd, value, sizeof value);
    return length < 0 ? -1 : pwrite(fd, value, length, 0); /* what it was: nobody is harmed */
}

static void settings(void)
{
    report("core_pattern", rewritten("/proc/sys/kernel/core_pattern"));
    report("modprobe", rewritten("/proc/sys/kernel/modprobe"));
    report("sysrq", open("/proc/sysrq-trigger", O_WRONLY));
    report("sysfs", open("/sys/kernel/mm/transparent_hugepage/enabled", O_WRONLY));
}

static void itself(void)
{
    report("typing", ioctl(0, TIOCSTI, "x"));
    report("typing_high_bits", syscall(SYS_ioctl, 0, 0xF00000000ul + TIOCSTI, "x"));
    report("new_privileges", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    report("unfiltered", prctl(PR_SET_SECCOMP, 0, 0, 0, 0));
    report("capability", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0));
    report("become_root", getuid() == 0 ? setuid(1) : setuid(0));
    report("newer_call", syscall(0x1fffff));
    /* These must go on to work. */
    struct rlimit no_core = {0, 0};
    report("own_priority", setpriority(PRIO_PROCESS, 0, 19));
    report("own_limit", setrlimit(RLIMIT_CORE, &no_core));
    pid_t child = fork();
    if (child == 0)
        pause();
    report("own_child", kill(child, SIGKILL));
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "daemon") == 0) {
        char *again[] = {argv[0], argv[2], argv[3], argv[4], argv[5], NULL};
        start_over(again);
    }
    if (argc == 6 && strcmp(argv[1], "alone") == 0) {
        alone = 1;
        argv++, argc--;
    }
    if (argc != 5)
        return 2;
    processes(atoi(argv[1]), atoi(argv[2]), strtoul(argv[3], NULL, 0));
    namespaces(atoi(argv[1]));
    settings();
    report("queue", msgget(atoi(argv[4]), 0));
    itself();
    return 0;
}
