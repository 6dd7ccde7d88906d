/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel's UDP alone takes for a ping-pong: the yardstick for small messages over the wire. Two
 * processes send a datagram to and fro over connected sockets; both spin on a receive that does not wait.
 * Prints half of the median round trip, as perftest's "typical" latency is, with the least and the 99th
 * percentile behind it, in microseconds.
 *
 * -w: the same through sockets as RoCEv2 needs them, which is what is left of a latency over the wire if the
 * library costs nothing. They share a port, are not connected (the kernel numbers what connected ones send,
 * and the number is in the ICRC), are told where a datagram was sent to and how, and an ACK goes behind each
 * message in one call: joined with it, or alone (by a network that cuts and a kernel that does not join), in
 * which case it is passed over. IPv4; the client receives on the port behind the server's.
 *
 * usage: udp_pingpong [-w] [-s BYTES] [-n ROUNDS] [-p PORT] [SERVER_ADDRESS] (without an address: the server,
 * of one client)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_BYTES = 65000,
	NS_PER_S = 1000000000,
	GIVE_UP_S = 5,
	TRIES = 50,
	TRY_US = 100000,
	HEADER_BYTES = 16, /* of a SEND: BTH and ICRC; */
	ACK_BYTES = 20,    /* of an ACK: with an AETH; */
	ACK = 0x11,        /* its first byte; */
	MESSAGE = 0,       /* that of what is counted, */
	HELLO = 0x22,      /* and of what finds the server, and of its answer */
};

static struct {
	size_t bytes;
	unsigned rounds;
	uint16_t port;
	const char *server;
	bool as_wire;
} options = { .bytes = 8, .rounds = 20000, .port = 4790 };

static char buffer[MAX_BYTES + HEADER_BYTES + ACK_BYTES];

__attribute__((noreturn)) static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static socklen_t address_of(const char *text, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(options.port);
		return sizeof(*v4);
	}
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1) {
		fprintf(stderr, "%s is no address\n", text);
		exit(2);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(options.port);
	return sizeof(*v6);
}

/* ---- as RoCEv2 needs it ---- */

static int sender = -1;
static struct sockaddr_in peer_port;

static void set(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)))
		die("setsockopt");
}

/* Returns the receiving socket, on a port; what is sent goes to another, from a socket of its own. */
static int open_as_wire(uint16_t port, const struct sockaddr_in *to)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	sender = socket(AF_INET, SOCK_DGRAM, 0);
	peer_port = *to;
	set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	set(fd, IPPROTO_IP, IP_PKTINFO, 1);
	set(fd, IPPROTO_IP, IP_RECVTOS, 1);
	set(fd, IPPROTO_IP, IP_RECVTTL, 1);
	set(fd, IPPROTO_UDP, UDP_GRO, 1);
	set(sender, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	if (bind(fd, (struct sockaddr *)&any, sizeof(any)))
		die("bind");
	return fd;
}

static ssize_t receive_as_wire(int fd)
{
	static char control[256];
	struct sockaddr_in from;
	struct iovec piece = { buffer, sizeof(buffer) };
	struct msghdr m = { .msg_name = &from,
			    .msg_namelen = sizeof(from),
			    .msg_iov = &piece,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n;
	do
		n = recvmsg(fd, &m, MSG_DONTWAIT);
	while (n == ACK_BYTES && buffer[0] == ACK);
	return n;
}

static ssize_t send_as_wire(void)
{
	union {
		char bytes[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr align;
	} control = { .align = { .cmsg_level = IPPROTO_UDP,
				 .cmsg_type = UDP_SEGMENT,
				 .cmsg_len = CMSG_LEN(sizeof(uint16_t)) } };
	uint16_t packet = (uint16_t)(options.bytes + HEADER_BYTES);
	struct iovec piece = { buffer, packet + ACK_BYTES };
	struct msghdr m = { .msg_name = &peer_port,
			    .msg_namelen = sizeof(peer_port),
			    .msg_iov = &piece,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = sizeof(control.bytes) };
	memcpy(CMSG_DATA(&control.align), &packet, sizeof(packet));
	buffer[packet] = ACK;
	return sendmsg(sender, &m, 0);
}

/* ---- both ---- */

static void transmit(int fd, char kind)
{
	buffer[0] = kind;
	if ((options.as_wire ? send_as_wire() : send(fd, buffer, options.bytes, 0)) < 0 &&
	    errno != ECONNREFUSED)
		die("send");
}

/*
 * Spins until a message is there; false: the other side has gone. A client that got no answer in time has
 * said hello more than once: the server answers each, and no answer but the first is of use.
 */
static bool receive(int fd)
{
	for (unsigned spins = 0;; spins++) {
		ssize_t n = options.as_wire ? receive_as_wire(fd) :
					      recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
		if (n >= 0 && buffer[0] != HELLO)
			return true;
		if (n >= 0 && !options.server)
			transmit(fd, HELLO);
		if (n < 0 && errno != EAGAIN && errno != ECONNREFUSED)
			die("recv");
		static uint64_t since;
		if (spins == 0)
			since = now_ns();
		else if (spins % 65536 == 0 && now_ns() - since > (uint64_t)GIVE_UP_S * NS_PER_S)
			return false;
	}
}

/* ---- the server ---- */

/* Returns the socket, once a client has made acquaintance. */
static int await_client(void)
{
	struct sockaddr_storage peer;
	socklen_t bytes = address_of("::", &peer);
	int fd = socket(AF_INET6, SOCK_DGRAM, 0), both = 0;
	if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof(both)) ||
	    bind(fd, (struct sockaddr *)&peer, bytes))
		die("bind");
	printf("ready\n");
	fflush(stdout);
	bytes = sizeof(peer);
	if (recvfrom(fd, buffer, sizeof(buffer), 0, (struct sockaddr *)&peer, &bytes) < 0 ||
	    connect(fd, (struct sockaddr *)&peer, bytes))
		die("connect");
	return fd;
}

static int await_client_as_wire(void)
{
	struct sockaddr_in none = { .sin_family = AF_INET };
	int fd = open_as_wire(options.port, &none);
	socklen_t bytes = sizeof(peer_port);
	printf("ready\n");
	fflush(stdout);
	if (recvfrom(fd, buffer, sizeof(buffer), 0, (struct sockaddr *)&peer_port, &bytes) < 0)
		die("recvfrom");
	peer_port.sin_port = htons(options.port + 1);
	return fd;
}

static int serve(void)
{
	int fd = options.as_wire ? await_client_as_wire() : await_client();
	transmit(fd, HELLO);
	for (unsigned i = 0; i < options.rounds && receive(fd); i++)
		transmit(fd, MESSAGE);
	return 0;
}

/* ---- the client ---- */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static void print(uint64_t *took)
{
	qsort(took, options.rounds, sizeof(*took), compare);
	printf("%zu bytes: %.2f us, least %.2f, 99 %% within %.2f\n", options.bytes,
	       (double)took[options.rounds / 2] / 2000, (double)took[0] / 2000,
	       (double)took[options.rounds - 1 - options.rounds / 100] / 2000);
}

static int open_client(void)
{
	struct sockaddr_storage server;
	socklen_t bytes = address_of(options.server, &server);
	if (options.as_wire)
		return open_as_wire((uint16_t)(options.port + 1), (struct sockaddr_in *)&server);
	int fd = socket(server.ss_family, SOCK_DGRAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&server, bytes))
		die("connect");
	return fd;
}

/* The server may not be there yet: the first datagram is for making acquaintance. */
static int find_server(void)
{
	int fd = open_client();
	for (unsigned i = 0; i < TRIES; i++) {
		transmit(fd, HELLO);
		usleep(TRY_US);
		if (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) >= 0)
			return fd;
	}
	fprintf(stderr, "nobody answers\n");
	exit(1);
}

static int ask(void)
{
	uint64_t *took = calloc(options.rounds, sizeof(*took));
	int fd = find_server();
	for (unsigned i = 0; took && i < options.rounds; i++) {
		uint64_t before = now_ns();
		transmit(fd, MESSAGE);
		if (!receive(fd)) {
			fprintf(stderr, "round %u was not answered\n", i);
			return 1;
		}
		took[i] = now_ns() - before;
	}
	if (!took)
		die("calloc");
	print(took);
	free(took);
	return 0;
}

int main(int argc, char **argv)
{
	for (int c; (c = getopt(argc, argv, "ws:n:p:")) != -1;) {
		if (c == 'w')
			options.as_wire = true;
		else if (c == 's')
			options.bytes = strtoul(optarg, NULL, 0);
		else if (c == 'n')
			options.rounds = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'p')
			options.port = (uint16_t)strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	options.server = optind < argc ? argv[optind] : NULL;
	if (!options.bytes || options.bytes > MAX_BYTES || !options.rounds)
		return 2;
	return options.server ? ask() : serve();
}
