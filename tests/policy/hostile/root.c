/* What uid 0 may do only by its capabilities. */
#include "report.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <linux/securebits.h>

int main(void)
{
    struct timeval past = {1, 0};
    report("setuid", setuid(65534));
    report("chroot", chroot("/usr"));
    report("mount", mount("none", "/proc/self/task", "tmpfs", 0, NULL));
    report("mount_namespace", unshare(CLONE_NEWNS));
    report("user_namespace", unshare(CLONE_NEWUSER));
    report("clock", settimeofday(&past, NULL));
    report("nice", nice(-5) == -1 ? -1 : 0);
    report("securebits", prctl(PR_SET_SECUREBITS, 0));
    report("ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 0, 0, 0));
    return 0;
}
