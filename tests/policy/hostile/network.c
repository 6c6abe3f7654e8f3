/* Every way to a host's sockets: network [daemon] TCP4 TCP6 UDP4 STREAM-PATH DATAGRAM-PATH ABSTRACT-NAME */

#include "report.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

static struct sockaddr_in ipv4(const char *port)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return there;
}

static struct sockaddr_in6 ipv6(const char *port)
{
    struct sockaddr_in6 there = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(port))};
    there.sin6_addr = in6addr_loopback;
    return there;
}

static socklen_t by_path(struct sockaddr_un *there, const char *path)
{
    there->sun_family = AF_UNIX;
    strncpy(there->sun_path, path, sizeof there->sun_path - 1);
    return sizeof *there;
}

static socklen_t by_name(struct sockaddr_un *there, const char *name)
{
    there->sun_family = AF_UNIX;
    there->sun_path[0] = 0;
    memcpy(there->sun_path + 1, name, strlen(name));
    return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
}

static long connected(int family, int type, void *there, socklen_t length)
{
    int fd = socket(family, type, 0);
    if (fd < 0 || connect(fd, there, length) < 0)
        return -1;
    return write(fd, "hostile", 7);
}

static long sent(int fd, void *there, socklen_t length)
{
    return fd < 0 ? -1 : sendto(fd, "hostile", 7, 0, there, length);
}

static int half_of_a_pair(int type)
{
    int pair[2];
    return socketpair(AF_UNIX, type, 0, pair) < 0 ? -1 : pair[0];
}

static long reconnected(int fd, void *there, socklen_t length)
{
    if (fd < 0 || connect(fd, there, length) < 0)
        return -1;
    return write(fd, "hostile", 7);
}

static long ping(int type)
{
    struct sockaddr_in there = ipv4("0");
    struct icmphdr echo = {.type = ICMP_ECHO};
    int fd = socket(AF_INET, type, IPPROTO_ICMP);
    return fd < 0 ? -1 : sendto(fd, &echo, sizeof echo, 0, (void *)&there, sizeof there);
}

static long loopback_up_by_ioctl(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &lo);
}

static long loopback_up_by_netlink(void)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } ask = {{sizeof ask, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0}, {.ifi_index = 1}};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[512];
    } answer;
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    ask.link.ifi_flags = ask.link.ifi_change = IFF_UP;
    if (fd < 0 || send(fd, &ask, sizeof ask, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0)
        return -1;
    errno = -answer.error.error;
    return answer.error.error;
}

static void families(void)
{
    static const struct {
        const char *name;
        int family, type, protocol;
    } all[] = {
        {"raw4", AF_INET, SOCK_RAW, IPPROTO_RAW},
        {"raw6", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6},
        {"packet", AF_PACKET, SOCK_RAW, 0},
        {"vsock", AF_VSOCK, SOCK_STREAM, 0},
        {"alg", AF_ALG, SOCK_SEQPACKET, 0},
        {"xdp", 44, SOCK_RAW, 0},
        {"bluetooth", 31, SOCK_RAW, 1},
        {"tipc", 30, SOCK_RDM, 0},
        {"smc", 43, SOCK_STREAM, 0},
        {"qipcrtr", 42, SOCK_DGRAM, 0},
        {"kcm", 41, SOCK_SEQPACKET, 0},
        {"key", AF_KEY, SOCK_RAW, 2},
        {"netlink_uevent", AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT},
        {"netlink_diag", AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG},
        {"netlink_generic", AF_NETLINK, SOCK_RAW, NETLINK_GENERIC},
        {"netlink_connector", AF_NETLINK, SOCK_DGRAM, NETLINK_CONNECTOR},
        {"netlink_audit", AF_NETLINK, SOCK_RAW, NETLINK_AUDIT},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        report(all[i].name, socket(all[i].family, all[i].type, all[i].protocol));
}

static int is_socket(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode);
}

/* Numbers of other architectures that this processor serves as well.  A filter for one never sees them. */
static void foreign(const char *port)
{
#ifdef __x86_64__
    struct sockaddr_in there = ipv4(port);
    struct sockaddr_in *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    long fd, done;
    *low = there;
    __asm__ volatile("int $0x80" : "=a"(fd) : "a"(359), "b"(AF_INET), "c"(SOCK_STREAM), "d"(0) : "memory");
    done = fd;
    if (is_socket(fd))
        __asm__ volatile("int $0x80" : "=a"(done) : "a"(362), "b"(fd), "c"(low), "d"(sizeof there) : "memory");
    if (done >= 0 && !is_socket(fd))
        done = -ENOTSOCK;
    errno = (int)-done;
    report("i386_socket", done);

    uint32_t *arguments = (uint32_t *)(low + 1);
    arguments[0] = AF_UNIX, arguments[1] = SOCK_STREAM, arguments[2] = 0;
    __asm__ volatile("int $0x80" : "=a"(fd) : "a"(102), "b"(1), "c"(arguments) : "memory");
    if (fd >= 0 && !is_socket(fd)) /* to user-mode Linux it is just another call */
        fd = -ENOTSOCK;
    errno = (int)-fd;
    report("i386_socketcall", fd);

    report("x32_socket", syscall(0x40000000 + SYS_socket, AF_INET, SOCK_STREAM, 0));
#endif
    /* The kernel looks at the low half of the family alone. */
    report("socket_high_bits", syscall(SYS_socket, 0xF00000000ul + AF_UNIX, SOCK_STREAM, 0));
}

static void inherited(void)
{
    long found = 0;
    for (int fd = 3; fd < 4096; fd++)
        found += fcntl(fd, F_GETFD) >= 0;
    errno = EBADF;
    report("inherited", found ? 0 : -1);
}

int main(int argc, char **argv)
{
    if (argc == 8 && strcmp(argv[1], "daemon") == 0) {
        char *again[] = {argv[0], argv[2], argv[3], argv[4], argv[5], argv[6], argv[7], NULL};
        start_over(again);
    }
    if (argc != 7)
        return 2;
    inherited();
    struct sockaddr_in tcp4 = ipv4(argv[1]), udp4 = ipv4(argv[3]);
    struct sockaddr_in6 tcp6 = ipv6(argv[2]);
    struct sockaddr_un stream = {0}, datagram = {0}, abstract = {0};
    socklen_t length = by_path(&stream, argv[4]);
    by_path(&datagram, argv[5]);
    socklen_t short_length = by_name(&abstract, argv[6]);

    report("tcp4", connected(AF_INET, SOCK_STREAM, &tcp4, sizeof tcp4));
    report("tcp6", connected(AF_INET6, SOCK_STREAM, &tcp6, sizeof tcp6));
    report("udp4", sent(socket(AF_INET, SOCK_DGRAM, 0), &udp4, sizeof udp4));
    report("ping", ping(SOCK_DGRAM));
    report("ping_raw", ping(SOCK_RAW));
    report("unix_stream", connected(AF_UNIX, SOCK_STREAM, &stream, length));
    report("unix_datagram", sent(socket(AF_UNIX, SOCK_DGRAM, 0), &datagram, length));
    report("unix_abstract", connected(AF_UNIX, SOCK_STREAM, &abstract, short_length));
    report("pair_stream", reconnected(half_of_a_pair(SOCK_STREAM), &stream, length));
    report("pair_seqpacket", reconnected(half_of_a_pair(SOCK_SEQPACKET), &stream, length));
    report("pair_datagram_sent", sent(half_of_a_pair(SOCK_DGRAM), &datagram, length));
    report("pair_datagram", reconnected(half_of_a_pair(SOCK_DGRAM), &datagram, length));
    report("pair_raw", sent(half_of_a_pair(SOCK_RAW), &datagram, length));
    report("lo_ioctl", loopback_up_by_ioctl());
    report("lo_netlink", loopback_up_by_netlink());
    families();
    foreign(argv[1]);
    report("request_key", syscall(SYS_request_key, "user", "hostile:none", NULL, 0));
    report("pair", half_of_a_pair(SOCK_STREAM)); /* this one must go on to work */
    return 0;
}
