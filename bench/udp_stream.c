/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What RoCEv2 over the kernel's UDP can carry at best: the yardstick for bandwidth over the wire. The client
 * copies a buffer's bytes into packets of 4096, gives each a header and a CRC-32, and hands them to the
 * kernel in bursts that it cuts (UDP_SEGMENT). The server takes what the kernel joins (UDP_GRO), checks each
 * CRC, and copies the bytes to their place. It acknowledges each burst, and the client sends on while few
 * bursts are unacknowledged. No packet is put in order, sent again or checked for rights. IPv4. The client
 * prints bytes for a second.
 *
 * usage: udp_stream [-n MIB] [-p PORT] [SERVER_ADDRESS] (without an address: the server, of one client)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <isa-l/crc.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
	HEADER = 12, /* a BTH's bytes; the first ones are the place */
	PAYLOAD = 4096,
	PACKET = HEADER + PAYLOAD + sizeof(uint32_t),
	PACKETS = 15, /* of a burst: at most 65,507 bytes */
	UNDER_WAY = 8, /* bursts that are not acknowledged, at most */
	SOCKET_BYTES = 4 << 20,
	MIB = 1 << 20,
	BUFFER = MIB,
	GIVE_UP_S = 5,
	TRIES = 50,
	NS_PER_S = 1000000000,
};

static struct {
	unsigned mib;
	uint16_t port;
} options = { .mib = 1024, .port = 4790 };

static uint8_t memory[BUFFER], packets[PACKETS * PACKET];

__attribute__((noreturn)) static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / NS_PER_S;
}

static void set(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)))
		die("setsockopt");
}

/* Waits in its calls, but not for ever. Large buffers are a wish. */
static int open_socket(void)
{
	struct timeval limit = { .tv_sec = GIVE_UP_S };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), bytes = SOCKET_BYTES;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)))
		die("socket");
	(void)(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) &&
	       setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)));
	return fd;
}

/* ISA-L's code for AVX-512 leaves registers in a state in which SSE instructions are slow. */
static uint32_t crc_of(const uint8_t *bytes, size_t len)
{
	uint32_t crc = crc32_gzip_refl(0, bytes, (uint64_t)len);
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		__asm__ volatile("vzeroupper");
#endif
	return crc;
}

/* ---- the server ---- */

/* At its place, if it came whole. */
static void take_packet(const uint8_t *packet)
{
	uint32_t crc, place;
	memcpy(&crc, packet + HEADER + PAYLOAD, sizeof(crc));
	memcpy(&place, packet, sizeof(place));
	if (crc != crc_of(packet, HEADER + PAYLOAD) || place > BUFFER - PAYLOAD) {
		fprintf(stderr, "a packet was damaged\n");
		exit(1);
	}
	memcpy(memory + place, packet + HEADER, PAYLOAD);
}

/* Spins. */
static ssize_t receive(int fd, void *into, size_t bytes)
{
	ssize_t n;
	double since = 0;
	for (unsigned spins = 0; (n = recv(fd, into, bytes, MSG_DONTWAIT)) < 0 && errno == EAGAIN; spins++) {
		if (!spins)
			since = now_s();
		else if (spins % 65536 == 0 && now_s() - since > GIVE_UP_S)
			break;
	}
	return n;
}

static int serve(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(options.port) }, client;
	socklen_t bytes = sizeof(client);
	int fd = open_socket();
	uint64_t taken = 0;
	ssize_t n;

	set(fd, IPPROTO_UDP, UDP_GRO, 1);
	if (bind(fd, (struct sockaddr *)&any, sizeof(any)))
		die("bind");
	printf("ready\n");
	fflush(stdout);
	if (recvfrom(fd, packets, sizeof(packets), 0, (struct sockaddr *)&client, &bytes) < 0 ||
	    connect(fd, (struct sockaddr *)&client, bytes) || send(fd, &taken, sizeof(taken), 0) < 0)
		die("connect");
	while (taken < (uint64_t)options.mib * MIB / PAYLOAD) {
		if ((n = receive(fd, packets, sizeof(packets))) < 0)
			die("recv");
		for (ssize_t at = 0; at + PACKET <= n; at += PACKET, taken++)
			take_packet(packets + at);
		if (send(fd, &taken, sizeof(taken), 0) < 0)
			die("send");
	}
	return 0;
}

/* ---- the client ---- */

static void make_packet(uint8_t *packet, uint32_t place)
{
	uint32_t crc;
	memcpy(packet, &place, sizeof(place));
	memcpy(packet + HEADER, memory + place, PAYLOAD);
	crc = crc_of(packet, HEADER + PAYLOAD);
	memcpy(packet + HEADER + PAYLOAD, &crc, sizeof(crc));
}

static void send_burst(int fd, uint64_t first, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		make_packet(packets + (size_t)i * PACKET, (uint32_t)((first + i) * PAYLOAD % BUFFER));
	if (send(fd, packets, (size_t)count * PACKET, 0) < 0)
		die("send");
}

/* The server may not be there yet. */
static int find_server(const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(options.port) };
	int fd = open_socket();
	uint64_t taken;

	if (inet_pton(AF_INET, address, &to.sin_addr) != 1 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		die(address);
	for (unsigned i = 0; i < TRIES; i++, usleep(100000)) {
		(void)!send(fd, "", 1, 0);
		if (recv(fd, &taken, sizeof(taken), 0) >= 0) {
			set(fd, IPPROTO_UDP, UDP_SEGMENT, PACKET);
			return fd;
		}
	}
	fprintf(stderr, "nobody answers\n");
	exit(1);
}

static int ask(const char *address)
{
	int fd = find_server(address);
	uint64_t sent = 0, taken = 0, all = (uint64_t)options.mib * MIB / PAYLOAD;
	double begun = now_s();

	while (taken < all) {
		while (sent < all && sent - taken <= (UNDER_WAY - 1) * PACKETS) {
			unsigned count = all - sent < PACKETS ? (unsigned)(all - sent) : PACKETS;
			send_burst(fd, sent, count);
			sent += count;
		}
		if (receive(fd, &taken, sizeof(taken)) != sizeof(taken))
			die("no answer");
	}
	printf("bytes_per_s %.6g\n", (double)all * PAYLOAD / (now_s() - begun));
	return 0;
}

int main(int argc, char **argv)
{
	for (int c; (c = getopt(argc, argv, "n:p:")) != -1;) {
		if (c == 'n')
			options.mib = (unsigned)strtoul(optarg, NULL, 0);
		else if (c == 'p')
			options.port = (uint16_t)strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	return !options.mib ? 2 : optind < argc ? ask(argv[optind]) : serve();
}
