/* SPDX-License-Identifier: BSD-2-Clause */
/* The writer's end of a capture's ring: what is kept, what is dropped and counted, and a reader that lies. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "host/ipc/capture.h"

enum { DATA = VB_CAPTURE_MIN_BYTES, BTH = 12 };

static int memfd;
static struct vb_capture_ring *ring;

static int make_memfd(size_t bytes, bool sealed)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (sealed)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static struct vb_capture_filter all(void)
{
	struct vb_capture_filter f = { .snap = 65536 };
	memset(f.opcodes, 0xff, sizeof(f.opcodes));
	return f;
}

static void begin(const struct vb_capture_filter *filter)
{
	memfd = make_memfd(VB_CAPTURE_DATA + DATA, true);
	ring = mmap(NULL, VB_CAPTURE_DATA + DATA, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	assert_ptr_not_equal(ring, MAP_FAILED);
	assert_int_equal(vb_capture_start(memfd, filter, true), 0);
}

static int end(void **state)
{
	vb_capture_stop();
	if (ring)
		munmap(ring, VB_CAPTURE_DATA + DATA);
	if (memfd)
		close(memfd);
	ring = NULL;
	memfd = 0;
	return 0;
}

/* A packet of an opcode to a QP, with n bytes behind its BTH that count up, in two pieces. */
static void note(uint8_t opcode, uint32_t from, uint32_t to, size_t n)
{
	static uint8_t body[8192];
	uint8_t bth[BTH] = { opcode, 0, 0, 0, 0, (uint8_t)(to >> 16), (uint8_t)(to >> 8), (uint8_t)to };
	struct vb_inbox_addr addr = { .udp_sport = 0xc001, .hop_limit = 3 };
	struct vb_capture_note about = {
		.addr = &addr, .time_ns = 42, .flags = VB_CAPTURE_OUT, .qpn = from, .ip_id = 5
	};
	struct iovec pieces[] = { { bth, sizeof(bth) }, { body, n } };
	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (uint8_t)i;
	vb_capture_packet(&about, pieces, 2);
}

/* What lies at a place of the ring, which may wrap. */
static void read_ring(uint64_t at, void *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)to)[i] = ((uint8_t *)ring)[VB_CAPTURE_DATA + (at + i) % DATA];
}

static uint64_t take_one(uint64_t at, uint32_t len, uint32_t kept)
{
	struct vb_capture_packet p;
	uint8_t bytes[8192 + BTH];
	read_ring(at, &p, sizeof(p));
	assert_int_equal(p.len, len);
	assert_int_equal(p.kept, kept);
	assert_int_equal(p.time_ns, 42);
	assert_int_equal(p.source_port, 0xc001);
	assert_int_equal(p.ip_id, 5);
	read_ring(at + sizeof(p), bytes, kept);
	for (uint32_t i = BTH; i < kept; i++)
		assert_int_equal(bytes[i], (uint8_t)(i - BTH));
	return at + sizeof(p) + ((kept + 7) & ~7u);
}

static void off__notes_nothing(void **state)
{
	assert_false(vb_capture_is_on());
	note(4, 1, 2, 10);
}

static void ring__is_checked(void **state)
{
	struct vb_capture_filter f = all();
	int unsealed = make_memfd(VB_CAPTURE_DATA + DATA, false),
	    odd = make_memfd(VB_CAPTURE_DATA + 3 * DATA, true);
	int small = make_memfd(VB_CAPTURE_DATA + DATA / 2, true), ends[2];
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(vb_capture_start(unsealed, &f, true), -EPERM);
	assert_int_equal(vb_capture_start(odd, &f, true), -EINVAL);
	assert_int_equal(vb_capture_start(small, &f, true), -EINVAL);
	assert_int_equal(vb_capture_start(ends[1], &f, true), -EINVAL);
	assert_false(vb_capture_is_on());
	close(unsealed), close(odd), close(small), close(ends[0]), close(ends[1]);
}

static void packets__wrap(void **state)
{
	struct vb_capture_filter f = all();
	uint64_t at = 0;
	begin(&f);
	assert_true(vb_capture_is_on());
	for (unsigned i = 0; i < 1000; i++) {
		note(4, 1, 2, i);
		at = take_one(at, BTH + i, BTH + i);
		assert_int_equal(atomic_load(&ring->head), at);
		atomic_store(&ring->tail, at);
	}
	assert_true(at > 2 * DATA);
	assert_int_equal(atomic_load(&ring->packets), 1000);
	assert_int_equal(atomic_load(&ring->dropped), 0);
}

static void packets__without_room_are_counted(void **state)
{
	struct vb_capture_filter f = all();
	uint64_t kept, dropped;
	begin(&f);
	for (unsigned i = 0; i < 100; i++)
		note(4, 1, 2, 4000);
	vb_capture_count(&kept, &dropped);
	assert_int_equal(kept, DATA / (sizeof(struct vb_capture_packet) + 4016));
	assert_int_equal(kept + dropped, 100);
	assert_int_equal(atomic_load(&ring->dropped), dropped);
	atomic_store(&ring->tail, atomic_load(&ring->head));
	note(4, 1, 2, 4000);
	assert_int_equal(atomic_load(&ring->packets), kept + 1);
}

/* It costs the liar packets, and nobody else anything. */
static void reader__lies(void **state)
{
	struct vb_capture_filter f = all();
	static const uint64_t lies[] = { 1, UINT64_MAX, UINT64_C(1) << 63, DATA * 5 };
	begin(&f);
	for (unsigned i = 0; i < 4; i++) {
		atomic_store(&ring->tail, lies[i]);
		atomic_store(&ring->head, lies[3 - i]);
		note(4, 1, 2, 4000);
	}
	assert_int_equal(atomic_load(&ring->dropped), 3);
	/* a reader a byte behind is none that can be told from an honest one */
	assert_int_equal(atomic_load(&ring->packets), 1);
}

static void filter__opcode_and_queue_pair(void **state)
{
	struct vb_capture_filter f = { .snap = 65536, .qpn = 7 };
	f.opcodes[0x64 / 64] = UINT64_C(1) << 0x64 % 64;
	begin(&f);
	note(0x64, 7, 9, 1);
	note(0x64, 9, 7, 1);
	note(0x64, 8, 9, 1);
	note(0x24, 7, 9, 1);
	note(4, 7, 9, 1);
	assert_int_equal(atomic_load(&ring->packets), 2);
}

static void snap__cuts(void **state)
{
	struct vb_capture_filter f = all();
	f.snap = 20;
	begin(&f);
	note(4, 1, 2, 1000);
	take_one(0, 1012, 20);
}

static void short_packets__are_none(void **state)
{
	struct vb_capture_filter f = all();
	struct vb_inbox_addr addr = { .hop_limit = 1 };
	struct vb_capture_note about = { .addr = &addr };
	struct iovec piece = { "short", 5 };
	begin(&f);
	vb_capture_packet(&about, &piece, 1);
	vb_capture_packet(&about, NULL, 0);
	assert_int_equal(atomic_load(&ring->packets), 0);
}

/* The event that lies there, with its text. */
static uint64_t take_event(uint64_t at, struct vb_capture_event *e, char text[VB_EVENT_TEXT + 1])
{
	read_ring(at, e, sizeof(*e));
	assert_int_equal(e->is_packet, 0);
	assert_true(e->kept <= VB_EVENT_TEXT);
	read_ring(at + sizeof(*e), text, e->kept);
	text[e->kept] = '\0';
	return at + sizeof(*e) + ((e->kept + 7) & ~7u);
}

static void events__are_beside_packets(void **state)
{
	struct vb_capture_filter f = all();
	struct vb_capture_event e, post = { .event = VB_EVENT_POST_SEND, .qpn = 7, .wr_id = 8, .opcode = 2,
					    .flags = 3, .status = 4, .bytes = 5, .address = 6, .rkey = 9,
					    .queue = 10, .time_ns = 11, .is_packet = 1, .kept = 12 };
	char text[VB_EVENT_TEXT + 1];
	begin(&f);
	vb_capture_event(&post, NULL);
	note(4, 1, 2, 10);
	vb_capture_event(&(struct vb_capture_event){ .event = VB_EVENT_CM }, "it is told");
	uint64_t at = take_event(0, &e, text);
	post.is_packet = post.kept = 0;
	assert_memory_equal(&e, &post, sizeof(e));
	at = take_one(at, BTH + 10, BTH + 10);
	at = take_event(at, &e, text);
	assert_string_equal(text, "it is told");
	assert_true(e.time_ns > 0);
	assert_int_equal(atomic_load(&ring->head), at);
	assert_int_equal(atomic_load(&ring->packets), 1);
}

static void events__are_filtered_by_queue_pair(void **state)
{
	struct vb_capture_filter f = { .snap = 65536, .qpn = 7 };
	begin(&f);
	vb_capture_event(&(struct vb_capture_event){ .event = VB_EVENT_POLL, .qpn = 8 }, NULL);
	assert_int_equal(atomic_load(&ring->head), 0);
	vb_capture_event(&(struct vb_capture_event){ .event = VB_EVENT_POLL, .qpn = 7 }, NULL);
	vb_capture_event(&(struct vb_capture_event){ .event = VB_EVENT_SENTENCE }, NULL);
	assert_int_equal(atomic_load(&ring->head), 2 * sizeof(struct vb_capture_event));
}

/* As for the client that knows of packets alone. */
static void events__only_if_they_are_wanted(void **state)
{
	struct vb_capture_filter f = all();
	begin(&f);
	vb_capture_stop();
	assert_int_equal(vb_capture_start(memfd, &f, false), 0);
	vb_capture_event(&(struct vb_capture_event){ .event = VB_EVENT_POLL }, NULL);
	assert_false(vb_is_explaining());
	assert_int_equal(atomic_load(&ring->head), 0);
}

static void events__without_room_are_counted(void **state)
{
	struct vb_capture_filter f = all();
	uint64_t kept, dropped;
	begin(&f);
	for (unsigned i = 0; i < DATA / sizeof(struct vb_capture_event) + 5; i++)
		vb_capture_event(&(struct vb_capture_event){ .event = VB_EVENT_POLL }, NULL);
	vb_capture_count(&kept, &dropped);
	assert_int_equal(kept, 0);
	assert_int_equal(dropped, 5);
}

/* Whether or not VERBATIM_DEBUG is set; they are not printed for it. */
static void sentences__are_events(void **state)
{
	struct vb_capture_filter f = all();
	struct vb_capture_event e;
	char text[VB_EVENT_TEXT + 1];
	bool before = vb_is_explaining();
	begin(&f);
	assert_true(vb_is_explaining());
	vb_explain("ibv_post_send", "QP 0x%06x has no room", 7);
	vb_explain_limit("ibv_create_qp", "%0*d", 3000, 1);
	uint64_t at = take_event(0, &e, text);
	assert_int_equal(e.event, VB_EVENT_SENTENCE);
	assert_string_equal(text, "ibv_post_send: QP 0x000007 has no room");
	at = take_event(at, &e, text);
	assert_true(e.kept > 900);
	assert_int_equal(atomic_load(&ring->head), at);
	vb_capture_stop();
	assert_int_equal(vb_is_explaining(), before);
}

static void second_capture__is_refused(void **state)
{
	struct vb_capture_filter f = all();
	unsigned serial;
	begin(&f);
	serial = vb_capture_serial();
	assert_int_equal(vb_capture_start(memfd, &f, true), -EBUSY);
	assert_true(vb_capture_is_on());
	vb_capture_stop();
	assert_false(vb_capture_is_on());
	vb_capture_stop();
	assert_int_equal(vb_capture_start(memfd, &f, true), 0);
	assert_int_equal(vb_capture_serial(), serial + 1);
}

/* Who reads the ring can tell that an earlier time may still come. */
static void moment__is_seen_until_its_end(void **state)
{
	struct vb_capture_filter f = all();
	begin(&f);
	assert_int_equal(atomic_load(&ring->noting), 0);
	struct vb_capture_moment one = vb_capture_begin(), other = vb_capture_begin();
	assert_true(one.time_ns && other.time_ns >= one.time_ns);
	assert_int_equal(atomic_load(&ring->noting), 2);
	note(4, 1, 2, 8);
	assert_int_equal(atomic_load(&ring->packets), 1);
	assert_int_equal(atomic_load(&ring->noting), 2);
	vb_capture_end(one);
	assert_int_equal(atomic_load(&ring->noting), 1);
	vb_capture_end(other);
	assert_int_equal(atomic_load(&ring->noting), 0);
	note(4, 1, 2, 8);
	vb_capture_event(&(struct vb_capture_event){ .event = VB_EVENT_SENTENCE }, "text");
	assert_int_equal(atomic_load(&ring->noting), 0);
}

static void moment__of_another_capture_counts_for_nothing(void **state)
{
	struct vb_capture_filter f = all();
	struct vb_capture_moment none = vb_capture_begin();
	assert_int_equal(none.time_ns, 0);
	begin(&f);
	struct vb_capture_moment last = vb_capture_begin();
	vb_capture_stop();
	vb_capture_end(last);
	assert_int_equal(vb_capture_start(memfd, &f, true), 0);
	struct vb_capture_moment now = vb_capture_begin();
	vb_capture_end(none);
	vb_capture_end(last);
	assert_int_equal(atomic_load(&ring->noting), 1);
	vb_capture_end(now);
	assert_int_equal(atomic_load(&ring->noting), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(off__notes_nothing, end),
		cmocka_unit_test_teardown(ring__is_checked, end),
		cmocka_unit_test_teardown(packets__wrap, end),
		cmocka_unit_test_teardown(packets__without_room_are_counted, end),
		cmocka_unit_test_teardown(reader__lies, end),
		cmocka_unit_test_teardown(filter__opcode_and_queue_pair, end),
		cmocka_unit_test_teardown(snap__cuts, end),
		cmocka_unit_test_teardown(short_packets__are_none, end),
		cmocka_unit_test_teardown(events__are_beside_packets, end),
		cmocka_unit_test_teardown(events__are_filtered_by_queue_pair, end),
		cmocka_unit_test_teardown(events__only_if_they_are_wanted, end),
		cmocka_unit_test_teardown(events__without_room_are_counted, end),
		cmocka_unit_test_teardown(sentences__are_events, end),
		cmocka_unit_test_teardown(second_capture__is_refused, end),
		cmocka_unit_test_teardown(moment__is_seen_until_its_end, end),
		cmocka_unit_test_teardown(moment__of_another_capture_counts_for_nothing, end),
	};
	return cmocka_run_group_tests_name("host_capture", tests, NULL, NULL);
}
