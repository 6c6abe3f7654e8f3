/* Sockets by io_uring, whose work no filter of system calls sees: uring [daemon] TCP4 */

#include "report.h"

#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { OP_SOCKET = 45 }; /* Linux 5.19, newer than some headers */

static struct io_uring_params parameters;
static int ring;
static char *submissions, *completions;
static struct io_uring_sqe *entries;

static int set_up(void)
{
    ring = syscall(SYS_io_uring_setup, 4, &parameters);
    if (ring < 0)
        return -1;
    int mode = PROT_READ | PROT_WRITE;
    submissions = mmap(NULL, 4096, mode, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    completions = mmap(NULL, 4096, mode, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    entries = mmap(NULL, 4096, mode, MAP_SHARED, ring, IORING_OFF_SQES);
    return 0;
}

static unsigned *word(char *base, unsigned offset)
{
    return (unsigned *)(base + offset);
}

/* Submit one operation and wait for its result. */
static long submitted(struct io_uring_sqe entry)
{
    unsigned *tail = word(submissions, parameters.sq_off.tail);
    unsigned slot = *tail & *word(submissions, parameters.sq_off.ring_mask);
    entries[slot] = entry;
    word(submissions, parameters.sq_off.array)[slot] = slot;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        return -1;
    unsigned *head = word(completions, parameters.cq_off.head);
    struct io_uring_cqe *all = (void *)(completions + parameters.cq_off.cqes);
    long result = all[*head & *word(completions, parameters.cq_off.ring_mask)].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    errno = result < 0 ? -result : 0;
    return result < 0 ? -1 : result;
}

static long connected(int fd, const char *port)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct io_uring_sqe entry = {.opcode = IORING_OP_CONNECT, .fd = fd, .off = sizeof there};
    entry.addr = (uintptr_t)&there;
    return submitted(entry);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "daemon") == 0) {
        char *again[] = {argv[0], argv[2], NULL};
        start_over(again);
    }
    if (argc != 2)
        return 2;
    report("setup", set_up());
    if (ring < 0) {
        report("enter", syscall(SYS_io_uring_enter, 0, 0, 0, 0, NULL, 0));
        report("register", syscall(SYS_io_uring_register, -1, 17, NULL, 1)); /* needs no ring */
        return 0;
    }
    struct io_uring_sqe tcp = {.opcode = OP_SOCKET, .fd = AF_INET, .off = SOCK_STREAM};
    struct io_uring_sqe local = {.opcode = OP_SOCKET, .fd = AF_UNIX, .off = SOCK_STREAM};
    report("socket_unix", submitted(local));
    long fd = submitted(tcp);
    report("socket", fd);
    report("connect", fd < 0 ? -1 : connected(fd, argv[1]));
    return 0;
}
